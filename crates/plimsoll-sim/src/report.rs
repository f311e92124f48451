//! What a run leaves behind: the cell's life as numbers over time, and as a story.

use std::collections::VecDeque;

use plimsoll_model::audit::AuditEvent;
use plimsoll_model::{AuditKind, Millis, NodeId, NodePressure, NodeStatus, Pressure};

use crate::world::World;

mod presence;

pub use presence::Missing;
use presence::Presence;

/// At most this many points in time: enough for a plot, whatever the length of the run.
const MAX_SAMPLES: usize = 2_000;

/// At most this many lines of story; the rest is counted.
const MAX_STORY: usize = 10_000;

/// So many of the latest lines are kept beside the story, which may have ended long before.
const MAX_LATEST: usize = 20;

#[derive(Debug, Clone, Default)]
pub struct Report {
    pub nodes: Vec<NodeId>,
    pub samples: Vec<Sample>,
    pub story: Vec<TimelineEntry>,
    /// Lines of story beyond the limit.
    pub untold: u64,
    /// The last lines, whether or not the story still had room for them.
    pub latest: VecDeque<TimelineEntry>,
    pub placed: u64,
    pub moves: u64,
    pub finished: u64,
    pub undone: u64,
    pub losses: u64,
    pub steps: u64,
    /// Batches refused because something had changed since they were decided.
    pub refused: u64,
    next_seq: u64,
    cycles: u64,
    every: u64,
    presence: Presence,
}

/// The cell at one point in time.
#[derive(Debug, Clone)]
pub struct Sample {
    pub at: Millis,
    /// The higher of cpu and memory, by node; none where it is down or not heard.
    pub pressure: Vec<Option<Pressure>>,
    pub wanted: u32,
    /// Healthy on a machine that is heard, whatever the cell believes of one that was just lost.
    pub running: u32,
    /// The most that were missing at once since the sample before: no gap is too short to show.
    pub missing: u32,
    pub unplaced: u32,
    /// Moves begun so far.
    pub moves: u64,
}

#[derive(Debug, Clone)]
pub struct TimelineEntry {
    pub at: Millis,
    pub what: AuditKind,
}

impl Report {
    pub(crate) fn new(world: &World<'_>) -> Self {
        let cycles = world.scenario.length.0 / world.scenario.policy.sample_interval.0.max(1);
        let every = cycles.div_ceil(MAX_SAMPLES as u64).max(1);
        let mut nodes: Vec<NodeId> = world.scenario.nodes.keys().cloned().collect();
        for (_, action) in &world.scenario.script {
            if let crate::Action::Join(node, _) = action {
                nodes.push(node.clone());
            }
        }
        nodes.sort();
        nodes.dedup();
        let presence = Presence::new(world.scenario);
        Self { nodes, every, presence, ..Self::default() }
    }

    /// The gaps in what ran until the run ended; none if there was never a moment without one.
    pub fn missing(&self, end: Millis) -> Option<Missing> {
        self.presence.missing(end)
    }

    /// Takes in what the last step did.
    pub(crate) fn note(&mut self, world: &World<'_>) {
        self.steps += 1;
        self.refused = world.refused;
        self.presence.follow(world);
        if !world.applied.is_empty() {
            let ring = world.state.audit();
            for event in ring.since(self.next_seq) {
                self.tell(event, world);
            }
            self.next_seq = ring.next_seq();
        }
        if world.is_cycle {
            if self.cycles.is_multiple_of(self.every) {
                self.sample(world);
            }
            self.cycles += 1;
        }
    }

    fn tell(&mut self, event: &AuditEvent, world: &World<'_>) {
        match &event.what {
            AuditKind::Placed { .. } => self.placed += 1,
            AuditKind::MoveStarted { .. } => self.moves += 1,
            AuditKind::MoveFinished { .. } => self.finished += 1,
            AuditKind::MoveUndone { .. } => self.undone += 1,
            AuditKind::NodeStatus { status: NodeStatus::Down, .. } => self.losses += 1,
            _ => {}
        }
        let begun = Millis(world.now().0 - world.elapsed().0);
        let at = Millis(event.at.0.saturating_sub(begun.0));
        let line = TimelineEntry { at, what: event.what.clone() };
        if self.latest.len() >= MAX_LATEST {
            self.latest.pop_front();
        }
        self.latest.push_back(line.clone());
        if self.story.len() < MAX_STORY {
            self.story.push(line);
        } else {
            self.untold += 1;
        }
    }

    fn sample(&mut self, world: &World<'_>) {
        let measured = &world.measured;
        let pressure_of = |node: &NodeId| {
            let at = measured.binary_search_by_key(&node, |(node, _)| node).ok()?;
            measured[at].1.map(NodePressure::top)
        };
        let lacking = world.state.unplaced().iter().filter_map(|key| world.state.service(key));
        let unplaced = lacking.filter_map(|service| service.row.unplaced.as_ref());
        self.samples.push(Sample {
            at: world.elapsed(),
            pressure: self.nodes.iter().map(pressure_of).collect(),
            wanted: self.presence.wanted,
            running: self.presence.running,
            missing: self.presence.take_peak(),
            unplaced: unplaced.map(|unplaced| unplaced.missing).sum(),
            moves: self.moves,
        });
    }
}
