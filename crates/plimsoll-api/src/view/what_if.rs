//! What is supposed to happen to a cell, and what would come of it. How that is worked out is settled in the kernel.

use std::collections::BTreeMap;

use plimsoll_kernel::what_if::{self, NodeUse};
use plimsoll_model::{NodePressure, Pressure};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Plan, spec};

/// What is supposed to happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum WhatIf {
    /// These nodes are drained, all at once.
    Drain { nodes: Vec<String> },
    /// These nodes fall silent, all at once, and do not come back.
    Lose { nodes: Vec<String> },
    /// So many nodes join.
    Add {
        count: u32,
        /// Thousandths of a core.
        milli_cpus: u64,
        /// Bytes.
        memory: u64,
        #[serde(default)]
        gpus: u32,
        #[serde(default)]
        zone: Option<String>,
    },
    /// A file is applied. Images are taken to be what their tags were at the last apply.
    Apply {
        deployment: String,
        #[schema(value_type = BTreeMap<String, spec::ServiceSpec>)]
        services: BTreeMap<plimsoll_model::ServiceName, plimsoll_model::ServiceSpec>,
        #[serde(default)]
        #[schema(value_type = Vec<spec::RouteSpec>)]
        routes: Vec<plimsoll_model::spec::RouteSpec>,
    },
    /// Services have so many replicas: by name, `web`, or where several deployments have one, `shop/web`.
    Scale { services: BTreeMap<String, u32> },
    /// Nothing: what the rebalancer and the rescheduler do by themselves.
    Rebalance,
}

/// What would come of it. Nothing was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Forecast {
    pub cell: String,
    /// What is supposed, in a few words: `drain n3`.
    pub what_if: String,
    #[serde(flatten)]
    pub plan: Plan,
    /// Every node, by name.
    pub nodes: Vec<NodeForecast>,
    /// Nodes above this are relieved. Shares are in millionths of a node.
    #[schema(value_type = u32)]
    pub line: Pressure,
    /// About how long it takes until the last replica runs, by how long replicas took when they last started.
    pub estimate_ms: u64,
    /// How much longer where replicas use their whole stop grace.
    pub stop_grace_ms: u64,
    /// Whether it was followed to its end; else the time for it was up.
    pub is_whole: bool,
}

/// What becomes of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeForecast {
    pub node: String,
    /// `added`, `drained` or `lost`; none where nothing is supposed of it.
    pub change: Option<String>,
    /// None for a node that is added.
    pub before: Option<NodeUsage>,
    pub after: Option<NodeUsage>,
    /// The most it bears at any moment.
    pub peak: Option<NodeUsage>,
}

/// What a node bears. Shares are in millionths of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeUsage {
    /// Those that run there or are on their way.
    pub replicas: u32,
    /// What is set aside by reservations.
    pub reserved: NodeShares,
    /// What is used, as measured and smoothed, and as it would be with the same use; none where it is not measured.
    pub pressure: Option<NodeShares>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeShares {
    #[schema(value_type = u32)]
    pub cpu: Pressure,
    #[schema(value_type = u32)]
    pub memory: Pressure,
}

impl NodeShares {
    /// The higher of the two.
    pub fn top(self) -> Pressure {
        self.cpu.max(self.memory)
    }
}

impl From<NodePressure> for NodeShares {
    fn from(NodePressure { cpu, memory }: NodePressure) -> Self {
        Self { cpu, memory }
    }
}

impl From<NodeUse> for NodeUsage {
    fn from(NodeUse { replicas, reserved, pressure }: NodeUse) -> Self {
        Self { replicas, reserved: reserved.into(), pressure: pressure.map(Into::into) }
    }
}

impl Forecast {
    pub fn of(asked: &WhatIf, line: Pressure, forecast: &what_if::Forecast) -> Self {
        let nodes = forecast.nodes.iter().map(|(node, it)| NodeForecast {
            node: node.to_string(),
            change: it.change.map(|change| change.word().to_owned()),
            before: it.before.map(Into::into),
            after: it.after.map(Into::into),
            peak: it.peak.map(Into::into),
        });
        Self {
            cell: forecast.after.cell_id().to_string(),
            what_if: asked.to_string(),
            plan: (&forecast.plan).into(),
            nodes: nodes.collect(),
            line,
            estimate_ms: forecast.takes.0,
            stop_grace_ms: forecast.stop_grace.0,
            is_whole: forecast.is_whole,
        }
    }
}

impl NodeForecast {
    /// Whether it bears the same before and after, and no more in between.
    pub fn is_unchanged(&self) -> bool {
        self.change.is_none() && self.before == self.after && self.before == self.peak
    }
}

impl std::fmt::Display for WhatIf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Drain { nodes } => write!(f, "drain {}", nodes.join(",")),
            Self::Lose { nodes } => write!(f, "lose {}", nodes.join(",")),
            Self::Add { count, .. } => write!(f, "add {count}"),
            Self::Apply { deployment, .. } => write!(f, "apply {deployment}"),
            Self::Scale { services } => {
                let counts: Vec<String> =
                    services.iter().map(|(name, count)| format!("{name}={count}")).collect();
                write!(f, "scale {}", counts.join(" "))
            }
            Self::Rebalance => f.write_str("rebalance"),
        }
    }
}
