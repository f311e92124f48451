//! The relief of hot nodes, as people read it.

use plimsoll_model::audit::AuditKind;
use plimsoll_model::rebalance::{self, Dimension, RefusedCandidate, RepeatCount, Skipped};
use plimsoll_model::{NodeId, Pressure};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{FillStatus, ReasonCode, Time};

/// What the rebalancer has to say of a node: every gate with its number and its limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeAccount {
    pub node: String,
    /// As a sentence.
    pub why: String,
    /// How far it is filled.
    #[serde(default)]
    pub fill: Option<FillStatus>,
    /// What must hold before anything is moved off the node.
    pub gates: Vec<Gate>,
    /// Of each replica that could leave it, the one that relieves it most first.
    pub moves: Vec<WeighedMove>,
}

/// A move that was weighed, and each gate it must pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WeighedMove {
    pub replica: String,
    pub dst: String,
    /// How much cooler the node would be, in millionths.
    pub relief: u32,
    pub gates: Vec<Gate>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Gate {
    pub gate: String,
    pub found: String,
    pub limit: String,
    pub passes: bool,
}

/// The numbers of a move off a hot node that was made, or was not. Shares of a node are in millionths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Relief {
    /// None where no move was weighed.
    pub replica_id: Option<String>,
    pub deployment: Option<String>,
    pub service: Option<String>,
    pub src: String,
    pub dst: Option<String>,
    /// `cpu` or `memory`
    pub dominant: String,
    pub relief: Option<u32>,
    /// Relief less the cost of a move.
    pub score: Option<i64>,
    pub move_cost: Option<u32>,
    pub src_pressure_before: u32,
    pub src_pressure_after: Option<u32>,
    pub dst_pressure_before: Option<u32>,
    pub dst_pressure_after: Option<u32>,
    /// The gate that said no.
    pub reason: Option<ReasonCode>,
    /// Other replicas that were weighed, and the gate that said no to each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
    /// How often on end.
    pub count: Option<u32>,
    pub last_at: Option<Time>,
}

/// A replica that was not moved off a hot node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refused {
    pub replica_id: String,
    pub reason: ReasonCode,
}

impl From<&RefusedCandidate> for Refused {
    fn from(refused: &RefusedCandidate) -> Self {
        Self { replica_id: refused.replica.to_string(), reason: refused.why.into() }
    }
}

impl Relief {
    /// What the audit has of a cycle beyond the sentence.
    pub fn of(what: &AuditKind) -> Option<Self> {
        match what {
            AuditKind::RebalanceMoved { relief } => Some(weighed(relief)),
            AuditKind::RebalanceSkipped { skipped, times } => Some(skip(skipped, *times)),
            _ => None,
        }
    }
}

fn weighed(relief: &rebalance::Relief) -> Relief {
    let rebalance::Relief { replica, src, dst, dominant, .. } = relief;
    Relief {
        replica_id: Some(replica.to_string()),
        deployment: Some(replica.service.deployment.to_string()),
        service: Some(replica.service.service.to_string()),
        src: src.to_string(),
        dst: Some(dst.to_string()),
        dominant: dominant.word().to_owned(),
        relief: Some(relief.relief.millionths()),
        score: Some(relief.score),
        move_cost: Some(relief.move_cost.millionths()),
        src_pressure_before: relief.src_before.millionths(),
        src_pressure_after: Some(relief.src_after.millionths()),
        dst_pressure_before: Some(relief.dst_before.millionths()),
        dst_pressure_after: Some(relief.dst_after.millionths()),
        reason: None,
        refused: relief.refused.iter().map(Into::into).collect(),
        count: None,
        last_at: None,
    }
}

fn unweighed(src: &NodeId, dominant: Dimension, pressure: Pressure) -> Relief {
    Relief {
        replica_id: None,
        deployment: None,
        service: None,
        src: src.to_string(),
        dst: None,
        dominant: dominant.word().to_owned(),
        relief: None,
        score: None,
        move_cost: None,
        src_pressure_before: pressure.millionths(),
        src_pressure_after: None,
        dst_pressure_before: None,
        dst_pressure_after: None,
        reason: None,
        refused: Vec::new(),
        count: None,
        last_at: None,
    }
}

fn skip(skipped: &Skipped, times: RepeatCount) -> Relief {
    let Skipped { src, dominant, pressure, why, nearest, refused } = skipped;
    let numbers = nearest.as_ref().map_or_else(|| unweighed(src, *dominant, *pressure), weighed);
    Relief {
        reason: Some((*why).into()),
        refused: refused.iter().map(Into::into).collect(),
        count: Some(times.count),
        last_at: Some(Time(times.last_at)),
        ..numbers
    }
}
