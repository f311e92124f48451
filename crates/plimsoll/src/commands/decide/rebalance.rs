//! `plimsoll decide rebalance`: what the rebalancer makes of one cycle after another, with the numbers it decided on.

use std::fmt::Write as _;

use plimsoll_daemon::view;
use plimsoll_kernel::Policy;
use plimsoll_kernel::rebalance::case::{Case, Step};
use plimsoll_kernel::rebalance::{Gate, Limits, Outcome, Weighed, Weighing};
use plimsoll_model::{Millis, NodeId, Pressure};
use serde::Serialize;

use crate::entries::{Kind, parse};
use crate::input::Place;
use crate::output::{Format, count, note, print};
use crate::snippet::Page;
use crate::table::Table;
use crate::trouble::Trouble;

const KIND: Kind = Kind {
    word: "case",
    least: "`nodes:` and `cycles:`",
    reference: "docs/reference/rebalance-case.md",
};

const EXAMPLES: &str = "\
Examples:
  plimsoll decide rebalance --input examples/hot-node.yaml
  plimsoll decide rebalance --input case.json -o json

The words of such a case are in docs/reference/rebalance-case.md.
A cycle that moves nothing is an answer as well: the exit code is 0 whenever there is one.";

/// Show what the rebalancer would do in one cycle after another.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct RebalanceArgs {
    /// The case: a cell, what was remembered of it and what was measured, as YAML or JSON; `-` for stdin
    #[arg(short, long, value_name = "CASE")]
    input: String,
    /// How to print the decisions
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(super) fn run(args: &RebalanceArgs) -> Result<(), Trouble> {
    let place = Place::of(&args.input);
    let page = Page { name: place.shown(), text: place.read_text()? };
    let case: Case = parse(&page.text, KIND).map_err(|mistake| mistake.on(&page))?;
    let steps = case.replay(&Policy::default(), &Limits::default()).map_err(|unfit| {
        Trouble::refused(format!("{}: {unfit}", page.name)).hint(format!("see {}", KIND.reference))
    })?;
    let cycles: Vec<Cycle> = steps.iter().map(|step| Cycle::of(step, &steps[0])).collect();
    print(args.output, &cycles, |cycles| text(cycles))?;
    let moved = cycles.iter().filter(|cycle| cycle.is_move()).count();
    note(&format!("{}, {}", count(cycles.len(), "cycle"), count(moved, "move")));
    Ok(())
}

/// One cycle, as it is told. Shares are in millionths.
#[derive(Debug, Serialize)]
struct Cycle {
    at: u64,
    /// Since the first cycle.
    #[serde(skip)]
    since: Millis,
    nodes: Vec<Row>,
    /// What the gates say of the hottest node.
    hottest: Option<Weighing>,
    decision: &'static str,
    /// What goes into the audit; a calm cycle says nothing.
    event: Option<Event>,
}

#[derive(Debug, Serialize)]
struct Row {
    node: NodeId,
    cpu: Pressure,
    memory: Pressure,
    cpu_reached: Pressure,
    memory_reached: Pressure,
    hot_cycles: u32,
}

/// As the audit of a cell has it.
#[derive(Debug, Serialize)]
struct Event {
    what: &'static str,
    text: String,
    relief: Option<view::Relief>,
}

impl Event {
    fn of(step: &Step) -> Option<Self> {
        let what = step.outcome.happening(step.at)?;
        let relief = view::build::relief(&what);
        Some(Self { what: what.word(), text: what.to_string(), relief })
    }
}

impl Cycle {
    fn of(step: &Step, first: &Step) -> Self {
        let node = |felt: &plimsoll_kernel::rebalance::Felt| {
            let [cpu, memory] = felt.means.map(|mean| mean.value());
            let [cpu_reached, memory_reached] = felt.crests.map(|crest| crest.value());
            let (node, hot_cycles) = (felt.node.clone(), felt.hot);
            Row { node, cpu, memory, cpu_reached, memory_reached, hot_cycles }
        };
        Self {
            at: step.at.0,
            since: step.at.since(first.at),
            nodes: step.felt.iter().map(node).collect(),
            hottest: step.weighing.clone(),
            decision: match &step.outcome {
                Outcome::Calm => "calm",
                Outcome::Skipped(_) => "skipped",
                Outcome::Moved { .. } => "moved",
            },
            event: Event::of(step),
        }
    }

    fn is_move(&self) -> bool {
        self.decision == "moved"
    }
}

fn text(cycles: &[Cycle]) -> String {
    let pages: Vec<String> = cycles.iter().enumerate().map(|(nth, it)| page(nth, it)).collect();
    pages.join("\n")
}

fn page(nth: usize, cycle: &Cycle) -> String {
    let mut text =
        format!("cycle {}, {} after the first: {}\n", nth + 1, cycle.since, cycle.decision);
    let mut nodes = Table::new(["NODE", ">CPU", ">MEMORY", ">REACHED", ">HOT CYCLES"]);
    for it in &cycle.nodes {
        nodes.row([
            it.node.to_string(),
            it.cpu.to_string(),
            it.memory.to_string(),
            it.cpu_reached.max(it.memory_reached).to_string(),
            it.hot_cycles.to_string(),
        ]);
    }
    text.push_str(&nodes.render());
    if let Some(hottest) = &cycle.hottest {
        text.push_str(&gates(hottest));
    }
    if let Some(event) = &cycle.event {
        let _ = writeln!(text, "{}: {}", event.what, event.text);
    }
    text
}

/// The gates of the hottest node, and of its candidates once it is their turn.
fn gates(hottest: &Weighing) -> String {
    let mut table = Table::new(["GATE", "OF", ">FOUND", ">LIMIT", "SAYS"]);
    let mut add = |gate: &Gate, of: String| {
        let says = if gate.passes { "yes" } else { "no" };
        table.row([
            gate.gate.to_owned(),
            of,
            gate.found.to_string(),
            gate.limit.to_string(),
            says.to_owned(),
        ]);
    };
    for gate in &hottest.gates {
        add(gate, hottest.node.to_string());
    }
    if hottest.gates.iter().all(|gate| gate.passes) {
        for Weighed { replica, dst, gates, .. } in &hottest.candidates {
            for gate in gates {
                add(gate, format!("{replica} to {dst}"));
            }
        }
    }
    table.render()
}
