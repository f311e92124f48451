//! Certificates of routes, as they are told. Keys are in none of it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Time;

/// What a host of routes shows, or why it shows nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Certificate {
    pub host: String,
    /// `auto`, `files` or `internal`.
    pub source: String,
    /// The deployments whose routes name the host.
    pub deployments: Vec<String>,
    /// Who signed it; none: there is none.
    pub issuer: Option<String>,
    pub expires_at: Option<Time>,
    /// When another takes its place; none where somebody else sees to that.
    pub renew_at: Option<Time>,
    /// When a try that failed is repeated.
    pub retry_at: Option<Time>,
    pub last_error: Option<String>,
    /// Failed tries since the last that did not fail.
    pub failures: u32,
    /// The node that tells this: those of files and of the cell's own authority are each node's own.
    pub told_by: String,
}
