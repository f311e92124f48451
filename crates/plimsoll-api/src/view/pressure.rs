//! How busy nodes are and were, for those who watch. Shares are in millionths of a node.

use plimsoll_model::Pressure;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{NodeShares, Time};

/// The levels of all nodes, and the lines they are held against.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CellPressure {
    /// A node that stays above it is relieved.
    #[schema(value_type = u32)]
    pub trigger: Pressure,
    /// No move takes a node above it.
    #[schema(value_type = u32)]
    pub destination_cap: Pressure,
    /// How far apart samples are.
    pub interval_ms: u64,
    /// By name.
    pub nodes: Vec<NodeLevels>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeLevels {
    pub node: String,
    /// As the rebalancer judges it; none while it has not been measured, or nobody leads.
    pub smoothed: Option<NodeShares>,
    /// The same once all moves under way are done; none where that is no different.
    pub predicted: Option<NodeShares>,
    /// The last hour, oldest first, from when the leader began to lead; empty unless it was asked for.
    pub samples: Vec<LevelSample>,
}

/// How busy a node was, smoothed, and how much it held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LevelSample {
    pub at: Time,
    #[schema(value_type = u32)]
    pub cpu: Pressure,
    #[schema(value_type = u32)]
    pub memory: Pressure,
    pub replicas: u32,
}

/// Of which nodes, and whether their past is told too.
#[derive(
    Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema, utoipa::IntoParams,
)]
#[into_params(parameter_in = Query)]
pub struct PressureQuery {
    /// Only this one, if it is there.
    pub node: Option<String>,
    /// The samples of the last hour as well.
    #[serde(default, deserialize_with = "super::flag")]
    pub history: bool,
}
