//! `plimsoll delete`: takes a deployment down. Its named volumes stay unless someone asks for their end, twice.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};

use plimsoll_api::client::Client;
use plimsoll_api::view::{Deleted, Status};
use serde_json::Value;

use crate::age::took;
use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{Format, count, note, print};
use crate::wait::{Wait, until_gone};

const EXAMPLES: &str = "\
Examples:
  plimsoll delete shop                 its named volumes are kept, and named
  plimsoll delete shop --volumes       with all data in them; asks first
  plimsoll delete shop --volumes -y    does not ask";

/// Delete a deployment.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    deployment: String,
    /// Also remove its named volumes and their data
    #[arg(long)]
    volumes: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
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
        let status = live::status(&client, Some(&args.deployment)).await?;
        let deployment = &status.deployments[0];
        let name = &deployment.name;
        if args.volumes && !args.yes {
            let volumes = volumes(&client, name, deployment.revision).await;
            ask(name, &volumes)?;
        }
        let deleted = client.delete(name, args.volumes).await?;
        let after = if args.wait.detach {
            None
        } else {
            Some(took(until_gone(&client, name, args.wait.timeout).await?))
        };
        print(args.output, &deleted, |it| text(it, after.as_deref()))?;
        if args.volumes {
            note_away(&status, &deleted);
        }
        if !deleted.volumes_kept.is_empty() {
            note(&format!("hint: applying {name} again finds them as they are"));
        }
        Ok(())
    })
}

/// Names the nodes that cannot remove their volumes now.
fn note_away(status: &Status, deleted: &Deleted) {
    let is_down = |name: &&String| {
        let node = status.nodes.iter().find(|node| node.name == **name);
        node.is_none_or(|node| node.status != "ready")
    };
    let away: Vec<&str> = deleted.volumes_on.iter().filter(is_down).map(String::as_str).collect();
    if !away.is_empty() {
        let away = away.join(", ");
        note(&format!("note: {away} cannot be reached now; its volumes go when it is back"));
    }
}

/// Data is not removed on a guess: someone says yes, here or with `-y`.
fn ask(name: &str, volumes: &BTreeSet<String>) -> Result<(), CliError> {
    let names: Vec<&str> = volumes.iter().map(String::as_str).collect();
    let (what, them) = match names.as_slice() {
        [] => ("its named volumes".to_owned(), "them"),
        [name] => (format!("volume {name}"), "it"),
        names => (format!("volumes {}", names.join(", ")), "them"),
    };
    if !std::io::stdin().is_terminal() {
        let message = format!("this would remove {what} of {name}, with all data in {them}");
        return Err(CliError::refused(message).hint("say `-y` if that is meant"));
    }
    anstream::eprint!("Delete {name} and {what}, with all data in {them}? [y/N] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let _ = std::io::stdin().read_line(&mut answer);
    if matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    Err(CliError::refused("nothing was deleted").hint("without `--volumes` the data is kept"))
}

/// The named volumes of a revision. A daemon that does not say leaves them unnamed.
async fn volumes(client: &Client, name: &str, revision: u64) -> BTreeSet<String> {
    let Ok(specs) = client.revision(name, revision).await else { return BTreeSet::new() };
    let mounts = |spec: &Value| {
        let mounts = spec.pointer("/container/mounts").and_then(Value::as_array).cloned();
        mounts.unwrap_or_default()
    };
    let volume = |mount: Value| {
        mount.pointer("/source/volume/name").and_then(Value::as_str).map(str::to_owned)
    };
    specs.services.values().flat_map(mounts).filter_map(volume).collect()
}

/// `after` is how long it took; none where nobody waited for it.
fn text(deleted: &Deleted, after: Option<&str>) -> String {
    let (name, replicas) = (&deleted.deployment, count(deleted.replicas as usize, "replica"));
    let mut text = match after {
        Some(after) => format!("{name} deleted: {replicas} stopped in {after}\n"),
        None => format!("{name} is being deleted: {replicas}\n"),
    };
    for (volumes, what) in [(&deleted.volumes_kept, "kept"), (&deleted.volumes_removed, "removed")]
    {
        if !volumes.is_empty() {
            let word = if volumes.len() == 1 { "volume" } else { "volumes" };
            text.extend([&format!("{word} {what}: {}", volumes.join(", ")), "\n"]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn volumes_are_named_whatever_becomes_of_them() {
        let deleted = |kept: &[&str], removed: &[&str]| {
            let own = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
            let (volumes_kept, volumes_removed) = (own(kept), own(removed));
            Deleted {
                deployment: "shop".into(),
                replicas: 5,
                volumes_kept,
                volumes_removed,
                volumes_on: Vec::new(),
                index: Some(7),
            }
        };
        expect![[r#"
            shop deleted: 5 replicas stopped in 1.2 s
            volume kept: shop_data
        "#]]
        .assert_eq(&text(&deleted(&["shop_data"], &[]), Some("1.2 s")));
        expect![[r#"
            shop deleted: 5 replicas stopped in 1.2 s
            volumes removed: shop_data, shop_tmp
        "#]]
        .assert_eq(&text(&deleted(&[], &["shop_data", "shop_tmp"]), Some("1.2 s")));
        expect![[r#"
            shop is being deleted: 5 replicas
        "#]]
        .assert_eq(&text(&deleted(&[], &[]), None));
    }
}
