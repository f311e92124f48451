//! A script of faults and changes drawn from a seed: everything in the [`alphabet`]. When it ends everything is back: what
//! is left must settle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_kernel::depends;
use plimsoll_model::node::DRAIN_TIMEOUT;
use plimsoll_model::reschedule::RescheduleSettings;
use plimsoll_model::{
    DeploymentName, FileName, Millis, NodeFacts, NodeId, Pressure, RegistryHost, ServiceKey,
    ServiceSpec,
};

use crate::rng::SimRng;
use crate::scenario::{AcmeAnswer, Action, MachineAction, RolloutRequest, Scenario, Services};
use crate::usage::{Shape, Usage};

pub mod alphabet;
mod cells;
mod specs;

#[cfg(test)]
mod tests;

use alphabet::{Draw, WEIGHTS};
pub use cells::any_scenario;
use specs::Choices;
pub(crate) use specs::order;

/// How often things happen, about.
#[derive(Debug, Clone, Copy)]
pub struct Chaos {
    /// Faults and changes happen from the start until then.
    pub until: Millis,
    /// One thing happens about so often.
    pub every: Millis,
    /// How long a node is gone.
    pub outage: (Millis, Millis),
}

impl Chaos {
    /// Adds a script drawn from the seed to the scenario.
    pub fn unleash(self, scenario: &mut Scenario, seed: u64) {
        self.load(scenario, &mut SimRng::new(seed ^ 0x10ad));
        let mut writer = Writer::new(self, scenario, SimRng::new(seed ^ 0x5eed_c0de));
        let mut at = Millis(0);
        loop {
            at = Millis(at.0 + 1 + writer.chance.below(2 * self.every.0));
            if at >= self.until {
                break;
            }
            writer.strike(at);
        }
        writer.end();
        scenario.script.extend(writer.script);
    }
}

/// The routed ports of the deployments do not meet.
fn first_port(nth: usize) -> u16 {
    9_000 + 100 * u16::try_from(nth).unwrap_or(0)
}

/// Writes a script, and knows what there is to do something to by then.
struct Writer {
    chaos: Chaos,
    chance: SimRng,
    script: Vec<(Millis, Action)>,
    /// What every node there ever was says of itself.
    nodes: BTreeMap<NodeId, NodeFacts>,
    deployments: BTreeMap<DeploymentName, Services>,
    operators: BTreeSet<String>,
    joined: u64,
}

impl Writer {
    fn new(chaos: Chaos, scenario: &Scenario, chance: SimRng) -> Self {
        let (nodes, deployments) = (scenario.nodes.clone(), scenario.deployments.clone());
        let (script, operators) = (Vec::new(), BTreeSet::new());
        Self { chaos, chance, script, nodes, deployments, operators, joined: 0 }
    }

    fn say(&mut self, at: Millis, action: Action) {
        self.script.push((at, action));
    }

    /// One thing happens, and later what ends it.
    fn strike(&mut self, at: Millis) {
        let total: u64 = WEIGHTS.iter().map(|(_, weight)| weight).sum();
        let mut left = self.chance.below(total);
        let drawn = WEIGHTS.iter().find(|(_, weight)| {
            let is_it = left < *weight;
            left = left.saturating_sub(*weight);
            is_it
        });
        let names: Vec<NodeId> = self.nodes.keys().cloned().collect();
        let deployments: Vec<DeploymentName> = self.deployments.keys().cloned().collect();
        let back = Millis(at.0 + self.chance.between(self.chaos.outage).0).min(self.chaos.until);
        let (node, name) = (self.chance.pick(&names), self.chance.pick(&deployments));
        let (Some((draw, _)), Some(node), Some(name)) = (drawn, node, name) else { return };
        self.spell(*draw, (at, back), node.clone(), name.clone());
    }

    #[expect(clippy::too_many_lines, reason = "an arm for each letter")]
    fn spell(
        &mut self,
        draw: Draw,
        (at, back): (Millis, Millis),
        node: NodeId,
        name: DeploymentName,
    ) {
        match draw {
            Draw::Crash => self.for_a_while(at, back, Action::Crash, Action::Return, node),
            Draw::Cut => self.for_a_while(at, back, Action::Cut, Action::Return, node),
            Draw::Wipe => self.for_a_while(at, back, Action::Wipe, Action::Return, node),
            Draw::Kill => self.say(at, Action::Kill(node)),
            Draw::Sicken => self.say(at, Action::Sicken(node)),
            Draw::StopEngine => self.without_engine(at, back, Action::StopEngine, node),
            Draw::LoseEngine => self.without_engine(at, back, Action::LoseEngine, node),
            Draw::Fail => self.fail(at, back, name),
            Draw::Withdraw => {
                let image = self.image_of(&name);
                self.for_a_while(at, back, Action::Withdraw, Action::Restore, image);
            }
            Draw::ExhaustSubnets => {
                self.for_a_while(at, back, Action::ExhaustSubnets, Action::FreeSubnets, node);
            }
            Draw::NewLeader => self.say(at, Action::NewLeader),
            Draw::Skew => self.skew(at),
            Draw::Poison => {
                if let Some(service) = self.service_of(&name) {
                    self.for_a_while(at, back, Action::Poison, Action::Cure, service);
                }
            }
            Draw::Cordon => self.for_a_while(at, back, Action::Cordon, Action::Uncordon, node),
            Draw::Drain => {
                let all = [DRAIN_TIMEOUT, Millis::seconds(20), Millis::minutes(1)];
                let timeout = *self.chance.pick(&all).unwrap_or(&DRAIN_TIMEOUT);
                self.drain(at, back, Action::Drain { node, timeout, force: false });
            }
            Draw::DrainByForce => {
                self.drain(at, back, Action::Drain { node, timeout: DRAIN_TIMEOUT, force: true });
            }
            Draw::Remove => {
                self.say(at, Action::drain(node.clone()));
                self.remove_and_join(back, node);
            }
            Draw::RemoveLost => {
                self.say(at, Action::Crash(node.clone()));
                self.remove_and_join(back, node);
            }
            Draw::Join => self.join(at),
            Draw::Describe => self.describe(at, node),
            Draw::Recover => self.recover(at, back, node),
            Draw::Apply => self.apply(at, back, &name),
            Draw::ApplyAgain => {
                let services = self.deployments[&name].clone();
                self.say(at, Action::Deploy(name, services));
            }
            Draw::Delete | Draw::DeleteWithVolumes => {
                let volumes = draw == Draw::DeleteWithVolumes;
                self.say(at, Action::Undeploy { deployment: name.clone(), volumes });
                let services = self.deployments[&name].clone();
                self.say(back, Action::Deploy(name, services));
            }
            Draw::MoveVolume => self.say(at, Action::MoveVolume(name, node)),
            Draw::RemoveVolume => self.say(at, Action::RemoveVolume(name, node)),
            Draw::BackUpVolume => self.say(at, Action::BackUpVolume(name, node)),
            Draw::RestoreVolume => self.say(at, Action::RestoreVolume(name, node)),
            Draw::Scale => self.scale(at, name),
            Draw::Rollback => {
                let to = u32::try_from(self.chance.below(8)).ok().filter(|to| *to > 0);
                self.say(at, Action::Rollback(name, to));
            }
            Draw::Restart => {
                let services: Vec<_> = self.deployments[&name].keys().cloned().collect();
                let one = self.chance.percent(50);
                let service = if one { self.chance.pick(&services).cloned() } else { None };
                self.say(at, Action::Restart(name, service));
            }
            Draw::PauseRollout => {
                self.say(at, Action::Rollout(name.clone(), RolloutRequest::Pause));
                self.say(back, Action::Rollout(name, RolloutRequest::Resume));
            }
            Draw::ResumeRollout => self.say(at, Action::Rollout(name, RolloutRequest::Resume)),
            Draw::AbortRollout => self.say(at, Action::Rollout(name, RolloutRequest::Abort)),
            Draw::CreateJoinToken => self.say(at, Action::CreateJoinToken),
            Draw::RevokeJoinToken => self.say(at, Action::RevokeJoinToken),
            Draw::AddOperator => self.add_operator(at),
            Draw::RevokeOperator => self.revoke_operator(at),
            Draw::Exec => self.say(at, Action::Exec(node)),
            Draw::Backup => self.say(at, Action::Backup),
            Draw::RotateAuthority => {
                self.say(at, Action::RotateAuthority);
                self.say(back, Action::RotateWithoutDown);
            }
            Draw::AbortRotation => self.abort_rotation(at),
            Draw::RotateBackupKey => self.say(at, Action::RotateBackupKey),
            Draw::Reschedule => self.set_rescheduling(at, back),
            Draw::Optimize => self.say(at, Action::Optimize),
            Draw::Raise => self.say(at, Action::Raise),
            Draw::OfferMachine => {
                let is_more = self.chance.percent(85);
                let action = if is_more { MachineAction::Offer } else { MachineAction::Withdraw };
                self.say(at, Action::Machines(action));
            }
            Draw::PauseMachines => {
                self.say(at, Action::Machines(MachineAction::Pause));
                self.say(back, Action::Machines(MachineAction::Resume));
            }
            Draw::Instruct => self.say(at, Action::Machines(MachineAction::Instruct)),
            Draw::CreateSecret => self.of_a_secret(at, Action::CreateSecret),
            Draw::RotateSecret => self.of_a_secret(at, Action::RotateSecret),
            Draw::RemoveSecret => self.of_a_secret(at, Action::RemoveSecret),
            Draw::Certify => {
                let answer = *self.chance.pick(&AcmeAnswer::ALL).unwrap_or(&AcmeAnswer::Issues);
                self.say(at, Action::Certify(answer));
            }
            Draw::LoginRegistry => self.of_a_registry(at, Action::LoginRegistry),
            Draw::LogoutRegistry => self.of_a_registry(at, Action::LogoutRegistry),
            Draw::JoinFleet => {
                self.say(at, Action::JoinFleet);
                self.say(back, Action::LeaveFleet);
            }
            Draw::MistakeForCoordinator => self.say(at, Action::MistakeForCoordinator),
        }
    }

    fn add_operator(&mut self, at: Millis) {
        let name = format!("operator-{}", self.chance.below(5));
        self.operators.insert(name.clone());
        self.say(at, Action::AddOperator(name));
    }

    fn skew(&mut self, at: Millis) {
        let off = i64::try_from(self.chance.below(240_000)).unwrap_or(0) - 120_000;
        self.say(at, Action::Skew(off));
    }

    /// It is called off in the end.
    fn drain(&mut self, at: Millis, back: Millis, drain: Action) {
        if let Action::Drain { node, .. } = &drain {
            let node = node.clone();
            self.say(at, drain);
            self.say(back, Action::Uncordon(node));
        }
    }

    fn without_engine(
        &mut self,
        at: Millis,
        back: Millis,
        lose: fn(NodeId) -> Action,
        node: NodeId,
    ) {
        self.for_a_while(at, back, lose, Action::StartEngine, node);
    }

    fn revoke_operator(&mut self, at: Millis) {
        let names: Vec<String> = self.operators.iter().cloned().collect();
        let name = self.chance.pick(&names).cloned();
        self.say(at, Action::RevokeOperator(name.unwrap_or_else(|| "nobody".to_owned())));
    }

    /// It is paused, or has another target, or both, for a while.
    fn set_rescheduling(&mut self, at: Millis, back: Millis) {
        let target = self.chance.percent(50).then_some(Pressure::percent(50));
        let is_paused = self.chance.percent(50);
        self.say(at, Action::Reschedule(RescheduleSettings { is_paused, target }));
        self.say(back, Action::Reschedule(RescheduleSettings::default()));
    }

    /// At any moment of it: it takes about a second.
    fn abort_rotation(&mut self, at: Millis) {
        self.say(at, Action::RotateAuthority);
        let after = Millis(at.0 + self.chance.below(1_000));
        self.say(after.min(self.chaos.until), Action::AbortRotation);
    }

    fn of_a_secret(&mut self, at: Millis, action: fn(FileName) -> Action) {
        let name = specs::secret_name(&mut self.chance);
        self.say(at, action(name));
    }

    fn of_a_registry(&mut self, at: Millis, action: fn(RegistryHost) -> Action) {
        let host = format!("registry-{}.example", self.chance.below(3));
        self.say(at, action(RegistryHost::new(host).expect("a valid name")));
    }

    fn for_a_while<T: Clone>(
        &mut self,
        at: Millis,
        back: Millis,
        begin: fn(T) -> Action,
        end: fn(T) -> Action,
        what: T,
    ) {
        self.say(at, begin(what.clone()));
        self.say(back, end(what));
    }

    fn service_of(&mut self, name: &DeploymentName) -> Option<ServiceKey> {
        let services: Vec<_> = self.deployments[name].keys().cloned().collect();
        let service = self.chance.pick(&services)?;
        Some(ServiceKey::new(name.clone(), service.clone()))
    }

    fn image_of(&mut self, name: &DeploymentName) -> String {
        let specs: Vec<Arc<ServiceSpec>> = self.deployments[name].values().cloned().collect();
        let spec = self.chance.pick(&specs);
        spec.map_or_else(|| "app:1".to_owned(), |spec| spec.container.image.clone())
    }

    /// It fails on every start, often enough to be given up; when it is mended, somebody applies the file again.
    fn fail(&mut self, at: Millis, back: Millis, name: DeploymentName) {
        let services: Vec<_> = self.deployments[&name].keys().cloned().collect();
        let Some(service) = self.chance.pick(&services).cloned() else { return };
        let image = self.deployments[&name][&service].container.image.clone();
        self.say(at, Action::Break(image.clone()));
        self.say(at, Action::Fail(ServiceKey::new(name.clone(), service)));
        self.say(back, Action::Mend(image));
        let services = self.deployments[&name].clone();
        self.say(back, Action::Deploy(name, services));
    }

    /// Removed when it is empty or down, and back a while after.
    fn remove_and_join(&mut self, at: Millis, node: NodeId) {
        let facts = self.nodes[&node].clone();
        let again = Millis(at.0 + self.chance.between(self.chaos.outage).0).min(self.chaos.until);
        self.say(at, Action::Remove(node.clone()));
        self.say(again, Action::Return(node.clone()));
        self.say(again, Action::Uncordon(node.clone()));
        self.say(again, Action::Join(node, facts));
    }

    fn join(&mut self, at: Millis) {
        self.joined += 1;
        let node = NodeId::new(format!("new-{}", self.joined)).expect("a valid name");
        let facts = cells::any_node(&mut self.chance);
        self.nodes.insert(node.clone(), facts.clone());
        self.say(at, Action::Join(node, facts));
    }

    fn describe(&mut self, at: Millis, node: NodeId) {
        let fresh = cells::any_node(&mut self.chance);
        let mut facts = self.nodes[&node].clone();
        match self.chance.below(4) {
            0 => facts.capacity = fresh.capacity,
            1 => facts.zone = fresh.zone,
            // Another engine, or another version of it.
            2 => facts.runtime = fresh.runtime,
            _ => facts.labels = fresh.labels,
        }
        self.nodes.insert(node.clone(), facts.clone());
        self.say(at, Action::Describe(node, facts));
    }

    fn recover(&mut self, at: Millis, back: Millis, node: NodeId) {
        let names: Vec<NodeId> = self.nodes.keys().filter(|it| **it != node).cloned().collect();
        let lost: Vec<NodeId> = self.chance.pick(&names).into_iter().cloned().collect();
        for lost in &lost {
            let facts = self.nodes[lost].clone();
            self.say(back, Action::Join(lost.clone(), facts));
        }
        self.say(at, Action::Recover { node, lost });
    }

    fn apply(&mut self, at: Millis, back: Millis, name: &DeploymentName) {
        let nodes: Vec<NodeId> = self.nodes.keys().cloned().collect();
        let nth = self.deployments.keys().position(|it| it == name).unwrap_or(0);
        let choices = Choices { nodes: &nodes, first_port: first_port(nth) };
        let mut services = self.deployments[name].clone();
        let images = specs::change(&mut services, &mut self.chance, &choices);
        for image in images {
            match self.chance.below(10) {
                // It never starts: the way back is all that is left.
                0 | 1 => self.say(Millis(0), Action::Break(image)),
                2 => {
                    self.say(Millis(0), Action::Withdraw(image.clone()));
                    self.say(back, Action::Restore(image));
                }
                _ => {}
            }
        }
        // What starts in no order is refused, and the file stays as it was.
        if depends::check(&services).is_ok() {
            self.deployments.insert(name.clone(), services.clone());
        }
        self.say(at, Action::Deploy(name.clone(), services));
    }

    fn scale(&mut self, at: Millis, name: DeploymentName) {
        let services = &self.deployments[&name];
        let names: Vec<_> = services.keys().cloned().collect();
        let Some(service) = self.chance.pick(&names).cloned() else { return };
        let most = if specs::is_slow(&services[&service]) { 4 } else { 9 };
        let replicas = u32::try_from(self.chance.below(most)).unwrap_or(0);
        self.say(at, Action::Scale(ServiceKey::new(name, service), replicas));
    }

    /// Every node is back and takes replicas, every image can be pulled, every secret is there, the clock is right, and
    /// every deployment is applied once more.
    fn end(&mut self) {
        let until = self.chaos.until;
        let withdrawn: BTreeSet<String> = self
            .script
            .iter()
            .filter_map(|(_, action)| match action {
                Action::Withdraw(image) => Some(image.clone()),
                _ => None,
            })
            .collect();
        for image in withdrawn {
            self.say(until, Action::Restore(image));
        }
        if self.script.iter().any(|(_, action)| matches!(action, Action::Skew(_))) {
            self.say(until, Action::Skew(0));
        }
        // Late enough that the first orders do not count any more, and hosts that no route names are forgotten.
        self.say(Millis(until.0 + Millis::minutes(40).0), Action::Certify(AcmeAnswer::Issues));
        for (node, facts) in self.nodes.clone() {
            self.say(until, Action::FreeSubnets(node.clone()));
            self.say(until, Action::Return(node.clone()));
            self.say(until, Action::StartEngine(node.clone()));
            self.say(until, Action::Join(node.clone(), facts));
            self.say(until, Action::Uncordon(node));
        }
        for name in specs::secret_names() {
            self.say(until, Action::CreateSecret(name));
        }
        for (name, services) in self.deployments.clone() {
            self.say(until, Action::Deploy(name, services));
        }
    }
}

impl Chaos {
    /// Some services become busy for some minutes, far beyond what they reserve, again and again until the faults stop. From
    /// then on each uses what it reserves, as those do that are left out.
    fn load(self, scenario: &mut Scenario, chance: &mut SimRng) {
        let spans = usize::try_from(scenario.length.0.div_ceil(LOAD_SPAN.0)).unwrap_or(0) + 1;
        let until = usize::try_from(self.until.0 / LOAD_SPAN.0).unwrap_or(0);
        let all = scenario.deployments.iter().flat_map(|(deployment, services)| {
            services.iter().map(|(name, spec)| {
                (ServiceKey::new(deployment.clone(), name.clone()), Arc::clone(spec))
            })
        });
        let all: Vec<(ServiceKey, Arc<ServiceSpec>)> = all.collect();
        for (key, spec) in all {
            if !chance.percent(60) {
                continue;
            }
            let reserved = spec.container.reservations;
            let mut cpu = vec![reserved.cpu.0; spans];
            for value in cpu.iter_mut().take(until) {
                if chance.percent(50) {
                    *value = chance.below(2_500);
                }
            }
            let cpu = Shape::Trace { step: LOAD_SPAN, values: cpu };
            let mut memory = vec![reserved.memory.0; spans];
            for value in memory.iter_mut().take(until) {
                if chance.percent(20) {
                    *value = chance.below(6_000) << 20;
                }
            }
            let memory = Shape::Trace { step: LOAD_SPAN, values: memory };
            scenario.usage.insert(key, Usage { cpu, memory });
        }
    }
}

/// How long a service stays as busy as it is.
const LOAD_SPAN: Millis = Millis::minutes(3);
