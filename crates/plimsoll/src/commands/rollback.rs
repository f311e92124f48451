//! `plimsoll rollback`: back to what was applied before, as a new revision.

use plimsoll_api::view::Rollback;

use super::apply::finish;
use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::Format;
use crate::wait::Wait;

const EXAMPLES: &str = "\
Examples:
  plimsoll rollback shop           to the revision before the current one
  plimsoll rollback shop --to 3    to one that `plimsoll history shop` lists

Specs, replica counts and placement are rolled back together.";

/// Roll a deployment back to an earlier revision.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    deployment: String,
    /// Revision to roll back to [default: the previous one]
    #[arg(long, value_name = "REVISION")]
    to: Option<u64>,
    #[command(flatten)]
    wait: Wait,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let client = args.host.client()?;
    live::block_on(async {
        let status = live::status(&client, Some(&args.deployment)).await?;
        let name = &status.deployments[0].name;
        let applied = client.rollback(name, &Rollback { to: args.to }).await?;
        finish(&client, applied, &args.wait, args.output).await
    })
}
