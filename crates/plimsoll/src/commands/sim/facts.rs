//! What a run found, in numbers. The table, JSON and the page all show these.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use plimsoll_model::{Millis, Pressure};
use plimsoll_sim::report::Sample;
use plimsoll_sim::{Outcome, Report, SETTLING, invariants};
use serde::Serialize;

use crate::elapsed::elapsed;
use crate::output::count;
use crate::scenario::Written;
use crate::table::Table;

#[derive(Debug, Serialize)]
pub(super) struct Facts {
    pub(super) scenario: String,
    pub(super) seed: u64,
    length_ms: u64,
    pub(super) failure: Option<Broken>,
    nodes: usize,
    zones: usize,
    pub(super) nodes_lost: u64,
    deployments: usize,
    services: usize,
    pub(super) placed: u64,
    pub(super) moves: Moves,
    end: Option<End>,
    /// None if there was never a moment with every replica running.
    pub(super) missing: Option<Missing>,
    pub(super) peak: Option<Peak>,
    batches_refused: u64,
    steps: u64,
    invariants: usize,
    /// Whether the cell had to settle at the end: the last event must lie long enough before it.
    settled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    story: Option<Story>,
}

/// The promise that was broken.
#[derive(Debug, Serialize)]
pub(super) struct Broken {
    pub(super) at_ms: u64,
    invariant: &'static str,
    what: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Moves {
    pub(super) started: u64,
    finished: u64,
    pub(super) undone: u64,
}

/// The last time the cell was measured.
#[derive(Debug, Serialize)]
struct End {
    wanted: u32,
    running: u32,
    unplaced: u32,
}

#[derive(Debug, Serialize)]
pub(super) struct Missing {
    /// When every replica ran for the first time: what was missing before that does not count.
    complete_at_ms: u64,
    pub(super) most: u32,
    most_at_ms: u64,
    pub(super) longest_ms: u64,
    longest_from_ms: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Peak {
    /// The share of the node in use.
    share: f64,
    node: String,
    at_ms: u64,
    #[serde(skip)]
    pub(super) pressure: Pressure,
}

#[derive(Debug, Serialize)]
struct Story {
    lines: Vec<Line>,
    /// Lines beyond those kept.
    more: u64,
}

#[derive(Debug, Serialize)]
struct Line {
    at_ms: u64,
    event: &'static str,
    text: String,
}

impl Facts {
    pub(super) fn of(written: &Written, outcome: &Outcome, with_story: bool) -> Self {
        let report = &outcome.report;
        let nodes = written.nodes();
        let zones: BTreeSet<_> = nodes.values().map(|facts| &facts.zone).collect();
        let services = written.services();
        let deployments: BTreeSet<_> = services.iter().map(|key| &key.deployment).collect();
        let broken = outcome.failure.as_ref();
        let end = |sample: &Sample| {
            let Sample { wanted, running, unplaced, .. } = *sample;
            End { wanted, running, unplaced }
        };
        let until = broken.map_or(written.scenario.length, |failure| failure.at);
        let missing = report.missing(until).map(|missing| Missing {
            complete_at_ms: missing.complete_at.0,
            most: missing.most,
            most_at_ms: missing.most_at.0,
            longest_ms: missing.longest.0,
            longest_from_ms: missing.longest_from.0,
        });
        Self {
            scenario: written.scenario.name.clone(),
            seed: outcome.seed,
            length_ms: written.scenario.length.0,
            failure: broken.map(|failure| Broken {
                at_ms: failure.at.0,
                invariant: failure.broken.invariant,
                what: failure.broken.what.clone(),
            }),
            nodes: nodes.len(),
            zones: zones.len(),
            nodes_lost: report.losses,
            deployments: deployments.len(),
            services: services.len(),
            placed: report.placed,
            moves: Moves {
                started: report.moves,
                finished: report.finished,
                undone: report.undone,
            },
            end: report.samples.last().map(end),
            missing,
            peak: peak(report),
            batches_refused: report.refused,
            steps: report.steps,
            invariants: invariants::all().len(),
            settled: settled(written, outcome),
            story: with_story.then(|| story(report)),
        }
    }

    pub(super) fn headline(&self) -> String {
        let (name, seed) = (&self.scenario, self.seed);
        match &self.failure {
            None => {
                let length = Millis(self.length_ms);
                format!("{name}: {length} simulated with seed {seed}, every promise kept")
            }
            Some(broken) => {
                let at = Millis(broken.at_ms);
                format!("{name}: a promise was broken after {at}, with seed {seed}")
            }
        }
    }

    /// The numbers, each under a word.
    pub(super) fn rows(&self) -> Vec<(&'static str, String)> {
        let lost = match self.nodes_lost {
            0 => "none was lost".to_owned(),
            1 => "one was lost once".to_owned(),
            times => format!("lost {times} times in all"),
        };
        let nodes = format!("{} in {}; {lost}", self.nodes, count(self.zones, "zone"));
        let services = format!("{} in {}", self.services, count(self.deployments, "deployment"));
        let Moves { started, finished, undone } = self.moves;
        let mut checked = format!("{} promises at each of {} steps", self.invariants, self.steps);
        checked.push_str(match (self.settled, &self.failure) {
            (Some(true), _) => ", and that the cell settles",
            (Some(false), _) => "; the cell did not settle",
            (None, None) => "; the end came too soon after the last event for the cell to settle",
            (None, Some(_)) => "",
        });
        vec![
            ("nodes", nodes),
            ("services", services),
            ("replicas", self.replicas()),
            ("moves", format!("{started} started, {finished} finished, {undone} undone")),
            ("missing", self.missing()),
            ("pressure", self.pressure()),
            ("batches", format!("{} refused and redone", self.batches_refused)),
            ("checked", checked),
        ]
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        if let Some(story) = &self.story {
            for line in &story.lines {
                let at = elapsed(Millis(line.at_ms));
                let _ = writeln!(text, "{at:>12}  {}", line.text);
            }
            if story.more > 0 {
                let _ = writeln!(text, "… and {} more lines", story.more);
            }
            text.push('\n');
        }
        let mut table = Table::list(2);
        for (word, numbers) in self.rows() {
            table.row([word.to_owned(), numbers]);
        }
        text.extend([&self.headline(), "\n", &table.render()]);
        text
    }

    fn replicas(&self) -> String {
        let placed = self.placed;
        match &self.end {
            None => format!("{placed} placed"),
            Some(End { wanted, running, unplaced: 0 }) => {
                format!("{wanted} wanted at the end, {running} running; {placed} placed")
            }
            Some(End { wanted, running, unplaced }) => format!(
                "{wanted} wanted at the end, {running} running, {unplaced} without a place; \
                 {placed} placed"
            ),
        }
    }

    fn missing(&self) -> String {
        match &self.missing {
            None => "some replica or other, at every moment".to_owned(),
            Some(Missing { most: 0, complete_at_ms, .. }) => {
                format!("never any, once all ran at {}", elapsed(Millis(*complete_at_ms)))
            }
            Some(Missing { most, most_at_ms, longest_ms, longest_from_ms, .. }) => format!(
                "at most {} at once, at {}; some for {} on end, from {}",
                count(*most as usize, "replica"),
                elapsed(Millis(*most_at_ms)),
                Millis(*longest_ms),
                elapsed(Millis(*longest_from_ms)),
            ),
        }
    }

    fn pressure(&self) -> String {
        self.peak.as_ref().map_or_else(
            || "never measured".to_owned(),
            |Peak { pressure, node, at_ms, .. }| {
                let at = elapsed(Millis(*at_ms));
                format!("{} at most, on {node} at {at}", rounded(*pressure))
            },
        )
    }
}

/// Two digits: a peak is no gate.
pub(super) fn rounded(pressure: Pressure) -> String {
    let hundredths = pressure.millionths().div_ceil(10_000);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// The highest pressure measured, and the first to have it.
fn peak(report: &Report) -> Option<Peak> {
    let mut peak: Option<Peak> = None;
    for sample in &report.samples {
        for (node, pressure) in report.nodes.iter().zip(&sample.pressure) {
            let Some(pressure) = *pressure else { continue };
            if peak.as_ref().is_none_or(|peak| pressure > peak.pressure) {
                let share = f64::from(pressure.millionths()) / 1e6;
                let (node, at_ms) = (node.to_string(), sample.at.0);
                peak = Some(Peak { share, node, at_ms, pressure });
            }
        }
    }
    peak
}

/// Whether it was asked, and if so, whether it did.
fn settled(written: &Written, outcome: &Outcome) -> Option<bool> {
    if let Some(failure) = &outcome.failure {
        return (failure.broken.invariant == "settled").then_some(false);
    }
    let last = written.scenario.last_action();
    let last = written.chaos.map_or(last, |chaos| last.max(chaos.until));
    let quiet = written.scenario.length.0.saturating_sub(last.0);
    (quiet >= SETTLING.0).then_some(true)
}

fn story(report: &Report) -> Story {
    let line = |line: &plimsoll_sim::report::Line| Line {
        at_ms: line.at.0,
        event: line.what.word(),
        text: line.what.to_string(),
    };
    Story { lines: report.story.iter().map(line).collect(), more: report.untold }
}
