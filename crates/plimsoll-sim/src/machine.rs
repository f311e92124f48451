//! A modelled host: what it has of each replica, and how it goes from one phase to the next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_kernel::Policy;
use plimsoll_kernel::agent::{ContainerPhase, LocalContainer};
use plimsoll_kernel::restart::{NextRestart, RestartHistory, RestartRule, back_off};
use plimsoll_model::access::Digest;
use plimsoll_model::spec::HostPort;
use plimsoll_model::{
    DeploymentName, Generation, NodeFacts, ObservedCode, ObservedState, ReplicaId, ServiceSpec,
    Timestamp,
};

/// Whether the leader and the machine hear of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    Up,
    /// It runs on unheard.
    Cut,
    /// It has no power.
    Off,
}

/// Whether the container engine of the machine answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Up,
    Down,
}

#[derive(Debug, Clone)]
pub struct Machine {
    pub link: Link,
    pub engine: Engine,
    /// When the link last changed.
    pub since: Timestamp,
    /// Of this life of it, and no other machine's: what was set going in an earlier one never ends.
    pub boot: u64,
    /// What it says of itself.
    pub facts: NodeFacts,
    /// Of its certificate, should it have one.
    pub(crate) key: Option<Digest>,
    pub(crate) trust: MachineTrust,
    /// It lost its disks, and has to join anew.
    pub(crate) is_wiped: bool,
    pub containers: BTreeMap<ReplicaId, Vec<Container>>,
    pub images: BTreeSet<String>,
    /// The named volumes on its disk, and the deployment that made each.
    pub volumes: BTreeMap<String, DeploymentName>,
    /// What is in each that was used: a number that no other volume began with.
    pub contents: BTreeMap<String, u64>,
    /// It has no addresses for a network that it does not have yet.
    pub(crate) lacks_subnets: bool,
    /// Pulls that failed, to be tried again.
    pub(crate) pulls: BTreeMap<(ReplicaId, Generation), PullTry>,
}

/// What a machine keeps of the cell's authorities, each known by its certificate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct MachineTrust {
    pub(crate) epoch: u64,
    pub(crate) anchors: BTreeSet<Vec<u8>>,
    /// Which one signed its own certificate.
    pub(crate) signed_by: Option<Vec<u8>>,
}

/// A pull that failed so often, and when the next is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PullTry {
    failures: u32,
    pub(crate) due: Timestamp,
}

impl PullTry {
    pub(crate) fn fail(&mut self, now: Timestamp, policy: &Policy) {
        self.failures = self.failures.saturating_add(1);
        self.due = now.plus(back_off(self.failures, policy.max_pull_back_off));
    }
}

#[derive(Debug, Clone)]
pub struct Container {
    pub local: LocalContainer,
    pub is_healthy: bool,
    pub spec: Arc<ServiceSpec>,
    /// Which of the scenario's usages, counted in their order, is its own; none where it uses what it reserves.
    pub(crate) usage: Option<usize>,
    pub(crate) tries: RestartHistory,
    /// Nothing is begun before then.
    pub(crate) due: Option<Timestamp>,
    /// Why it failed last.
    pub(crate) code: Option<ObservedCode>,
    /// It stops because it failed so, and is to start again.
    pub(crate) retry: Option<ObservedCode>,
    /// How often in a row its node had no addresses for its network.
    pub(crate) subnet_failures: u32,
    /// When it ends by itself, should it be to.
    pub(crate) ends_at: Option<Timestamp>,
    /// It ended while its engine was down: nobody has counted that yet.
    pub(crate) has_died: bool,
    /// The volumes that its image declares, each path with the name it has here, as it was last started with them.
    pub(crate) declared: BTreeMap<String, String>,
    /// When to tell the cell again what its image declares.
    pub(crate) say_again: Option<Timestamp>,
}

impl Container {
    pub(crate) fn new(local: LocalContainer, spec: Arc<ServiceSpec>, usage: Option<usize>) -> Self {
        let tries = RestartHistory::default();
        let (due, code, retry, ends_at) = (None, None, None, None);
        let (is_healthy, subnet_failures, has_died) = (false, 0, false);
        Self {
            local,
            is_healthy,
            spec,
            usage,
            tries,
            due,
            code,
            retry,
            subnet_failures,
            ends_at,
            has_died,
            declared: BTreeMap::new(),
            say_again: None,
        }
    }

    /// It failed, as an agent has it: tried again later, or not any more.
    pub(crate) fn fail(&mut self, code: ObservedCode, now: Timestamp, rule: &RestartRule<'_>) {
        self.local.phase = ContainerPhase::Exited;
        self.is_healthy = false;
        self.tries.fails(now, rule);
        let next = self.tries.next(&code, rule);
        if let NextRestart::StartAt(at) = next {
            self.due = Some(at);
        }
        self.code = Some(next.told(code));
    }

    /// There is no network for it, which is no failure of its own: nothing of its tries is used up.
    pub(crate) fn lack_subnet(&mut self, code: ObservedCode, now: Timestamp, policy: &Policy) {
        self.local.phase = ContainerPhase::Pulled;
        self.local.has_started = false;
        self.subnet_failures = self.subnet_failures.saturating_add(1);
        self.due = Some(now.plus(back_off(self.subnet_failures, policy.max_pull_back_off)));
        self.code = Some(code);
    }

    /// It ended with status 0, which is what it was started for.
    pub(crate) fn complete(&mut self) {
        self.local.phase = ContainerPhase::Exited;
        self.is_healthy = false;
        self.code = Some(ObservedCode::JobCompleted { attempts: self.tries.failures() + 1 });
    }

    /// Whether nothing more is tried: it failed too often, or its job is done.
    pub fn is_at_its_end(&self) -> bool {
        self.is_exhausted() || self.has_completed()
    }

    /// Whether it ended with status 0, which is what it was started for.
    pub fn has_completed(&self) -> bool {
        matches!(self.code, Some(ObservedCode::JobCompleted { .. }))
    }

    /// Whether it failed too often to be tried again.
    pub fn is_exhausted(&self) -> bool {
        let code = self.code.as_ref();
        matches!(code, Some(ObservedCode::RestartExhausted { .. } | ObservedCode::JobFailed { .. }))
    }

    /// Whether it ended by itself, or turned unhealthy, of late.
    pub fn has_failed(&self) -> bool {
        self.tries.failures() > 0 || self.retry.is_some() || self.has_died
    }

    pub fn is_up(&self) -> bool {
        matches!(self.local.phase, ContainerPhase::Up | ContainerPhase::Stopping)
    }

    /// Why it is as the machine says.
    pub(crate) fn said(&self) -> Option<ObservedCode> {
        if self.has_died { Some(ObservedCode::RuntimeUnavailable) } else { self.code.clone() }
    }

    /// What the machine says of it.
    pub(crate) fn observed(&self) -> ObservedState {
        match self.local.phase {
            _ if self.has_died => ObservedState::Unknown,
            // It waits, and says for what.
            ContainerPhase::Pulled if self.code.is_some() => ObservedState::Pending,
            ContainerPhase::Pulling | ContainerPhase::Pulled => ObservedState::Pulling,
            ContainerPhase::Stopping if self.retry.is_some() => ObservedState::Degraded,
            ContainerPhase::Up | ContainerPhase::Stopping if self.is_healthy => {
                ObservedState::Running
            }
            ContainerPhase::Starting | ContainerPhase::Up | ContainerPhase::Stopping => {
                ObservedState::Starting
            }
            ContainerPhase::Exited if self.has_completed() => ObservedState::Completed,
            ContainerPhase::Exited => ObservedState::Failed,
        }
    }
}

impl Machine {
    pub(crate) fn new(now: Timestamp, boot: u64, facts: NodeFacts) -> Self {
        Self {
            link: Link::Up,
            engine: Engine::Up,
            since: now,
            boot,
            facts,
            key: None,
            trust: MachineTrust::default(),
            is_wiped: false,
            containers: BTreeMap::new(),
            images: BTreeSet::new(),
            volumes: BTreeMap::new(),
            contents: BTreeMap::new(),
            lacks_subnets: false,
            pulls: BTreeMap::new(),
        }
    }

    /// It loses power: what ran is gone, what is on its disks is not.
    pub(crate) fn lose_power(&mut self, boot: u64) {
        self.boot = boot;
        self.containers.clear();
        self.pulls.clear();
    }

    /// It loses its disks.
    pub(crate) fn lose_disks(&mut self) {
        (self.key, self.is_wiped) = (None, true);
        self.trust = MachineTrust::default();
        self.images.clear();
        self.volumes.clear();
        self.contents.clear();
    }

    /// Whether a container other than this one has one of its host ports.
    pub(crate) fn is_port_taken(&self, replica: &ReplicaId, of: &Container) -> bool {
        let ports: Vec<HostPort> = of.spec.host_ports().collect();
        let is_other = |id: &ReplicaId, other: &Container| {
            id != replica || other.local.generation != of.local.generation
        };
        !ports.is_empty()
            && self.containers.iter().any(|(id, all)| {
                all.iter().any(|other| {
                    other.is_up()
                        && is_other(id, other)
                        && other.spec.host_ports().any(|port| ports.contains(&port))
                })
            })
    }

    /// A network that the container joins, that there is none of here yet and no addresses for. Those that somebody else
    /// made are there.
    pub(crate) fn lacking_network(&self, replica: &ReplicaId, of: &Container) -> Option<String> {
        let has = |name: &String| {
            let others =
                self.containers.iter().flat_map(|(id, all)| all.iter().map(move |it| (id, it)));
            let mut others = others.filter(|(_, other)| other.is_up());
            others.any(|(id, other)| {
                let joined = other.spec.container.joins(&id.service.deployment);
                joined.iter().any(|(joined, _)| joined == name)
            })
        };
        let joined = of.spec.container.joins(&replica.service.deployment).into_iter();
        let own = joined.filter(|(_, how)| !how.external).map(|(name, _)| name);
        own.filter(|_| self.lacks_subnets).find(|name| !has(name))
    }

    /// Whether it hears that it should stop something, and can.
    pub(crate) fn can_stop(&self) -> bool {
        self.link == Link::Up && self.engine == Engine::Up
    }

    pub(crate) fn has_any_of(&self, deployment: &DeploymentName) -> bool {
        self.containers.keys().any(|id| id.service.deployment == *deployment)
    }

    /// Whether something that is up, or on its way to be, has the volume mounted.
    pub(crate) fn uses_volume(&self, deployment: &DeploymentName, volume: &str) -> bool {
        let own = self.containers.iter().filter(|(id, _)| id.service.deployment == *deployment);
        let mut up = own.flat_map(|(_, all)| all).filter(|container| container.is_up());
        up.any(|it| {
            let mut local = it.spec.container.local_volumes(deployment);
            local.any(|name| name == volume) || it.declared.values().any(|name| name == volume)
        })
    }

    pub fn container(&self, replica: &ReplicaId, generation: Generation) -> Option<&Container> {
        self.containers.get(replica)?.iter().find(|c| c.local.generation == generation)
    }

    pub(crate) fn container_mut(
        &mut self,
        replica: &ReplicaId,
        generation: Generation,
    ) -> Option<&mut Container> {
        self.containers.get_mut(replica)?.iter_mut().find(|c| c.local.generation == generation)
    }

    pub(crate) fn forget_start(&mut self, replica: &ReplicaId, generation: Generation) {
        if let Some(container) = self.container_mut(replica, generation) {
            container.local.has_started = false;
        }
    }

    pub(crate) fn locals(&self, replica: &ReplicaId) -> Vec<LocalContainer> {
        self.containers
            .get(replica)
            .into_iter()
            .flatten()
            .map(|container| container.local)
            .collect()
    }

    pub(crate) fn remove(&mut self, replica: &ReplicaId, generation: Generation) {
        if let Some(containers) = self.containers.get_mut(replica) {
            containers.retain(|container| container.local.generation != generation);
            if containers.is_empty() {
                self.containers.remove(replica);
            }
        }
    }
}
