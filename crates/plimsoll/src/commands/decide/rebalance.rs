//! `plimsoll decide rebalance`: what the rebalancer makes of one cycle after another, with the numbers it decided on.

use std::fmt::Write as _;

use plimsoll_kernel::rebalance::{CandidateEvaluation, GateResult, NodeEvaluation};
use plimsoll_workbench::decide::{self, CycleReport};

use super::read_case;
use crate::error::CliError;
use crate::output::{Format, count, note, print};
use crate::table::Table;

const EXAMPLES: &str = "\
Examples:
  plimsoll decide rebalance --input examples/hot-node.yaml
  plimsoll snapshot export | plimsoll decide rebalance --input - -o json

The words of a case file are in docs/reference/case-format.md; what was measured is under `cycles`.
A cycle that moves nothing is an answer as well: the exit code is 0 whenever there is one.";

/// Show what the rebalancer would do in one cycle after another.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct RebalanceArgs {
    /// The case: nodes, deployments, what runs and what was measured, as YAML or JSON; `-` for stdin
    #[arg(short, long, value_name = "CASE")]
    input: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(super) fn run(args: &RebalanceArgs) -> Result<(), CliError> {
    let cycles = decide::replay(&read_case(&args.input)?)?;
    print(args.output, &cycles, |cycles| text(cycles))?;
    let moved = cycles.iter().filter(|cycle| cycle.is_move()).count();
    note(&format!("{}, {}", count(cycles.len(), "cycle"), count(moved, "move")));
    Ok(())
}

fn text(cycles: &[CycleReport]) -> String {
    let pages: Vec<String> = cycles.iter().enumerate().map(|(nth, it)| page(nth, it)).collect();
    pages.join("\n")
}

fn page(nth: usize, cycle: &CycleReport) -> String {
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
fn gates(hottest: &NodeEvaluation) -> String {
    let mut table = Table::new(["GATE", "OF", ">FOUND", ">LIMIT", "SAYS"]);
    let mut add = |gate: &GateResult, of: String| {
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
        for CandidateEvaluation { replica, dst, gates, .. } in &hottest.candidates {
            for gate in gates {
                add(gate, format!("{replica} to {dst}"));
            }
        }
    }
    table.render()
}
