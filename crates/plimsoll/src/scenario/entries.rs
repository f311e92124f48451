//! The words of a scenario file, as they are written.

use plimsoll_model::{Bytes, DeploymentName, MilliCpus, Millis, NodeId};
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::shape::ShapeEntry;
use crate::entries::deployment::DeploymentEntry;
use crate::entries::node::NodeEntry;
use crate::entries::values::{Pairs, Parsed, ServiceRef, Span};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScenarioEntry {
    pub(super) name: Option<String>,
    pub(super) length: Spanned<Parsed<Millis>>,
    pub(super) cycle: Option<Spanned<Parsed<Millis>>>,
    pub(super) nodes: Spanned<Vec<NodeEntry>>,
    #[serde(default)]
    pub(super) deployments: Vec<Spanned<DeploymentEntry>>,
    #[serde(default)]
    pub(super) usage: Pairs<Spanned<ServiceRef>, UsageEntry>,
    #[serde(default)]
    pub(super) takes: TakesEntry,
    #[serde(default)]
    pub(super) events: Vec<Spanned<EventEntry>>,
    pub(super) chaos: Option<ChaosEntry>,
}

/// What one replica uses; what is left out is what it reserves.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UsageEntry {
    pub(super) cpus: Option<Spanned<ShapeEntry<MilliCpus>>>,
    pub(super) memory: Option<Spanned<ShapeEntry<Bytes>>>,
}

/// How long things take, from least to most.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TakesEntry {
    pub(super) pull: Option<Spanned<Parsed<Span>>>,
    pub(super) start: Option<Spanned<Parsed<Span>>>,
    pub(super) health: Option<Spanned<Parsed<Span>>>,
    pub(super) stop: Option<Spanned<Parsed<Span>>>,
    pub(super) network: Option<Spanned<Parsed<Span>>>,
    pub(super) commit: Option<Spanned<Parsed<Span>>>,
    pub(super) election: Option<Spanned<Parsed<Span>>>,
}

/// A time, and one of the rest.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventEntry {
    pub(super) at: Spanned<Parsed<Millis>>,
    pub(super) crash: Option<Spanned<NodeId>>,
    pub(super) cut: Option<Spanned<NodeId>>,
    #[serde(rename = "return")]
    pub(super) comes_back: Option<Spanned<NodeId>>,
    pub(super) join: Option<NodeEntry>,
    pub(super) cordon: Option<Spanned<NodeId>>,
    pub(super) uncordon: Option<Spanned<NodeId>>,
    pub(super) drain: Option<Spanned<NodeId>>,
    pub(super) kill: Option<Spanned<NodeId>>,
    pub(super) new_leader: Option<Spanned<bool>>,
    pub(super) deploy: Option<Spanned<DeploymentEntry>>,
    pub(super) undeploy: Option<Spanned<DeploymentName>>,
    #[serde(rename = "break")]
    pub(super) breaks: Option<Spanned<String>>,
    pub(super) mend: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChaosEntry {
    pub(super) until: Spanned<Parsed<Millis>>,
    pub(super) every: Option<Spanned<Parsed<Millis>>>,
    pub(super) outage: Option<Spanned<Parsed<Span>>>,
}
