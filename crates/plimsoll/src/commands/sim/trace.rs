//! `plimsoll sim trace`: measured days replayed through the shipped rebalancer, and how hot nodes stay with and without it.

use std::path::Path;

use plimsoll_model::Millis;
use plimsoll_sim::trace;
use plimsoll_workbench::report;
use plimsoll_workbench::trace::{TraceFacts, TraceFormat, TraceRun};

use super::progress::Progress;
use crate::age::length;
use crate::commands::report_file::ReportFile;
use crate::error::CliError;
use crate::output::{Format, note, print};
use crate::table::Table;

mod packing;
mod page;
mod reassignment;

use page::MarkdownPage;

const EXAMPLES: &str = "\
Examples:
  plimsoll sim trace planetlab traces/planetlab                  every day in the directory
  plimsoll sim trace planetlab traces/planetlab --day 20110303 --seed 1,2,3
  plimsoll sim trace google traces/google --out report.html      with plots, for a browser
  plimsoll sim trace roadef traces/roadef --time 60s --instances a1_1,a2_4
  plimsoll sim trace azure traces/azure --hourly-moves 4

What is replayed and what is counted is in docs/reference/rebalancer.md, of roadef in docs/reference/reassignment.md, and of azure in
docs/reference/optimize.md. Equal seeds give equal replays; searches depend on how fast the machine is as well.";

/// Replay public traces: measured days through the rebalancer, instances of the machine reassignment challenge (roadef)
/// through a search for cheaper layouts, and requests for virtual machines (azure) through binpack and optimize.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct TraceArgs {
    /// Format of the traces
    #[arg(value_enum, value_name = "TRACES")]
    kind: TraceKind,
    /// Directory of the traces: CSV files, may be gzipped
    #[arg(value_name = "DIR")]
    directory: String,
    /// Random seeds for task offsets, comma-separated; each is replayed
    #[arg(long, value_name = "SEED", value_delimiter = ',', default_value = "0")]
    seed: Vec<String>,
    /// Only these days
    #[arg(long, value_name = "DAY", value_delimiter = ',')]
    day: Vec<String>,
    /// Time for each search (roadef)
    #[arg(long, value_name = "LENGTH", default_value = "60s", value_parser = length)]
    time: Millis,
    /// Only these instances (roadef)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    instances: Vec<String>,
    /// The most processes that may move in percent, comma-separated; each is searched beside the search without a limit
    /// (roadef)
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_values_t = [1, 5, 10],
        value_parser = clap::value_parser!(u32).range(0..=100))]
    moved: Vec<u32>,
    /// The most moves of an hourly plan, beside the replay without any (azure)
    #[arg(long, value_name = "N", default_value_t = 4)]
    hourly_moves: usize,
    /// Write the layouts found to this directory, as the challenge writes them (roadef)
    #[arg(long, value_name = "DIR")]
    layouts: Option<String>,
    /// Write an HTML report with plots
    #[arg(long, value_name = "FILE")]
    out: Option<String>,
    /// Write the table into a Markdown page, between its markers
    #[arg(long, value_name = "PAGE")]
    write: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum TraceKind {
    // Processor use of virtual machines in March and April 2011.
    Planetlab,
    // Processor and memory use of jobs in May 2011.
    Google,
    // Machine reassignment instances of 2012.
    Roadef,
    // Requests for virtual machines in 2019.
    Azure,
}

impl TraceKind {
    /// None for what is no measured day.
    fn format(self) -> Option<TraceFormat> {
        match self {
            Self::Planetlab => Some(TraceFormat::Planetlab),
            Self::Google => Some(TraceFormat::Google),
            Self::Roadef | Self::Azure => None,
        }
    }
}

pub(super) fn run(args: &TraceArgs) -> Result<(), CliError> {
    match args.kind.format() {
        Some(format) => replay(args, format),
        None if args.kind == TraceKind::Azure => packing::run(args),
        None => reassignment::run(args),
    }
}

fn replay(args: &TraceArgs, format: TraceFormat) -> Result<(), CliError> {
    let destination = args.out.as_deref().map(ReportFile::check).transpose()?;
    let page = args
        .write
        .as_deref()
        .map(|page| MarkdownPage::open(page, &args.mark(format)))
        .transpose()?;
    let runs = args.replay(format)?;
    let facts = TraceFacts::of(format.word(), &runs);
    print(args.output, &facts, text)?;
    if let Some(destination) = destination {
        destination.write(&report::of_trace::page(format.word(), &runs, &facts)?)?;
        note(&format!("the report is in {}", destination.shown()));
    }
    page.map_or(Ok(()), |page| page.write(&facts.markdown()))
}

impl TraceArgs {
    /// What the marks of its table on a page of Markdown say.
    fn mark(&self, format: TraceFormat) -> String {
        let days =
            if self.day.is_empty() { String::new() } else { format!(" {}", self.day.join(",")) };
        format!("{}{days} seed {}", format.word(), self.seed.join(","))
    }

    /// How many processes may move, one search after another: all, and then so many percent.
    fn limits(&self) -> impl Iterator<Item = Option<u32>> {
        std::iter::once(None).chain(self.moved.iter().copied().map(Some))
    }

    fn replay(&self, format: TraceFormat) -> Result<Vec<TraceRun>, CliError> {
        let directory = Path::new(&self.directory);
        let all = format.days(directory, &self.seed, &self.day)?;
        let longest = all.iter().map(|(day, _)| trace::length(day)).max().unwrap_or_default();
        let mut progress = Progress::new(longest, all.len() as u64);
        let runs = all.into_iter().map(|(day, seed)| {
            progress.begin_named(&format!("{} with seed {seed}", day.name));
            TraceRun::replay(day, seed, &mut |at| progress.at(at))
        });
        let runs = runs.collect();
        progress.end();
        Ok(runs)
    }
}

fn text(facts: &TraceFacts) -> String {
    let mut table = Table::new([
        "DAY",
        ">SEED",
        ">NODES",
        ">TASKS",
        ">HOT WITHOUT",
        ">MOVES",
        ">HOT",
        ">SATURATED / UNMET",
        ">UNDONE",
    ]);
    for row in facts.rows() {
        table.row(row);
    }
    table.render()
}
