//! `plimsoll restart`: starts replicas anew, as they are.

use plimsoll_daemon::view::Restart;

use crate::live::{self, Host};
use crate::output::{Format, count, data, note, print};
use crate::settle::{self, Wait, Wanted};
use crate::subject::{self, Subject};
use crate::trouble::Trouble;

const EXAMPLES: &str = "\
Examples:
  plimsoll restart shop          all of its replicas
  plimsoll restart shop/web      one service's
  plimsoll restart shop-web-2    one

Each is stopped with its own signal and grace, and started with the spec it has. A count of failures begins anew.";

/// Start replicas anew.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A deployment (shop), a service (shop/web) or a replica (shop-web-2)
    #[arg(value_name = "DEPLOYMENT|SERVICE|REPLICA")]
    subject: String,
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
        let status = client.status().await?;
        let subject = subject::find(&status, &args.subject)?;
        let (service, replica) = match subject {
            Subject::Deployment(_) => (None, None),
            Subject::Service(_, service) => (Some(service.name.clone()), None),
            Subject::Replica(_, _, replica) => (None, Some(replica.id.clone())),
        };
        let name = &subject.deployment().name;
        let restarted = client.restart(name, &Restart { service, replica }).await?;
        let replicas = count(restarted.replicas.len(), "replica");
        if args.wait.detach {
            return print(args.output, &restarted, |_| format!("{name}: restarting {replicas}\n"));
        }
        note(&format!("{name}: restarting {replicas}"));
        let wanted = Wanted { deployment: name.clone(), revision: None, index: None };
        let (deployment, at) = settle::until_steady(&client, &wanted, args.wait.timeout).await?;
        match args.output {
            Format::Table => data(&settle::done(&deployment, at)),
            Format::Json | Format::Yaml => print(args.output, &restarted, |_| String::new()),
        }
    })
}
