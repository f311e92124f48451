//! What operators ask of the cell: the same changes under the same conditions as the daemon writes them. What it refuses,
//! and what it would not even write, is the operator's mistake and changes nothing.

use std::sync::Arc;

use plimsoll_kernel::depends;
use plimsoll_kernel::optimize::{OptimizeLimits, optimize};
use plimsoll_kernel::what_if::KnownCell;
use plimsoll_model::access::{DeploymentPattern, KeyBytes, Role};
use plimsoll_model::acme::SecretKey;
use plimsoll_model::cell_files::{CellFileKind, FileBytes};
use plimsoll_model::fleet::{FleetChange, FleetMembership, MembershipChange, ShardId};
use plimsoll_model::optimize::OptimizeStep;
use plimsoll_model::registries::RegistryPassword;
use plimsoll_model::rollout::{RolloutHalt, RolloutPhase};
use plimsoll_model::{
    AuditEntry, Availability, CellId, Change, DeploymentName, Guarded, Level, Millis, Mode, NodeId,
    ReplicaId, Revision, ServiceKey, ServiceName, ServiceSpec,
};

use super::World;
use crate::scenario::{Action, RolloutRequest, Services};

/// A token that nobody uses.
const TOKEN_LIFE: Millis = Millis::minutes(60);

/// How far a better layout is looked for: as an operator would ask, and soon over.
const MOST_MOVES: usize = 20;
const MOST_STEPS: u64 = 20_000;

impl World<'_> {
    #[expect(clippy::too_many_lines, reason = "an arm for each action")]
    pub(super) fn ask(&mut self, action: Action) {
        let availability =
            |node, availability| vec![Change::SetAvailability { node, availability }.free()];
        let batch = match action {
            Action::Cordon(node) => availability(node, Availability::Cordoned),
            Action::Uncordon(node) => availability(node, Availability::Active),
            Action::Drain { node, timeout, force } => self.drain(node, timeout, force),
            Action::Remove(node) => return self.remove_node(&node),
            Action::Deploy(deployment, services) => self.deploy(&deployment, services),
            Action::Undeploy { deployment, volumes } => self.undeploy(deployment, volumes),
            Action::MoveVolume(deployment, node) => self.move_volume(&deployment, &node),
            Action::RemoveVolume(deployment, node) => self.remove_volume(&deployment, &node),
            Action::BackUpVolume(deployment, node) => self.back_up_volume(deployment, &node),
            Action::RestoreVolume(deployment, node) => self.restore_volume(deployment, &node),
            Action::Scale(service, replicas) => self.scale(&service, replicas),
            Action::Rollback(deployment, to) => self.rollback(&deployment, to),
            Action::Restart(deployment, service) => self.restart(&deployment, service.as_ref()),
            Action::Rollout(deployment, asked) => self.change_rollouts(&deployment, asked),
            Action::CreateJoinToken => {
                let expires_at = self.leader_time().plus(TOKEN_LIFE);
                let token = self.secret();
                let name = format!("join-{token}");
                vec![Change::CreateJoinToken { name, token, expires_at }.free()]
            }
            Action::RevokeJoinToken => {
                let (at, known) = (self.leader_time(), &self.state.access().join_tokens);
                let good = known.values().find(|token| token.is_good(at));
                // Where there is none, whoever asks is told so.
                let name = good.map_or_else(|| "nobody".to_owned(), |token| token.name.clone());
                vec![Change::RevokeJoinToken { name }.free()]
            }
            Action::AddOperator(name) => {
                let (token, role) = (self.secret(), Role::Deploy);
                let bound = DeploymentPattern::new("shop-*").into_iter();
                let (scope, expires_at) =
                    (bound.collect(), Some(self.leader_time().plus(TOKEN_LIFE)));
                vec![Change::PutOperator { name, token, role, scope, expires_at }.free()]
            }
            Action::RevokeOperator(name) => vec![Change::RevokeOperator { name }.free()],
            Action::Exec(node) => self.exec(&node),
            Action::Backup => {
                let entry = AuditEntry::backup(self.state.level());
                vec![Change::Record { entry }.free()]
            }
            Action::RotateAuthority => {
                let (next, without) = (self.next_authority(), Vec::new());
                vec![Change::RotateAuthority { next, without }.free()]
            }
            Action::RotateWithoutDown => {
                vec![Change::RotateWithout { nodes: self.absentees() }.free()]
            }
            Action::AbortRotation => vec![Change::AbortRotation.free()],
            Action::RotateBackupKey => {
                let secret = KeyBytes(self.secret().0);
                vec![Change::RotateBackupKey { secret }.free()]
            }
            Action::Reschedule(settings) => vec![Change::SetRescheduling { settings }.free()],
            Action::Optimize => self.optimize(),
            Action::Machines(_) => Vec::new(),
            Action::Raise => vec![Change::Raise { level: Level::BUILD }.free()],
            Action::CreateSecret(name) => {
                let (kind, content) = (CellFileKind::Secret, self.value());
                vec![Change::CreateFile { kind, name, content }.free()]
            }
            Action::RotateSecret(name) => {
                let (kind, content) = (CellFileKind::Secret, self.value());
                vec![Change::RotateFile { kind, name, content }.free()]
            }
            Action::RemoveSecret(name) => {
                vec![Change::RemoveFile { kind: CellFileKind::Secret, name }.free()]
            }
            Action::Certify(answer) => return self.certify(answer),
            Action::LoginRegistry(registry) => {
                let password = RegistryPassword::new(&self.secret().to_string());
                let user = "ci".to_owned();
                vec![Change::LoginRegistry { registry, user, password }.free()]
            }
            Action::JoinFleet => vec![self.join_fleet()],
            Action::LeaveFleet => {
                let change = MembershipChange::Leave;
                vec![Change::FleetMembership { change }.free()]
            }
            Action::MistakeForCoordinator => {
                let change = Box::new(FleetChange::Pause { is_paused: true });
                vec![Change::Fleet { change }.free()]
            }
            // Where the cell is not logged in, whoever asks is told so.
            Action::LogoutRegistry(registry) => vec![Change::LogoutRegistry { registry }.free()],
            // The world's doing, and done before anyone is asked.
            Action::Crash(_)
            | Action::Cut(_)
            | Action::Wipe(_)
            | Action::Return(_)
            | Action::Kill(_)
            | Action::Sicken(_)
            | Action::StopEngine(_)
            | Action::LoseEngine(_)
            | Action::StartEngine(_)
            | Action::Fail(_)
            | Action::Poison(_)
            | Action::Cure(_)
            | Action::NewLeader
            | Action::Skew(_)
            | Action::Break(_)
            | Action::Mend(_)
            | Action::Withdraw(_)
            | Action::Restore(_)
            | Action::ExhaustSubnets(_)
            | Action::FreeSubnets(_)
            | Action::Join(..)
            | Action::Describe(..)
            | Action::Recover { .. } => return,
        };
        self.operate(batch);
    }

    /// Where it is of one already, whoever asks is told so.
    fn join_fleet(&mut self) -> Guarded {
        let membership = FleetMembership {
            shard: ShardId::new("north").expect("a short name"),
            coordinator: CellId::new("hub").expect("a short name"),
            servers: [(NodeId::new("hub-1").expect("a short name"), "10.0.0.9:7117".to_owned())]
                .into(),
            key: SecretKey::new(self.secret().0.to_vec()),
            certificate: vec![1],
            authorities: vec![vec![2]],
            joined_at: self.leader_time(),
        };
        let change = MembershipChange::Set { membership: Box::new(membership) };
        Change::FleetMembership { change }.free()
    }

    fn drain(&self, node: NodeId, timeout: Millis, force: bool) -> Vec<Guarded> {
        let Some(row) = self.state.node(&node) else { return Vec::new() };
        let is_draining = row.availability == Availability::Draining;
        let is_forced = row.drain.is_some_and(|drain| drain.is_forced);
        let mut others = self.state.nodes().iter().filter(|(id, it)| **id != node && it.is_open());
        let is_refused = is_draining && (is_forced || !force);
        if is_refused || (others.next().is_none() && !force) {
            return Vec::new();
        }
        vec![Change::Drain { node, timeout, force }.free()]
    }

    /// The plan goes to whoever leads, as the daemon hands it over. Where nobody does, whoever asks is told so.
    fn optimize(&mut self) -> Vec<Guarded> {
        let now = self.leader_time();
        let Some(leading) = &mut self.leading else { return Vec::new() };
        let leader = &mut leading.leader;
        let cell = KnownCell {
            state: &self.state,
            signals: leader.signals(),
            policy: &self.scenario.policy,
            rebalancer: leader.rebalancer().clone(),
            now,
        };
        let limits = OptimizeLimits { moves: MOST_MOVES, seed: self.commands };
        let plan = optimize(&cell, limits, &mut |steps| steps > MOST_STEPS);
        let moves = u32::try_from(plan.moves.len()).unwrap_or(u32::MAX);
        if moves == 0 {
            return Vec::new();
        }
        leader.pursue(plan.moves, now);
        let step = OptimizeStep::Started { moves, gain: plan.gain };
        vec![Change::Record { entry: AuditEntry::Optimize(step) }.free()]
    }

    /// Its machine is of the cell no more: to come back, it joins as a new one.
    fn remove_node(&mut self, node: &NodeId) {
        let is_last = self.state.nodes().keys().all(|other| other == node);
        let change = Change::RemoveNode { node: node.clone() }.free();
        if self.operate(if is_last { Vec::new() } else { vec![change] }) {
            self.machines.remove(node);
        }
    }

    /// Something that was in no secret before.
    fn value(&mut self) -> FileBytes {
        self.secret().0.to_vec().into()
    }

    fn deploy(&self, deployment: &DeploymentName, services: Services) -> Vec<Guarded> {
        // What is empty, or starts in no order, is refused before it is written.
        if services.is_empty() || depends::check(&services).is_err() {
            return Vec::new();
        }
        // So is what refers to a secret that is not kept.
        let Ok(services) = self.state.with_current_files(services) else { return Vec::new() };
        let decided_on = self.state.deployments().get(deployment).map(|it| it.revision);
        let routes = self.routes(deployment, &services);
        let deployment = deployment.clone();
        vec![Change::Deploy { deployment, services, routes }.at_revision(decided_on)]
    }

    fn undeploy(&self, deployment: DeploymentName, volumes: bool) -> Vec<Guarded> {
        let Some(current) = self.state.deployments().get(&deployment) else { return Vec::new() };
        let end = Change::Undeploy { deployment: deployment.clone() };
        let end = end.at_revision(Some(current.revision));
        let remove = Change::RemoveVolumes { deployment }.free();
        std::iter::once(end).chain(volumes.then_some(remove)).collect()
    }

    fn scale(&self, key: &ServiceKey, replicas: u32) -> Vec<Guarded> {
        let Some(mut services) = self.current(&key.deployment) else { return Vec::new() };
        let Some(spec) = services.get(&key.service) else { return Vec::new() };
        let mut spec = ServiceSpec::clone(spec);
        match &mut spec.placement.mode {
            Mode::Spread { replicas: to }
            | Mode::Pack { replicas: to }
            | Mode::Binpack { replicas: to }
            | Mode::Hosts { replicas: to, .. } => *to = replicas,
            Mode::Global => return Vec::new(),
        }
        services.insert(key.service.clone(), Arc::new(spec));
        self.deploy(&key.deployment, services)
    }

    fn rollback(&self, name: &DeploymentName, to: Option<u32>) -> Vec<Guarded> {
        let Some(deployment) = self.state.deployments().get(name) else { return Vec::new() };
        let now = deployment.revision;
        let to = match to {
            Some(to) => Some(Revision(to)).filter(|to| *to != now),
            None => deployment.history.range(..now).next_back().map(|(earlier, _)| *earlier),
        };
        match to.and_then(|to| deployment.history.get(&to)) {
            Some(record) => self.deploy(name, record.services.clone()),
            None => Vec::new(),
        }
    }

    fn restart(&self, name: &DeploymentName, service: Option<&ServiceName>) -> Vec<Guarded> {
        let is_meant = |id: &ReplicaId| {
            id.service.deployment == *name
                && service.is_none_or(|service| id.service.service == *service)
        };
        let live =
            self.state.replicas().filter(|(_, it)| it.assignment.is_some() && it.run.is_none());
        let meant = live.map(|(id, _)| id).filter(is_meant);
        let renewed = meant.map(|replica| Change::Renew { replica }.free());
        let keys = self.state.services_of(name);
        let keys = keys.filter(|key| service.is_none_or(|service| key.service == *service));
        let idle = keys.filter(|key| {
            let row = self.state.service(key);
            row.is_some_and(|row| row.row.schedule.is_some() && row.open_run().is_none())
        });
        let runs = idle.map(|key| Change::StartRun { service: key.clone(), slot: None }.free());
        renewed.chain(runs).collect()
    }

    fn change_rollouts(&self, name: &DeploymentName, asked: RolloutRequest) -> Vec<Guarded> {
        let services = self.current(name).unwrap_or_default();
        let keys = services.into_keys().map(|service| ServiceKey::new(name.clone(), service));
        let can_change = |key: &ServiceKey| {
            let rollout = self.state.service(key).and_then(|service| service.row.rollout.as_ref());
            rollout.is_some_and(|rollout| match asked {
                RolloutRequest::Pause => rollout.phase == RolloutPhase::Rolling,
                RolloutRequest::Resume => rollout.phase == RolloutPhase::Paused,
                RolloutRequest::Abort => {
                    matches!(rollout.phase, RolloutPhase::Rolling | RolloutPhase::Paused)
                }
            })
        };
        let change = |service: ServiceKey| match asked {
            RolloutRequest::Pause => Change::PauseRollout { service, why: RolloutHalt::Operator },
            RolloutRequest::Resume => Change::ResumeRollout { service },
            RolloutRequest::Abort => Change::AbortRollout { service, why: RolloutHalt::Operator },
        };
        keys.filter(can_change).map(|key| change(key).free()).collect()
    }

    fn exec(&self, node: &NodeId) -> Vec<Guarded> {
        let tenants = self.state.load(node).into_iter().flat_map(|load| &load.tenants);
        let replica = tenants.take(1).cloned();
        let entry = |replica| AuditEntry::Exec { replica };
        replica.map(|replica| Change::Record { entry: entry(replica) }.free()).collect()
    }

    fn current(&self, name: &DeploymentName) -> Option<Services> {
        self.state.deployments().get(name)?.current().map(|record| record.services.clone())
    }
}
