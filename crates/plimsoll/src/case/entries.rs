//! The words that only a case has, as they are written.

use plimsoll_model::{ClusterId, NodeId, ObservedState};
use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::entries::deployment::DeploymentEntry;
use crate::entries::node::NodeEntry;
use crate::entries::values::ServiceRef;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    pub(super) cluster: Option<ClusterId>,
    pub(super) nodes: Vec<NodeEntry>,
    #[serde(default)]
    pub(super) deployments: Vec<Spanned<DeploymentEntry>>,
    #[serde(default)]
    pub(super) replicas: Vec<ReplicaEntry>,
}

/// A replica that exists when the scheduler looks.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplicaEntry {
    pub(super) service: Spanned<ServiceRef>,
    pub(super) index: Option<Spanned<u32>>,
    pub(super) node: Spanned<NodeId>,
    #[serde(default)]
    pub(super) state: ReportedState,
    /// What it runs, where that is not the service's image: it was started from an older spec.
    pub(super) image: Option<String>,
}

/// What a node may have reported of a replica that still has a place.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ReportedState {
    Pending,
    Pulling,
    Starting,
    #[default]
    Running,
    Degraded,
    Failed,
}

impl From<ReportedState> for ObservedState {
    fn from(state: ReportedState) -> Self {
        match state {
            ReportedState::Pending => Self::Pending,
            ReportedState::Pulling => Self::Pulling,
            ReportedState::Starting => Self::Starting,
            ReportedState::Running => Self::Running,
            ReportedState::Degraded => Self::Degraded,
            ReportedState::Failed => Self::Failed,
        }
    }
}
