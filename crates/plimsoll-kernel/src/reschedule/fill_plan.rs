//! What the rescheduler has in mind for one node: how much of its fair share it has, and when it is sent more.

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
    pub stage: FillStage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FillStage {
    /// It takes nothing new.
    Closed,
    /// It opened too short a time ago, for how often it was lost of late.
    Earning { left: Millis, losses: u32 },
    /// It was just sent something.
    Resting { left: Millis },
    /// It is sent so many at a time.
    Filling { at_a_time: u32, every: Millis },
    /// It has its share, or nothing elsewhere is older than it.
    Filled,
}

/// What the rescheduler has in mind for a node; none where there is no such node.
pub fn fill_plan(
    state: &State,
    policy: &Policy,
    node: &NodeId,
    now: Timestamp,
) -> Option<FillPlan> {
    let row = state.node(node)?;
    let open = state.nodes().values().filter(|node| node.is_open()).count();
    let open = u32::try_from(open.max(1)).unwrap_or(u32::MAX);
    let (mut has, mut all, mut older) = (0_u32, 0_u32, false);
    for (_, replica) in state.replicas() {
        let Some(heading) = Replica::heading(replica) else { continue };
        all = all.saturating_add(1);
        has += u32::from(heading.node == *node);
        older |= heading.node != *node && heading.at < row.open_since;
    }
    let fair_share = all.div_ceil(open);
    let is_filled = has >= all / open || !older;
    Some(FillPlan {
        node: node.clone(),
        has,
        fair_share,
        stage: next_stage(policy, row, (fair_share, is_filled), now),
    })
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
        FillStage::Earning { left: distrust, losses: limits.losses(node, now) }
    } else if rested < every {
        FillStage::Resting { left: Millis(every.0 - rested.0) }
    } else {
        FillStage::Filling { at_a_time: limits.at_a_time(fair_share), every }
    }
}

impl fmt::Display for FillPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, has, fair_share, stage } = self;
        write!(f, "{node} has {has} replicas, its fair share is {fair_share}: ")?;
        match stage {
            FillStage::Closed => f.write_str("it takes no new replicas"),
            FillStage::Earning { left, losses: 0 } => write!(f, "it is filled from {left} on"),
            FillStage::Earning { left, losses } => {
                write!(f, "it was lost {losses} times of late, and is filled from {left} on")
            }
            FillStage::Resting { left } => write!(f, "it is sent more in {left}"),
            FillStage::Filling { at_a_time, every } => {
                write!(f, "it is filled, {at_a_time} at a time every {every}")
            }
            FillStage::Filled => f.write_str("it is not filled any further"),
        }
    }
}
