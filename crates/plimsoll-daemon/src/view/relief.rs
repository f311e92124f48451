//! The relief of hot nodes, as people read it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What the rebalancer has to say of a node: every gate with its number and its limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeAccount {
    pub node: String,
    /// As a sentence.
    pub why: String,
    /// Cpu and memory in millionths, smoothed, with every move under way counted as done; none where nothing is known.
    pub cpu: Option<u32>,
    pub memory: Option<u32>,
    /// What must hold before anything is moved off the node.
    pub gates: Vec<Gate>,
    /// The move that is nearest to passing.
    pub nearest: Option<WeighedMove>,
}

/// A move that was weighed, and each gate it must pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WeighedMove {
    pub replica: String,
    pub dst: String,
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
    pub src_before: u32,
    pub src_after: Option<u32>,
    pub dst_before: Option<u32>,
    pub dst_after: Option<u32>,
    /// The gate that said no.
    pub reason: Option<String>,
    /// How often on end.
    pub count: Option<u32>,
    pub last_at: Option<super::Time>,
}
