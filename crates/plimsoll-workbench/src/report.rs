//! A run as one page for a browser: plots, numbers and the story, with nothing fetched from anywhere.

use std::fmt::Write as _;

use plimsoll_model::Millis;
use plimsoll_sim::RunOutcome;

use crate::error::{Error, Result};
use crate::scenario::WrittenScenario;
use crate::sim::RunFacts;
use crate::text::{count, elapsed};

mod action;
mod axis;
mod marks;
pub mod of_forecast;
pub mod of_trace;
mod plots;

use marks::EventMarks;
use plots::Plot;

const STYLE: &str = include_str!("report/style.css");

/// Enough to follow a run by; all of it comes with `--story`.
const MAX_STORY: usize = 500;

/// The whole page.
pub fn page(
    written: &WrittenScenario,
    outcome: &RunOutcome,
    facts: &RunFacts,
    replay: &str,
) -> Result<String> {
    let marks = EventMarks::of(written, outcome.seed);
    let plots = plots::all(written, &outcome.report, &marks)
        .map_err(|error| Error::Draw(error.to_string()))?;
    let mut body = head(written, outcome, facts, replay);
    for plot in &plots {
        body.push_str(&figure(plot));
    }
    body.push_str(&scripted(&marks));
    body.push_str(&story(outcome));
    Ok(document(&format!("{} · plimsoll sim", written.scenario.name), &body))
}

/// A page of its own around the body.
fn document(title: &str, body: &str) -> String {
    let title = escaped(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )
}

fn head(written: &WrittenScenario, outcome: &RunOutcome, facts: &RunFacts, replay: &str) -> String {
    let (name, seed) = (escaped(&written.scenario.name), outcome.seed);
    let length = written.scenario.length;
    let verdict = match &outcome.failure {
        None => "<p class=\"verdict kept\">Every promise was kept.</p>".to_owned(),
        Some(failure) => {
            let broken = escaped(&failure.broken.to_string());
            let at = elapsed(failure.at);
            format!("<p class=\"verdict broken\">Broken after {at}: {broken}</p>")
        }
    };
    let mut rows = String::new();
    for (word, numbers) in facts.rows() {
        let _ = writeln!(rows, "<tr><th>{word}</th><td>{}</td></tr>", escaped(&numbers));
    }
    format!(
        "<h1>{name}</h1>\n<p class=\"lead\">{length} of virtual time, seed {seed}. Replay it with \
         <code>{}</code></p>\n{verdict}\n<table class=\"facts\">\n{rows}</table>\n",
        escaped(replay)
    )
}

fn figure(plot: &Plot) -> String {
    let mut legend = String::new();
    for (class, name) in &plot.legend {
        let name = escaped(name);
        let _ = writeln!(legend, "<span><i class=\"{class}\"></i>{name}</span>");
    }
    format!(
        "<figure>\n<figcaption><h2>{}</h2><p>{}</p></figcaption>\n{}<p class=\"legend\">\n\
         {legend}</p>\n</figure>\n",
        plot.title, plot.caption, plot.svg
    )
}

/// The numbers that stand above the plots, and what they stand for.
fn scripted(marks: &EventMarks) -> String {
    if marks.scripted.is_empty() && marks.chance.is_empty() {
        return String::new();
    }
    let mut items = String::new();
    for mark in &marks.scripted {
        let (at, what) = (elapsed(mark.at), escaped(&mark.what));
        let _ = writeln!(items, "<li><time>{at}</time> {what}</li>");
    }
    let mut text = "<section>\n<h2>What happened to the cell</h2>\n".to_owned();
    if !items.is_empty() {
        let _ = write!(text, "<ol class=\"script\">\n{items}</ol>\n");
    }
    if marks.more > 0 {
        let _ = writeln!(text, "<p>… and {} more events</p>", marks.more);
    }
    if !marks.chance.is_empty() {
        let times = count(marks.chance.len(), "time");
        let ticks = "the ticks at the foot of the plots";
        let _ = writeln!(text, "<p>Chance struck {times}, as drawn from the seed: {ticks}</p>");
    }
    text.push_str("</section>\n");
    text
}

fn story(outcome: &RunOutcome) -> String {
    let report = &outcome.report;
    let total = report.story.len() as u64 + report.untold;
    let mut rows = String::new();
    for line in report.story.iter().take(MAX_STORY) {
        let (at, word, what) =
            (elapsed(line.at), line.what.word(), escaped(&line.what.to_string()));
        let _ = writeln!(rows, "<tr class=\"{word}\"><td>{at}</td><td>{what}</td></tr>");
    }
    let shown = match total {
        0..=500 => count(usize::try_from(total).unwrap_or(0), "line"),
        _ => format!("the first {MAX_STORY} of {total} lines"),
    };
    format!(
        "<section>\n<h2>The story</h2>\n<p>{shown}</p>\n<div class=\"story\"><table>\n{rows}\
         </table></div>\n</section>\n"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Something to be seen at a point in time.
#[derive(Debug)]
struct EventMark {
    at: Millis,
    what: String,
}
