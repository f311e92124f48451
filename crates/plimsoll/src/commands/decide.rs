//! `plimsoll decide`: what plimsoll would decide on a case, printed instead of done.

use plimsoll_workbench::case::{self, Case};
use plimsoll_workbench::decide::PlanReport;
use plimsoll_workbench::decided::Decided;
use plimsoll_workbench::input::Input;

use crate::error::CliError;
use crate::output::{Format, note, print};
use crate::plan_table::{Scores, shortfalls, summary, tables};

mod coordinate;
mod rebalance;

const EXAMPLES: &str = "\
Examples:
  plimsoll decide place --input examples/cell.yaml
  plimsoll decide place --input examples/cell.yaml -o json
  cat case.yaml | plimsoll decide place --input -
  plimsoll snapshot export | plimsoll decide place --input -

The words of a case file are in docs/reference/case-format.md.
What finds no place is part of the answer: the exit code is 0 whenever there is one.";

/// Show what plimsoll would decide on a described cell.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: DecideCommand,
}

#[derive(Debug, clap::Subcommand)]
enum DecideCommand {
    Place(PlaceArgs),
    Rebalance(rebalance::RebalanceArgs),
    Coordinate(coordinate::CoordinateArgs),
}

/// Show what one scheduler pass would place, move and leave alone.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
struct PlaceArgs {
    /// The case: nodes, deployments and what runs now, as YAML or JSON; `-` for stdin
    #[arg(short, long, value_name = "CASE")]
    input: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    match &args.what {
        DecideCommand::Place(args) => place(args),
        DecideCommand::Rebalance(args) => rebalance::run(args),
        DecideCommand::Coordinate(args) => coordinate::run(args),
    }
}

fn place(args: &PlaceArgs) -> Result<(), CliError> {
    let report = PlanReport::of(&read(&args.input)?);
    print(args.output, &report, text)?;
    note(&summary(&report.plan));
    Ok(())
}

/// The case an argument names.
pub(crate) fn read_case(argument: &str) -> Result<Case, CliError> {
    let case = case::read(&Input::of(argument))?;
    for warning in &case.warnings {
        note(warning.render(true).trim_end());
    }
    Ok(case)
}

/// What one pass makes of the case an argument names.
pub(crate) fn read(argument: &str) -> Result<Decided, CliError> {
    let decided = Decided::new(read_case(argument)?.cell)?;
    if !decided.is_checked {
        note("note: the plan is too large to be checked by brute force here");
    }
    Ok(decided)
}

fn text(report: &PlanReport) -> String {
    let (tables, short) = (tables(&report.plan, Scores::Shown), shortfalls(&report.plan));
    if short.is_empty() { tables } else { format!("{tables}\n{short}") }
}
