//! A plan as it is told: what a dry run, the contract of a drain and `plimsoll decide place` say. What it rests on is settled in
//! the kernel.

use plimsoll_kernel::place::Score;
use plimsoll_kernel::plan::{self, ReplicaFate, ReplicaOutcome};
use plimsoll_model::ServiceKey;
use plimsoll_model::reason::Unplaced;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ReasonCode;

/// What becomes of replicas. Each list is in the order of rounds, then of names. Rounds count from 1: what is begun in one goes
/// on at the same time, the next begins once it is done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    pub placed: Vec<PlannedPlacement>,
    pub moved: Vec<PlannedMove>,
    pub retired: Vec<PlannedRetirement>,
    pub stays: Vec<PlannedStay>,
    /// Services that lack replicas.
    pub unplaced: Vec<UnplacedReplicas>,
    /// Services that have fewer replicas running at some moment than they have now and should have.
    pub short: Vec<Shortfall>,
    /// Rollouts that are stopped because too many of their steps failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rollouts: Vec<PlannedRolloutStop>,
}

/// A new replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedPlacement {
    pub replica: String,
    /// `shop/web`
    pub service: String,
    pub node: String,
    pub round: u32,
    /// From 0 to 10 000; none for `global`, which takes every node it may.
    pub score: Option<u16>,
    pub parts: Option<ScoreParts>,
}

/// A replica that gets another assignment, perhaps on the node it is on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedMove {
    pub replica: String,
    pub service: String,
    pub from: String,
    pub to: String,
    pub cause: ReasonCode,
    /// It stops before it starts again: it cannot run twice.
    pub is_stop_first: bool,
    pub round: u32,
    /// None where no node was chosen: it is recreated in its own place, or was on its way already.
    pub score: Option<u16>,
    pub parts: Option<ScoreParts>,
}

/// A replica that ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedRetirement {
    pub replica: String,
    pub service: String,
    pub node: String,
    pub round: u32,
    /// The replica of higher priority that it makes way for; it comes back where there is room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempted_by: Option<String>,
}

/// A replica that is left where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedStay {
    pub replica: String,
    pub service: String,
    pub node: String,
    pub reason: ReasonCode,
    pub detail: String,
    /// Its node is drained by force: it has stopped, and comes back with the node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_stopped: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnplacedReplicas {
    pub service: String,
    pub missing: u32,
    pub reason: ReasonCode,
    pub detail: String,
    /// The reason with its numbers.
    #[schema(value_type = Object)]
    pub why: serde_json::Value,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Shortfall {
    pub service: String,
    pub least: u32,
    pub of: u32,
}

/// A rollout that is stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedRolloutStop {
    pub service: String,
    /// `aborted`: the service goes back to the spec before. `paused`: it stays as it is.
    pub result: String,
    pub detail: String,
}

/// What a score is the sum of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScoreParts {
    pub zone: u16,
    pub node: u16,
    pub headroom: u16,
    pub preferred: u16,
}

impl From<Score> for ScoreParts {
    fn from(Score { zone, node, headroom, preferred }: Score) -> Self {
        Self { zone, node, headroom, preferred }
    }
}

impl From<&plan::Plan> for Plan {
    fn from(plan: &plan::Plan) -> Self {
        let mut told = Self::default();
        let mut outcomes: Vec<&ReplicaOutcome> = plan.outcomes.iter().collect();
        outcomes.sort_by_key(|outcome| (outcome.fate.round(), &outcome.id));
        for outcome in outcomes {
            told.add(outcome);
        }
        told.unplaced = plan.unplaced.iter().map(UnplacedReplicas::of).collect();
        let short = plan.shortfalls.iter().map(|(service, short)| Shortfall {
            service: service.to_string(),
            least: short.least,
            of: short.of,
        });
        told.short = short.collect();
        let stopped = plan.stopped_rollouts.iter().map(|(service, it)| PlannedRolloutStop {
            service: service.to_string(),
            result: it.word().to_owned(),
            detail: it.why().to_string(),
        });
        told.rollouts = stopped.collect();
        told
    }
}

impl UnplacedReplicas {
    fn of((service, unplaced): (&ServiceKey, &Unplaced)) -> Self {
        Self {
            service: service.to_string(),
            missing: unplaced.missing,
            reason: (&unplaced.why).into(),
            detail: unplaced.why.to_string(),
            why: serde_json::to_value(&unplaced.why).unwrap_or_default(),
        }
    }
}

impl Plan {
    /// Whether nothing is begun and nothing is lacking.
    pub fn is_empty(&self) -> bool {
        let is_calm = self.placed.is_empty() && self.moved.is_empty() && self.retired.is_empty();
        is_calm && self.stays.is_empty() && self.unplaced.is_empty() && self.rollouts.is_empty()
    }

    fn add(&mut self, ReplicaOutcome { id, node, fate }: &ReplicaOutcome) {
        let (replica, service, node) = (id.to_string(), id.service.to_string(), node.to_string());
        match fate {
            ReplicaFate::Placed { score, round } => self.placed.push(PlannedPlacement {
                replica,
                service,
                node,
                round: *round,
                score: score.map(Score::total),
                parts: score.map(Into::into),
            }),
            ReplicaFate::Moved { from, cause, is_stop_first, score, round } => {
                self.moved.push(PlannedMove {
                    replica,
                    service,
                    from: from.to_string(),
                    to: node,
                    cause: (*cause).into(),
                    is_stop_first: *is_stop_first,
                    round: *round,
                    score: score.map(Score::total),
                    parts: score.map(Into::into),
                });
            }
            ReplicaFate::Retired { round } | ReplicaFate::Preempted { round, .. } => {
                let preempted_by = match fate {
                    ReplicaFate::Preempted { by, .. } => Some(by.by.to_string()),
                    _ => None,
                };
                let round = *round;
                let retired = PlannedRetirement { replica, service, node, round, preempted_by };
                self.retired.push(retired);
            }
            ReplicaFate::Stays { why, is_stopped } => self.stays.push(PlannedStay {
                replica,
                service,
                node,
                reason: why.into(),
                detail: why.to_string(),
                is_stopped: *is_stopped,
            }),
        }
    }
}
