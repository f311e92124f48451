//! Replays of measured days as one page: the table, and of each day how many nodes were hot, with the rebalancer and without,
//! and the moves it made.

use std::fmt::Write as _;

use plimsoll_sim::trace::{self, Tick};
use plotters::prelude::*;

use super::axis::{Axis, plain};
use super::marks::EventMarks;
use super::plots::{Canvas, Failed, LINES, MARK, Plot, Point, owned, whole};
use super::{document, escaped, figure};
use crate::error::{Error, Result};
use crate::trace::{TraceFacts, TraceRun};

/// So many cycles share a point: four minutes, of a plot a day wide.
const CYCLES_A_POINT: usize = 8;

/// The whole page.
pub fn page(kind: &str, runs: &[TraceRun], facts: &TraceFacts) -> Result<String> {
    let title = format!("{kind}: replayed through the rebalancer");
    let mut body = format!("<h1>{}</h1>\n{}", escaped(&title), table(facts));
    for run in runs {
        let plots = [hot(run), moves(run)];
        let (day, seed) = (escaped(&run.trace.name), escaped(&run.seed));
        let _ = writeln!(body, "<section><h2>{day}, seed {seed}</h2></section>");
        for plot in plots {
            let plot = plot.map_err(|error| Error::Draw(error.to_string()))?;
            body.push_str(&figure(&plot));
        }
    }
    Ok(document(&format!("{title} · plimsoll sim"), &body))
}

fn table(facts: &TraceFacts) -> String {
    let mut text = "<table class=\"facts\">\n".to_owned();
    for (nth, row) in facts.cells().iter().enumerate() {
        let tag = if nth == 0 { "th" } else { "td" };
        text.push_str("<tr>");
        for cell in row {
            let _ = write!(text, "<{tag}>{}</{tag}>", escaped(cell));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</table>\n");
    text
}

fn hot(run: &TraceRun) -> Result<Plot, Failed> {
    let (without, with) = (points(&run.without.ticks, most), points(&run.with.ticks, most));
    let top = run.without.ticks.iter().chain(&run.with.ticks).map(|tick| tick.hot).max();
    let svg = draw(run, u64::from(top.unwrap_or(0)), |chart| {
        chart.draw_series(LineSeries::new(without, MARK.stroke_width(1)))?;
        chart.draw_series(AreaSeries::new(with.clone(), 0.0, LINES[3].mix(0.15)))?;
        chart.draw_series(LineSeries::new(with, LINES[3].stroke_width(2)))?;
        Ok(())
    })?;
    Ok(Plot {
        title: "Hot nodes",
        caption: "The most at once, of those asked for more than 0.85 of what they have.",
        svg,
        legend: owned(&[("mark", "nothing moves"), ("line3", "with the rebalancer")]),
    })
}

fn moves(run: &TraceRun) -> Result<Plot, Failed> {
    let last = |ticks: &[Tick]| ticks.last().map_or(0, |tick| tick.moves as u64);
    let points = points(&run.with.ticks, last);
    let svg = draw(run, last(&run.with.ticks), |chart| {
        chart.draw_series(LineSeries::new(points, LINES[4].stroke_width(2)))?;
        Ok(())
    })?;
    Ok(Plot {
        title: "Moves",
        caption: "All since the beginning: flat is quiet.",
        svg,
        legend: owned(&[("line4", "moves begun")]),
    })
}

fn draw(
    run: &TraceRun,
    top: u64,
    lines: impl FnOnce(&mut super::plots::Chart<'_, '_>) -> Result<(), Failed>,
) -> Result<String, Failed> {
    let marks = EventMarks::default();
    let canvas = Canvas { length: trace::length(&run.trace), marks: &marks };
    canvas.draw(160, Axis::count(top), whole, lines)
}

fn most(ticks: &[Tick]) -> u64 {
    ticks.iter().map(|tick| tick.hot).max().unwrap_or(0).into()
}

fn points(ticks: &[Tick], value: impl Fn(&[Tick]) -> u64) -> Vec<Point> {
    let chunks = ticks.chunks(CYCLES_A_POINT);
    chunks.filter_map(|some| Some((plain(some.first()?.at.0), plain(value(some))))).collect()
}
