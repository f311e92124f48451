//! `plimsoll sim shrink`: the least scenario that still breaks the same promise.

use plimsoll_sim::shrink::{Shrunk, shrink};
use plimsoll_workbench::input::Input;
use plimsoll_workbench::scenario;

use super::quoted;
use crate::commands::report_file::ReportFile;
use crate::error::CliError;
use crate::output::{count, data, note};

const EXAMPLES: &str = "\
Examples:
  plimsoll sim shrink scenarios/a-day.yaml --seed 7                   print the least scenario
  plimsoll sim shrink scenarios/a-day.yaml --seed 7 --out least.yaml  write it to a file
  plimsoll sim run least.yaml --seed 7                                see it fail

Events, nodes, services and what they ask for are taken away as long as the same promise is broken.";

/// Enough for a scenario of a few hundred events.
const RUNS: u32 = 2_000;

/// Shrink a scenario that breaks a promise to the least that still breaks it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ShrinkArgs {
    /// The scenario, as YAML or JSON; `-` for stdin
    #[arg(value_name = "SCENARIO")]
    scenario: String,
    /// The seed that breaks a promise
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The most runs to take
    #[arg(long, value_name = "K", default_value_t = RUNS)]
    runs: u32,
    /// Write the scenario to a file instead of stdout
    #[arg(long, value_name = "FILE")]
    out: Option<String>,
}

pub(super) fn run(args: &ShrinkArgs) -> Result<(), CliError> {
    let destination = args.out.as_deref().map(ReportFile::check).transpose()?;
    let written = scenario::read(&Input::of(&args.scenario))?;
    let scenario = written.seeded(args.seed);
    let Some(least) = shrink(&scenario, args.seed, args.runs) else {
        let message = format!("every promise is kept with seed {}", args.seed);
        return Err(CliError::refused(message)
            .hint("name a seed that breaks one: `plimsoll sim run` with `--runs` finds them"));
    };
    let text = least.scenario.to_text();
    match destination {
        None => data(&text)?,
        Some(destination) => {
            destination.write(&text)?;
            let (path, seed) = (quoted(&destination.shown()), args.seed);
            note(&format!("replay: plimsoll sim run {path} --seed {seed}"));
        }
    }
    note(&told(&least));
    Ok(())
}

/// What is left, and how it fails.
pub(super) fn told(least: &Shrunk) -> String {
    let (events, nodes) = (least.scenario.script.len(), least.scenario.nodes.len());
    let runs = usize::try_from(least.runs).unwrap_or(usize::MAX);
    let (events, nodes, runs) = (count(events, "event"), count(nodes, "node"), count(runs, "run"));
    format!("{events} on {nodes} after {runs}; it fails {}", least.failure)
}
