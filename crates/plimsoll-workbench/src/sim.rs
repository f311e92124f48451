//! What a run found, in numbers. The table, JSON and the page all show these.

use std::collections::BTreeSet;

use plimsoll_model::{Millis, Pressure};
use plimsoll_sim::report::Sample;
use plimsoll_sim::{Report, RunOutcome, SETTLING, invariants};
use serde::Serialize;

use crate::scenario::WrittenScenario;
use crate::text::{count, elapsed};

#[derive(Debug, Serialize)]
pub struct RunFacts {
    pub scenario: String,
    pub seed: u64,
    length_ms: u64,
    pub failure: Option<BrokenPromise>,
    nodes: usize,
    zones: usize,
    pub nodes_lost: u64,
    deployments: usize,
    services: usize,
    pub placed: u64,
    pub moves: MoveCounts,
    end: Option<FinalCount>,
    /// None if there was never a moment with every replica running.
    pub missing: Option<MissingReplicas>,
    pub peak: Option<PressurePeak>,
    batches_refused: u64,
    steps: u64,
    invariants: usize,
    /// Whether the cell had to settle at the end: the last event must lie long enough before it.
    settled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub story: Option<Story>,
}

/// The promise that was broken.
#[derive(Debug, Serialize)]
pub struct BrokenPromise {
    pub at_ms: u64,
    invariant: &'static str,
    what: String,
}

#[derive(Debug, Serialize)]
pub struct MoveCounts {
    pub started: u64,
    finished: u64,
    pub undone: u64,
}

/// The last time the cell was measured.
#[derive(Debug, Serialize)]
struct FinalCount {
    wanted: u32,
    running: u32,
    unplaced: u32,
}

#[derive(Debug, Serialize)]
pub struct MissingReplicas {
    /// When every replica ran for the first time: what was missing before that does not count.
    complete_at_ms: u64,
    pub most: u32,
    most_at_ms: u64,
    pub longest_ms: u64,
    longest_from_ms: u64,
}

#[derive(Debug, Serialize)]
pub struct PressurePeak {
    /// The share of the node in use.
    share: f64,
    node: String,
    at_ms: u64,
    #[serde(skip)]
    pub pressure: Pressure,
}

#[derive(Debug, Serialize)]
pub struct Story {
    pub lines: Vec<StoryLine>,
    /// Lines beyond those kept.
    pub more: u64,
}

#[derive(Debug, Serialize)]
pub struct StoryLine {
    pub at_ms: u64,
    event: &'static str,
    pub text: String,
}

impl RunFacts {
    pub fn of(written: &WrittenScenario, outcome: &RunOutcome, with_story: bool) -> Self {
        let report = &outcome.report;
        let nodes = written.nodes();
        let zones: BTreeSet<_> = nodes.values().map(|facts| &facts.zone).collect();
        let services = written.services();
        let deployments: BTreeSet<_> = services.iter().map(|key| &key.deployment).collect();
        let broken = outcome.failure.as_ref();
        let end = |sample: &Sample| {
            let Sample { wanted, running, unplaced, .. } = *sample;
            FinalCount { wanted, running, unplaced }
        };
        let until = broken.map_or(written.scenario.length, |failure| failure.at);
        let missing = report.missing(until).map(|missing| MissingReplicas {
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
            failure: broken.map(|failure| BrokenPromise {
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
            moves: MoveCounts {
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

    pub fn headline(&self) -> String {
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
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let lost = match self.nodes_lost {
            0 => "none was lost".to_owned(),
            1 => "one was lost once".to_owned(),
            times => format!("lost {times} times in all"),
        };
        let nodes = format!("{} in {}; {lost}", self.nodes, count(self.zones, "zone"));
        let services = format!("{} in {}", self.services, count(self.deployments, "deployment"));
        let MoveCounts { started, finished, undone } = self.moves;
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

    fn replicas(&self) -> String {
        let placed = self.placed;
        match &self.end {
            None => format!("{placed} placed"),
            Some(FinalCount { wanted, running, unplaced: 0 }) => {
                format!("{wanted} wanted at the end, {running} running; {placed} placed")
            }
            Some(FinalCount { wanted, running, unplaced }) => format!(
                "{wanted} wanted at the end, {running} running, {unplaced} without a place; \
                 {placed} placed"
            ),
        }
    }

    fn missing(&self) -> String {
        match &self.missing {
            None => "some replica or other, at every moment".to_owned(),
            Some(MissingReplicas { most: 0, complete_at_ms, .. }) => {
                format!("never any, once all ran at {}", elapsed(Millis(*complete_at_ms)))
            }
            Some(MissingReplicas { most, most_at_ms, longest_ms, longest_from_ms, .. }) => format!(
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
            |PressurePeak { pressure, node, at_ms, .. }| {
                let at = elapsed(Millis(*at_ms));
                format!("{} at most, on {node} at {at}", rounded(*pressure))
            },
        )
    }
}

/// Two digits: a peak is no gate.
pub fn rounded(pressure: Pressure) -> String {
    let hundredths = pressure.millionths().div_ceil(10_000);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// The highest pressure measured, and the first to have it.
fn peak(report: &Report) -> Option<PressurePeak> {
    let mut peak: Option<PressurePeak> = None;
    for sample in &report.samples {
        for (node, pressure) in report.nodes.iter().zip(&sample.pressure) {
            let Some(pressure) = *pressure else { continue };
            if peak.as_ref().is_none_or(|peak| pressure > peak.pressure) {
                let share = f64::from(pressure.millionths()) / 1e6;
                let (node, at_ms) = (node.to_string(), sample.at.0);
                peak = Some(PressurePeak { share, node, at_ms, pressure });
            }
        }
    }
    peak
}

/// Whether it was asked, and if so, whether it did.
fn settled(written: &WrittenScenario, outcome: &RunOutcome) -> Option<bool> {
    if let Some(failure) = &outcome.failure {
        return (failure.broken.invariant == "settled").then_some(false);
    }
    let last = written.scenario.last_action();
    let last = written.chaos.map_or(last, |chaos| last.max(chaos.until));
    let quiet = written.scenario.length.0.saturating_sub(last.0);
    (quiet >= SETTLING.0).then_some(true)
}

fn story(report: &Report) -> Story {
    let line = |line: &plimsoll_sim::report::TimelineEntry| StoryLine {
        at_ms: line.at.0,
        event: line.what.word(),
        text: line.what.to_string(),
    };
    Story { lines: report.story.iter().map(line).collect(), more: report.untold }
}
