//! The words of a case file, as they are written. Names and quantities are checked here, by the model's own types.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use plimsoll_model::ids::InvalidId;
use plimsoll_model::{
    Availability, Bytes, ClusterId, DeploymentName, MilliCpus, Millis, NodeId, NodeStatus,
    ObservedState, Pressure, ServiceKey, ServiceName, Zone,
};
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeEntry {
    pub(super) name: Spanned<NodeId>,
    pub(super) cpus: Parsed<MilliCpus>,
    pub(super) memory: Parsed<Bytes>,
    #[serde(default)]
    pub(super) gpus: u32,
    pub(super) zone: Option<Zone>,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    pub(super) os: Option<String>,
    pub(super) arch: Option<String>,
    #[serde(default = "ready")]
    pub(super) status: NodeStatus,
    /// How long it has been down; by default long enough to be given up.
    pub(super) down_for: Option<Spanned<Parsed<Millis>>>,
    #[serde(default = "active")]
    pub(super) availability: Availability,
    pub(super) pressure: Option<PressureEntry>,
}

fn ready() -> NodeStatus {
    NodeStatus::Ready
}

fn active() -> Availability {
    Availability::Active
}

/// Shares of the node in use, as it would measure them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PressureEntry {
    pub(super) cpu: Share,
    pub(super) memory: Share,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeploymentEntry {
    pub(super) name: Option<Spanned<DeploymentName>>,
    /// A compose file, relative to the case file.
    pub(super) compose: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) profiles: Vec<String>,
    /// Or its services, in a short form.
    pub(super) services: Option<BTreeMap<ServiceName, Spanned<ServiceEntry>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServiceEntry {
    pub(super) image: Option<String>,
    pub(super) replicas: Option<u32>,
    pub(super) placement: Option<String>,
    #[serde(default)]
    pub(super) hosts: Vec<String>,
    #[serde(default)]
    pub(super) reserve: ReserveEntry,
    #[serde(default)]
    pub(super) constraints: Vec<String>,
    pub(super) max_per_node: Option<u32>,
    #[serde(default)]
    pub(super) host_ports: Vec<u16>,
    #[serde(default)]
    pub(super) volumes: Vec<String>,
    #[serde(default)]
    pub(super) priority: i32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReserveEntry {
    pub(super) cpus: Option<String>,
    pub(super) memory: Option<String>,
    #[serde(default)]
    pub(super) gpus: u32,
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

/// `shop/web`.
#[derive(Debug, Clone)]
pub(super) struct ServiceRef(pub(super) ServiceKey);

impl<'de> Deserialize<'de> for ServiceRef {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        text.parse().map(Self).map_err(|error| {
            let message = match error {
                InvalidId::Name(error) => error.to_string(),
                _ => format!("{text:?} does not name a service; write deployment/service"),
            };
            serde::de::Error::custom(message)
        })
    }
}

/// A quantity read from its text as written, so that `0.10` is exact.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parsed<T>(pub(super) T);

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// A share such as `0.85`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share(pub(super) Pressure);

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        let wrong = || {
            let message = format!("{text:?} is not a share; write 0.85 for 85 % of the node");
            serde::de::Error::custom(message)
        };
        // A decimal of thousandths is what cpus are too.
        let MilliCpus(thousandths) = text.parse().map_err(|_| wrong())?;
        let millionths = u32::try_from(thousandths.saturating_mul(1_000)).map_err(|_| wrong())?;
        // A node can be over its line, but `85` was meant as a percentage.
        if millionths > 4 * Pressure::FULL.millionths() {
            return Err(wrong());
        }
        Ok(Self(Pressure::from_millionths(millionths)))
    }
}
