//! `plimsoll rollback`: back to what was applied before, as a new revision.

use plimsoll_daemon::view::Rollback;

use super::apply::finish;
use crate::live::{self, Host};
use crate::output::Format;
use crate::settle::Wait;
use crate::trouble::Trouble;

const EXAMPLES: &str = "\
Examples:
  plimsoll rollback shop           to the revision before the current one
  plimsoll rollback shop --to 3    to one that `plimsoll history shop` lists

All of it goes back: specs, counts and placement.";

/// Go back to an earlier revision of a deployment.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    deployment: String,
    /// The revision to go back to [default: the one before]
    #[arg(long, value_name = "REVISION")]
    to: Option<u64>,
    #[command(flatten)]
    wait: Wait,
    /// How to print what was done
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    pub(crate) host: Host,
}

pub(crate) fn run(args: &Args) -> Result<(), Trouble> {
    let client = args.host.client()?;
    live::block_on(async {
        let status = live::status(&client, Some(&args.deployment)).await?;
        let name = &status.deployments[0].name;
        let applied = client.rollback(name, &Rollback { to: args.to }).await?;
        finish(&client, applied, &args.wait, args.output).await
    })
}
