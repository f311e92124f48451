//! `plimsoll snapshot`: a running cell as a case that can be replayed without it.

use clap::Subcommand;

use crate::live::{self, Host};
use crate::output::{Format, print};
use crate::trouble::Trouble;

const EXAMPLES: &str = "\
Examples:
  plimsoll snapshot export > case.json
  plimsoll decide rebalance --input case.json    what the cell decides next, and by which numbers

A case has nodes, services and replicas as far as the rebalancer looks at them, what was measured last, and what the leader
remembers: no images, commands, variables or secrets. Its words are in docs/reference/rebalance-case.md.";

/// Write the running cell down as a case.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) what: What,
}

#[derive(Debug, Subcommand)]
pub(crate) enum What {
    Export(ExportArgs),
}

/// Print the cell as a case for `plimsoll decide rebalance`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExportArgs {
    /// How to print it; as a table it is JSON too
    #[arg(short, long, value_enum, default_value_t = Format::Json)]
    output: Format,
    #[command(flatten)]
    pub(crate) host: Host,
}

impl What {
    pub(crate) fn host(&mut self) -> &mut Host {
        match self {
            Self::Export(args) => &mut args.host,
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Trouble> {
    let What::Export(args) = &args.what;
    let client = args.host.client()?;
    live::block_on(async {
        let case = client.snapshot().await?;
        let json = |case: &_| serde_json::to_string_pretty(case).unwrap_or_default() + "\n";
        print(args.output, &case, json)
    })
}
