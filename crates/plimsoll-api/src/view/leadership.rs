//! What the leadership of a cell rests on, as one node sees it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Since when who leads does, and on what.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct LeadershipInfo {
    /// What keeps the log: `embedded` or `etcd`. None on a node that holds none.
    pub engine: Option<String>,
    /// Milliseconds since this node saw the one who leads begin; none while nobody does.
    pub led_ms: Option<u64>,
    /// How many leaders it has seen since it started.
    pub elections: u64,
    /// Milliseconds that its lease lasts yet, by its own clock; none where it has no lease.
    pub lease_left_ms: Option<u64>,
    /// What keeps this node from taking part at the moment.
    pub hindrance: Option<String>,
}

/// A span in whole milliseconds.
pub fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
