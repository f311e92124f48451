//! `plimsoll rollout`: how changes of spec go on, and what to do about them.

use plimsoll_daemon::view::{ChangeRollout, Deployment, RolloutAction, RolloutChanged};
use plimsoll_model::Timestamp;

use crate::age::age;
use crate::live::{self, Host};
use crate::output::{Format, data, print};
use crate::settle::now;
use crate::subject::{self, Subject};
use crate::table::Table;
use crate::trouble::Trouble;

/// See and steer changes of spec as they reach the replicas.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) what: What,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum What {
    Status(StatusArgs),
    /// Begin no further step; what moves finishes
    Pause(ChangeArgs),
    /// Go on, with another try of what failed
    Resume(ChangeArgs),
    /// Return to what ran before, replica by replica
    Abort(ChangeArgs),
}

impl What {
    pub(crate) fn host(&mut self) -> &mut Host {
        match self {
            Self::Status(args) => &mut args.host,
            Self::Pause(args) | Self::Resume(args) | Self::Abort(args) => &mut args.host,
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  plimsoll rollout status shop          the latest change of each of its services
  plimsoll rollout pause shop/web       of one service
  plimsoll rollout abort shop           back to what ran before";

/// Show the latest rollout of each service.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    deployment: String,
    /// How to print them
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    pub(crate) host: Host,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ChangeArgs {
    /// A deployment (shop) or a service (shop/web)
    #[arg(value_name = "DEPLOYMENT|SERVICE")]
    subject: String,
    #[command(flatten)]
    pub(crate) host: Host,
}

pub(crate) fn run(args: &Args) -> Result<(), Trouble> {
    match &args.what {
        What::Status(args) => status(args),
        What::Pause(args) => change(args, RolloutAction::Pause, "pauses"),
        What::Resume(args) => change(args, RolloutAction::Resume, "goes on"),
        What::Abort(args) => change(args, RolloutAction::Abort, "returns to what ran before"),
    }
}

fn status(args: &StatusArgs) -> Result<(), Trouble> {
    let client = args.host.client()?;
    live::block_on(async {
        let status = live::status(&client, Some(&args.deployment)).await?;
        let deployment = &status.deployments[0];
        let rollouts: Vec<_> = deployment
            .services
            .iter()
            .filter_map(|service| Some((&service.name, service.rollout.as_ref()?)))
            .collect();
        print(args.output, &rollouts, |_| text(deployment, now()))
    })
}

fn change(args: &ChangeArgs, action: RolloutAction, says: &str) -> Result<(), Trouble> {
    let client = args.host.client()?;
    live::block_on(async {
        let status = client.status().await?;
        let subject = subject::find(&status, &args.subject)?;
        let service = match subject {
            Subject::Deployment(_) => None,
            Subject::Service(_, service) | Subject::Replica(_, service, _) => {
                Some(service.name.clone())
            }
        };
        let name = &subject.deployment().name;
        let asked = ChangeRollout { action, service };
        let RolloutChanged { services, .. } = client.change_rollout(name, &asked).await?;
        for service in services {
            data(&format!("{name}/{service} {says}\n"))?;
        }
        Ok(())
    })
}

fn text(deployment: &Deployment, now: Timestamp) -> String {
    let mut table = Table::new(["SERVICE", "ROLLOUT", ">REVISION", ">RENEWED", "AGE", "DETAIL"]);
    let mut failed = Vec::new();
    for service in &deployment.services {
        let Some(rollout) = &service.rollout else { continue };
        let mut detail = rollout.why.clone().unwrap_or_default();
        if let (Some(from), "undoing" | "undone") = (rollout.from, rollout.phase.as_str()) {
            detail = format!("back to revision {from}: {detail}");
        }
        table.row([
            format!("{}/{}", deployment.name, service.name),
            rollout.phase.clone(),
            rollout.revision.to_string(),
            format!("{} of {}", rollout.updated, service.wanted),
            age(rollout.since, now),
            detail,
        ]);
        failed.extend(rollout.failed.iter().map(|it| format!("  {}  {}\n", it.subject, it.text)));
    }
    if table.is_empty() {
        return format!("no service of {} was ever changed\n", deployment.name);
    }
    let mut text = table.within(None);
    if !failed.is_empty() {
        text.push_str("\nfailed:\n");
        text.extend(failed);
    }
    text
}
