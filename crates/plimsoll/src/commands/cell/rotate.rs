//! `plimsoll cell rotate-authority`: another authority for the cell, without downtime. The cell does it by itself; here it is
//! begun, followed, and taken back.

use std::time::{Duration, Instant};

use plimsoll_api::client::Client;
use plimsoll_api::view::{Authority, AwaitedNode, RotateAuthority, Rotation};
use tokio::time::sleep;

use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{Format, note, print};
use crate::wait::Wait;

const EXAMPLES: &str = "\
Examples:
  plimsoll cell rotate-authority                   rotate it, and show how far it has come
  plimsoll cell rotate-authority --status          how far it has come, and which nodes it waits for
  plimsoll cell rotate-authority --without cedar   go on without a node that is down
  plimsoll cell rotate-authority --abort           keep the authority that there was before

Every node learns to trust the next authority, then gets a certificate of it, then the former one is not trusted any more. Each
step waits for every node, also for those that are down. Services, requests and the API go on meanwhile. It may be interrupted:
the cell goes on with it, whichever server leads. Join tokens made before stop working once the next authority signs.

A node that it went on without cannot come back: it joins again, with its data directory emptied.";

/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Replace the certificate authority of the cell, without downtime.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Do not wait for this node, which is down; may be repeated
    #[arg(long, value_name = "NODE", conflicts_with_all = ["abort", "status"])]
    without: Vec<String>,
    /// Keep the former authority
    #[arg(long, conflicts_with = "status")]
    abort: bool,
    /// Show how far it has come, and change nothing
    #[arg(long)]
    status: bool,
    /// Output format of --status
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

pub(super) fn run(args: &Args) -> Result<(), CliError> {
    let client = args.host.client()?;
    live::block_on(async {
        let now = authority(&client).await?;
        if args.status {
            return print(args.output, &now, status);
        }
        let begun = if args.abort {
            client.abort_rotation().await?
        } else if now.rotation.is_some() && args.without.is_empty() {
            note("a rotation of the authority is under way");
            now.clone()
        } else {
            let asked = RotateAuthority { without: args.without.clone() };
            client.rotate_authority(&asked).await?
        };
        if args.wait.detach {
            note("hint: `plimsoll cell rotate-authority --status` shows how far it has come");
            return Ok(());
        }
        follow(&client, begun, &args.wait).await
    })
}

async fn authority(client: &Client) -> Result<Authority, CliError> {
    let cell = client.cell().await?;
    cell.authority.ok_or_else(|| {
        CliError::refused("the cell has no authority yet")
            .hint("its first node must be able to bind its peer port; see `plimsoll up --address`")
    })
}

/// Until it is over. A leader that is lost meanwhile costs nothing: the next one goes on.
async fn follow(client: &Client, mut now: Authority, wait: &Wait) -> Result<(), CliError> {
    let begun = Instant::now();
    let mut said = String::new();
    let mut is_abort = false;
    while let Some(rotation) = &now.rotation {
        is_abort = rotation.is_abort;
        let progress = progress(rotation);
        if progress != said {
            note(&progress);
            said = progress;
        }
        if begun.elapsed() >= Duration::from_millis(wait.timeout.0) {
            let late = CliError::refused("the rotation of the authority is not finished yet");
            return Err(late.hint(next_step(rotation)));
        }
        sleep(LOOK).await;
        if let Ok(later) = authority(client).await {
            now = later;
        }
    }
    note(&ended(&now, is_abort));
    Ok(())
}

fn ended(now: &Authority, is_abort: bool) -> String {
    let Authority { fingerprint, .. } = now;
    if is_abort {
        return format!("the rotation was taken back: the authority is {fingerprint} as before");
    }
    format!(
        "the cell's authority is {fingerprint}\nhint: join tokens made before do not work any more: `plimsoll token create-join` \
         makes new ones; take a new backup, since those made before have the former authority"
    )
}

/// Where a rotation stands, in a line.
pub(super) fn progress(rotation: &Rotation) -> String {
    let Rotation { phase, is_abort, done, awaited, .. } = rotation;
    let what = match (phase.as_str(), is_abort) {
        ("trust", _) => "step 1 of 2: nodes learn to trust the next authority",
        (_, false) => "step 2 of 2: nodes get certificates of the next authority",
        (_, true) => "aborting: nodes get certificates of the former authority again",
    };
    let all = done.len() + awaited.len();
    let mut text = format!("{what}: {} of {all} done", done.len());
    if !awaited.is_empty() {
        let name = |it: &AwaitedNode| match it.status.as_str() {
            "ready" => it.node.clone(),
            status => format!("{} ({status})", it.node),
        };
        let names: Vec<String> = awaited.iter().map(name).collect();
        text.extend(["; waiting for ", &names.join(", ")]);
    }
    text
}

/// What somebody can do who waits.
fn next_step(rotation: &Rotation) -> String {
    let down: Vec<&str> = rotation
        .awaited
        .iter()
        .filter(|it| it.status == "down")
        .map(|it| it.node.as_str())
        .collect();
    match down.as_slice() {
        [] => "it goes on by itself; look again with --status".to_owned(),
        [first, ..] => format!(
            "start {}, or go on without: `plimsoll cell rotate-authority --without {first}`; it can then only join again",
            down.join(", ")
        ),
    }
}

fn status(authority: &Authority) -> String {
    let Authority { fingerprint, rotation } = authority;
    let Some(rotation) = rotation else {
        return format!("authority {fingerprint}\nno rotation is under way\n");
    };
    let mut text = format!("authority {fingerprint}, beside {}\n", rotation.other);
    text.extend([progress(rotation).as_str(), "\n"]);
    if !rotation.without.is_empty() {
        text.extend(["without ", &rotation.without.join(", "), "\n"]);
    }
    if !rotation.awaited.is_empty() {
        text.extend(["hint: ", &next_step(rotation), "\n"]);
    }
    text
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use plimsoll_api::view::Time;
    use plimsoll_model::Timestamp;

    use super::*;

    fn rotation(phase: &str, awaited: &[(&str, &str)]) -> Rotation {
        let awaited = awaited.iter().map(|(node, status)| AwaitedNode {
            node: (*node).to_owned(),
            status: (*status).to_owned(),
        });
        Rotation {
            phase: phase.to_owned(),
            is_abort: false,
            started_at: Time(Timestamp(0)),
            other: "cd".repeat(32),
            done: vec!["ash".to_owned()],
            awaited: awaited.collect(),
            without: vec!["elm".to_owned()],
        }
    }

    #[test]
    fn a_rotation_says_how_far_it_has_come_and_whom_it_waits_for() {
        let of = |rotation| Authority { fingerprint: "ab".repeat(32), rotation };
        let waiting = rotation("trust", &[("birch", "ready"), ("cedar", "down")]);
        expect![[r#"
            authority abababababababababababababababababababababababababababababababab, beside cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd
            step 1 of 2: nodes learn to trust the next authority: 1 of 3 done; waiting for birch, cedar (down)
            without elm
            hint: start cedar, or go on without: `plimsoll cell rotate-authority --without cedar`; it can then only join again
        "#]]
        .assert_eq(&status(&of(Some(waiting))));
        let renew = rotation("renew", &[("birch", "ready")]);
        assert_eq!(
            progress(&renew),
            "step 2 of 2: nodes get certificates of the next authority: 1 of 2 done; waiting for birch"
        );
        let back = Rotation { is_abort: true, ..rotation("renew", &[]) };
        assert_eq!(
            progress(&back),
            "aborting: nodes get certificates of the former authority again: 1 of 1 done"
        );
        let still = status(&of(None));
        assert!(still.ends_with("abab\nno rotation is under way\n"), "{still}");
    }
}
