//! `plimsoll sim trace roadef`: the search of `plimsoll-optimize` on instances of the machine reassignment challenge, beside what
//! its winners published.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll_workbench::reassignment::{
    self, Instance, ReassignmentFacts, ReassignmentRow, SearchTerms,
};

use super::TraceArgs;
use super::page::MarkdownPage;
use crate::error::CliError;
use crate::output::{note, print};
use crate::table::Table;

/// The longest search: what an instance takes may be guessed, and a slip of the keyboard is not to take days.
const LONGEST: Duration = Duration::from_hours(24);

pub(super) fn run(args: &TraceArgs) -> Result<(), CliError> {
    let time = Duration::from_millis(args.time.0);
    if time.is_zero() || time > LONGEST {
        return Err(CliError::refused("--time is from 1ms to 24h").hint("write it as 60s"));
    }
    let seed = args.seed.first().map_or("0", String::as_str);
    let seed = seed.parse().map_err(|_| {
        CliError::refused(format!("`{seed}` is no seed here")).hint("give a number: --seed 1")
    })?;
    if let Some(directory) = &args.layouts
        && !Path::new(directory).is_dir()
    {
        let message = format!("there is no directory {directory} for the layouts");
        return Err(CliError::refused(message).hint("make it first, or name another"));
    }
    let mark = format!("roadef seed {seed}");
    let page = args.write.as_deref().map(|page| MarkdownPage::open(page, &mark)).transpose()?;
    let instances = reassignment::instances(Path::new(&args.directory), &args.instances)
        .map_err(plimsoll_workbench::Error::from)?;
    let mut searches = Vec::new();
    for instance in &instances {
        for moved_percent in args.limits() {
            let terms = SearchTerms { time, moved_percent, seed };
            let row = search(instance, terms);
            if let Some(directory) = &args.layouts {
                write_layout(Path::new(directory), &row)?;
            }
            searches.push(row);
        }
    }
    let facts = ReassignmentFacts { seconds: time.as_secs_f64(), seed, searches };
    print(args.output, &facts, text)?;
    if let Some(page) = page {
        page.write(&facts.markdown())?;
    }
    let broken: usize = facts.searches.iter().map(|row| row.violations).sum();
    if broken > 0 {
        return Err(CliError::failed(format!("{broken} hard rules are broken")));
    }
    Ok(())
}

fn search(instance: &Instance, terms: SearchTerms) -> ReassignmentRow {
    let begun = Instant::now();
    let row = reassignment::improve(instance, terms, &mut || begun.elapsed());
    let limit = terms.moved_percent.map(|percent| format!(" with {percent} %")).unwrap_or_default();
    note(&format!("{}{limit}: {} after {:.1?}", row.instance, row.cost, begun.elapsed()));
    row
}

/// As the challenge writes solutions: a machine for each process.
fn write_layout(directory: &Path, row: &ReassignmentRow) -> Result<(), CliError> {
    let limit = row.moved_percent.map(|percent| format!("_{percent}")).unwrap_or_default();
    let path = directory.join(format!("new_{}{limit}.txt", row.instance));
    let mut text = String::new();
    for machine in &row.layout {
        let _ = write!(text, "{machine} ");
    }
    text.pop();
    text.push('\n');
    std::fs::write(&path, text)
        .map_err(|error| CliError::failed(format!("cannot write {}: {error}", path.display())))
}

fn text(facts: &ReassignmentFacts) -> String {
    let heads = facts.heads().map(|head| head.to_uppercase());
    let aligned: [String; 12] = std::array::from_fn(|at| match at {
        0 => heads[at].clone(),
        _ => format!(">{}", heads[at]),
    });
    let mut table = Table::new(std::array::from_fn::<&str, 12, _>(|at| &aligned[at]));
    for row in facts.rows() {
        table.row(row);
    }
    table.render()
}
