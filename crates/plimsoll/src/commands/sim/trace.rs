//! `plimsoll sim trace`: measured days replayed through the shipped rebalancer, and how hot nodes stay with and without it.

use std::path::Path;

use plimsoll_sim::trace::{self, Conditions, Replayed, Trace};

use super::progress::Progress;
use super::report::{self, Destination};
use crate::output::{Format, note, print};
use crate::trouble::Trouble;

mod google;
mod page;
mod planetlab;
mod read;
mod table;

use page::Page;
pub(super) use table::Facts;

const EXAMPLES: &str = "\
Examples:
  plimsoll sim trace planetlab traces/planetlab                  every day in the directory
  plimsoll sim trace planetlab traces/planetlab --day 20110303 --seed 1,2,3
  plimsoll sim trace google traces/google --out report.html      with plots, for a browser

What is replayed and what is counted is in docs/reference/rebalancer.md. Equal seeds give equal replays.";

/// Replay measured days through the rebalancer and count its moves and the hot time that is left.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct TraceArgs {
    /// Whose traces they are
    #[arg(value_enum, value_name = "TRACES")]
    kind: Kind,
    /// The directory they are in, as CSV, gzipped or not
    #[arg(value_name = "DIR")]
    directory: String,
    /// Where tasks begin is drawn from this; several are replayed one after the other
    #[arg(long, value_name = "SEED", value_delimiter = ',', default_value = "0")]
    seed: Vec<String>,
    /// Only these days
    #[arg(long, value_name = "DAY", value_delimiter = ',')]
    day: Vec<String>,
    /// Write a page with plots for a browser
    #[arg(long, value_name = "FILE")]
    out: Option<String>,
    /// Put the table into a page of Markdown, between its marks
    #[arg(long, value_name = "PAGE")]
    write: Option<String>,
    /// How to print what was found
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    // Processor use of virtual machines in March and April 2011.
    Planetlab,
    // Processor and memory use of jobs in May 2011.
    Google,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Planetlab => "planetlab",
            Self::Google => "google",
        }
    }

    /// Each day in the directory, by name, with its tasks where the seed puts them.
    fn read(self, directory: &Path, seed: &str) -> Result<Vec<Trace>, Trouble> {
        match self {
            Self::Planetlab => planetlab::read(directory, seed),
            Self::Google => google::read(directory, seed),
        }
    }
}

/// One day with one seed, without the rebalancer and with it.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) trace: Trace,
    pub(super) seed: String,
    pub(super) without: Replayed,
    pub(super) with: Replayed,
}

pub(super) fn run(args: &TraceArgs) -> Result<(), Trouble> {
    let destination = args.out.as_deref().map(Destination::check).transpose()?;
    let page = args.write.as_deref().map(|page| Page::open(page, &args.mark())).transpose()?;
    let runs = args.replay()?;
    let facts = Facts::of(args.kind.word(), &runs);
    print(args.output, &facts, Facts::text)?;
    if let Some(destination) = destination {
        destination.write(&report::of_trace::page(args.kind.word(), &runs, &facts)?)?;
        note(&format!("the report is in {}", destination.shown()));
    }
    page.map_or(Ok(()), |page| page.write(&facts.markdown()))
}

impl TraceArgs {
    /// What the marks of its table on a page of Markdown say.
    fn mark(&self) -> String {
        let days =
            if self.day.is_empty() { String::new() } else { format!(" {}", self.day.join(",")) };
        format!("{}{days} seed {}", self.kind.word(), self.seed.join(","))
    }

    fn replay(&self) -> Result<Vec<Run>, Trouble> {
        let directory = Path::new(&self.directory);
        let mut all = Vec::new();
        for seed in &self.seed {
            let mut days = self.kind.read(directory, seed)?;
            if let Some(missing) =
                self.day.iter().find(|day| days.iter().all(|it| it.name != **day))
            {
                let known: Vec<&str> = days.iter().map(|day| day.name.as_str()).collect();
                let message = format!("{} has no day {missing}", self.directory);
                return Err(Trouble::refused(message).hint(format!("it has {}", known.join(", "))));
            }
            days.retain(|day| self.day.is_empty() || self.day.contains(&day.name));
            all.extend(days.into_iter().map(|day| (day, seed.clone())));
        }
        let longest = all.iter().map(|(day, _)| trace::length(day)).max().unwrap_or_default();
        let mut progress = Progress::new(longest, all.len() as u64);
        let runs = all.into_iter().map(|(trace, seed)| {
            progress.begin_named(&format!("{} with seed {seed}", trace.name));
            let without = trace::replay(&trace, &Conditions::off(), &mut |_| {});
            let with = trace::replay(&trace, &Conditions::default(), &mut |at| progress.at(at));
            Run { trace, seed, without, with }
        });
        let runs = runs.collect();
        progress.end();
        Ok(runs)
    }
}
