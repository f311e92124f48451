//! `plimsoll scale`: more or fewer replicas, without a file.

use std::collections::BTreeMap;

use plimsoll_api::view::Scale;

use super::apply::finish;
use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::Format;
use crate::wait::Wait;
use plimsoll_api::suggest;

const EXAMPLES: &str = "\
Examples:
  plimsoll scale shop web=5
  plimsoll scale shop web=5 worker=0    several at once; 0 keeps the service and stops it

Replicas that stay are not touched. The next apply sets the count in its file.";

/// Scale services up or down.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    deployment: String,
    /// Service and its number of replicas
    #[arg(value_name = "SERVICE=N", required = true, value_parser = count_of)]
    counts: Vec<(String, u32)>,
    #[command(flatten)]
    wait: Wait,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

pub(crate) fn count_of(text: &str) -> Result<(String, u32), String> {
    let wrong = || "write the service and how many, as web=3".to_owned();
    let (service, count) = text.split_once('=').ok_or_else(wrong)?;
    let count = count.parse().map_err(|_| wrong())?;
    if service.is_empty() { Err(wrong()) } else { Ok((service.to_owned(), count)) }
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let client = args.host.client()?;
    let services: BTreeMap<String, u32> = args.counts.iter().cloned().collect();
    live::block_on(async {
        let status = live::status(&client, Some(&args.deployment)).await?;
        let known = status.deployments.iter().flat_map(|deployment| &deployment.services);
        let known: Vec<&str> = known.map(|service| service.name.as_str()).collect();
        if let Some(name) = services.keys().find(|name| !known.contains(&name.as_str())) {
            let message = format!("{} has no service {name}", args.deployment);
            return Err(CliError::refused(message).hint(suggest::hint(name, "service", known)));
        }
        let applied = client.scale(&args.deployment, &Scale { services }).await?;
        finish(&client, applied, &args.wait, args.output).await
    })
}
