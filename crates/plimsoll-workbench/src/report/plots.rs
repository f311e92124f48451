//! The plots: pressure by node, replicas wanted and running, what was missing, and moves, all over the same time.

use plimsoll_kernel::Policy;
use plimsoll_model::{Millis, NodeId, Pressure};
use plimsoll_sim::Report;
use plimsoll_sim::report::Sample;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::{Axis, plain};
use super::marks::EventMarks;
use crate::scenario::WrittenScenario;

/// The width every plot is drawn at; a page scales it.
const WIDTH: u32 = 1_080;
const LEFT: u32 = 56;
const RIGHT: u32 = 24;

/// Up to so many nodes have a line each; of more, only how they are spread can be read.
const MAX_LINES: usize = 12;

/// Numbers above the plot nearer than this would run into each other.
const MIN_GAP: i32 = 18;

// The style sheet gives the first three another value in the dark, and the legend takes all of them by class.
const INK: RGBColor = RGBColor(0x44, 0x4b, 0x55);
const GRID: RGBColor = RGBColor(0xe3, 0xe6, 0xea);
pub(super) const MARK: RGBColor = RGBColor(0x8a, 0x93, 0x9f);
pub(super) const LINES: [RGBColor; MAX_LINES] = [
    RGBColor(0x3b, 0x7d, 0xd8),
    RGBColor(0xf0, 0x96, 0x2e),
    RGBColor(0x3a, 0x9d, 0x5d),
    RGBColor(0xc4, 0x2f, 0x4b),
    RGBColor(0x8a, 0x63, 0xc9),
    RGBColor(0x9c, 0x6b, 0x4e),
    RGBColor(0xd4, 0x6a, 0xa7),
    RGBColor(0x7a, 0x87, 0x95),
    RGBColor(0xb5, 0x9a, 0x1f),
    RGBColor(0x1f, 0x9f, 0xb0),
    RGBColor(0x5b, 0x66, 0xd6),
    RGBColor(0x6f, 0xa8, 0x2e),
];

/// A drawing, and what is said around it.
#[derive(Debug)]
pub(super) struct Plot {
    pub(super) title: &'static str,
    pub(super) caption: &'static str,
    pub(super) svg: String,
    /// The class of its colour, and the name of each line.
    pub(super) legend: Vec<(String, String)>,
}

pub(super) type Point = (f64, f64);
pub(super) type Failed = Box<dyn std::error::Error>;
pub(super) type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

pub(super) fn all(
    written: &WrittenScenario,
    report: &Report,
    marks: &EventMarks,
) -> Result<Vec<Plot>, Failed> {
    let canvas = Canvas { length: written.scenario.length, marks };
    let policy = written.scenario.policy;
    let pressure = if report.nodes.len() <= MAX_LINES {
        by_node(&canvas, report, &policy)?
    } else {
        spread(&canvas, report, &policy)?
    };
    Ok(vec![
        pressure,
        replicas(&canvas, report)?,
        missing(&canvas, report)?,
        moves(&canvas, report)?,
    ])
}

/// One line a node.
fn by_node(canvas: &Canvas<'_>, report: &Report, policy: &Policy) -> Result<Plot, Failed> {
    let of = |at: usize| move |sample: &Sample| sample.pressure[at].map(share);
    let lines = LINES[..report.nodes.len()].iter().enumerate();
    let svg = canvas.draw(300, Axis::share(highest(report)), two_digits, |chart| {
        limits(chart, policy)?;
        for (at, colour) in lines.clone() {
            for piece in pieces(report, of(at)) {
                chart.draw_series(LineSeries::new(piece, colour.stroke_width(2)))?;
            }
        }
        // Nodes alike have lines alike: dashes of the one below show through the one above.
        for (at, colour) in lines.rev().skip(1) {
            for piece in pieces(report, of(at)) {
                let style = colour.stroke_width(2);
                chart.draw_series(DashedLineSeries::new(piece, 8, 8, style))?;
            }
        }
        Ok(())
    })?;
    let names = report.nodes.iter().map(NodeId::to_string).enumerate();
    Ok(Plot {
        title: "Pressure",
        caption: "The share of each node in use, the higher of cpu and memory. A gap: no heartbeat.",
        svg,
        legend: names.map(|(at, name)| (format!("line{at}"), name)).collect(),
    })
}

/// How the nodes are spread, and the hottest of them.
fn spread(canvas: &Canvas<'_>, report: &Report, policy: &Policy) -> Result<Plot, Failed> {
    let quantile = |percent: usize| {
        move |sample: &Sample| {
            let mut all: Vec<Pressure> = sample.pressure.iter().flatten().copied().collect();
            all.sort();
            Some(share(*all.get(all.len().saturating_sub(1) * percent / 100)?))
        }
    };
    let peak_of = |at: &usize| report.samples.iter().filter_map(|s| s.pressure[*at]).max();
    // Of equals the first by name.
    let hottest = (0..report.nodes.len()).rev().max_by_key(peak_of).unwrap_or(0);
    let svg = canvas.draw(300, Axis::share(highest(report)), two_digits, |chart| {
        limits(chart, policy)?;
        let (least, most) = (pieces(report, quantile(0)), pieces(report, quantile(100)));
        for (low, mut band) in least.into_iter().zip(most) {
            band.extend(low.into_iter().rev());
            chart.draw_series([Polygon::new(band, LINES[0].mix(0.18))])?;
        }
        for piece in pieces(report, |sample| sample.pressure[hottest].map(share)) {
            chart.draw_series(LineSeries::new(piece, LINES[3].stroke_width(1)))?;
        }
        for (percent, colour) in [(90, LINES[1]), (50, LINES[0])] {
            for piece in pieces(report, quantile(percent)) {
                chart.draw_series(LineSeries::new(piece, colour.stroke_width(2)))?;
            }
        }
        Ok(())
    })?;
    let legend = [
        ("band", "least to most".to_owned()),
        ("line0", "median".to_owned()),
        ("line1", "nine of ten nodes are below".to_owned()),
        ("line3", format!("{}, the hottest", report.nodes[hottest])),
    ];
    Ok(Plot {
        title: "Pressure",
        caption: "The share of the nodes in use, the higher of cpu and memory.",
        svg,
        legend: legend.map(|(class, name)| (class.to_owned(), name)).into(),
    })
}

fn replicas(canvas: &Canvas<'_>, report: &Report) -> Result<Plot, Failed> {
    let wanted = steps(report, |sample| u64::from(sample.wanted));
    let running = steps(report, |sample| u64::from(sample.running));
    let most = report.samples.iter().map(|s| s.wanted.max(s.running)).max().unwrap_or(0);
    let svg = canvas.draw(220, Axis::count(most.into()), whole, |chart| {
        chart.draw_series(AreaSeries::new(running.clone(), 0.0, LINES[2].mix(0.15)))?;
        chart.draw_series(LineSeries::new(wanted, MARK.stroke_width(2)))?;
        chart.draw_series(LineSeries::new(running, LINES[2].stroke_width(2)))?;
        Ok(())
    })?;
    let legend = [("mark", "wanted"), ("line2", "running on nodes that are heard")];
    Ok(Plot {
        title: "Replicas",
        caption: "How many there should be, and how many there are.",
        svg,
        legend: owned(&legend),
    })
}

fn missing(canvas: &Canvas<'_>, report: &Report) -> Result<Plot, Failed> {
    let missing = steps(report, |sample| u64::from(sample.missing));
    let unplaced = steps(report, |sample| u64::from(sample.unplaced));
    let most = report.samples.iter().map(|s| s.missing.max(s.unplaced)).max().unwrap_or(0);
    let svg = canvas.draw(180, Axis::count(most.into()), whole, |chart| {
        chart.draw_series(AreaSeries::new(missing.clone(), 0.0, LINES[1].mix(0.15)))?;
        chart.draw_series(LineSeries::new(missing, LINES[1].stroke_width(2)))?;
        chart.draw_series(LineSeries::new(unplaced, LINES[3].stroke_width(2)))?;
        Ok(())
    })?;
    let legend = [("line1", "wanted, but not running"), ("line3", "without a place")];
    Ok(Plot {
        title: "Missing",
        caption: "The most replicas that lacked at once, and those that no node could take.",
        svg,
        legend: owned(&legend),
    })
}

fn moves(canvas: &Canvas<'_>, report: &Report) -> Result<Plot, Failed> {
    let moves = steps(report, |sample| sample.moves);
    let most = report.samples.last().map_or(0, |sample| sample.moves);
    let svg = canvas.draw(180, Axis::count(most), whole, |chart| {
        chart.draw_series(LineSeries::new(moves, LINES[4].stroke_width(2)))?;
        Ok(())
    })?;
    let legend = [("line4", "moves begun")];
    Ok(Plot {
        title: "Moves",
        caption: "All since the beginning: flat is quiet.",
        svg,
        legend: owned(&legend),
    })
}

/// What the plots share: their time and its marks.
pub(super) struct Canvas<'m> {
    pub(super) length: Millis,
    pub(super) marks: &'m EventMarks,
}

impl Canvas<'_> {
    pub(super) fn draw(
        &self,
        height: u32,
        axis: Axis,
        label: fn(f64) -> String,
        lines: impl FnOnce(&mut Chart<'_, '_>) -> Result<(), Failed>,
    ) -> Result<String, Failed> {
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
            let top = axis.end;
            let text = ("sans-serif", 15).into_font().color(&INK);
            let mut chart = ChartBuilder::on(&root)
                .margin_top(if self.marks.scripted.is_empty() { 8 } else { 22 })
                .margin_right(RIGHT)
                .x_label_area_size(30)
                .y_label_area_size(LEFT)
                .build_cartesian_2d(Axis::time(self.length), axis)?;
            chart
                .configure_mesh()
                .disable_x_mesh()
                .light_line_style(TRANSPARENT)
                .bold_line_style(GRID)
                .axis_style(GRID)
                .label_style(text)
                .x_label_formatter(&|at| time(*at))
                .y_label_formatter(&|value| label(*value))
                .draw()?;
            self.draw_marks(&root, &mut chart, top)?;
            lines(&mut chart)?;
            root.present()?;
        }
        Ok(svg)
    }

    fn draw_marks(
        &self,
        root: &DrawingArea<SVGBackend<'_>, Shift>,
        chart: &mut Chart<'_, '_>,
        top: f64,
    ) -> Result<(), Failed> {
        for at in &self.marks.chance {
            let at = plain(at.0);
            chart.draw_series([PathElement::new([(at, 0.0), (at, top * 0.04)], MARK)])?;
        }
        let centred = Pos::new(HPos::Center, VPos::Bottom);
        let text = ("sans-serif", 15).into_font().color(&INK).pos(centred);
        let mut last = i32::MIN / 2;
        for (number, mark) in self.marks.scripted.iter().enumerate() {
            let at = plain(mark.at.0);
            chart.draw_series([PathElement::new([(at, 0.0), (at, top)], MARK.mix(0.6))])?;
            let (x, y) = chart.backend_coord(&(at, top));
            if x - last >= MIN_GAP {
                root.draw(&Text::new((number + 1).to_string(), (x, y - 4), text.clone()))?;
                last = x;
            }
        }
        Ok(())
    }
}

/// Where a node counts as busy, and as full.
fn limits(chart: &mut Chart<'_, '_>, policy: &Policy) -> Result<(), Failed> {
    let (time, top) = (chart.x_range().end, chart.y_range().end);
    for line in policy.lines.map(share).into_iter().filter(|line| *line <= top) {
        chart.draw_series([PathElement::new([(0.0, line), (time, line)], LINES[3].mix(0.35))])?;
    }
    Ok(())
}

/// The points of a line, broken where there is nothing to show.
fn pieces(report: &Report, value: impl Fn(&Sample) -> Option<f64>) -> Vec<Vec<Point>> {
    let mut pieces: Vec<Vec<Point>> = vec![Vec::new()];
    for sample in &report.samples {
        match value(sample) {
            Some(value) => {
                pieces.last_mut().expect("never empty").push((plain(sample.at.0), value));
            }
            None => pieces.push(Vec::new()),
        }
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// A count holds until the next one.
fn steps(report: &Report, value: impl Fn(&Sample) -> u64) -> Vec<Point> {
    let mut points: Vec<(u64, u64)> = Vec::new();
    for sample in &report.samples {
        let (at, now) = (sample.at.0, value(sample));
        match *points.as_mut_slice() {
            // What goes on as it was needs no points of its own.
            [.., (_, earlier), (ref mut last, before)] if [earlier, before] == [now, now] => {
                *last = at;
            }
            [.., (_, before)] => points.extend([(at, before), (at, now)]),
            [] => points.push((at, now)),
        }
    }
    points.into_iter().map(|(at, count)| (plain(at), plain(count))).collect()
}

fn highest(report: &Report) -> f64 {
    report.samples.iter().flat_map(|s| &s.pressure).flatten().copied().max().map_or(0.0, share)
}

fn share(pressure: Pressure) -> f64 {
    f64::from(pressure.millionths()) / 1e6
}

pub(super) fn owned(legend: &[(&str, &str)]) -> Vec<(String, String)> {
    legend.iter().map(|(class, name)| ((*class).to_owned(), (*name).to_owned())).collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a tick of our own")]
fn time(at: f64) -> String {
    if at < 1.0 { "0".to_owned() } else { Millis(at as u64).to_string() }
}

fn two_digits(share: f64) -> String {
    format!("{share:.2}")
}

pub(super) fn whole(count: f64) -> String {
    format!("{count:.0}")
}
