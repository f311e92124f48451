//! `plimsoll explain`: why each replica is where it is, or why it is nowhere, node by node; of the running cell, or of a
//! described one.

use plimsoll_workbench::explain;

use crate::commands::decide;
use crate::error::CliError;
use crate::live::{self as daemon, HostArgs};
use crate::output::{Format, print};

pub(crate) mod live;
mod offline;
mod route;

const EXAMPLES: &str = "\
Examples:
  plimsoll explain                                          every replica of the running cell
  plimsoll explain shop-web-2                               one, and what every node has to say
  plimsoll explain birch                                    why nothing moves off a node, or what does
  plimsoll explain route shop.example/api                   where a request goes, and why nowhere else
  plimsoll explain --input examples/cell.yaml               every replica of a described cell
  plimsoll explain shop-web-2 --input examples/cell.yaml    one, and what every node had to say
  plimsoll explain shop/web --input examples/cell.yaml      the next one, or why there is none

The nodes stand best first, as they were when the replica's turn came.";

/// Explain where replicas are placed, with the filter or score of every node, or where a request is routed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A replica (shop-web-2), a service (shop/web), a node, or `route`; all replicas if left out
    #[arg(value_name = "REPLICA|SERVICE|NODE")]
    subject: Option<String>,
    /// After `route`: the request, as in shop.example/api
    #[arg(value_name = "HOST/PATH", requires = "subject", conflicts_with = "input")]
    request: Option<String>,
    /// A case instead of the running cell: nodes, deployments and what runs, as YAML or JSON; `-` for stdin
    #[arg(short, long, value_name = "CASE")]
    input: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    match (args.subject.as_deref(), &args.request) {
        (Some("route"), Some(request)) => {
            let client = args.host.client()?;
            return daemon::block_on(route::run(&client, request, args.output));
        }
        (Some("route"), None) => {
            let trouble = CliError::refused("which request is meant is not said");
            return Err(trouble.hint("write `plimsoll explain route shop.example/api`"));
        }
        (Some(subject), Some(request)) => {
            let trouble = CliError::refused(format!("{subject} and {request} are one too many"));
            return Err(trouble.hint("only `route` is followed by something"));
        }
        (_, None) | (None, Some(_)) => {}
    }
    let Some(input) = &args.input else {
        let client = args.host.client()?;
        return daemon::block_on(live::run(&client, args.subject.as_deref(), args.output));
    };
    let decided = decide::read(input)?;
    match &args.subject {
        None => print(args.output, &explain::all(&decided), |all| offline::short(all)),
        Some(text) => print(args.output, &explain::subject(&decided, text)?, offline::text),
    }
}
