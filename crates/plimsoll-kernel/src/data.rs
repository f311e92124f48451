//! What data asks of where a replica runs. Whether it has some is judged by what the replica has, and not by the newest spec
//! alone: a rollout that drops a volume may yet be taken back. Where a volume lies, the state remembers; what mounts it goes
//! there, or waits.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::reason::Filter;
use plimsoll_model::spec::VolumeGroup;
use plimsoll_model::state::Service;
use plimsoll_model::volumes::{VacantData, Volumes};
use plimsoll_model::{
    DeploymentName, Mode, NodeId, Replica, Resources, ServiceKey, ServiceName, ServiceSpec, State,
};

/// Whether what runs of it, what should, or what its rollout may return to keeps data on the node.
pub(crate) fn has_data(service: &Service, replica: &Replica) -> bool {
    let rollout = service.row.rollout.as_ref().filter(|rollout| !rollout.is_over());
    let former = rollout.and_then(|rollout| rollout.from.as_ref()).map(|from| &from.spec);
    runs_with_data(service, replica)
        || service.desired().into_iter().chain(former).any(|spec| ServiceSpec::is_stateful(spec))
}

/// Whether what runs of it keeps data on the node.
pub(crate) fn runs_with_data(service: &Service, replica: &Replica) -> bool {
    replica.holds().filter_map(|held| service.spec_of(held)).any(|spec| spec.is_stateful())
}

/// Where a pass has already decided that volumes will be.
pub(crate) type Promised = BTreeMap<String, BTreeSet<NodeId>>;

/// What its volumes ask of where a service with a number of replicas runs.
///
/// Of a volume that one replica mounts, or several services, there is one in the cell: who mounts it runs where it is. The
/// replicas of a service that shares its volume with none have one each, on the nodes they are on, as on Swarm; a new replica
/// takes over one that is left before it begins an empty one.
#[derive(Debug, Default)]
pub(crate) struct VolumeBinding<'s> {
    homes: Vec<VolumeHome>,
    /// The service's own volumes of which there is one.
    own: BTreeSet<String>,
    /// Each replica has its own.
    is_per_replica: bool,
    /// The nodes that have a volume for one replica each.
    copies: Option<(String, BTreeSet<NodeId>)>,
    /// What its image declares, of replicas that are over: as many as there are replicas to come, the last used first.
    vacant: Vec<VacantData>,
    /// What is to find room where the first of it goes, while no volume is anywhere.
    sharers: Vec<VolumeSharer<'s>>,
    /// As much as all of it asks for.
    request: Resources,
    /// Nodes with a copy of a volume of it that is not the data.
    spoilt: BTreeMap<NodeId, String>,
}

/// A volume of which there is one.
#[derive(Debug)]
pub(crate) struct VolumeHome {
    pub(crate) volume: String,
    nodes: BTreeSet<NodeId>,
    /// The service itself mounts it, and not only one that shares another volume with it.
    is_own: bool,
}

#[derive(Debug)]
pub(crate) struct VolumeSharer<'s> {
    pub(crate) service: &'s ServiceName,
    pub(crate) spec: &'s ServiceSpec,
}

impl<'s> VolumeBinding<'s> {
    pub(crate) fn new(
        state: &'s State,
        key: &ServiceKey,
        spec: &ServiceSpec,
        promised: &Promised,
    ) -> Option<Self> {
        let deployment = &key.deployment;
        // Most services have none, and are not looked at with the others.
        if spec.container.local_volumes(deployment).next().is_none() {
            return Self::declared(state, key, spec);
        }
        let spoilt = spoilt(state, deployment, spec);
        let is_everywhere = spec.placement.mode == Mode::Global;
        if is_everywhere {
            let is_some = !spoilt.is_empty();
            return is_some.then(|| Self { is_per_replica: true, spoilt, ..Self::default() });
        }
        let nodes_of = |volume: &str| {
            let known = state.nodes_with_volume(deployment, volume).cloned();
            let soon = promised.get(volume).into_iter().flatten().cloned();
            known.chain(soon).collect::<BTreeSet<NodeId>>()
        };
        let services = state.services_of(deployment).filter_map(|other| {
            let service = state.service(other)?;
            Some((&other.service, service.desired()?.as_ref()))
        });
        let mut groups = VolumeGroup::all(deployment, services).into_iter();
        let is_in = |group: &VolumeGroup<'_>| group.services.iter().any(|it| *it.0 == key.service);
        let Some(VolumeGroup { services, volumes }) = groups.find(is_in) else {
            // What it shares with a service that is everywhere ties it to no node; what its image declares may.
            let declared = Self::declared(state, key, spec);
            let unbound = || Self { is_per_replica: true, ..Self::default() };
            let is_some = declared.is_some() || !spoilt.is_empty();
            return is_some.then(|| Self { spoilt, ..declared.unwrap_or_else(unbound) });
        };
        let local: BTreeSet<String> = spec.container.local_volumes(deployment).collect();
        let own: BTreeSet<String> = local.intersection(&volumes).cloned().collect();
        let is_alone = services.len() == 1;
        if is_alone && spec.copies().unwrap_or(0) > 1 {
            let mut located = own.into_iter().map(|volume| (nodes_of(&volume), volume));
            let copies = located.find(|(nodes, _)| !nodes.is_empty());
            let copies = copies.map(|(nodes, volume)| (volume, nodes));
            let vacant = vacant(state, key, spec);
            return Some(Self { is_per_replica: true, copies, vacant, spoilt, ..Self::default() });
        }
        let located = volumes.into_iter().map(|volume| (nodes_of(&volume), volume));
        let homes: Vec<VolumeHome> = located
            .filter(|(nodes, _)| !nodes.is_empty())
            .map(|(nodes, volume)| VolumeHome { is_own: own.contains(&volume), volume, nodes })
            .collect();
        let mut binding = Self { homes, own, spoilt, ..Self::default() };
        binding.homes.extend(declared_home(state, key, spec));
        if binding.homes.is_empty() && !is_alone {
            for (service, spec) in services {
                let of = ServiceKey::new(deployment.clone(), service.clone());
                binding.request = binding.request.plus(missing(state.service(&of), spec));
                if *service != key.service {
                    binding.sharers.push(VolumeSharer { service, spec });
                }
            }
        }
        Some(binding)
    }

    /// Of a service that mounts no named volume, and whose image may declare some.
    fn declared(state: &State, key: &ServiceKey, spec: &ServiceSpec) -> Option<Self> {
        let replicas = spec.copies().filter(|_| spec.has_declared())?;
        if replicas == 1 {
            let homes = declared_home(state, key, spec).into_iter().collect();
            return Some(Self { homes, ..Self::default() });
        }
        let vacant = vacant(state, key, spec);
        Some(Self { is_per_replica: true, vacant, ..Self::default() })
    }

    /// Why a volume keeps a replica that is nowhere yet from this node.
    pub(crate) fn filter(&self, node: &NodeId) -> Option<Filter> {
        if let Some(spoilt) = self.spoilt_on(node) {
            return Some(spoilt);
        }
        self.homes.iter().find_map(|home| {
            let VolumeHome { volume, nodes, .. } = home;
            if nodes.len() > 1 {
                let (volume, nodes) = (volume.clone(), nodes.clone());
                return Some(Filter::VolumeSplit { volume, nodes });
            }
            let (volume, first) = (volume.clone(), nodes.first()?);
            (first != node).then(|| Filter::VolumeElsewhere { volume, node: first.clone() })
        })
    }

    /// Why a replica that is on the node would find a volume of its own empty there.
    pub(crate) fn is_elsewhere(&self, node: &NodeId) -> Option<Filter> {
        if let Some(spoilt) = self.spoilt_on(node) {
            return Some(spoilt);
        }
        let mut own = self.homes.iter().filter(|home| home.is_own);
        let home = own.find(|home| !home.nodes.contains(node))?;
        let (volume, node) = (home.volume.clone(), home.nodes.first()?.clone());
        Some(Filter::VolumeElsewhere { volume, node })
    }

    /// Why what the node has of a volume is not to be taken for the data.
    pub(crate) fn spoilt_on(&self, node: &NodeId) -> Option<Filter> {
        let volume = self.spoilt.get(node)?.clone();
        Some(Filter::VolumeCopy { volume })
    }

    /// The only nodes worth a look, where it is settled which.
    pub(crate) fn nodes(&self) -> Option<&BTreeSet<NodeId>> {
        self.homes.first().map(|home| &home.nodes)
    }

    /// Whether nodes that are alike otherwise suit it unequally.
    pub(crate) fn is_particular(&self) -> bool {
        !self.sharers.is_empty() || !self.spoilt.is_empty()
    }

    pub(crate) fn sharers(&self) -> &[VolumeSharer<'s>] {
        &self.sharers
    }

    /// What all that goes to one node together asks for there; nothing once it is settled which.
    pub(crate) fn request(&self) -> Resources {
        self.request
    }

    /// The nodes that have data for one more replica, each as often as for one more; given which have no replica.
    pub(crate) fn vacant(&self, has_none: impl Fn(&NodeId) -> bool) -> Vec<&NodeId> {
        if !self.vacant.is_empty() {
            return self.vacant.iter().flat_map(|data| &data.nodes).collect();
        }
        let copies = self.copies.iter().flat_map(|(_, nodes)| nodes);
        copies.filter(|node| has_none(node)).collect()
    }

    /// Nothing but the node of this data will do: as many replicas are missing as there are volumes without one.
    pub(crate) fn wait_for(mut self, vacant: &[NodeId]) -> Self {
        let declared = self.vacant.first().map(|data| &data.volume);
        let Some(volume) = declared.or(self.copies.as_ref().map(|(volume, _)| volume)) else {
            return self;
        };
        if let Some(first) = vacant.first() {
            let (volume, nodes) = (volume.clone(), BTreeSet::from([first.clone()]));
            self.homes.push(VolumeHome { volume, nodes, is_own: true });
        }
        self
    }

    /// The first of it goes there, and so does all that follows.
    pub(crate) fn settle(&mut self, node: &NodeId) {
        if let Some(at) = self.vacant.iter().position(|data| data.nodes.contains(node)) {
            self.vacant.remove(at);
        }
        if self.is_per_replica {
            return;
        }
        for volume in std::mem::take(&mut self.own) {
            // One that is somewhere stays there.
            if self.homes.iter().all(|home| home.volume != volume) {
                let nodes = BTreeSet::from([node.clone()]);
                self.homes.push(VolumeHome { volume, nodes, is_own: true });
            }
        }
        self.sharers.clear();
        self.request = Resources::NONE;
    }
}

/// Data of replicas that are over, for those that are to come.
fn vacant(state: &State, key: &ServiceKey, spec: &ServiceSpec) -> Vec<VacantData> {
    let (Some(service), Some(volumes)) = (state.service(key), state.volumes().get(&key.deployment))
    else {
        return Vec::new();
    };
    let live = service.replicas.values().filter(|replica| replica.assignment.is_some()).count();
    let wanted = spec.placement.mode.replicas().unwrap_or(0) as usize;
    let in_use = service.data_in_use();
    let mut vacant = volumes.vacant(&key.service, &spec.declared.paths, &in_use);
    vacant.truncate(wanted.saturating_sub(live));
    vacant
}

/// Where the data of the only replica is, or of the last one there was.
pub(crate) fn declared_home(
    state: &State,
    key: &ServiceKey,
    spec: &ServiceSpec,
) -> Option<VolumeHome> {
    let (service, volumes) = (state.service(key)?, state.volumes().get(&key.deployment)?);
    let own = service.data_in_use().into_iter().next();
    let others = own.map(|own| numbers_but(volumes, &key.service, own)).unwrap_or_default();
    let data = volumes.vacant(&key.service, &spec.declared.paths, &others).into_iter().next()?;
    Some(VolumeHome { volume: data.volume, nodes: data.nodes, is_own: true })
}

fn numbers_but(volumes: &Volumes, service: &ServiceName, own: u32) -> BTreeSet<u32> {
    volumes.declared_numbers(service).filter(|number| *number != own).collect()
}

/// The nodes where a volume of the service is an old copy, or what is left of a move.
fn spoilt(
    state: &State,
    deployment: &DeploymentName,
    spec: &ServiceSpec,
) -> BTreeMap<NodeId, String> {
    let mut spoilt = BTreeMap::new();
    let Some(volumes) = state.volumes().get(deployment) else { return spoilt };
    for volume in spec.container.local_volumes(deployment) {
        let Some(holders) = volumes.held.get(&volume) else { continue };
        let nodes = holders.old.iter().chain(holders.discards.keys());
        for node in nodes.filter(|node| holders.is_spoilt(node)) {
            spoilt.insert(node.clone(), volume.clone());
        }
    }
    spoilt
}

/// What the replicas ask for that a service lacks.
fn missing(service: Option<&Service>, spec: &ServiceSpec) -> Resources {
    let replicas = service.into_iter().flat_map(|service| service.replicas.values());
    let has = replicas.filter(|replica| replica.assignment.is_some()).count();
    let wanted = spec.placement.mode.replicas().unwrap_or(0) as usize;
    (has..wanted).fold(Resources::NONE, |sum, _| sum.plus(spec.request()))
}

#[cfg(test)]
mod tests {
    use plimsoll_model::reason::WaitReason;
    use plimsoll_model::testkit::{
        Cell, cell, cpus, global, hosts, node_id, replica_id, service_key, spread,
    };
    use plimsoll_model::volumes::VolumeChange;
    use plimsoll_model::{Change, Writer};

    use super::*;
    use crate::testkit::Passes;

    #[test]
    fn a_replica_keeps_its_data_until_the_rollout_that_drops_its_volume_is_over() {
        let cell = cell().node("ash", cpus(4)).deploy("shop", [("db", spread(1).volume("d"))]);
        let has = |cell: &Cell| {
            let id = replica_id("shop/db/1");
            let service = cell.state.service(&id.service).unwrap();
            has_data(service, &service.replicas[&id.slot])
        };
        let cell = cell.settle();
        assert!(has(&cell));
        let cell = cell.deploy("shop", [("db", spread(1).image("app:2"))]);
        assert!(has(&cell), "it still runs with its volume");
        let cell = cell.pass();
        assert!(has(&cell), "the rollout may be taken back");
        let cell = cell.obey().settle().later(plimsoll_model::Millis::minutes(2)).settle();
        assert!(!has(&cell.obey()), "the rollout is over, and the old copy has stopped");
    }

    /// Ends the deployment and what it runs; its volumes stay.
    fn end(cell: Cell) -> Cell {
        cell.undeploy("shop").settle()
    }

    fn why_unplaced(cell: &Cell, service: &str) -> Option<String> {
        let service = cell.state.service(&service_key(service))?;
        service.row.unplaced.as_ref().map(|it| it.why.to_string())
    }

    fn three() -> Cell {
        cell().node("ash", cpus(4)).node("birch", cpus(4)).node("cedar", cpus(4))
    }

    #[test]
    fn a_deployment_that_comes_back_finds_its_volume_or_waits_for_it() {
        let db = || [("db", spread(1).volume("d"))];
        let cell = three().deploy("shop", db()).settle();
        let home = cell.nodes_of("shop/db");
        let name = home.first().unwrap().as_str();
        // Another node would be the better choice now, and the volume decides.
        let crowd = [("a", hosts(3, [name]).reserve(1_000, 64))];
        let cell = end(cell).deploy("other", crowd).settle().deploy("shop", db()).settle();
        assert_eq!(cell.nodes_of("shop/db"), home);

        let cell = end(cell).down(name).deploy("shop", db()).settle();
        let expected = "0 of 3 nodes can take it: 1 not_ready, 2 volume_elsewhere";
        assert_eq!(why_unplaced(&cell, "shop/db").as_deref(), Some(expected));
        let cell = cell.up(name).settle();
        assert_eq!(cell.nodes_of("shop/db"), home);
    }

    #[test]
    fn a_cell_that_goes_on_without_a_node_waits_for_the_data_it_had() {
        let db = || [("db", spread(1).volume("d"))];
        let cell = three().deploy("shop", db()).settle();
        let home = cell.nodes_of("shop/db");
        let name = home.first().unwrap().clone();
        let survivor = cell.state.nodes().keys().find(|it| **it != name).unwrap().clone();
        let lost = cell.state.nodes().keys().filter(|it| **it != survivor).cloned().collect();
        let mut cell = cell;
        cell.change(Writer::Operator, Change::Survive { node: survivor, server: 7, lost });
        let waits = |cell: &Cell, service: &str| {
            let replica = cell.state.replica(&replica_id(service));
            replica.and_then(|it| it.waiting.clone())
        };
        let cell = cell.settle();
        assert_eq!(waits(&cell, "shop/db/1"), Some(WaitReason::Stateful), "what it ran waits");
        let cell = end(cell).deploy("shop", db()).settle();
        let expected = "0 of 1 nodes can take it: 1 volume_elsewhere";
        assert_eq!(why_unplaced(&cell, "shop/db").as_deref(), Some(expected), "and what is new");
        let cell = cell.node(name.as_str(), cpus(4)).settle();
        assert_eq!(cell.nodes_of("shop/db"), home, "it joined again, and has its data");
    }

    #[test]
    fn each_replica_of_a_service_finds_a_volume_again_before_one_begins_empty() {
        let db = |replicas| [("db", spread(replicas).volume("d"))];
        let cell = three().deploy("shop", db(2)).settle();
        let homes = cell.nodes_of("shop/db");
        assert_eq!(homes.len(), 2);
        let cell = end(cell).deploy("shop", db(2)).settle();
        assert_eq!(cell.nodes_of("shop/db"), homes);
        let cell = end(cell).deploy("shop", db(3)).settle();
        assert_eq!(cell.nodes_of("shop/db").len(), 3, "two find theirs, and the third begins one");

        let cell = end(cell).down(homes.first().unwrap().as_str()).deploy("shop", db(3)).settle();
        assert_eq!(
            cell.nodes_of("shop/db").len(),
            2,
            "what is on the node that is down is waited for"
        );
        let expected = "0 of 3 nodes can take it: 1 not_ready, 2 volume_elsewhere";
        assert_eq!(why_unplaced(&cell, "shop/db").as_deref(), Some(expected));
    }

    #[test]
    fn services_that_share_a_volume_run_on_one_node_with_room_for_all_of_them() {
        let big = |volume: &str| spread(1).volume(volume).reserve(1_500, 64);
        let sharers = ["shop/app", "shop/cron", "shop/search"];
        let stack = || {
            [
                ("app", big("files").volume("cache")),
                ("cron", big("files")),
                ("search", big("cache").volume("index")),
                ("web", spread(3)),
            ]
        };
        // Three of them need 4.5 cpus together: no small node has them.
        let cell = three().node("oak", cpus(8)).deploy("shop", stack()).settle();
        for service in sharers {
            assert_eq!(cell.nodes_of(service), [node_id("oak")].into(), "{service}");
        }
        let cell = three().deploy("shop", stack()).settle();
        for service in sharers {
            let expected = "0 of 3 nodes can take it: 3 volume_sharer";
            assert_eq!(why_unplaced(&cell, service).as_deref(), Some(expected), "{service}");
        }
    }

    #[test]
    fn a_service_that_gets_a_volume_of_another_goes_to_it() {
        let stack = |web: ServiceSpec| [("db", spread(1).volume("d")), ("web", web)];
        let cell = three().deploy("shop", stack(spread(1))).settle();
        let home = cell.nodes_of("shop/db");
        assert_ne!(cell.nodes_of("shop/web"), home);
        let cell = cell.deploy("shop", stack(spread(1).volume("d"))).settle();
        assert_eq!(cell.nodes_of("shop/web"), home);
    }

    #[test]
    fn services_that_get_a_volume_at_once_meet_on_one_node() {
        let stack = |spec: &dyn Fn() -> ServiceSpec| [("app", spec()), ("cron", spec())];
        let cell = three().deploy("shop", stack(&|| spread(1))).settle();
        assert_ne!(cell.nodes_of("shop/app"), cell.nodes_of("shop/cron"));
        let cell = cell.deploy("shop", stack(&|| spread(1).volume("d"))).settle();
        assert_eq!(cell.nodes_of("shop/app"), cell.nodes_of("shop/cron"));
    }

    #[test]
    fn replicas_that_get_a_shared_volume_in_one_pass_begin_one() {
        // No node has room for it.
        let cron = |volumes: &[&str]| {
            volumes.iter().fold(spread(1).gpus(2), |spec, volume| spec.volume(volume))
        };
        let app = |mut spec: ServiceSpec| {
            spec.update.parallelism = 3;
            ("app", spec)
        };
        for (case, volumes) in
            [("none is anywhere", &["d"][..]), ("another of the group is elsewhere", &["d", "e"])]
        {
            let db = ("db", spread(1).volume("e"));
            let before = [app(spread(2)), ("cron", cron(&[])), db.clone()];
            let after = [app(spread(2).volume("d")), ("cron", cron(volumes)), db];
            let cell = three().deploy("shop", before).settle().deploy("shop", after).settle();
            let held = &cell.state.volumes()[&DeploymentName::new("shop").unwrap()].held;
            assert_eq!(held["shop_d"].nodes.len(), 1, "{case}");
        }
    }

    /// Moves the volume of the deployment from one node to another, and leaves an old copy behind.
    fn move_volume(mut cell: Cell, src: &NodeId, dst: &NodeId) -> Cell {
        let deployment = || DeploymentName::new("shop").unwrap();
        let change = |cell: &mut Cell, writer, change| {
            cell.change(writer, Change::Volume { change });
        };
        let (volumes, dst) = (["shop_d".to_owned()].into(), dst.clone());
        let (src, to) = (src.clone(), dst.clone());
        let begin = VolumeChange::Move { deployment: deployment(), volumes, src, dst: to };
        change(&mut cell, Writer::Operator, begin);
        let mut cell = cell.pass().obey().pass();
        let order = cell.state.volumes()[&deployment()].moving.as_ref().unwrap().order;
        let copied = VolumeChange::Copied { deployment: deployment(), node: dst, order };
        change(&mut cell, Writer::Agent, copied);
        cell
    }

    #[test]
    fn an_old_copy_is_not_taken_for_the_data_by_who_shares_it_with_all_nodes() {
        let stack = [("agent", global().gpus(2).volume("d")), ("web", spread(1).volume("d"))];
        let cell = cell().node("ash", cpus(4)).node("birch", cpus(4)).deploy("shop", stack);
        let cell = cell.settle();
        let src = cell.nodes_of("shop/web").pop_first().unwrap();
        let dst = node_id(if src.as_str() == "ash" { "birch" } else { "ash" });
        assert_eq!(move_volume(cell, &src, &dst).settle().nodes_of("shop/web"), [dst].into());
    }

    #[test]
    fn a_replica_that_gets_a_volume_leaves_a_node_with_an_old_copy_of_it() {
        let web = |spec: ServiceSpec| [("web", spec)];
        let cell = three().deploy("shop", web(spread(1).volume("d"))).settle();
        let src = cell.nodes_of("shop/web").pop_first().unwrap();
        let dst = node_id(if src.as_str() == "ash" { "birch" } else { "ash" });
        let cell = cell.deploy("shop", web(spread(1))).settle();
        assert_eq!(cell.nodes_of("shop/web"), [src.clone()].into());
        let cell = move_volume(cell.later(plimsoll_model::Millis::minutes(2)), &src, &dst);
        let cell = cell.deploy("shop", web(spread(2).volume("d"))).settle();
        let nodes = cell.nodes_of("shop/web");
        assert!(nodes.contains(&dst) && !nodes.contains(&src) && nodes.len() == 2, "{nodes:?}");
    }

    #[test]
    fn of_two_nodes_with_the_volume_none_is_chosen() {
        let everywhere = three().deploy("shop", [("db", global().volume("d"))]).settle();
        let cell = end(everywhere).deploy("shop", [("db", spread(1).volume("d"))]).settle();
        let expected = "0 of 3 nodes can take it: 3 volume_split";
        assert_eq!(why_unplaced(&cell, "shop/db").as_deref(), Some(expected));
    }

    #[test]
    fn a_volume_of_a_service_that_is_everywhere_ties_nobody() {
        let stack = [("agent", global().volume("d")), ("web", spread(1).volume("d"))];
        let cell = three().deploy("shop", stack).settle();
        assert_eq!(cell.nodes_of("shop/agent").len(), 3);
        assert_eq!(cell.nodes_of("shop/web").len(), 1);
    }
}
