//! `plimsoll node drain` and `node remove`: says what will be done, does it, and shows how far it is.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use plimsoll_api::client::Client;
use plimsoll_api::view::{
    Drain, DrainPlan, NodeChanged, PlannedVolumeMove, ProblemCode, Reason, ReasonCode, Replica,
};
use plimsoll_model::Millis;
use tokio::time::sleep;

use crate::age::{length, took};
use crate::commands::volume;
use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{Format, count, data, note, print};
use crate::plan_table::{Scores, counts, summary, tables};

/// How often the node is looked at while it empties.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

const EXAMPLES: &str = "\
Examples:
  plimsoll node drain ash --dry-run      what would move where, and what could not
  plimsoll node drain ash                each replica runs elsewhere before it stops here
  plimsoll node drain ash --move-volumes what has data here moves with it
  plimsoll node drain ash --force        what cannot move is stopped, and comes back with the node
  plimsoll node uncordon ash             make it schedulable again

Replicas of global services stop with their node. If no replica leaves within the time limit, the drain fails: the node stays
cordoned, and its remaining replicas keep running.";

/// Move all replicas off a node; each stops only once it runs elsewhere.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that can be typed")]
pub(crate) struct Args {
    node: String,
    /// Show the plan without draining
    #[arg(long)]
    dry_run: bool,
    /// Time limit per replica, such as 90s, 10m or 1h30m
    #[arg(long, value_name = "LENGTH", default_value = "5m", value_parser = length)]
    timeout: Millis,
    /// Stop replicas that cannot move
    #[arg(long)]
    force: bool,
    /// Move volumes to other nodes, with the services that use them
    #[arg(long)]
    move_volumes: bool,
    /// Return without waiting
    #[arg(short, long)]
    detach: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

const REMOVE_EXAMPLES: &str = "\
Examples:
  plimsoll node remove ash            drains it first, as `plimsoll node drain` does
  plimsoll node remove ash --force    and stops what cannot move

A node that is down is removed at once, and its replicas are placed on other nodes. All nodes refuse a removed node: to come
back, it joins again with a new token and an empty data directory.";

/// Remove a node from the cell.
#[derive(Debug, clap::Args)]
#[command(after_help = REMOVE_EXAMPLES)]
pub(crate) struct RemoveArgs {
    node: String,
    /// Stop replicas that cannot move
    #[arg(long)]
    force: bool,
    /// Time limit per replica, such as 90s, 10m or 1h30m
    #[arg(long, value_name = "LENGTH", default_value = "5m", value_parser = length)]
    timeout: Millis,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let client = args.host.client()?;
    let move_volumes = args.move_volumes;
    let asked = Drain { timeout_ms: Some(args.timeout.0), force: args.force, move_volumes };
    live::block_on(async {
        let plan = client.drain(&args.node, &asked, args.dry_run).await?;
        let text = |plan: &DrainPlan| text(plan, args.dry_run);
        if args.dry_run || args.detach {
            return print(args.output, &plan, text);
        }
        print(args.output, &plan, text)?;
        for PlannedVolumeMove { deployment, volumes, to, .. } in &plan.volume_moves {
            if let (Some(to), Some(volume)) = (to, volumes.first()) {
                volume::follow(&client, deployment, volume, to).await?;
            }
        }
        follow(&client, &args.node).await
    })
}

pub(crate) fn remove(args: &RemoveArgs) -> Result<(), CliError> {
    let client = args.host.client()?;
    live::block_on(async {
        let node = client.node(&args.node).await?;
        let was_server = node.as_ref().is_some_and(|node| node.role != "agent");
        if let Some(node) = node.filter(|node| node.status != "down")
            && !is_empty(&client.replicas_on(&args.node).await?, &args.node)
        {
            let timeout_ms = Some(args.timeout.0);
            let asked = Drain { timeout_ms, force: args.force, move_volumes: false };
            if node.availability != "draining" || args.force {
                let plan = client.drain(&args.node, &asked, false).await?;
                data(&text(&plan, false))?;
            }
            follow(&client, &args.node).await?;
        }
        let NodeChanged { node, .. } = client.remove_node(&args.node).await?;
        data(&format!("{node} left the cell\n"))?;
        if was_server {
            note(&format!(
                "hint: {node} was a server, and has known the key of the cell's authority and every secret; if it is not trusted any \
                 more, run `plimsoll cell rotate-authority` and change the secrets"
            ));
        }
        Ok(())
    })
}

/// How far the node that is asked may be behind the leader before what it shows counts.
const BEHIND: Duration = Duration::from_secs(5);

/// Says what leaves, until nothing is left or the drain was given up or called off.
async fn follow(client: &Client, node: &str) -> Result<(), CliError> {
    let begun = Instant::now();
    let mut before: Option<BTreeSet<String>> = None;
    let mut has_begun = false;
    loop {
        // The node first: a drain that ends in between is seen to have emptied it, not to have been called off.
        let Some(row) = client.node(node).await? else {
            return Err(CliError::failed(format!("{node} left the cell meanwhile")));
        };
        let held = client.replicas_on(node).await?;
        let here = here(&held, node);
        for gone in before.iter().flatten().filter(|id| !here.contains(*id)) {
            note(&left(client, gone, here.len()).await?);
        }
        let after = Millis(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX));
        if is_empty(&held, node) {
            let stopped = here.len();
            let rest = if stopped > 0 {
                format!(", {} stopped", count(stopped, "replica"))
            } else {
                String::new()
            };
            return data(&format!("{node} is drained after {}{rest}\n", took(after)));
        }
        if row.drain.as_ref().is_some_and(|drain| drain.has_timed_out) {
            return Err(given_up(&held, node, &here));
        }
        // The node that is asked may not have applied yet what the leader wrote.
        has_begun |= row.availability == "draining" || begun.elapsed() > BEHIND;
        if has_begun && row.availability != "draining" {
            return Err(CliError::failed(format!("the drain of {node} was called off")));
        }
        before = Some(here);
        sleep(LOOK_AGAIN).await;
    }
}

fn given_up(held: &[Replica], node: &str, here: &BTreeSet<String>) -> CliError {
    let text = format!(
        "{} still on {node}, which stays cordoned; everything runs on",
        count(here.len(), "replica")
    );
    let reason = Reason::new(node, ReasonCode::DrainTimeout, text);
    let mut trouble = CliError::failed(format!("{}: {}", reason.word, reason.text));
    for replica in held.iter().filter(|replica| here.contains(&replica.id)) {
        let why =
            replica.waiting.as_ref().map_or("it did not run elsewhere in time", |why| &why.text);
        trouble = trouble.line(format!("  {}  {why}", replica.id));
    }
    trouble.hint(reason.advice().unwrap_or_default())
}

/// What became of a replica that is not on the node any more.
async fn left(client: &Client, gone: &str, rest: usize) -> Result<String, CliError> {
    let now = match client.replica(gone).await {
        Ok(replica) => replica.now,
        Err(error) if error.code() == Some(ProblemCode::NoSuchReplica) => None,
        Err(error) => return Err(error.into()),
    };
    Ok(match now {
        Some(now) => format!("{gone} moved to {} ({rest} left)", now.node),
        None => format!("{gone} ended ({rest} left)"),
    })
}

/// Replicas that are assigned to the node.
fn here(held: &[Replica], node: &str) -> BTreeSet<String> {
    let is_here = |replica: &&Replica| replica.now.as_ref().is_some_and(|now| now.node == node);
    held.iter().filter(is_here).map(|replica| replica.id.clone()).collect()
}

/// Whether nothing runs on the node, or still stops there.
fn is_empty(held: &[Replica], node: &str) -> bool {
    held.iter().all(|replica| {
        let stays = replica.now.iter().any(|it| it.node == node && it.state != "stopped");
        let leaves = replica.leaving.iter().any(|it| it.node == node);
        !stays && !leaves
    })
}

fn text(drain: &DrainPlan, is_dry: bool) -> String {
    let DrainPlan { node, plan, estimate_ms, stop_grace_ms, volume_moves, .. } = drain;
    let data: String = volume_moves.iter().map(|it| volume_line(it, is_dry)).collect();
    if plan.is_empty() && data.is_empty() {
        return format!("{node} holds nothing that has to move\n");
    }
    if plan.is_empty() {
        return data;
    }
    let (tables, summary) = (tables(plan, Scores::Hidden), summary(plan));
    let about = took(Millis(*estimate_ms));
    let will = if is_dry { "would take" } else { "takes" };
    let grace = match stop_grace_ms {
        0 => String::new(),
        grace => format!(", and up to {} more for replicas to stop", took(Millis(*grace))),
    };
    format!("{tables}\n{summary}; it {will} about {about}{grace}\n{}{data}", counts(plan))
}

fn volume_line(planned: &PlannedVolumeMove, is_dry: bool) -> String {
    let PlannedVolumeMove { volumes, services, to, deployment } = planned;
    let (volumes, services) = (volumes.join(", "), services.join(", "));
    match to {
        Some(to) => {
            let moves = if is_dry { "would move" } else { "moves" };
            format!(
                "{volumes} {moves} to {to}; {services} of {deployment} stop until it is there\n"
            )
        }
        None => format!("{volumes} stays: no node can take {services} of {deployment}\n"),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use plimsoll_api::view::{Plan, PlannedMove, Shortfall};

    use super::*;

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn a_drain_shows_its_plan_how_long_it_takes_and_who_is_missed() {
        let moved = vec![PlannedMove {
            replica: "shop-one-1".into(),
            service: "shop/one".into(),
            from: "ash".into(),
            to: "cedar".into(),
            cause: ReasonCode::Misplaced,
            is_stop_first: true,
            round: 1,
            score: None,
            parts: None,
        }];
        let short = vec![Shortfall { service: "shop/one".into(), least: 0, of: 1 }];
        let plan = Plan { moved, short, ..Plan::default() };
        let mut drain = DrainPlan {
            node: "ash".into(),
            plan,
            estimate_ms: 2_300,
            stop_grace_ms: 10_000,
            volume_moves: Vec::new(),
            index: None,
        };
        expect![[r#"
            MOVED       FROM  TO     CAUSE      HOW
            shop-one-1  ash   cedar  misplaced  stop-first

            0 placed, 1 moved, 0 stay, 0 unplaced; it would take about 2.3 s, and up to 10.0 s more for replicas to stop
            shop/one falls to 0 of 1
        "#]]
        .assert_eq(&plain(&text(&drain, true)));
        drain.plan = Plan::default();
        let planned = |to: Option<&str>| PlannedVolumeMove {
            deployment: "shop".into(),
            volumes: vec!["shop_db".into()],
            services: vec!["db".into()],
            to: to.map(Into::into),
        };
        drain.volume_moves = vec![planned(Some("birch")), planned(None)];
        expect![[r#"
            shop_db would move to birch; db of shop stop until it is there
            shop_db stays: no node can take db of shop
        "#]]
        .assert_eq(&plain(&text(&drain, true)));
        drain.volume_moves.clear();
        expect![[r#"
            ash holds nothing that has to move
        "#]]
        .assert_eq(&plain(&text(&drain, true)));
    }
}
