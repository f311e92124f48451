//! `plimsoll rollout`: how changes of spec go on, and what to do about them.

use plimsoll_api::view::{ChangeRollout, Deployment, RolloutAction, RolloutChanged};
use plimsoll_model::Timestamp;

use crate::age::age;
use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{Format, data, print};
use crate::subject::{self, Subject};
use crate::table::Table;
use crate::wait::now;

/// Show, pause, resume or abort rollouts.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) what: RolloutCommand,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum RolloutCommand {
    Status(StatusArgs),
    /// Pause a rollout; steps in progress finish
    Pause(ChangeArgs),
    /// Resume a rollout and retry what failed
    Resume(ChangeArgs),
    /// Abort a rollout and roll back replica by replica
    Abort(ChangeArgs),
}

impl RolloutCommand {
    pub(crate) fn host(&mut self) -> &mut HostArgs {
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
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ChangeArgs {
    /// A deployment (shop) or a service (shop/web)
    #[arg(value_name = "DEPLOYMENT|SERVICE")]
    subject: String,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    match &args.what {
        RolloutCommand::Status(args) => status(args),
        RolloutCommand::Pause(args) => change(args, RolloutAction::Pause, "paused"),
        RolloutCommand::Resume(args) => change(args, RolloutAction::Resume, "resumed"),
        RolloutCommand::Abort(args) => change(args, RolloutAction::Abort, "aborted, rolling back"),
    }
}

fn status(args: &StatusArgs) -> Result<(), CliError> {
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

fn change(args: &ChangeArgs, action: RolloutAction, says: &str) -> Result<(), CliError> {
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
