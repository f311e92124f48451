//! A service on its way from one spec to another. Which replica goes next is decided in the kernel; what is written here
//! outlives a leader: how far it came, what failed, and what there is to return to.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, Slot};
use crate::replica::ObservedCode;
use crate::spec::{ServiceSpec, SpecHash};
use crate::units::{Revision, Timestamp};

/// The latest rollout of a service, under way or over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    pub to: SpecHash,
    /// The revision of the deployment that asked for it.
    pub revision: Revision,
    /// The last that got through; none where there is no such, as when somebody returns to it half-way.
    pub from: Option<PreviousSpec>,
    pub since: Timestamp,
    pub phase: RolloutPhase,
    /// Why it was paused or taken back.
    pub why: Option<RolloutHalt>,
    /// Replicas whose step failed. They are not tried again until somebody asks for it.
    pub failed: BTreeMap<Slot, StepFailure>,
}

/// What a service ran before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousSpec {
    pub spec: Arc<ServiceSpec>,
    pub revision: Revision,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RolloutPhase {
    Rolling,
    Paused,
    /// Steps already taken are taken back, the same careful way.
    Undoing,
    Done,
    Undone,
}

impl RolloutPhase {
    pub fn word(self) -> &'static str {
        match self {
            Self::Rolling => "rolling",
            Self::Paused => "paused",
            Self::Undoing => "undoing",
            Self::Done => "done",
            Self::Undone => "undone",
        }
    }

    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Undone)
    }
}

/// Who stopped a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RolloutHalt {
    Operator,
    /// More steps failed than the service allows.
    Failures {
        failed: u32,
        of: u32,
    },
}

impl fmt::Display for RolloutHalt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator => f.write_str("an operator asked for it"),
            Self::Failures { failed, of } => write!(f, "{failed} of {of} replicas failed"),
        }
    }
}

/// Why a step of a rollout failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepFailure {
    pub node: NodeId,
    pub at: Timestamp,
    /// What its node said; none where it only took too long.
    pub code: Option<ObservedCode>,
    pub is_late: bool,
}

impl fmt::Display for StepFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.code, self.is_late) {
            (Some(code), false) => write!(f, "on {}: {code}", self.node),
            (Some(code), true) => write!(f, "on {}: not healthy in time; {code}", self.node),
            (None, true) => write!(f, "on {}: not healthy in time", self.node),
            (None, false) => write!(f, "on {}: it failed", self.node),
        }
    }
}

impl Rollout {
    pub fn is_over(&self) -> bool {
        self.phase.is_over()
    }

    /// Whether the replica has had its try. On the way back all of them go.
    pub fn has_tried(&self, slot: &Slot) -> bool {
        self.phase != RolloutPhase::Undoing && self.failed.contains_key(slot)
    }
}
