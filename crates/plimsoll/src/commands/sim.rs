//! `plimsoll sim`: a described cell under a virtual clock, with all that befalls it, and whether every promise holds.

use std::fmt::Write as _;

use plimsoll_model::Millis;
use plimsoll_sim::{InvariantFailure, RunOutcome};
use plimsoll_workbench::input::Input;
use plimsoll_workbench::report;
use plimsoll_workbench::scenario::{self, WrittenScenario};
use plimsoll_workbench::sim::RunFacts;
use plimsoll_workbench::text::elapsed;

use crate::commands::report_file::ReportFile;
use crate::error::CliError;
use crate::output::{Format, note, print};
use crate::table::Table;

mod chaos;
mod progress;
mod runs;
mod shrink;
mod trace;

use progress::Progress;

const EXAMPLES: &str = "\
Examples:
  plimsoll sim run scenarios/lost-node.yaml                     what happens when a node is lost?
  plimsoll sim run scenarios/lost-node.yaml --story             the same, line by line
  plimsoll sim run scenarios/a-day.yaml --report report.html    with plots, for a browser
  plimsoll sim run scenarios/a-day.yaml --seed 7 --runs 20      twenty runs, seeds 7 to 26

The words of a scenario file are in docs/reference/scenario-format.md.
Equal seeds give equal runs. A broken promise exits with 2 and prints the command that replays it.";

/// The most runs of one command: their facts are kept until all are done.
const MAX_RUNS: u64 = 10_000;

/// Simulate a cell: the shipped scheduler, a virtual clock, faults, and promises checked at every step.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: SimCommand,
}

#[derive(Debug, clap::Subcommand)]
enum SimCommand {
    Run(RunArgs),
    Chaos(chaos::ChaosArgs),
    Shrink(shrink::ShrinkArgs),
    Trace(trace::TraceArgs),
}

/// Run a scenario and report the result.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
struct RunArgs {
    /// The scenario: a cell and what happens to it, as YAML or JSON; `-` for stdin
    #[arg(value_name = "SCENARIO")]
    scenario: String,
    /// Random seed; equal seeds give equal runs
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of runs, with consecutive seeds
    #[arg(long, value_name = "K", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=MAX_RUNS))]
    runs: u64,
    /// Write an HTML report with plots
    #[arg(long, value_name = "FILE")]
    report: Option<String>,
    /// Print the events line by line
    #[arg(long)]
    story: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    match &args.what {
        SimCommand::Run(args) => run_scenario(args),
        SimCommand::Chaos(args) => chaos::run(args),
        SimCommand::Shrink(args) => shrink::run(args),
        SimCommand::Trace(args) => trace::run(args),
    }
}

fn run_scenario(args: &RunArgs) -> Result<(), CliError> {
    if args.runs > 1 {
        for (flag, is_given) in [("--report", args.report.is_some()), ("--story", args.story)] {
            if is_given {
                let message = format!("{flag} is of one run, and --runs asks for {}", args.runs);
                return Err(CliError::refused(message).hint("leave out one of the two"));
            }
        }
    }
    let destination = args.report.as_deref().map(ReportFile::check).transpose()?;
    let written = scenario::read(&Input::of(&args.scenario))?;
    for warning in &written.warnings {
        note(warning.render(true).trim_end());
    }
    if args.runs > 1 { many(args, &written) } else { one(args, &written, destination) }
}

fn one(
    args: &RunArgs,
    written: &WrittenScenario,
    destination: Option<ReportFile<'_>>,
) -> Result<(), CliError> {
    let mut progress = Progress::new(written.scenario.length, 1);
    let outcome = simulate(written, args.seed, &mut progress);
    progress.end();
    let facts = RunFacts::of(written, &outcome, args.story);
    print(args.output, &facts, text)?;
    if let Some(destination) = destination {
        let page = report::page(written, &outcome, &facts, &replay(args, outcome.seed))?;
        destination.write(&page)?;
        note(&format!("the report is in {}", destination.shown()));
    }
    match &outcome.failure {
        None => Ok(()),
        Some(failure) => Err(broken(args, &outcome, failure)),
    }
}

fn many(args: &RunArgs, written: &WrittenScenario) -> Result<(), CliError> {
    let mut progress = Progress::new(written.scenario.length, args.runs);
    let mut all = Vec::new();
    let mut first = None;
    for seed in (args.seed..=u64::MAX).take(usize::try_from(args.runs).unwrap_or(usize::MAX)) {
        let outcome = simulate(written, seed, &mut progress);
        all.push(RunFacts::of(written, &outcome, false));
        if first.is_none() {
            first = outcome.failure.clone().map(|failure| (outcome, failure));
        }
    }
    progress.end();
    print(args.output, &all, |all| runs::text(&written.scenario, all))?;
    match &first {
        None => Ok(()),
        Some((outcome, failure)) => Err(broken(args, outcome, failure)),
    }
}

fn simulate(written: &WrittenScenario, seed: u64, progress: &mut Progress) -> RunOutcome {
    let scenario = written.seeded(seed);
    progress.begin(seed);
    plimsoll_sim::run(&scenario, seed, &mut |now| progress.at(now))
}

fn text(facts: &RunFacts) -> String {
    let mut text = String::new();
    if let Some(story) = &facts.story {
        for line in &story.lines {
            let at = elapsed(Millis(line.at_ms));
            let _ = writeln!(text, "{at:>12}  {}", line.text);
        }
        if story.more > 0 {
            let _ = writeln!(text, "… and {} more lines", story.more);
        }
        text.push('\n');
    }
    let mut table = Table::list(2);
    for (word, numbers) in facts.rows() {
        table.row([word.to_owned(), numbers]);
    }
    text.extend([&facts.headline(), "\n", &table.render()]);
    text
}

/// The failure, what led up to it, and how to see it again.
fn broken(args: &RunArgs, outcome: &RunOutcome, failure: &InvariantFailure) -> CliError {
    let mut trouble = CliError::failed(failure.to_string());
    if !outcome.report.latest.is_empty() {
        trouble = trouble.line("the story up to there:");
    }
    for line in &outcome.report.latest {
        trouble = trouble.line(format!("  {:>12}  {}", elapsed(line.at), line.what));
    }
    if failure.broken.invariant == "settled" {
        trouble = trouble.hint("a cell that is only slow settles within a longer `length`");
    }
    let path = shown(args);
    trouble
        .line(format!("replay: {}", replay(args, failure.seed)))
        .line(format!("shrink: plimsoll sim shrink {path} --seed {}", failure.seed))
}

/// The command that runs this seed again.
fn replay(args: &RunArgs, seed: u64) -> String {
    format!("plimsoll sim run {} --seed {seed}", shown(args))
}

/// The scenario's file, as a command names it.
fn shown(args: &RunArgs) -> String {
    match Input::of(&args.scenario) {
        Input::Stdin => "-".to_owned(),
        Input::File(path) => quoted(&path.display().to_string()),
    }
}

/// As a shell reads it.
fn quoted(path: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./".contains(c);
    if path.chars().all(is_plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}
