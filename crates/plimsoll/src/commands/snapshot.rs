//! `plimsoll snapshot`: a running cell as a case that can be replayed without it.

use clap::Subcommand;

use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{Format, print};

const EXAMPLES: &str = "\
Examples:
  plimsoll snapshot export > case.json
  plimsoll decide place --input case.json        what the next pass of the scheduler decides
  plimsoll decide rebalance --input case.json    what the next cycle of the rebalancer decides, and by which numbers

A case has nodes, services and replicas as far as decisions look at them, what was measured last, and what the leader
remembers: no images, commands, variables or secrets. Its words are in docs/reference/case-format.md.";

/// Export the running cell as a case.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) what: SnapshotCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    Export(ExportArgs),
}

/// Print the cell as a case for `plimsoll decide` and `plimsoll explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExportArgs {
    /// Output format; table prints JSON as well
    #[arg(short, long, value_enum, default_value_t = Format::Json)]
    output: Format,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

impl SnapshotCommand {
    pub(crate) fn host(&mut self) -> &mut HostArgs {
        match self {
            Self::Export(args) => &mut args.host,
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let SnapshotCommand::Export(args) = &args.what;
    let client = args.host.client()?;
    live::block_on(async {
        let case = client.snapshot().await?;
        let json = |case: &_| serde_json::to_string_pretty(case).unwrap_or_default() + "\n";
        print(args.output, &case, json)
    })
}
