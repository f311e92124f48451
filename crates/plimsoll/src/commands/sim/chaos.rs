//! `plimsoll sim chaos`: random cells under everything that can happen to one, a seed each, on all cores.

use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use plimsoll_sim::chaos::any_scenario;
use plimsoll_sim::shrink::shrink;
use plimsoll_sim::{InvariantFailure, run as simulate};

use super::shrink::told;
use crate::error::CliError;
use crate::output::{count, data};

const EXAMPLES: &str = "\
Examples:
  plimsoll sim chaos --seeds 0..20000               twenty thousand random cells
  plimsoll sim chaos --seeds 373..374               one of them
  plimsoll sim chaos --seeds 0..20000 --shrink 10   print ten failures as least scenarios

Each seed draws a cell and 45 minutes of what operators, machines and leaders do to it; then it must settle.
A broken promise exits with 2; its least scenario is printed, for `plimsoll sim run`.";

/// The most runs to make a scenario smaller.
const RUNS: u32 = 2_000;

/// Run random cells under random faults and changes, and check every promise at every step.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ChaosArgs {
    /// Which seeds, the last excluded
    #[arg(long, value_name = "FROM..TO", default_value = "0..1000")]
    seeds: Seeds,
    /// Shrink and print so many of the failures
    #[arg(long, value_name = "K", default_value_t = 3)]
    shrink: usize,
}

#[derive(Debug, Clone, Copy)]
struct Seeds {
    from: u64,
    to: u64,
}

impl FromStr for Seeds {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a range of seeds; write 0..1000");
        let (from, to) = text.split_once("..").ok_or_else(wrong)?;
        let (from, to) = (from.parse().map_err(|_| wrong())?, to.parse().map_err(|_| wrong())?);
        if from < to { Ok(Self { from, to }) } else { Err(wrong()) }
    }
}

pub(super) fn run(args: &ChaosArgs) -> Result<(), CliError> {
    let Seeds { from, to } = args.seeds;
    let failures = campaign(from, to);
    let runs = usize::try_from(to - from).unwrap_or(usize::MAX);
    let runs = format!("{} with seeds {from} to {}", count(runs, "random cell"), to - 1);
    if failures.is_empty() {
        return data(&format!("{runs}: every promise kept\n"));
    }
    let mut text = format!("{runs}: a promise broken in {}\n\n", count(failures.len(), "run"));
    for failure in &failures {
        let _ = writeln!(text, "{}", line(failure));
    }
    for failure in failures.iter().take(args.shrink) {
        if let Some(least) = shrink(&any_scenario(failure.seed), failure.seed, RUNS) {
            let _ = write!(text, "\n# {}\n{}", told(&least), least.scenario.to_text());
        }
    }
    data(&text)?;
    let first = failures.first().map_or(from, |failure| failure.seed);
    let replay = format!("plimsoll sim chaos --seeds {first}..{}", first + 1);
    let message = format!("{} broke a promise", count(failures.len(), "run"));
    Err(CliError::failed(message).line(format!("replay: {replay}")))
}

/// A failure on one line: plans are longer than that.
fn line(failure: &InvariantFailure) -> String {
    failure.to_string().chars().take(200).collect()
}

/// Every failure, by seed.
fn campaign(from: u64, to: u64) -> Vec<InvariantFailure> {
    let (next, failures) = (AtomicU64::new(from), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= to {
                return;
            }
            if let Some(failure) = simulate(&any_scenario(seed), seed, &mut |_| {}).failure
                && let Ok(mut failures) = failures.lock()
            {
                failures.push(failure);
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let mut failures = failures.into_inner().unwrap_or_default();
    failures.sort_by_key(|failure| failure.seed);
    failures
}
