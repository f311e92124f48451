//! `plimsoll apply`: makes a compose file run, and stays until it does.

use std::collections::BTreeSet;

use plimsoll_api::client::Client;
use plimsoll_api::view::{Applied, Apply, Deployment, Reason, ReasonCode};
use plimsoll_compose::Loaded;
use serde::Serialize;

use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{Format, data, note, print};
use crate::project;
use crate::replica_line::plain;
use crate::wait::{self, Wait, WaitTarget};

pub(super) mod diff;

const EXAMPLES: &str = "\
Examples:
  plimsoll apply                                 compose.yaml here, with its override
  plimsoll apply -f compose.yaml -f prod.yaml    the second laid over the first
  plimsoll apply --dry-run                       what would change, and what would be done
  plimsoll apply -d                              without waiting until it is steady
  plimsoll apply --timeout 2m                    or exit 2 with the reasons

Applying the same file again changes nothing, but retries what failed.";

/// Deploy compose files and wait until they run.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    project: project::Files,
    /// Show what would change without changing it
    #[arg(long)]
    dry_run: bool,
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
    let loaded = args.project.project()?.load()?;
    for warning in &loaded.warnings {
        note(warning.render(true).trim_end());
    }
    let Loaded { deployment, .. } = loaded;
    let name = deployment.name.to_string();
    let (services, routes) = (deployment.services, deployment.routes);
    let apply = Apply { services, routes, expect: None };
    live::block_on(async {
        if args.dry_run {
            let applied = client.dry_run(&name, &apply).await?;
            warn(&applied.warnings);
            return print(args.output, &applied, diff::text);
        }
        let applied = client.apply(&name, &apply).await?;
        finish(&client, applied, &args.wait, args.output).await
    })
}

/// What was asked for, and what came of it.
#[derive(Debug, Serialize)]
struct ApplyOutcome {
    applied: Applied,
    /// None when nobody waited for it.
    deployment: Option<Deployment>,
}

/// Says what an apply changed and waits for it, unless that is not wanted.
pub(crate) async fn finish(
    client: &Client,
    applied: Applied,
    wait: &Wait,
    format: Format,
) -> Result<(), CliError> {
    warn(&applied.warnings);
    let (name, revision) = (&applied.deployment, applied.revision);
    if wait.detach {
        let outcome = ApplyOutcome { applied: applied.clone(), deployment: None };
        print(format, &outcome, |_| format!("{name} revision {revision} is applied\n"))?;
        note(&format!("hint: `plimsoll status {name} -w` shows how it goes"));
        return Ok(());
    }
    note(&diff::line(&applied));
    let wanted =
        WaitTarget { deployment: name.clone(), revision: Some(revision), index: applied.index };
    let (deployment, at) = wait::until_steady(client, &wanted, wait.timeout).await?;
    tell_image_volumes(&deployment);
    if format == Format::Table {
        return data(&wait::done(&deployment, at));
    }
    let outcome = ApplyOutcome { applied, deployment: Some(deployment) };
    print(format, &outcome, |_| String::new())
}

/// What only nodes that pulled the images could say.
fn tell_image_volumes(deployment: &Deployment) {
    for service in deployment.services.iter().filter(|it| !it.image_volumes.is_empty()) {
        let (name, paths) = (&service.name, service.image_volumes.join(", "));
        note(&format!(
            "note: {}/{name}: its image declares volumes at {}: each replica keeps its own and stays on its node ({})",
            deployment.name,
            plain(&paths),
            ReasonCode::ImageVolumes
        ));
    }
}

/// What a runtime never isolates it says at length when it starts; here it is enough to be reminded.
fn warn(warnings: &[Reason]) {
    let (limits, others): (Vec<&Reason>, Vec<&Reason>) =
        warnings.iter().partition(|warning| warning.word == ReasonCode::NotIsolated);
    let nodes: BTreeSet<&str> = limits.iter().map(|limit| limit.subject.as_str()).collect();
    for node in nodes {
        note(&format!(
            "note: {node} isolates less than containers do; `plimsoll get nodes -o yaml` says what"
        ));
    }
    for warning in others {
        let Reason { subject, word, text } = warning;
        note(&format!("warning: {subject}: {} ({word})", plain(text)));
    }
}
