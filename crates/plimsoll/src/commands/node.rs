//! `plimsoll node`: the nodes of the cell.

use std::fmt::Write as _;

use plimsoll_api::view::{FillStatus, Node, Pressure, ReasonCode, Resources};
use plimsoll_model::{Bytes, MilliCpus, Timestamp};

use crate::age::age;
use crate::consistency::{ConsistencyArgs, remark};
use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{Format, data, print};
use crate::replica_line::{availability, coloured, silence};
use crate::table::Table;
use crate::terminal::Target;
use crate::wait::now;

mod drain;

/// Manage nodes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) what: NodeCommand,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum NodeCommand {
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Mark a node unschedulable; its replicas keep running
    Cordon(NodeArgs),
    /// Mark a node schedulable again; cancels its drain
    Uncordon(NodeArgs),
    Drain(drain::Args),
    #[command(visible_alias = "rm")]
    Remove(drain::RemoveArgs),
}

impl NodeCommand {
    pub(crate) fn host(&mut self) -> &mut HostArgs {
        match self {
            Self::List(args) => &mut args.host,
            Self::Cordon(args) | Self::Uncordon(args) => &mut args.host,
            Self::Drain(args) => &mut args.host,
            Self::Remove(args) => &mut args.host,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct NodeArgs {
    node: String,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

const EXAMPLES: &str = "\
Examples:
  plimsoll node list
  plimsoll node list -o json    with labels, pressure and what its runtime does not isolate";

/// List nodes with their state, load and runtime.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ListArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    reading: ConsistencyArgs,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    match &args.what {
        NodeCommand::List(args) => list(args),
        NodeCommand::Cordon(args) => cordon(args, true),
        NodeCommand::Uncordon(args) => cordon(args, false),
        NodeCommand::Drain(args) => drain::run(args),
        NodeCommand::Remove(args) => drain::remove(args),
    }
}

fn cordon(args: &NodeArgs, is_cordon: bool) -> Result<(), CliError> {
    let client = args.host.client()?;
    live::block_on(async {
        let changed = if is_cordon {
            client.cordon(&args.node).await?
        } else {
            client.uncordon(&args.node).await?
        };
        let what = if is_cordon { "cordoned" } else { "uncordoned" };
        let already = if changed.index.is_none() { "already " } else { "" };
        data(&format!("{} {already}{what}\n", changed.node))
    })
}

fn list(args: &ListArgs) -> Result<(), CliError> {
    let client = args.reading.of(args.host.client()?);
    live::block_on(async {
        let nodes = client.nodes().await?;
        remark(&client);
        let width = Target::Stdout.size().map(|(width, _)| width);
        print(args.output, &nodes, |nodes| text(nodes, now(), width))
    })
}

pub(super) fn text(nodes: &[Node], now: Timestamp, width: Option<usize>) -> String {
    let mut table = Table::new([
        "NODE",
        "STATE",
        ">SEEN",
        "ROLE",
        "ZONE",
        ">REPLICAS",
        ">CPU",
        ">MEMORY",
        "RESERVED",
        "VERSION",
        "RUNTIME",
    ]);
    for node in nodes {
        table.row([
            node.name.clone(),
            state(node, now),
            node.last_heard.map_or_else(|| "-".to_owned(), |heard| age(heard, now)),
            node.role.clone(),
            node.zone.clone().unwrap_or_else(|| "-".to_owned()),
            node.replicas.to_string(),
            share(node.pressure.and_then(|pressure: Pressure| pressure.cpu)),
            share(node.pressure.and_then(|pressure| pressure.memory)),
            reserved(node.reserved, node.capacity),
            node.version.clone().unwrap_or_else(|| "-".to_owned()),
            runtime(node),
        ]);
    }
    table.within(width) + &filling(nodes) + &half_done(nodes)
}

/// A line for each node that is being filled, or will be.
fn filling(nodes: &[Node]) -> String {
    let is_filled = |fill: &&FillStatus| matches!(fill.stage.as_str(), "closed" | "filled");
    let plans = nodes.iter().filter_map(|node| node.fill.as_ref()).filter(|fill| !is_filled(fill));
    let lines: Vec<&str> = plans.map(|fill| fill.text.as_str()).collect();
    if lines.is_empty() { String::new() } else { format!("\n{}\n", lines.join("\n")) }
}

/// A line for as long as nodes run different versions.
fn half_done(nodes: &[Node]) -> String {
    let mut versions: Vec<&str> = nodes.iter().filter_map(|it| it.version.as_deref()).collect();
    versions.sort_unstable();
    versions.dedup();
    if versions.len() < 2 {
        return String::new();
    }
    let versions = versions.join(" and ");
    format!("\nan upgrade is half done: nodes run {versions}; see `plimsoll cell status`\n")
}

/// `ready`, `down 4m`, `ready, draining`
pub(super) fn state(node: &Node, now: Timestamp) -> String {
    let mut text = coloured(&node.status);
    if node.status != "ready" {
        text.extend([" ", &age(node.since, now)]);
    }
    let has_timed_out = node.drain.as_ref().is_some_and(|drain| drain.has_timed_out);
    if has_timed_out {
        let why = format!(" ({})", ReasonCode::DrainTimeout);
        text.extend([", ", &coloured("cordoned"), &why]);
    } else if node.availability != "active" {
        text.extend([", ", &coloured(availability(node))]);
    }
    text
}

/// Millionths as hundredths: `23 %`. A dash where nothing fresh was measured.
pub(super) fn share(millionths: Option<u32>) -> String {
    millionths.map_or_else(|| "-".to_owned(), |share| format!("{} %", share / 10_000))
}

/// `1.5 of 4 cpu, 1 GiB of 8 GiB`
pub(super) fn reserved(reserved: Resources, capacity: Resources) -> String {
    let cpu = |millis: u64| MilliCpus(millis).to_string();
    let mut text = format!(
        "{} of {} cpu, {} of {}",
        cpu(reserved.cpu_millis),
        cpu(capacity.cpu_millis),
        Bytes(reserved.memory_bytes),
        Bytes(capacity.memory_bytes)
    );
    if capacity.gpus > 0 {
        let _ = write!(text, ", {} of {} gpu", reserved.gpus, capacity.gpus);
    }
    text
}

pub(super) fn runtime(node: &Node) -> String {
    if let Some(silence) = silence(node) {
        return silence;
    }
    let Some(runtime) = &node.runtime else { return "-".to_owned() };
    let version = runtime.version.as_ref().map(|version| format!(" {version}"));
    format!("{}{}", runtime.name, version.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::sample::{NOW, ago, node};

    #[test]
    fn nodes_say_how_busy_they_are_and_what_is_wrong() {
        let (mut ash, mut birch, mut cedar) = (node("ash"), node("birch"), node("cedar"));
        birch.status = "down".into();
        birch.version = Some("0.2.0".into());
        birch.since = ago(245);
        birch.last_heard = Some(ago(260));
        birch.pressure = None;
        birch.zone = Some("north".into());
        cedar.availability = "draining".into();
        cedar.runtime.as_mut().unwrap().trouble = Some("connection refused".into());
        cedar.capacity.gpus = 2;
        cedar.last_heard = None;
        let fill = |has, stage: &str, text: &str| FillStatus {
            has,
            fair_share: 8,
            losses: 0,
            stage: stage.into(),
            next_at: None,
            text: text.into(),
        };
        let plan = "ash has 1 replica, its fair share is 8: filling, next in 1m 30s";
        ash.fill = Some(fill(1, "resting", plan));
        cedar.fill = Some(fill(8, "filled", "cedar has its share"));
        let table = text(&[ash, birch, cedar], NOW, None);
        expect![[r#"
            NODE   STATE            SEEN  ROLE    ZONE   REPLICAS   CPU  MEMORY  RESERVED                                  VERSION  RUNTIME
            ash    ready              1s  leader  -             5  23 %    41 %  1.5 of 4 cpu, 1 GiB of 8 GiB              0.1.0    docker 27.1
            birch  down 4m            4m  agent   north         5     -       -  1.5 of 4 cpu, 1 GiB of 8 GiB              0.2.0    docker 27.1
            cedar  ready, draining     -  agent   -             5  23 %    41 %  1.5 of 4 cpu, 1 GiB of 8 GiB, 0 of 2 gpu  0.1.0    docker does not answer: connection refused (retrying)

            ash has 1 replica, its fair share is 8: filling, next in 1m 30s

            an upgrade is half done: nodes run 0.1.0 and 0.2.0; see `plimsoll cell status`
        "#]].assert_eq(&anstream::adapter::strip_str(&table).to_string());
    }
}
