//! `plimsoll node drain` and `node remove`: says what will be done, does it, and shows how far it is.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use plimsoll_daemon::client::Client;
use plimsoll_daemon::view::{Drain, DrainPlan, NodeChanged, Status};
use plimsoll_model::Millis;
use tokio::time::sleep;

use crate::age::{length, took};
use crate::live::{self, Host};
use crate::output::{Format, count, data, note, print};
use crate::table::Table;
use crate::trouble::Trouble;

/// How often the node is looked at while it empties.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

const EXAMPLES: &str = "\
Examples:
  plimsoll node drain ash --dry-run      what would move where, and what could not
  plimsoll node drain ash                each replica runs elsewhere before it stops here
  plimsoll node drain ash --force        what cannot move is stopped, and comes back with the node
  plimsoll node uncordon ash             it takes replicas again

Replicas of global services end with their node. When nothing leaves for as long as the time-out, the drain is given up: the
node stays cordoned, and what it still has runs on.";

/// Move everything off a node, each replica only once it runs elsewhere.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    node: String,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
    /// How long one replica may take, as 90s, 10m or 1h30m
    #[arg(long, value_name = "LENGTH", default_value = "5m", value_parser = length)]
    timeout: Millis,
    /// Stop what cannot move
    #[arg(long)]
    force: bool,
    /// Do not wait until it is done
    #[arg(short, long)]
    detach: bool,
    /// How to print the plan
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    pub(crate) host: Host,
}

const REMOVE_EXAMPLES: &str = "\
Examples:
  plimsoll node remove ash            drains it first, as `plimsoll node drain` does
  plimsoll node remove ash --force    and stops what cannot move

A node that is down is removed as it is; its replicas are placed anew. One that is removed is refused by all others from
then on: to come back it joins again with a new token and an empty data directory.";

/// Have a node leave the cell.
#[derive(Debug, clap::Args)]
#[command(after_help = REMOVE_EXAMPLES)]
pub(crate) struct RemoveArgs {
    node: String,
    /// Stop what cannot move
    #[arg(long)]
    force: bool,
    /// How long one replica may take to leave, as 90s, 10m or 1h30m
    #[arg(long, value_name = "LENGTH", default_value = "5m", value_parser = length)]
    timeout: Millis,
    #[command(flatten)]
    pub(crate) host: Host,
}

pub(crate) fn run(args: &Args) -> Result<(), Trouble> {
    let client = args.host.client()?;
    let asked = Drain { timeout_ms: Some(args.timeout.0), force: args.force };
    live::block_on(async {
        let plan = client.drain(&args.node, &asked, args.dry_run).await?;
        let text = |plan: &DrainPlan| text(plan, args.force, args.dry_run);
        if args.dry_run || args.detach {
            return print(args.output, &plan, text);
        }
        print(args.output, &plan, text)?;
        follow(&client, &args.node).await
    })
}

pub(crate) fn remove(args: &RemoveArgs) -> Result<(), Trouble> {
    let client = args.host.client()?;
    live::block_on(async {
        let status = client.status().await?;
        let node = status.nodes.iter().find(|node| node.name == args.node);
        let is_busy =
            node.is_some_and(|node| node.status == "ready" && !is_empty(&status, &args.node));
        if is_busy {
            let asked = Drain { timeout_ms: Some(args.timeout.0), force: args.force };
            let is_draining = node.is_some_and(|node| node.availability == "draining");
            if !is_draining || args.force {
                let plan = client.drain(&args.node, &asked, false).await?;
                data(&text(&plan, args.force, false))?;
            }
            follow(&client, &args.node).await?;
        }
        let NodeChanged { node, .. } = client.remove_node(&args.node).await?;
        data(&format!("{node} left the cell\n"))
    })
}

/// Says what leaves, until nothing is left or the drain was given up or called off.
async fn follow(client: &Client, node: &str) -> Result<(), Trouble> {
    let begun = Instant::now();
    let mut before: Option<BTreeSet<String>> = None;
    loop {
        let status = client.status().await?;
        let here = here(&status, node);
        for gone in before.iter().flatten().filter(|id| !here.contains(*id)) {
            note(&left(&status, gone, here.len()));
        }
        let after = Millis(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX));
        let Some(row) = status.nodes.iter().find(|row| row.name == node) else {
            return Err(Trouble::failed(format!("{node} left the cell meanwhile")));
        };
        if is_empty(&status, node) {
            let stopped = here.len();
            let rest = if stopped > 0 {
                format!(", {} stopped", count(stopped, "replica"))
            } else {
                String::new()
            };
            return data(&format!("{node} is drained after {}{rest}\n", took(after)));
        }
        if row.drain.as_ref().is_some_and(|drain| drain.has_timed_out) {
            return Err(given_up(&status, node, &here));
        }
        if row.availability != "draining" {
            return Err(Trouble::failed(format!("the drain of {node} was called off")));
        }
        before = Some(here);
        sleep(LOOK_AGAIN).await;
    }
}

fn given_up(status: &Status, node: &str, here: &BTreeSet<String>) -> Trouble {
    let mut trouble = Trouble::failed(format!(
        "drain_timeout: {} still on {node}, which stays cordoned; everything runs on",
        count(here.len(), "replica")
    ));
    for replica in replicas(status).filter(|replica| here.contains(&replica.id)) {
        let why =
            replica.waiting.as_ref().map_or("it did not run elsewhere in time", |why| &why.text);
        trouble = trouble.line(format!("  {}  {why}", replica.id));
    }
    trouble.hint(format!(
        "`plimsoll node drain {node}` tries again, with `--force` it stops them, `plimsoll node uncordon {node}` lets \
         it take replicas again"
    ))
}

fn left(status: &Status, gone: &str, rest: usize) -> String {
    let now = replicas(status).find(|replica| replica.id == gone).and_then(|it| it.now.as_ref());
    match now {
        Some(now) => format!("{gone} moved to {} ({rest} left)", now.node),
        None => format!("{gone} ended ({rest} left)"),
    }
}

/// Replicas that are assigned to the node.
fn here(status: &Status, node: &str) -> BTreeSet<String> {
    let is_here = |replica: &&plimsoll_daemon::view::Replica| {
        replica.now.as_ref().is_some_and(|now| now.node == node)
    };
    replicas(status).filter(is_here).map(|replica| replica.id.clone()).collect()
}

/// Whether nothing runs on the node, or still stops there.
fn is_empty(status: &Status, node: &str) -> bool {
    replicas(status).all(|replica| {
        let stays = replica.now.iter().any(|it| it.node == node && it.state != "stopped");
        let leaves = replica.leaving.iter().any(|it| it.node == node);
        !stays && !leaves
    })
}

fn replicas(status: &Status) -> impl Iterator<Item = &plimsoll_daemon::view::Replica> {
    let services = status.deployments.iter().flat_map(|deployment| &deployment.services);
    services.flat_map(|service| &service.replicas)
}

fn text(plan: &DrainPlan, force: bool, is_dry: bool) -> String {
    let mut text = String::new();
    if plan.moves.is_empty() && plan.dropped.is_empty() && plan.stuck.is_empty() {
        return format!("{} holds nothing that has to move\n", plan.node);
    }
    let mut table = Table::new([">STEP", "REPLICA", "FROM", "TO", "HOW"]);
    for step in &plan.moves {
        let how = if step.is_stop_first {
            "stops here, then starts there"
        } else {
            "starts there, then stops here"
        };
        let (replica, from, to) = (step.replica.clone(), step.from.clone(), step.to.clone());
        table.row([(step.round + 1).to_string(), replica, from, to, how.to_owned()]);
    }
    for replica in &plan.dropped {
        table.row([
            "-".to_owned(),
            replica.clone(),
            plan.node.clone(),
            "-".to_owned(),
            "global: ends with its node".to_owned(),
        ]);
    }
    for stuck in &plan.stuck {
        let how = if force {
            format!("cannot move and is stopped: {}", stuck.text)
        } else {
            format!("cannot move: {}", stuck.text)
        };
        table.row(["-".to_owned(), stuck.subject.clone(), plan.node.clone(), "-".to_owned(), how]);
    }
    text.push_str(&table.within(None));
    let about = took(Millis(plan.estimate_ms));
    let will = if is_dry { "would take" } else { "takes" };
    let _ =
        writeln!(text, "\n{} to move; it {will} about {about}", count(plan.moves.len(), "replica"));
    if plan.short.is_empty() {
        text.push_str("every service keeps its full count\n");
    }
    for short in &plan.short {
        let _ = writeln!(text, "{} falls to {} of {}", short.service, short.least, short.of);
    }
    text
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use plimsoll_daemon::view::{PlannedMove, Reason, Shortfall};

    use super::*;

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn a_plan_says_what_moves_what_does_not_and_who_is_missed() {
        let step = |replica: &str, to: &str, is_stop_first, round| PlannedMove {
            replica: replica.to_owned(),
            from: "ash".to_owned(),
            to: to.to_owned(),
            is_stop_first,
            round,
        };
        let plan = DrainPlan {
            node: "ash".to_owned(),
            moves: vec![
                step("shop-web-1", "birch", false, 0),
                step("shop-one-1", "cedar", true, 0),
            ],
            dropped: vec!["mon-agent-ash".to_owned()],
            stuck: vec![Reason {
                subject: "shop-db-1".to_owned(),
                word: "stateful".to_owned(),
                text: "its data lives on its node".to_owned(),
            }],
            short: vec![Shortfall { service: "shop/one".to_owned(), least: 0, of: 1 }],
            estimate_ms: 2_300,
            index: None,
        };
        expect![[r#"
            STEP  REPLICA        FROM  TO     HOW
               1  shop-web-1     ash   birch  starts there, then stops here
               1  shop-one-1     ash   cedar  stops here, then starts there
               -  mon-agent-ash  ash   -      global: ends with its node
               -  shop-db-1      ash   -      cannot move: its data lives on its node

            2 replicas to move; it would take about 2.3 s
            shop/one falls to 0 of 1
        "#]]
        .assert_eq(&plain(&text(&plan, false, true)));
    }
}
