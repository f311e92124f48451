//! What the rescheduler has in mind for one node: how much of its fair share it has, and when it is sent more.

use std::collections::BTreeMap;
use std::fmt;

use plimsoll_model::{Millis, Node, NodeId, Replica, State, Timestamp};
use serde::Serialize;

use crate::policy::Policy;

/// A node, what it has, and what comes next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FillPlan {
    pub node: NodeId,
    /// Replicas that are there or on their way.
    pub has: u32,
    /// What it would have if all nodes that take replicas had the same.
    pub fair_share: u32,
    /// How often it was lost of late.
    pub losses: u32,
    pub stage: FillStage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FillStage {
    /// It takes nothing new.
    Closed,
    /// It opened too short a time ago, for how often it was lost of late.
    Earning { left: Millis },
    /// It was just sent something.
    Resting { left: Millis },
    /// It is sent so many at a time.
    Filling { at_a_time: u32, every: Millis },
    /// It has its share, or nothing elsewhere is older than it.
    Filled,
}

/// What the plans of all nodes are made of, gathered in one walk over the replicas.
#[derive(Debug)]
pub struct FillSurvey<'s> {
    state: &'s State,
    /// Where each replica is, or will be once its move ends.
    counts: BTreeMap<&'s NodeId, u32>,
    all: u32,
    open: u32,
    /// The node with the replica that was placed first, and the first of any other node.
    oldest: Option<(&'s NodeId, Timestamp)>,
    oldest_elsewhere: Option<Timestamp>,
}

impl<'s> FillSurvey<'s> {
    pub fn new(state: &'s State) -> Self {
        let open = state.nodes().values().filter(|node| node.is_open()).count();
        let open = u32::try_from(open.max(1)).unwrap_or(u32::MAX);
        let (counts, all) = (BTreeMap::new(), 0);
        let (oldest, oldest_elsewhere) = (None, None);
        let mut survey = Self { state, counts, all, open, oldest, oldest_elsewhere };
        let services = state.services().values();
        for heading in services.flat_map(|it| it.replicas.values()).filter_map(Replica::heading) {
            survey.count(&heading.node, heading.at);
        }
        survey
    }

    fn count(&mut self, node: &'s NodeId, at: Timestamp) {
        self.all = self.all.saturating_add(1);
        *self.counts.entry(node).or_default() += 1;
        let elsewhere =
            |known: Option<Timestamp>, at| Some(known.map_or(at, |known| known.min(at)));
        match self.oldest {
            Some((first, known)) if first == node => self.oldest = Some((node, known.min(at))),
            Some((_, known)) if known <= at => {
                self.oldest_elsewhere = elsewhere(self.oldest_elsewhere, at);
            }
            before => {
                self.oldest = Some((node, at));
                if let Some((_, known)) = before {
                    self.oldest_elsewhere = elsewhere(self.oldest_elsewhere, known);
                }
            }
        }
    }

    /// Whether another node has a replica that was placed before this time.
    fn has_older(&self, node: &NodeId, time: Timestamp) -> bool {
        let oldest = match self.oldest {
            Some((first, at)) if first != node => Some(at),
            _ => self.oldest_elsewhere,
        };
        oldest.is_some_and(|oldest| oldest < time)
    }

    /// What the rescheduler has in mind for a node; none where there is no such node.
    pub fn plan(&self, policy: &Policy, node: &NodeId, now: Timestamp) -> Option<FillPlan> {
        let row = self.state.node(node)?;
        let has = self.counts.get(node).copied().unwrap_or(0);
        let fair_share = self.all.div_ceil(self.open);
        let is_filled = has >= self.all / self.open || !self.has_older(node, row.open_since);
        Some(FillPlan {
            node: node.clone(),
            has,
            fair_share,
            losses: policy.reschedule.losses(row, now),
            stage: next_stage(policy, row, (fair_share, is_filled), now),
        })
    }
}

/// What the rescheduler has in mind for a node; none where there is no such node.
pub fn fill_plan(
    state: &State,
    policy: &Policy,
    node: &NodeId,
    now: Timestamp,
) -> Option<FillPlan> {
    FillSurvey::new(state).plan(policy, node, now)
}

fn next_stage(
    policy: &Policy,
    node: &Node,
    (fair_share, is_filled): (u32, bool),
    now: Timestamp,
) -> FillStage {
    let (limits, every) = (&policy.reschedule, policy.rebalance.cooldown_node);
    let distrust = limits.distrust(node, now);
    let rested = node.received_at.map_or(every, |at| now.since(at));
    if !node.is_open() {
        FillStage::Closed
    } else if is_filled {
        FillStage::Filled
    } else if distrust.0 > 0 {
        FillStage::Earning { left: distrust }
    } else if rested < every {
        FillStage::Resting { left: Millis(every.0 - rested.0) }
    } else {
        FillStage::Filling { at_a_time: limits.at_a_time(fair_share), every }
    }
}

fn times(count: u32) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

impl FillStage {
    pub fn word(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Earning { .. } => "earning_trust",
            Self::Resting { .. } => "resting",
            Self::Filling { .. } => "filling",
            Self::Filled => "filled",
        }
    }

    /// When it is sent something next; none where nothing is to be said.
    pub fn next(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Earning { left } | Self::Resting { left } => Some(now.plus(left)),
            Self::Filling { .. } => Some(now),
            Self::Closed | Self::Filled => None,
        }
    }
}

impl fmt::Display for FillPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, has, fair_share, losses, stage } = self;
        let replicas = if *has == 1 { "replica" } else { "replicas" };
        write!(f, "{node} has {has} {replicas}, its fair share is {fair_share}: ")?;
        match stage {
            FillStage::Closed => f.write_str("it takes no new replicas"),
            FillStage::Earning { left } if *losses == 0 => write!(f, "filling begins in {left}"),
            FillStage::Earning { left } => {
                write!(f, "lost {} within the hour, filling begins in {left}", times(*losses))
            }
            FillStage::Resting { left } => write!(f, "filling, next in {left}"),
            FillStage::Filling { at_a_time, every } => {
                write!(f, "filling, {at_a_time} every {every}")
            }
            FillStage::Filled => f.write_str("not filled any further"),
        }
    }
}
