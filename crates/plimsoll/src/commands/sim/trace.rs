//! `plimsoll sim trace`: measured days replayed through the shipped rebalancer, and how hot nodes stay with and without it.

use std::path::Path;

use plimsoll_sim::trace;
use plimsoll_workbench::report;
use plimsoll_workbench::trace::{TraceFacts, TraceFormat, TraceRun};

use super::progress::Progress;
use super::report_file::ReportFile;
use crate::error::CliError;
use crate::output::{Format, note, print};
use crate::table::Table;

mod page;

use page::MarkdownPage;

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
}

impl TraceKind {
    fn format(self) -> TraceFormat {
        match self {
            Self::Planetlab => TraceFormat::Planetlab,
            Self::Google => TraceFormat::Google,
        }
    }
}

pub(super) fn run(args: &TraceArgs) -> Result<(), CliError> {
    let destination = args.out.as_deref().map(ReportFile::check).transpose()?;
    let page =
        args.write.as_deref().map(|page| MarkdownPage::open(page, &args.mark())).transpose()?;
    let runs = args.replay()?;
    let facts = TraceFacts::of(args.kind.format().word(), &runs);
    print(args.output, &facts, text)?;
    if let Some(destination) = destination {
        destination.write(&report::of_trace::page(args.kind.format().word(), &runs, &facts)?)?;
        note(&format!("the report is in {}", destination.shown()));
    }
    page.map_or(Ok(()), |page| page.write(&facts.markdown()))
}

impl TraceArgs {
    /// What the marks of its table on a page of Markdown say.
    fn mark(&self) -> String {
        let days =
            if self.day.is_empty() { String::new() } else { format!(" {}", self.day.join(",")) };
        format!("{}{days} seed {}", self.kind.format().word(), self.seed.join(","))
    }

    fn replay(&self) -> Result<Vec<TraceRun>, CliError> {
        let directory = Path::new(&self.directory);
        let all = self.kind.format().days(directory, &self.seed, &self.day)?;
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
