//! `plimsoll restart`: starts replicas anew, as they are.

use plimsoll_api::view::Restart;

use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{Format, count, data, note, print};
use crate::subject::{self, Subject};
use crate::wait::{self, Wait, WaitTarget};

const EXAMPLES: &str = "\
Examples:
  plimsoll restart shop          all of its replicas
  plimsoll restart shop/web      one service's
  plimsoll restart shop-web-2    one

Each replica is stopped with its stop signal and grace period and started with its current spec. Its failure count is reset.
A service on a schedule runs once more instead.";

/// Restart replicas.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A deployment (shop), a service (shop/web) or a replica (shop-web-2)
    #[arg(value_name = "DEPLOYMENT|SERVICE|REPLICA")]
    subject: String,
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
        let status = client.status().await?;
        let subject = subject::find(&status, &args.subject)?;
        let (service, replica) = match subject {
            Subject::Deployment(_) => (None, None),
            Subject::Service(_, service) => (Some(service.name.clone()), None),
            Subject::Replica(_, _, replica) => (None, Some(replica.id.clone())),
        };
        let name = &subject.deployment().name;
        let restarted = client.restart(name, &Restart { service, replica }).await?;
        let mut replicas = count(restarted.replicas.len(), "replica");
        if !restarted.runs.is_empty() {
            let runs = format!("running {}", restarted.runs.join(", "));
            replicas =
                if restarted.replicas.is_empty() { runs } else { format!("{replicas}, {runs}") };
        }
        if args.wait.detach {
            return print(args.output, &restarted, |_| format!("{name}: restarting {replicas}\n"));
        }
        note(&format!("{name}: restarting {replicas}"));
        let wanted = WaitTarget { deployment: name.clone(), revision: None, index: None };
        let (deployment, at) = wait::until_steady(&client, &wanted, args.wait.timeout).await?;
        match args.output {
            Format::Table => data(&wait::done(&deployment, at)),
            Format::Json | Format::Yaml => print(args.output, &restarted, |_| String::new()),
        }
    })
}
