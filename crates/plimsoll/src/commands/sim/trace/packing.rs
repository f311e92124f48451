//! `plimsoll sim trace azure`: requests that come and go, packed by `binpack`, alone and with a few moves an hour.

use std::path::Path;

use plimsoll_workbench::packing::{self, PackingFacts, PackingRow};

use super::TraceArgs;
use super::page::MarkdownPage;
use crate::commands::sim::progress::Progress;
use crate::error::CliError;
use crate::output::print;
use crate::table::Table;

pub(super) fn run(args: &TraceArgs) -> Result<(), CliError> {
    let page = args.write.as_deref().map(|page| MarkdownPage::open(page, "azure")).transpose()?;
    let samples =
        packing::samples(Path::new(&args.directory)).map_err(plimsoll_workbench::Error::from)?;
    let longest = samples.iter().map(|sample| sample.length).max().unwrap_or_default();
    let mut progress = Progress::new(longest, 2 * samples.len() as u64);
    let mut rows = Vec::new();
    for sample in &samples {
        for moves in [0, args.hourly_moves] {
            progress.begin_named(&format!("{} with {moves} moves an hour", sample.name));
            rows.push(PackingRow::replay(sample, moves, &mut |at| progress.at(at)));
        }
    }
    progress.end();
    let facts = PackingFacts { rows };
    print(args.output, &facts, text)?;
    page.map_or(Ok(()), |page| page.write(&facts.markdown()))
}

fn text(facts: &PackingFacts) -> String {
    let heads = PackingFacts::HEADS.map(|head| match head {
        "sample" => head.to_uppercase(),
        _ => format!(">{}", head.to_uppercase()),
    });
    let mut table = Table::new(std::array::from_fn::<&str, 9, _>(|at| &heads[at]));
    for row in facts.rows() {
        table.row(row);
    }
    table.render()
}
