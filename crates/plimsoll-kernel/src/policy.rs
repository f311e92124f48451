//! The numbers decisions turn on, each with its reason. They are one value, handed in, so that tests can scale time.

use plimsoll_model::{Millis, Pressure, Timestamp};

use crate::batch::MAX_CHANGES;
use crate::preempt::PreemptLimits;
use crate::rebalance::RebalanceLimits;
use crate::reschedule::RescheduleLimits;
use crate::review::ReviewLimits;

/// So many heartbeats or samples may fail to come before their node counts as silent.
const MISSED: u64 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// How often a node says that it is alive.
    pub heartbeat: Millis,
    /// How often a node measures itself and its replicas, and the rebalancer looks at it.
    pub sample_interval: Millis,
    /// How often everything is looked at, in case something was overlooked.
    pub full_pass: Millis,
    /// How long a down node may come back before its replicas are replaced.
    pub loss_grace: Millis,
    /// How long a container runtime that does not answer may come back before what does not run behind it is replaced. An
    /// engine that is restarted or upgraded takes seconds; one that takes longer is down.
    pub runtime_grace: Millis,
    /// How long a successor may take to get healthy once its image is there.
    pub step_timeout: Millis,
    /// How long it may take to get the image: a large one on a slow line is not a fault.
    pub pull_timeout: Millis,
    /// So many failures in a row, and a replica is left alone until the next apply.
    pub restart_limit: u32,
    /// How long a replica must run for its failures to be forgotten.
    pub sustained_run: Millis,
    pub max_restart_back_off: Millis,
    pub max_pull_back_off: Millis,
    /// So many failures of a service on a node within the window make it the last choice.
    pub failure_limit: u32,
    pub failure_window: Millis,
    /// Below the first line a node is ordinary, below the second busy, above it full. Coarse, so that noise changes
    /// nothing and ordinary nodes tie.
    pub lines: [Pressure; 2],
    pub rebalance: RebalanceLimits,
    pub reschedule: RescheduleLimits,
    pub review: ReviewLimits,
    pub preempt: PreemptLimits,
    /// The most changes of a decision that go into one entry of the log.
    pub max_changes: usize,
    /// How many times as fast certificates of an ACME authority age, for those who try renewal out.
    pub renewal_haste: u64,
}

impl Policy {
    /// How long a node may be silent before it is down.
    pub const fn node_ttl(&self) -> Millis {
        Millis(self.heartbeat.0.saturating_mul(MISSED))
    }

    /// How old a sample may be: what was measured longer ago is silence, to every decision.
    pub const fn stale_after(&self) -> Millis {
        Millis(self.sample_interval.0.saturating_mul(MISSED))
    }

    /// Whether what was measured at this time still says something. Placement, rebalancing and what people are shown go by
    /// this one rule.
    pub const fn is_fresh(&self, measured_at: Timestamp, now: Timestamp) -> bool {
        now.since(measured_at).0 <= self.stale_after().0
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            heartbeat: Millis::seconds(5),
            sample_interval: Millis::seconds(30),
            full_pass: Millis::seconds(30),
            loss_grace: Millis::seconds(3),
            runtime_grace: Millis::seconds(60),
            step_timeout: Millis::seconds(60),
            pull_timeout: Millis::minutes(15),
            restart_limit: 3,
            sustained_run: Millis::seconds(60),
            max_restart_back_off: Millis::minutes(5),
            max_pull_back_off: Millis::minutes(60),
            failure_limit: 5,
            failure_window: Millis::minutes(5),
            lines: [Pressure::percent(75), Pressure::percent(85)],
            rebalance: RebalanceLimits::default(),
            reschedule: RescheduleLimits::default(),
            review: ReviewLimits::default(),
            preempt: PreemptLimits::default(),
            max_changes: MAX_CHANGES,
            renewal_haste: 1,
        }
    }
}
