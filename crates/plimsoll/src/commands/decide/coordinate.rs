//! `plimsoll decide coordinate`: what a coordinator would move between the cells of a described fleet, and why not the rest.

use std::fmt::Write as _;

use plimsoll_workbench::decide::{FleetPassReport, coordinate_case};
use plimsoll_workbench::input::Input;

use crate::error::CliError;
use crate::output::{Format, count, note, print};
use crate::table::Table;

const EXAMPLES: &str = "\
Examples:
  plimsoll decide coordinate --input examples/fleet.yaml
  plimsoll decide coordinate --input examples/fleet.yaml -o json

The words of such a file are in docs/reference/fleet-case-format.md.
What is not served is part of the answer: the exit code is 0 whenever there is one.";

/// Show what a coordinator would move between cells, and why not the rest.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CoordinateArgs {
    /// The fleet: types of machines, and what each cell has and lacks, as YAML or JSON; `-` for stdin
    #[arg(short, long, value_name = "CASE")]
    input: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(super) fn run(args: &CoordinateArgs) -> Result<(), CliError> {
    let report = coordinate_case(&Input::of(&args.input))?;
    print(args.output, &report, text)?;
    let FleetPassReport { begun, unserved } = &report;
    let not_served = count(unserved.len(), "shortfall");
    note(&format!("{}, {not_served} not served", count(begun.len(), "transfer")));
    Ok(())
}

fn text(report: &FleetPassReport) -> String {
    let mut text = String::new();
    if !report.begun.is_empty() {
        let mut table = Table::new(["KIND", "FROM", "TO", ">COUNT", "OF", "FOR"]);
        for it in &report.begun {
            let of = format!("{} in {}", it.machine_type, it.zone);
            table.row([
                it.kind.to_owned(),
                it.donor.clone(),
                it.recipient.clone(),
                it.count.to_string(),
                of,
                it.profile.clone(),
            ]);
        }
        text.push_str(&table.render());
    }
    for it in &report.unserved {
        let _ = writeln!(text, "{}/{}: {}", it.shard, it.profile, it.why);
    }
    text
}
