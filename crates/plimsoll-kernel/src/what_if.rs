//! What would become of the cell if something happened to it: nodes drained, lost or added, a file applied, services scaled, or
//! nothing at all. The leader's own passes and loops over a copy of the state, to the end; nothing is written.
//!
//! How the passes go is settled in [`plan`](crate::plan); who is meant by the names that people give, and how it is told, is
//! left to others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_model::node::DRAIN_TIMEOUT;
use plimsoll_model::spec::RouteSpec;
use plimsoll_model::state::load::NodeLoad;
use plimsoll_model::{
    Availability, Change, DeploymentName, Millis, NodeFacts, NodeId, NodePressure, NodeStatus,
    Pressure, Rejection, Resources, ServiceKey, ServiceName, ServiceSpec, State, Timestamp, Writer,
};

use crate::Signals;
use crate::plan::Plan;
use crate::plan::estimate::{PlanEstimate, ReplicaTimes};
use crate::plan::foresight::Foresight;
use crate::plan::loops::Loops;
use crate::policy::Policy;
use crate::rebalance::Rebalancer;

#[cfg(test)]
mod tests;

/// What is supposed to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Supposition {
    Drain(BTreeSet<NodeId>),
    /// They fall silent, all at once.
    Lose(BTreeSet<NodeId>),
    /// So many nodes like this one join.
    Add {
        count: u32,
        facts: Box<NodeFacts>,
    },
    Deploy {
        deployment: DeploymentName,
        services: BTreeMap<ServiceName, Arc<ServiceSpec>>,
        routes: Vec<RouteSpec>,
    },
    Scale(BTreeMap<ServiceKey, u32>),
    /// Nothing: what the loops do by themselves.
    Rebalance,
}

/// A cell as its leader knows it.
#[derive(Debug)]
pub struct KnownCell<'a> {
    pub state: &'a State,
    pub signals: &'a Signals,
    pub policy: &'a Policy,
    /// What was measured, and what came of it so far.
    pub rebalancer: Rebalancer,
    pub now: Timestamp,
}

/// What would come of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forecast {
    /// Without replicas that stay as they should.
    pub plan: Plan,
    /// Every node of the cell, before or after, by name.
    pub nodes: BTreeMap<NodeId, NodeForecast>,
    /// About how long it takes until the last replica runs.
    pub takes: Millis,
    /// How much longer where replicas use their whole stop grace.
    pub stop_grace: Millis,
    /// Whether it was followed to its end; else time was up before.
    pub is_whole: bool,
    /// The cell as it is then.
    pub after: State,
}

/// What becomes of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeForecast {
    pub change: Option<NodeChange>,
    /// None for a node that is not there yet.
    pub before: Option<NodeUse>,
    pub after: Option<NodeUse>,
    /// The most it bears at any moment.
    pub peak: Option<NodeUse>,
}

/// What is supposed of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeChange {
    Added,
    Drained,
    Lost,
}

/// What a node bears.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeUse {
    /// Those that run there or are on their way.
    pub replicas: u32,
    /// The share of it that is set aside.
    pub reserved: NodePressure,
    /// As measured, and as it would be; none where it is not measured.
    pub pressure: Option<NodePressure>,
}

/// What would come of it, to the end, or until `is_late` says that it takes too long.
pub fn forecast(
    cell: KnownCell<'_>,
    supposed: &Supposition,
    is_late: &mut dyn FnMut() -> bool,
) -> Result<Forecast, Rejection> {
    let KnownCell { state, signals, policy, rebalancer, now } = cell;
    let mut foresight = Foresight::new(state.clone(), signals, policy, now);
    let loops = Loops::new(&foresight, rebalancer);
    foresight.follow_loops(loops);
    let (writer, changes) = supposed.changes(state);
    foresight.suppose(writer, changes)?;
    let is_whole = foresight.play(is_late)? && foresight.play_on(is_late)?;
    Ok(told(state, foresight, now, is_whole))
}

/// What came of a plan by the loops that followed it.
fn told(before: &State, foresight: Foresight<'_>, now: Timestamp, is_whole: bool) -> Forecast {
    let waited = foresight.waited_since(now);
    let (plan, loops, after) = foresight.end_followed();
    let times = ReplicaTimes::of(before, plan.outcomes.iter().map(|outcome| &outcome.id));
    let PlanEstimate { takes, stop_grace } = times.estimate(&plan);
    Forecast {
        nodes: loops.map(|loops| loops.nodes(before, &after)).unwrap_or_default(),
        plan,
        takes: Millis(takes.0 + waited.0),
        stop_grace,
        is_whole,
        after,
    }
}

impl Supposition {
    /// The changes that make it so, and who makes them.
    fn changes(&self, state: &State) -> (Writer, Vec<Change>) {
        match self {
            Self::Drain(nodes) => {
                let drain = |node: &NodeId| Change::Drain {
                    node: node.clone(),
                    timeout: DRAIN_TIMEOUT,
                    force: false,
                };
                (Writer::Operator, nodes.iter().map(drain).collect())
            }
            Self::Lose(nodes) => {
                let lose = |node: &NodeId| Change::SetStatus {
                    node: node.clone(),
                    status: NodeStatus::Down,
                };
                (Writer::Liveness, nodes.iter().map(lose).collect())
            }
            Self::Add { count, facts } => {
                let join = |node: NodeId| Change::PutNode { node, facts: (**facts).clone() };
                (Writer::Operator, new_names(state).take(*count as usize).map(join).collect())
            }
            Self::Deploy { deployment, services, routes } => {
                let deploy = Change::Deploy {
                    deployment: deployment.clone(),
                    services: services.clone(),
                    routes: routes.clone(),
                };
                (Writer::Operator, vec![deploy])
            }
            Self::Scale(counts) => (Writer::Operator, scaled(state, counts)),
            Self::Rebalance => (Writer::Operator, Vec::new()),
        }
    }
}

/// `new-1`, `new-2`, as far as no node is called so.
fn new_names(state: &State) -> impl Iterator<Item = NodeId> {
    let names = (1_u64..).filter_map(|nth| NodeId::new(format!("new-{nth}")).ok());
    names.filter(|name| state.node(name).is_none())
}

/// Each deployment whole, with other counts. A service that cannot be scaled is left as it is.
fn scaled(state: &State, counts: &BTreeMap<ServiceKey, u32>) -> Vec<Change> {
    let deployments: BTreeSet<&DeploymentName> = counts.keys().map(|it| &it.deployment).collect();
    let deploy = |name: &DeploymentName| {
        let record = state.deployments().get(name)?.current()?;
        let (mut services, routes) = (record.services.clone(), record.routes.clone());
        for (key, count) in counts.iter().filter(|(key, _)| key.deployment == *name) {
            let spec = services.get_mut(&key.service)?;
            if let Some(mode) = spec.placement.mode.scaled(*count) {
                Arc::make_mut(spec).placement.mode = mode;
            }
        }
        Some(Change::Deploy { deployment: name.clone(), services, routes })
    };
    deployments.into_iter().filter_map(deploy).collect()
}

impl NodeUse {
    pub(crate) fn of(
        load: Option<&NodeLoad>,
        capacity: Resources,
        pressure: Option<NodePressure>,
    ) -> Self {
        let reserved = load.map_or(Resources::NONE, |load| load.reserved);
        let reserved = NodePressure {
            cpu: Pressure::of(reserved.cpu.0, capacity.cpu.0),
            memory: Pressure::of(reserved.memory.0, capacity.memory.0),
        };
        Self { replicas: load.map_or(0, |load| load.replicas), reserved, pressure }
    }

    /// The more of each.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        let more = |one: NodePressure, other: NodePressure| NodePressure {
            cpu: one.cpu.max(other.cpu),
            memory: one.memory.max(other.memory),
        };
        let pressure = match (self.pressure, other.pressure) {
            (Some(one), Some(other)) => Some(more(one, other)),
            (one, other) => one.or(other),
        };
        Self {
            replicas: self.replicas.max(other.replicas),
            reserved: more(self.reserved, other.reserved),
            pressure,
        }
    }
}

impl NodeChange {
    pub(crate) fn of(before: &State, after: &State, node: &NodeId) -> Option<Self> {
        let (was, is) = (before.node(node), after.node(node)?);
        let Some(was) = was else { return Some(Self::Added) };
        let is_active = |it: &plimsoll_model::Node| it.availability == Availability::Active;
        if was.status == NodeStatus::Ready && is.status == NodeStatus::Down {
            Some(Self::Lost)
        } else if is_active(was) && !is_active(is) {
            Some(Self::Drained)
        } else {
            None
        }
    }

    /// The word that programs compare.
    pub fn word(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Drained => "drained",
            Self::Lost => "lost",
        }
    }
}
