//! What is asked of nodes and rollouts, and what is answered.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Plan, PlannedVolumeMove, Reason, ReasonCode, Time};

/// How a node is to be drained.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Drain {
    /// How long one replica may take; left out: five minutes.
    pub timeout_ms: Option<u64>,
    /// Stop what cannot move.
    #[serde(default)]
    pub force: bool,
    /// Move volumes to other nodes, with the services that use them.
    #[serde(default)]
    pub move_volumes: bool,
}

/// How a drain goes on, or how the last one ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainState {
    pub since: Time,
    pub is_forced: bool,
    /// Nothing left the node for too long: it is cordoned, and what it still had runs on.
    pub has_timed_out: bool,
}

/// What a drain does, by the passes that carry it out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainPlan {
    pub node: String,
    /// What becomes of the services that have replicas on the node. What stays there runs on, or is stopped where that is
    /// asked for.
    pub plan: Plan,
    /// About how long it takes, by how long the replicas took when they last started.
    pub estimate_ms: u64,
    /// How much longer it takes where replicas use their whole stop grace.
    #[serde(default)]
    pub stop_grace_ms: u64,
    /// The volumes that move to another node, with what uses them.
    #[serde(default)]
    pub volume_moves: Vec<PlannedVolumeMove>,
    /// The log index it was written at; none for a plan that is not carried out.
    pub index: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeChanged {
    pub node: String,
    /// `active`, `cordoned`, `draining` or `removed`.
    pub availability: String,
    /// The log index it was written at; none where it was so already.
    pub index: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RolloutAction {
    /// What moves finishes; nothing else begins.
    Pause,
    /// Goes on, with another try of what failed.
    Resume,
    /// Returns to what ran before.
    Abort,
}

/// A replica on its way from one assignment to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Move {
    pub replica: String,
    pub from: String,
    pub to: String,
    /// What made it necessary; none for what only stops.
    pub cause: Option<ReasonCode>,
    /// `reserve`, `start`, `healthy` or `stop`.
    pub step: String,
    pub since: Time,
    /// When it is given up, unless it comes further before.
    pub deadline: Option<Time>,
    /// What its new node says of it.
    pub reason: Option<Reason>,
}

/// What to do about the rollouts of a deployment; without a service, of all that are under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangeRollout {
    pub action: RolloutAction,
    pub service: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutChanged {
    pub services: Vec<String>,
    pub index: u64,
}
