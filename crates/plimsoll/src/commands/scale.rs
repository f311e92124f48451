//! `plimsoll scale`: more or fewer replicas, without a file.

use std::collections::BTreeMap;

use plimsoll_daemon::view::Scale;

use super::apply::finish;
use crate::live::{self, Host};
use crate::near;
use crate::output::Format;
use crate::settle::Wait;
use crate::trouble::Trouble;

const EXAMPLES: &str = "\
Examples:
  plimsoll scale shop web=5
  plimsoll scale shop web=5 worker=0    several at once; 0 keeps the service and stops it

Those that stay are left alone. The next apply sets the count that its file has.";

/// Run more or fewer replicas of services.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    deployment: String,
    /// How many replicas of which service
    #[arg(value_name = "SERVICE=N", required = true, value_parser = count_of)]
    counts: Vec<(String, u32)>,
    #[command(flatten)]
    wait: Wait,
    /// How to print what was done
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    pub(crate) host: Host,
}

fn count_of(text: &str) -> Result<(String, u32), String> {
    let wrong = || "write the service and how many, as web=3".to_owned();
    let (service, count) = text.split_once('=').ok_or_else(wrong)?;
    let count = count.parse().map_err(|_| wrong())?;
    if service.is_empty() { Err(wrong()) } else { Ok((service.to_owned(), count)) }
}

pub(crate) fn run(args: &Args) -> Result<(), Trouble> {
    let client = args.host.client()?;
    let services: BTreeMap<String, u32> = args.counts.iter().cloned().collect();
    live::block_on(async {
        let status = live::status(&client, Some(&args.deployment)).await?;
        let known = status.deployments.iter().flat_map(|deployment| &deployment.services);
        let known: Vec<&str> = known.map(|service| service.name.as_str()).collect();
        if let Some(name) = services.keys().find(|name| !known.contains(&name.as_str())) {
            let message = format!("{} has no service {name}", args.deployment);
            return Err(Trouble::refused(message).hint(near::hint(name, "service", known)));
        }
        let applied = client.scale(&args.deployment, &Scale { services }).await?;
        finish(&client, applied, &args.wait, args.output).await
    })
}
