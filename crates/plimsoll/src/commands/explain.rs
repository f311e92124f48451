//! `plimsoll explain`: why each replica is where it is, or why it is nowhere, node by node; of the running cell, or of a
//! described one.

use plimsoll_model::ReplicaId;

use crate::case;
use crate::decided::{Decided, Moments, Outcome};
use crate::live::{self as daemon, Host};
use crate::output::{Format, print};
use crate::trouble::Trouble;

mod live;
mod name;
mod route;
mod sentence;
mod view;

use name::Named;
use view::View;

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

/// Say why replicas are where they are, with every node's filter or score, or where a request goes.
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
    /// How to print the explanation
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    pub(crate) host: Host,
}

pub(crate) fn run(args: &Args) -> Result<(), Trouble> {
    match (args.subject.as_deref(), &args.request) {
        (Some("route"), Some(request)) => {
            let client = args.host.client()?;
            return daemon::block_on(route::run(&client, request, args.output));
        }
        (Some("route"), None) => {
            let trouble = Trouble::refused("which request is meant is not said");
            return Err(trouble.hint("write `plimsoll explain route shop.example/api`"));
        }
        (Some(subject), Some(request)) => {
            let trouble = Trouble::refused(format!("{subject} and {request} are one too many"));
            return Err(trouble.hint("only `route` is followed by something"));
        }
        (_, None) | (None, Some(_)) => {}
    }
    let Some(input) = &args.input else {
        let client = args.host.client()?;
        return daemon::block_on(live::run(&client, args.subject.as_deref(), args.output));
    };
    let decided = Decided::new(case::read(input)?)?;
    let mut moments = Moments::new(&decided);
    let Some(text) = &args.subject else {
        return print(args.output, &all(&decided, &mut moments), |views| view::short(views));
    };
    let view = match name::find(&decided, text)? {
        Named::Replica(outcome) => View::of_replica(&decided, outcome, moments.of(outcome)),
        Named::Service(key) => View::of_service(&decided, key, moments.end()),
    };
    let view = view.ok_or_else(|| Trouble::failed(format!("cannot explain {text}")))?;
    print(args.output, &view, View::text)
}

/// Every replica, then every service that lacks some.
fn all(decided: &Decided, moments: &mut Moments<'_>) -> Vec<View> {
    let mut outcomes: Vec<&Outcome> = decided.outcomes.iter().collect();
    // In the order they were decided, so that the cell is built up once.
    outcomes.sort_by_key(|outcome| outcome.position);
    let mut views: Vec<(&ReplicaId, View)> = outcomes
        .into_iter()
        .filter_map(|outcome| {
            let view = View::of_replica(decided, outcome, moments.of(outcome))?;
            Some((&outcome.id, view))
        })
        .collect();
    views.sort_by_key(|(id, _)| *id);
    let lacking: Vec<View> = decided
        .unplaced()
        .filter_map(|(key, _)| View::of_service(decided, key, moments.end()))
        .collect();
    views.into_iter().map(|(_, view)| view).chain(lacking).collect()
}
