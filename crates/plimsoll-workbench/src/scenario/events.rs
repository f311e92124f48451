//! What befalls the cell: each event must find what it speaks of, so the script is gone through in order, with a cell
//! that knows which nodes and deployments there are by then.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use plimsoll_api::suggest;
use plimsoll_compose::Diagnostic;
use plimsoll_kernel::depends;
use plimsoll_model::ids::InvalidName;
use plimsoll_model::node::DRAIN_TIMEOUT;
use plimsoll_model::reschedule::RescheduleSettings;
use plimsoll_model::{
    Author, CellId, Change, Command, DeploymentName, FileName, Millis, NodeFacts, NodeId, Pressure,
    Refusal, RegistryHost, ServiceKey, ServiceName, State, Term, Timestamp, Writer,
};
use plimsoll_sim::Action;
use plimsoll_sim::scenario::{AcmeAnswer, MachineAction, RolloutRequest};
use serde_saphyr::{Location, Spanned};

use super::entries::{
    DrainEntry, EventEntry, RecoverEntry, RollbackEntry, ScaleEntry, UndeployEntry, VolumeEntry,
};
use crate::entries::deployment::{self, DeploymentEntry, Services};
use crate::entries::node::{NodeEntry, NodeNames};
use crate::entries::values::{NameOr, ServiceRef};
use crate::error::{Error, Result};
use crate::mistake::{InputText, Mistake};

type OfNode = fn(NodeId) -> Action;

/// The cell as far as the script has come.
pub(super) struct ScriptProgress<'p> {
    page: &'p InputText,
    directory: &'p Path,
    names: NodeNames,
    state: State,
    now: Millis,
    /// Nodes that crashed or were cut off, and when.
    gone: BTreeMap<NodeId, Millis>,
    /// Every image there ever was.
    pub(super) images: BTreeSet<String>,
    pub(super) warnings: Vec<Diagnostic>,
    /// Random faults take nodes and give them back at their own times.
    is_chaotic: bool,
    /// What cannot happen is passed over when the time comes, and not refused here.
    is_lenient: bool,
}

impl<'p> ScriptProgress<'p> {
    pub(super) fn new(
        page: &'p InputText,
        directory: &'p Path,
        is_chaotic: bool,
        is_lenient: bool,
    ) -> Self {
        Self {
            page,
            directory,
            names: NodeNames::default(),
            state: State::new(CellId::new("scenario").expect("a valid name")),
            now: Millis(0),
            gone: BTreeMap::new(),
            images: BTreeSet::new(),
            warnings: Vec::new(),
            is_chaotic,
            is_lenient,
        }
    }

    pub(super) fn refuse(&self, mistake: Mistake) -> Error {
        mistake.on(self.page)
    }

    pub(super) fn join(&mut self, entry: &NodeEntry) -> Result<Vec<(NodeId, NodeFacts)>, Mistake> {
        if let Some((key, at)) = entry.momentary() {
            let message = format!("`{key}` says how a node is now, and a scenario begins afresh");
            return Err(Mistake::new(at, message)
                .hint("let it happen: `events: [{at: 10m, drain: ash}]`, or give `usage`"));
        }
        let at = entry.name.referenced;
        let nodes = entry.nodes()?;
        for (node, facts) in &nodes {
            if self.is_lenient && self.state.node(node).is_some() {
                continue;
            }
            self.names.add(node, at)?;
            let change = Change::PutNode { node: node.clone(), facts: facts.clone() };
            self.apply(change).map_err(|refusal| Mistake::new(at, refusal.to_string()))?;
        }
        Ok(nodes)
    }

    pub(super) fn deploy(
        &mut self,
        entry: &Spanned<DeploymentEntry>,
    ) -> Result<(DeploymentName, Services)> {
        let (name, services) =
            deployment::load(entry, self.page, self.directory, &mut self.warnings)?;
        if let Err(mistake) = depends::check(&services)
            && !self.is_lenient
        {
            let message = format!("deployment {name} is refused: {mistake}");
            return Err(Mistake::new(entry.referenced, message).on(self.page));
        }
        let (deployment, specs) = (name.clone(), services.clone());
        let deployed =
            self.apply(Change::Deploy { deployment, services: specs, routes: Vec::new() });
        if let Err(refusal) = deployed.or_else(|refusal| self.pass_over(refusal)) {
            let message = format!("deployment {name} is refused: {refusal}");
            return Err(Mistake::new(entry.referenced, message).on(self.page));
        }
        self.images.extend(services.values().map(|spec| spec.container.image.clone()));
        Ok((name, services))
    }

    /// What happens at one time: one thing, but an entry with a `count` joins several nodes.
    pub(super) fn event(&mut self, entry: &Spanned<EventEntry>) -> Result<Vec<Action>> {
        self.now = entry.value.at.value.0;
        let page = self.page;
        if let Some(deployment) = &entry.value.deploy {
            one_thing(entry).map_err(|mistake| mistake.on(page))?;
            let (name, services) = self.deploy(deployment)?;
            return Ok(vec![Action::Deploy(name, services)]);
        }
        self.simple_event(entry).map_err(|mistake| mistake.on(page))
    }

    fn simple_event(&mut self, entry: &Spanned<EventEntry>) -> Result<Vec<Action>, Mistake> {
        one_thing(entry)?;
        let event = &entry.value;
        let of_nodes: [(OfNode, _); 15] = [
            (Action::Crash, &event.crash),
            (Action::Cut, &event.cut),
            (Action::Wipe, &event.wipe),
            (Action::Return, &event.comes_back),
            (Action::Cordon, &event.cordon),
            (Action::Uncordon, &event.uncordon),
            (Action::ExhaustSubnets, &event.exhaust_subnets),
            (Action::FreeSubnets, &event.free_subnets),
            (Action::Remove, &event.remove),
            (Action::Kill, &event.kill),
            (Action::Sicken, &event.unhealthy),
            (Action::StopEngine, &event.stop_engine),
            (Action::LoseEngine, &event.lose_engine),
            (Action::StartEngine, &event.start_engine),
            (Action::Exec, &event.exec),
        ];
        for (action, node) in of_nodes {
            if let Some(node) = node {
                return Ok(vec![self.of_node(action, node)?]);
            }
        }
        if let Some(entry) = &event.join {
            let nodes = self.join(entry)?;
            return Ok(nodes.into_iter().map(|(node, facts)| Action::Join(node, facts)).collect());
        }
        if let Some(entry) = &event.change_node {
            self.check_node(&entry.name)?;
            let nodes = entry.nodes()?.into_iter();
            return Ok(nodes.map(|(node, facts)| Action::Describe(node, facts)).collect());
        }
        if let Some(action) = self.of_deployment(event)? {
            return Ok(vec![action]);
        }
        if let Some(drain) = &event.drain {
            let (node, timeout, force) = match &drain.value {
                NameOr::Name(node) => (node, None, false),
                NameOr::More(DrainEntry { node, timeout, force }) => (node, *timeout, *force),
            };
            self.check_name(node, drain.referenced)?;
            let timeout = timeout.map_or(DRAIN_TIMEOUT, |timeout| timeout.0);
            return Ok(vec![Action::Drain { node: node.clone(), timeout, force }]);
        }
        if let Some(RecoverEntry { node, lost }) = &event.recover {
            self.check_node(node)?;
            lost.iter().try_for_each(|node| self.check_node(node))?;
            let lost = lost.iter().map(|node| node.value.clone()).collect();
            return Ok(vec![Action::Recover { node: node.value.clone(), lost }]);
        }
        flags(event)
    }

    /// What operators ask of a deployment that is there.
    fn of_deployment(&mut self, event: &EventEntry) -> Result<Option<Action>, Mistake> {
        if let Some(undeploy) = &event.undeploy {
            let (name, volumes) = match &undeploy.value {
                NameOr::Name(name) => (name, false),
                NameOr::More(UndeployEntry { name, volumes }) => (name, *volumes),
            };
            self.undeploy(name, undeploy.referenced)?;
            return Ok(Some(Action::Undeploy { deployment: name.clone(), volumes }));
        }
        for (entry, action) in [
            (&event.move_volume, Action::MoveVolume as fn(DeploymentName, NodeId) -> Action),
            (&event.remove_volume, Action::RemoveVolume),
            (&event.back_up_volume, Action::BackUpVolume),
            (&event.restore_volume, Action::RestoreVolume),
        ] {
            if let Some(entry) = entry {
                let VolumeEntry { name, node } = &entry.value;
                self.check_node(node)?;
                return Ok(Some(action(name.clone(), node.value.clone())));
            }
        }
        if let Some(rollback) = &event.rollback {
            let (name, to) = match &rollback.value {
                NameOr::Name(name) => (name, None),
                NameOr::More(RollbackEntry { name, to }) => (name, *to),
            };
            self.check_deployment(name, rollback.referenced)?;
            return Ok(Some(Action::Rollback(name.clone(), to)));
        }
        for (name, asked) in [
            (&event.pause, RolloutRequest::Pause),
            (&event.resume, RolloutRequest::Resume),
            (&event.abort, RolloutRequest::Abort),
        ] {
            if let Some(name) = name {
                self.check_deployment(&name.value, name.referenced)?;
                return Ok(Some(Action::Rollout(name.value.clone(), asked)));
            }
        }
        if let Some(text) = &event.restart {
            let (name, service) = restarted(text)?;
            self.check_deployment(&name, text.referenced)?;
            return Ok(Some(Action::Restart(name, service)));
        }
        if let Some(ScaleEntry { service, replicas }) = &event.scale {
            self.check_service(service)?;
            return Ok(Some(Action::Scale(service.value.0.clone(), *replicas)));
        }
        for (action, service) in [
            (Action::Fail as fn(ServiceKey) -> Action, &event.fail),
            (Action::Poison, &event.poison),
            (Action::Cure, &event.cure),
        ] {
            if let Some(service) = service {
                self.check_service(service)?;
                return Ok(Some(action(service.value.0.clone())));
            }
        }
        Ok(None)
    }

    fn of_node(&mut self, action: OfNode, node: &Spanned<NodeId>) -> Result<Action, Mistake> {
        self.check_node(node)?;
        let (id, at) = (&node.value, node.referenced);
        let action = action(id.clone());
        if matches!(action, Action::Remove(_)) {
            self.names.forget(id);
            let _ = self.apply(Change::RemoveNode { node: id.clone() });
        }
        if !self.is_chaotic && !self.is_lenient {
            self.check_link(&action, id, at)?;
        }
        Ok(action)
    }

    fn check_node(&self, node: &Spanned<NodeId>) -> Result<(), Mistake> {
        self.check_name(&node.value, node.referenced)
    }

    fn check_name(&self, id: &NodeId, at: Location) -> Result<(), Mistake> {
        if self.is_lenient || self.state.node(id).is_some() {
            return Ok(());
        }
        let names = self.state.nodes().keys().map(NodeId::as_str);
        let hint = suggest::hint(id.as_str(), "node", names.collect::<Vec<_>>());
        Err(Mistake::new(at, format!("there is no node {id} at {}", self.now)).hint(hint))
    }

    fn check_deployment(&self, name: &DeploymentName, at: Location) -> Result<(), Mistake> {
        if self.is_lenient || self.state.deployments().contains_key(name) {
            return Ok(());
        }
        let names: Vec<&str> =
            self.state.deployments().keys().map(DeploymentName::as_str).collect();
        let hint = suggest::hint(name.as_str(), "deployment", names);
        let message = format!("there is no deployment {name} at {}", self.now);
        Err(Mistake::new(at, message).hint(hint))
    }

    fn check_service(&self, service: &Spanned<ServiceRef>) -> Result<(), Mistake> {
        let key = &service.value.0;
        if self.is_lenient || self.state.service(key).is_some() {
            return Ok(());
        }
        let names: Vec<String> = self.state.services().keys().map(ToString::to_string).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let hint = suggest::hint(&key.to_string(), "service", names);
        let message = format!("there is no service {key} at {}", self.now);
        Err(Mistake::new(service.referenced, message).hint(hint))
    }

    /// A refusal is passed over where the file is lenient.
    fn pass_over(&self, refusal: Refusal) -> Result<(), Refusal> {
        if self.is_lenient { Ok(()) } else { Err(refusal) }
    }

    /// A node is lost once, and comes back once.
    fn check_link(&mut self, action: &Action, id: &NodeId, at: Location) -> Result<(), Mistake> {
        match action {
            Action::Crash(_) | Action::Cut(_) | Action::Wipe(_) => {
                if let Some(since) = self.gone.insert(id.clone(), self.now) {
                    let message = format!("{id} is gone already, since {since}");
                    return Err(Mistake::new(at, message)
                        .hint(format!("let it `return: {id}` before, or name another node")));
                }
            }
            Action::Return(_) if self.gone.remove(id).is_none() => {
                let message = format!("{id} is not gone at {}, so it cannot return", self.now);
                let gone: Vec<&str> = self.gone.keys().map(NodeId::as_str).collect();
                let hint = match gone.as_slice() {
                    [] => format!("let it `crash: {id}` or `cut: {id}` before"),
                    gone => format!("gone by then: {}", gone.join(", ")),
                };
                return Err(Mistake::new(at, message).hint(hint));
            }
            _ => {}
        }
        Ok(())
    }

    fn undeploy(&mut self, name: &DeploymentName, at: Location) -> Result<(), Mistake> {
        self.check_deployment(name, at)?;
        let change = Change::Undeploy { deployment: name.clone() };
        let undeployed = self.apply(change).or_else(|refusal| self.pass_over(refusal));
        undeployed.map_err(|refusal| Mistake::new(at, refusal.to_string()))
    }

    fn apply(&mut self, change: Change) -> Result<(), Refusal> {
        let author = Author::new(Writer::Operator, "scenario");
        let command = Command::new(Timestamp(self.now.0), Term(1), author, vec![change.free()]);
        self.state.apply(&command).map(drop).map_err(|rejection| rejection.reason)
    }
}

/// What has neither a node nor a deployment to look for.
fn flags(event: &EventEntry) -> Result<Vec<Action>, Mistake> {
    for (word, flag, action) in [
        ("new_leader", &event.new_leader, Action::NewLeader),
        ("join_token", &event.join_token, Action::CreateJoinToken),
        ("revoke_join_token", &event.revoke_join_token, Action::RevokeJoinToken),
        ("backup", &event.backup, Action::Backup),
        ("rotate_authority", &event.rotate_authority, Action::RotateAuthority),
        ("rotate_without_down", &event.rotate_without_down, Action::RotateWithoutDown),
        ("abort_rotation", &event.abort_rotation, Action::AbortRotation),
        ("rotate_backup_key", &event.rotate_backup_key, Action::RotateBackupKey),
        ("raise", &event.raise, Action::Raise),
        ("optimize", &event.optimize, Action::Optimize),
        ("join_fleet", &event.join_fleet, Action::JoinFleet),
        ("leave_fleet", &event.leave_fleet, Action::LeaveFleet),
        ("mistake_for_coordinator", &event.mistake_for_coordinator, Action::MistakeForCoordinator),
    ] {
        match flag {
            Some(flag) if flag.value => return Ok(vec![action]),
            Some(flag) => {
                let mistake =
                    Mistake::new(flag.referenced, format!("`{word}: false` does nothing"));
                return Err(mistake.hint(format!("write `{word}: true`, or remove the event")));
            }
            None => {}
        }
    }
    let images = [
        (&event.breaks, Action::Break as fn(String) -> Action),
        (&event.mend, Action::Mend),
        (&event.withdraw, Action::Withdraw),
        (&event.restore, Action::Restore),
    ];
    let images = images
        .into_iter()
        .filter_map(|(image, action)| image.as_ref().map(|image| action(image.value.clone())));
    let clock = event.clock.iter().map(|offset| Action::Skew(offset.0.0));
    let added = event.add_operator.iter().map(|name| Action::AddOperator(name.clone()));
    let revoked = event.revoke_operator.iter().map(|name| Action::RevokeOperator(name.clone()));
    let secrets = [
        (&event.create_secret, Action::CreateSecret as fn(FileName) -> Action),
        (&event.rotate_secret, Action::RotateSecret),
        (&event.remove_secret, Action::RemoveSecret),
    ];
    let secrets =
        secrets.into_iter().filter_map(|(name, action)| name.as_ref().map(|it| action(it.clone())));
    let registries = [
        (&event.login_registry, Action::LoginRegistry as fn(RegistryHost) -> Action),
        (&event.logout_registry, Action::LogoutRegistry),
    ];
    let registries = registries
        .into_iter()
        .filter_map(|(registry, action)| registry.as_ref().map(|it| action(it.clone())));
    let certified = event.certify.iter().map(|answer| {
        let known = AcmeAnswer::ALL.into_iter().find(|it| it.word() == answer.value);
        let words = AcmeAnswer::ALL.map(AcmeAnswer::word).join(", ");
        let unknown = || {
            let what = format!("no authority answers {:?}", answer.value);
            Mistake::new(answer.referenced, what).hint(format!("write one of {words}"))
        };
        known.map(Action::Certify).ok_or_else(unknown)
    });
    let certified = certified.collect::<Result<Vec<_>, _>>()?;
    let rescheduling = event.rescheduling.iter().map(|entry| {
        let target = entry.target.map(|percent| Pressure::percent(percent.into()));
        Action::Reschedule(RescheduleSettings { is_paused: entry.paused, target })
    });
    let machines = event.machines.iter().map(|word| {
        let known = MachineAction::ALL.into_iter().find(|it| it.word() == word.value);
        let words = MachineAction::ALL.map(MachineAction::word).join(", ");
        let unknown = || {
            let what = format!("nothing is called {:?} that happens to machines", word.value);
            Mistake::new(word.referenced, what).hint(format!("write one of {words}"))
        };
        known.map(Action::Machines).ok_or_else(unknown)
    });
    let machines = machines.collect::<Result<Vec<_>, _>>()?;
    let kept = secrets.chain(registries).chain(rescheduling).chain(machines);
    Ok(images.chain(clock).chain(added).chain(revoked).chain(kept).chain(certified).collect())
}

/// `shop`, or `shop/web`.
fn restarted(text: &Spanned<String>) -> Result<(DeploymentName, Option<ServiceName>), Mistake> {
    let wrong = |error: InvalidName| Mistake::new(text.referenced, error.to_string());
    let (name, service) = match text.value.split_once('/') {
        Some((name, service)) => (name, Some(service)),
        None => (text.value.as_str(), None),
    };
    let service = service.map(ServiceName::new).transpose().map_err(wrong)?;
    Ok((DeploymentName::new(name).map_err(wrong)?, service))
}

/// Several things at once would have no order.
fn one_thing(entry: &Spanned<EventEntry>) -> Result<(), Mistake> {
    match entry.value.count() {
        1 => Ok(()),
        0 => Err(Mistake::new(entry.referenced, "nothing happens at this time")
            .hint("add one of crash, cut, return, drain, join, deploy, new_leader, …")),
        found => Err(Mistake::new(entry.referenced, format!("{found} things happen in one event"))
            .hint("write an event for each; several may be `at` the same time")),
    }
}
