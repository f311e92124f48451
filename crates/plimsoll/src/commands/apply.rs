//! `plimsoll apply`: makes a compose file run, and stays until it does.

use std::collections::BTreeSet;

use plimsoll_compose::Loaded;
use plimsoll_daemon::client::Client;
use plimsoll_daemon::view::{Applied, Apply, Deployment, Reason};
use serde::Serialize;

use crate::glance::plain;
use crate::live::{self, Host};
use crate::output::{Format, data, note, print};
use crate::project;
use crate::settle::{self, Wait, Wanted};
use crate::trouble::Trouble;

pub(super) mod diff;

const EXAMPLES: &str = "\
Examples:
  plimsoll apply                                 compose.yaml here, with its override
  plimsoll apply -f compose.yaml -f prod.yaml    the second laid over the first
  plimsoll apply --dry-run                       what would change, and what would be done
  plimsoll apply -d                              without waiting until it is steady
  plimsoll apply --timeout 2m                    or exit 1 with the reasons

Applying the same file again changes nothing, but tries again what was given up.";

/// Make compose files run, and wait until they do.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    project: project::Files,
    /// Show what would change; change nothing
    #[arg(long)]
    dry_run: bool,
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
    let loaded = args.project.project()?.load()?;
    for warning in &loaded.warnings {
        note(&warning.render(true));
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
struct Outcome {
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
) -> Result<(), Trouble> {
    warn(&applied.warnings);
    let (name, revision) = (&applied.deployment, applied.revision);
    if wait.detach {
        let outcome = Outcome { applied: applied.clone(), deployment: None };
        print(format, &outcome, |_| format!("{name} revision {revision} is applied\n"))?;
        note(&format!("hint: `plimsoll status {name} -w` shows how it goes"));
        return Ok(());
    }
    note(&diff::line(&applied));
    let wanted =
        Wanted { deployment: name.clone(), revision: Some(revision), index: applied.index };
    let (deployment, at) = settle::until_steady(client, &wanted, wait.timeout).await?;
    if format == Format::Table {
        return data(&settle::done(&deployment, at));
    }
    let outcome = Outcome { applied, deployment: Some(deployment) };
    print(format, &outcome, |_| String::new())
}

/// What a runtime never isolates it says at length when it starts; here it is enough to be reminded.
fn warn(warnings: &[Reason]) {
    let (limits, others): (Vec<&Reason>, Vec<&Reason>) =
        warnings.iter().partition(|warning| warning.word == "not_isolated");
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
