//! `plimsoll sim`: a described cell under a virtual clock, with all that befalls it, and whether every promise holds.

use plimsoll_sim::{Failure, Outcome};

use crate::elapsed::elapsed;
use crate::input::Place;
use crate::output::{Format, note, print};
use crate::scenario::{self, Written};
use crate::trouble::Trouble;

mod action;
mod facts;
mod progress;
mod report;
mod runs;
mod trace;

use facts::Facts;
use progress::Progress;
use report::Destination;

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
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Run(RunArgs),
    Trace(trace::TraceArgs),
}

/// Run a scenario and say what became of the cell.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
struct RunArgs {
    /// The scenario: a cell and what happens to it, as YAML or JSON; `-` for stdin
    #[arg(value_name = "SCENARIO")]
    scenario: String,
    /// What chance is drawn from: equal seeds give equal runs
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Run so many times, with this seed and those after it
    #[arg(long, value_name = "K", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=MAX_RUNS))]
    runs: u64,
    /// Write a page with plots for a browser
    #[arg(long, value_name = "FILE")]
    report: Option<String>,
    /// Print what happened, line by line
    #[arg(long)]
    story: bool,
    /// How to print what was found
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(crate) fn run(args: &Args) -> Result<(), Trouble> {
    match &args.what {
        What::Run(args) => run_scenario(args),
        What::Trace(args) => trace::run(args),
    }
}

fn run_scenario(args: &RunArgs) -> Result<(), Trouble> {
    if args.runs > 1 {
        for (flag, is_given) in [("--report", args.report.is_some()), ("--story", args.story)] {
            if is_given {
                let message = format!("{flag} is of one run, and --runs asks for {}", args.runs);
                return Err(Trouble::refused(message).hint("leave out one of the two"));
            }
        }
    }
    let destination = args.report.as_deref().map(Destination::check).transpose()?;
    let written = scenario::read(&args.scenario)?;
    if args.runs > 1 { many(args, &written) } else { one(args, &written, destination) }
}

fn one(
    args: &RunArgs,
    written: &Written,
    destination: Option<Destination<'_>>,
) -> Result<(), Trouble> {
    let mut progress = Progress::new(written.scenario.length, 1);
    let outcome = simulate(written, args.seed, &mut progress);
    progress.end();
    let facts = Facts::of(written, &outcome, args.story);
    print(args.output, &facts, Facts::text)?;
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

fn many(args: &RunArgs, written: &Written) -> Result<(), Trouble> {
    let mut progress = Progress::new(written.scenario.length, args.runs);
    let mut all = Vec::new();
    let mut first = None;
    for seed in (args.seed..=u64::MAX).take(usize::try_from(args.runs).unwrap_or(usize::MAX)) {
        let outcome = simulate(written, seed, &mut progress);
        all.push(Facts::of(written, &outcome, false));
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

fn simulate(written: &Written, seed: u64, progress: &mut Progress) -> Outcome {
    let scenario = written.seeded(seed);
    progress.begin(seed);
    plimsoll_sim::run(&scenario, seed, &mut |now| progress.at(now))
}

/// The failure, what led up to it, and how to see it again.
fn broken(args: &RunArgs, outcome: &Outcome, failure: &Failure) -> Trouble {
    let mut trouble = Trouble::failed(failure.to_string());
    if !outcome.report.latest.is_empty() {
        trouble = trouble.line("the story up to there:");
    }
    for line in &outcome.report.latest {
        trouble = trouble.line(format!("  {:>12}  {}", elapsed(line.at), line.what));
    }
    if failure.broken.invariant == "settled" {
        trouble = trouble.hint("a cell that is only slow settles within a longer `length`");
    }
    trouble.line(format!("replay: {}", replay(args, failure.seed)))
}

/// The command that runs this seed again.
fn replay(args: &RunArgs, seed: u64) -> String {
    let path = match Place::of(&args.scenario) {
        Place::Stdin => "-".to_owned(),
        Place::File(path) => quoted(&path.display().to_string()),
    };
    format!("plimsoll sim run {path} --seed {seed}")
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
