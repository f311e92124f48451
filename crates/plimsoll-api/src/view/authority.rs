//! The authority of a cell, and how far its rotation has come.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Time;

/// What signs the certificates of the cell's nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Authority {
    /// SHA-256 of its certificate.
    pub fingerprint: String,
    /// The change to another one, while it is under way.
    #[serde(default)]
    pub rotation: Option<Rotation>,
}

/// A change of authority under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rotation {
    /// `trust`: every node learns to trust both; `renew`: every node gets a certificate of the one that signs.
    pub phase: String,
    /// Whether the former authority signs again.
    #[serde(default)]
    pub is_abort: bool,
    pub started_at: Time,
    /// The authority that is trusted beside the one that signs.
    pub other: String,
    /// The nodes that have done what the phase asks.
    pub done: Vec<String>,
    /// The nodes that it waits for.
    pub awaited: Vec<AwaitedNode>,
    /// The nodes that it does not wait for while they are down.
    pub without: Vec<String>,
}

/// A node that has yet to do its part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AwaitedNode {
    pub node: String,
    /// `ready` or `down`.
    pub status: String,
}

/// How the authority is to be rotated.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateAuthority {
    /// Nodes that are down and not waited for; also for a rotation that is under way.
    #[serde(default)]
    pub without: Vec<String>,
}
