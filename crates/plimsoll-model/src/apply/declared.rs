//! Volumes that images declare: what nodes say of an image they have pulled becomes part of the specs that services run, and
//! whoever runs one has its volumes noted before anything starts. Revisions have nothing of it: a file says nothing of what is
//! in its images.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Txn;
use crate::audit::AuditKind;
use crate::command::Refusal;
use crate::ids::{NodeId, ReplicaId, ServiceKey};
use crate::replica::{Assignment, ObservedState, Replica};
use crate::spec::{
    DeclaredVolumes, MAX_DECLARED, MAX_DECLARED_PATH, ServiceSpec, SpecHash, declared_name,
};
use crate::volumes::DeclaredVolume;

impl Txn<'_> {
    /// The spec with what is known of its image: the word of a node on this very spec, or what the service keeps so far.
    pub(super) fn with_declared(
        &self,
        key: &ServiceKey,
        spec: &Arc<ServiceSpec>,
    ) -> Arc<ServiceSpec> {
        let service = self.state.services.get(key);
        let known = service.and_then(|service| service.row.specs.get(&spec.hash));
        let declared = known.map_or_else(|| self.assumed(key, spec), |it| it.declared.clone());
        let mut spec = Arc::clone(spec);
        set(&mut spec, declared);
        spec
    }

    /// What there is of the service's data, also from before it was deleted, and what its containers have now.
    fn assumed(&self, key: &ServiceKey, spec: &ServiceSpec) -> DeclaredVolumes {
        let volumes = self.state.volumes.get(&key.deployment);
        let kept = volumes.into_iter().flat_map(|it| it.declared_paths(&key.service));
        let current = self.state.services.get(key).and_then(|service| service.desired());
        let current = current.into_iter().flat_map(|spec| &spec.declared.paths).map(String::as_str);
        DeclaredVolumes { paths: spec.container.unmounted(kept.chain(current)), is_told: false }
    }

    /// A node that is not told to run it has no say, and neither has one that says too much.
    pub(super) fn declare_volumes(
        &mut self,
        key: &ServiceKey,
        hash: SpecHash,
        node: &NodeId,
        paths: &BTreeSet<String>,
    ) {
        let Some(service) = self.state.services.get(key) else { return };
        let Some(spec) = service.row.specs.get(&hash) else { return };
        let is_sound = paths.len() <= MAX_DECLARED
            && paths.iter().all(|path| path.len() <= MAX_DECLARED_PATH)
            && spec.container.unmounted(paths.iter().map(String::as_str)) == *paths;
        let runs = |replica: &Replica| {
            let mut asked = replica.assignment.iter().chain(replica.heading());
            asked.any(|asked| asked.spec == hash && asked.node == *node)
        };
        let running = service.replicas.iter().filter(|(_, replica)| runs(replica));
        let running: Vec<ReplicaId> =
            running.map(|(slot, _)| ReplicaId::new(key.clone(), slot.clone())).collect();
        if !is_sound || running.is_empty() {
            return;
        }
        if spec.declared.lacks(paths) {
            let told = spec.declared.told(paths);
            // Words add up, and one node could go on for ever.
            if told.paths.len() > MAX_DECLARED {
                return;
            }
            self.write_declared(key, hash, &told);
            self.audit(AuditKind::VolumesDeclared { service: key.clone(), paths: told.paths });
        }
        for id in running {
            self.claim_data(&id, hash, node);
        }
    }

    /// Refuses what would run beside a move or a hold of what images of the service declared.
    pub(super) fn check_declared_free(&self, key: &ServiceKey) -> Result<(), Refusal> {
        let Some(volumes) = self.state.volumes.get(&key.deployment) else { return Ok(()) };
        let own: Vec<&String> =
            volumes.declared_of(&key.service).map(|(volume, ..)| volume).collect();
        if let Some(moving) = &volumes.moving
            && own.iter().any(|volume| moving.volumes.contains(*volume))
        {
            let (deployment, to) = (key.deployment.clone(), moving.dst.clone());
            return Err(Refusal::VolumesMoving { deployment, to });
        }
        match volumes.hold.as_ref().filter(|hold| hold.purpose.stops()) {
            Some(hold) if own.contains(&&hold.volume) => volumes.check_unheld(Some(&hold.volume)),
            _ => Ok(()),
        }
    }

    fn write_declared(&mut self, key: &ServiceKey, hash: SpecHash, told: &DeclaredVolumes) {
        let Some(service) = self.state.services.get(key) else { return };
        // Whoever started a container of it has looked at its image first, and had nothing to say.
        let started: BTreeSet<SpecHash> = service.replicas.values().flat_map(started).collect();
        let mut row = service.row.clone();
        for (other, spec) in &mut row.specs {
            if *other == hash {
                set(spec, told.clone());
            } else if !spec.declared.is_told && !started.contains(other) {
                // Nobody has pulled that one yet, and it follows this one.
                let assumed = spec.declared.paths.iter().chain(&told.paths).map(String::as_str);
                let paths = spec.container.unmounted(assumed);
                set(spec, DeclaredVolumes { paths, is_told: false });
            }
        }
        let former = row.rollout.as_mut().and_then(|rollout| rollout.from.as_mut());
        if let Some(former) = former.filter(|former| former.spec.hash == hash) {
            set(&mut former.spec, told.clone());
        }
        self.set_service(key, Some(row));
    }

    /// Notes the node as the holder of the replica's data, unless another copy of the replica was noted first.
    fn claim_data(&mut self, id: &ReplicaId, hash: SpecHash, node: &NodeId) {
        let Some(replica) = self.state.replica(id).cloned() else { return };
        let homes = replica.data.map(|number| self.homes(id, number)).unwrap_or_default();
        // Of a copy that was noted first and given up since, nothing is left once it has stopped: its data is for whoever
        // comes there, and this copy begins its own.
        let is_had = replica.holds().any(|held| homes.contains(&held.node));
        if is_had && !homes.contains(node) {
            return;
        }
        let before = self.state.volumes.get(&id.service.deployment).cloned();
        let data = self.take_data(id, node, hash, replica.data);
        let after = self.state.volumes.get(&id.service.deployment);
        if data != replica.data || before.as_ref() != after {
            self.set_replica(id, Some(Replica { data, ..replica }));
        }
    }

    /// The replica's number, given that it is to run this spec on the node; the node has its volumes from now on.
    pub(super) fn take_data(
        &mut self,
        id: &ReplicaId,
        node: &NodeId,
        hash: SpecHash,
        number: Option<u32>,
    ) -> Option<u32> {
        let service = self.state.services.get(&id.service)?;
        let paths = service.row.specs.get(&hash)?.declared.paths.clone();
        let homes = number.map(|number| self.homes(id, number)).unwrap_or_default();
        let stays = homes.is_empty() || homes.contains(node);
        if !stays {
            // It leaves its data behind, for whoever comes there: one volume is on one node.
            self.release_data(id, number);
        }
        let number = number.filter(|_| stays);
        if paths.is_empty() {
            return number;
        }
        let number = number.unwrap_or_else(|| self.free_number(id, node, &paths));
        let (deployment, service) = (&id.service.deployment, &id.service.service);
        let mut volumes = self.state.volumes.get(deployment).cloned().unwrap_or_default();
        for path in paths {
            let name = declared_name(deployment, service, number, &path);
            let holders = volumes.held.entry(name).or_default();
            holders.nodes.insert(node.clone());
            let service = service.clone();
            holders.declared = Some(DeclaredVolume { service, number, path, released: None });
        }
        if self.state.volumes.get(deployment) != Some(&volumes) {
            self.set_volumes(deployment, Some(volumes));
        }
        Some(number)
    }

    /// The replica is over. Whoever comes after it may have its data.
    pub(super) fn release_data(&mut self, id: &ReplicaId, number: Option<u32>) {
        let (Some(number), deployment) = (number, &id.service.deployment) else { return };
        let Some(mut volumes) = self.state.volumes.get(deployment).cloned() else { return };
        let declared = volumes.held.values_mut().filter_map(|holders| holders.declared.as_mut());
        let own = declared.filter(|it| it.service == id.service.service && it.number == number);
        for declared in own {
            declared.released = Some(self.at);
        }
        if self.state.volumes.get(deployment) != Some(&volumes) {
            self.set_volumes(deployment, Some(volumes));
        }
    }

    /// Of the numbers that no other live replica has, the one whose data is on the node, or one without data.
    fn free_number(&self, id: &ReplicaId, node: &NodeId, paths: &BTreeSet<String>) -> u32 {
        let service = self.state.services.get(&id.service);
        let replicas = service.into_iter().flat_map(|service| &service.replicas);
        let others = replicas.filter(|(slot, _)| **slot != id.slot).map(|(_, replica)| replica);
        let (live, all): (BTreeSet<Option<u32>>, BTreeSet<Option<u32>>) =
            others.map(|it| (it.data.filter(|_| it.assignment.is_some()), it.data)).unzip();
        let live: BTreeSet<u32> = live.into_iter().flatten().collect();
        let volumes = self.state.volumes.get(&id.service.deployment);
        let vacant = volumes.map(|it| it.vacant(&id.service.service, paths, &live));
        let here = vacant.into_iter().flatten().find(|data| data.nodes.contains(node));
        let declared = volumes.into_iter().flat_map(|it| it.declared_of(&id.service.service));
        let mut taken: BTreeSet<u32> = declared.map(|(_, _, declared)| declared.number).collect();
        taken.extend(all.into_iter().flatten());
        // There are fewer than numbers.
        here.map_or_else(
            || (1..u32::MAX).find(|it| !taken.contains(it)).unwrap_or(0),
            |data| data.number,
        )
    }

    /// The nodes that have data of this number.
    fn homes(&self, id: &ReplicaId, number: u32) -> BTreeSet<NodeId> {
        let volumes = self.state.volumes.get(&id.service.deployment);
        let declared = volumes.into_iter().flat_map(|it| it.declared_of(&id.service.service));
        let own = declared.filter(|(_, _, declared)| declared.number == number);
        own.flat_map(|(_, holders, _)| &holders.nodes).cloned().collect()
    }
}

/// The specs of which the replica has a container that was started.
fn started(replica: &Replica) -> impl Iterator<Item = SpecHash> {
    let is_started = |held: &&Assignment| {
        let seen = replica.observation(held).map(|seen| seen.state);
        let states = [
            ObservedState::Starting,
            ObservedState::Running,
            ObservedState::Degraded,
            ObservedState::Completed,
        ];
        seen.is_some_and(|state| states.contains(&state))
    };
    replica.holds().filter(is_started).map(|held| held.spec)
}

fn set(spec: &mut Arc<ServiceSpec>, declared: DeclaredVolumes) {
    if spec.declared != declared {
        Arc::make_mut(spec).declared = declared;
    }
}

#[cfg(test)]
mod tests {
    use crate::command::Change;
    use crate::ids::DeploymentName;
    use crate::reason::AbandonReason;
    use crate::testkit::{Cell, cell, cpus, node_id, replica_id, service_key, spread};
    use crate::transition::Writer;

    use super::*;

    fn two() -> Cell {
        cell().node("ash", cpus(4)).node("birch", cpus(4))
    }

    fn place(cell: &mut Cell, replica: &str, node: &str, spec: &ServiceSpec) {
        let (replica, node, spec) = (replica_id(replica), node_id(node), spec.hash);
        cell.change(Writer::Scheduler, Change::Place { replica, node, spec });
    }

    fn retire(cell: &mut Cell, replica: &str) {
        cell.change(Writer::Scheduler, Change::Retire { replica: replica_id(replica) });
    }

    fn declare(cell: &mut Cell, node: &str, spec: &ServiceSpec, paths: &[&str]) {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        let (service, node) = (service_key("shop/db"), node_id(node));
        let change = Change::DeclareVolumes { service, spec: spec.hash, node, paths };
        cell.change(Writer::Agent, change);
    }

    /// A service of one replica that is on ash.
    fn placed() -> Cell {
        let mut cell = two().deploy("shop", [("db", spread(1))]);
        place(&mut cell, "shop/db/1", "ash", &spread(1));
        cell
    }

    fn desired(cell: &Cell) -> &ServiceSpec {
        cell.state.service(&service_key("shop/db")).unwrap().desired().unwrap()
    }

    fn declared(cell: &Cell) -> Vec<&str> {
        desired(cell).declared.paths.iter().map(String::as_str).collect()
    }

    /// The numbers there are, each with who has it.
    fn held(cell: &Cell) -> Vec<(u32, Vec<&str>)> {
        let held = cell.state.volumes().values().flat_map(|volumes| volumes.held.values());
        held.map(|holders| {
            let nodes = holders.nodes.iter().map(NodeId::as_str).collect();
            (holders.declared.as_ref().unwrap().number, nodes)
        })
        .collect()
    }

    fn data(cell: &Cell, replica: &str) -> Option<u32> {
        cell.state.replica(&replica_id(replica)).unwrap().data
    }

    #[test]
    fn what_a_node_says_of_an_image_makes_its_service_stateful_and_the_node_a_holder() {
        let mut cell = placed();
        declare(&mut cell, "birch", &spread(1), &["/other"]);
        assert_eq!(declared(&cell), [""; 0], "birch runs nothing of it");
        declare(&mut cell, "ash", &spread(1), &["relative"]);
        let many: Vec<String> = (0..=MAX_DECLARED).map(|n| format!("/{n}")).collect();
        declare(&mut cell, "ash", &spread(1), &many.iter().map(String::as_str).collect::<Vec<_>>());
        declare(&mut cell, "ash", &spread(1).image("app:2"), &["/data"]);
        assert_eq!(
            declared(&cell),
            [""; 0],
            "no path, too many of them, and no spec that there is"
        );
        declare(&mut cell, "ash", &spread(1), &["/data"]);
        assert_eq!(declared(&cell), ["/data"]);
        assert!(desired(&cell).is_stateful() && !desired(&cell).can_run_twice());
        assert_eq!(held(&cell), [(1, vec!["ash"])]);
        let revisions = cell.state.deployments().values().flat_map(|it| it.history.values());
        let mut specs = revisions.flat_map(|record| record.services.values());
        assert!(specs.all(|spec| spec.declared == DeclaredVolumes::default()));
        let before = cell.state.clone();
        declare(&mut cell, "ash", &spread(1), &["/data"]);
        assert_eq!(cell.state, before, "said twice");
    }

    #[test]
    fn it_is_known_of_the_same_spec_again_and_assumed_of_the_next_until_a_node_knows_better() {
        let mut cell = placed();
        declare(&mut cell, "ash", &spread(1), &["/data"]);
        let mut cell = cell.deploy("shop", [("db", spread(2))]);
        assert_eq!(declared(&cell), ["/data"], "it is scaled");
        let next = spread(2).image("app:2");
        cell = cell.deploy("shop", [("db", next.clone())]);
        assert_eq!(declared(&cell), ["/data"], "nobody has pulled the next one yet");
        place(&mut cell, "shop/db/2", "birch", &next);
        declare(&mut cell, "birch", &next, &["/elsewhere"]);
        assert_eq!(declared(&cell), ["/elsewhere"]);
        let mounted = spread(2).image("app:3").volume("d");
        cell = cell.deploy("shop", [("db", mounted)]);
        assert_eq!(declared(&cell), ["/elsewhere"], "the file mounts the other");
    }

    #[test]
    fn a_deployment_that_comes_back_knows_of_its_data_before_anyone_pulls_its_image() {
        let mut cell = placed();
        declare(&mut cell, "ash", &spread(1), &["/data"]);
        cell = cell.undeploy("shop");
        retire(&mut cell, "shop/db/1");
        let mut cell = cell.deploy("shop", [("db", spread(1))]);
        assert_eq!(declared(&cell), ["/data"]);
        place(&mut cell, "shop/db/2", "ash", &spread(1));
        assert_eq!(data(&cell, "shop/db/2"), Some(1), "it has what the first one had");
        let name = DeploymentName::new("shop").unwrap();
        assert!(cell.state.volumes()[&name].nodes().contains(&node_id("ash")));
    }

    #[test]
    fn each_replica_has_a_number_and_a_new_one_takes_over_what_was_let_go_last() {
        let mut cell = two().deploy("shop", [("db", spread(3))]);
        for (replica, node) in [("shop/db/1", "ash"), ("shop/db/2", "ash"), ("shop/db/3", "birch")]
        {
            place(&mut cell, replica, node, &spread(3));
            declare(&mut cell, node, &spread(3), &["/data"]);
        }
        assert_eq!(held(&cell), [(1, vec!["ash"]), (2, vec!["ash"]), (3, vec!["birch"])]);
        cell = cell.later(crate::units::Millis::seconds(1));
        retire(&mut cell, "shop/db/1");
        cell = cell.later(crate::units::Millis::seconds(1));
        retire(&mut cell, "shop/db/2");
        place(&mut cell, "shop/db/4", "ash", &spread(3));
        assert_eq!(data(&cell, "shop/db/4"), Some(2));
        place(&mut cell, "shop/db/5", "birch", &spread(3));
        assert_eq!(data(&cell, "shop/db/5"), Some(4), "what is on ash is not taken to birch");
    }

    #[test]
    fn of_two_copies_of_a_replica_the_first_to_say_so_has_the_data() {
        let mut cell = placed();
        let (replica, node) = (replica_id("shop/db/1"), node_id("birch"));
        let (spec, cause) = (spread(1).hash, crate::MoveCause::NodeLost);
        cell.change(Writer::Scheduler, Change::Succeed { replica, node, spec, cause });
        declare(&mut cell, "birch", &spread(1), &["/data"]);
        declare(&mut cell, "ash", &spread(1), &["/data"]);
        assert_eq!(held(&cell), [(1, vec!["birch"])]);

        // The node that was lost is back, and the move is given up.
        let (replica, why) = (replica_id("shop/db/1"), AbandonReason::Needless);
        cell.change(Writer::Scheduler, Change::Abandon { replica, why });
        declare(&mut cell, "ash", &spread(1), &["/data"]);
        assert_eq!(held(&cell), [(1, vec!["birch"])], "the other copy has not stopped");
        let mut cell = cell.obey();
        declare(&mut cell, "ash", &spread(1), &["/data"]);
        assert_eq!(held(&cell), [(1, vec!["birch"]), (2, vec!["ash"])]);
        assert_eq!(data(&cell, "shop/db/1"), Some(2));
    }
}
