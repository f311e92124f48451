//! Volumes that images declare: which of them a node may mount now, and what becomes of a move that turns out to have data.
//! That an image declares some is known only once a node has pulled it, so a move may have begun before.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::reason::AbandonReason;
use plimsoll_model::spec::{declared_key, declared_name};
use plimsoll_model::state::Service;
use plimsoll_model::{Assignment, NodeId, Replica, ReplicaId, State};

use crate::moves::MoveStep;

/// The declared volumes that the assignment may mount, each path with the key of its volume. A node starts nothing whose image
/// declares more than this: it is noted as the holder first, and whoever has the same data has stopped.
pub(crate) fn granted(
    state: &State,
    id: &ReplicaId,
    assignment: &Assignment,
) -> BTreeMap<String, String> {
    let given = || {
        let service = state.service(&id.service)?;
        let spec = service.spec_of(assignment).filter(|spec| spec.has_declared())?;
        let replica = service.replicas.get(&id.slot)?;
        let number = replica.data?;
        let mut others = service.replicas.iter().filter(|(slot, _)| **slot != id.slot);
        // One that was retired a moment ago, and stops here.
        let is_had = others.any(|(_, other)| {
            other.data == Some(number) && other.holds().any(|held| held.node == assignment.node)
        });
        if is_had || shares_with_original(service, replica, assignment) {
            return None;
        }
        let paths = spec.declared.paths.iter();
        let here = paths.filter(|path| homes(state, id, number, path).contains(&assignment.node));
        let key = |path: &String| declared_key(&id.service.service, number, path);
        Some(here.map(|path| (path.clone(), key(path))).collect())
    };
    given().unwrap_or_default()
}

/// Whether it is to follow a copy that has the same data and has not stopped.
fn shares_with_original(service: &Service, replica: &Replica, assignment: &Assignment) -> bool {
    let Some(original) = replica.assignment.as_ref() else { return false };
    let is_successor = original.generation != assignment.generation;
    let declared = |of: &Assignment| service.spec_of(of).map(|spec| &spec.declared.paths);
    let (Some(new), Some(old)) = (declared(assignment), declared(original)) else { return false };
    is_successor && !replica.is_stopped(original) && !new.is_disjoint(old)
}

/// What becomes of a move of a replica that turned out to have data; none for any other.
pub(crate) fn step(state: &State, id: &ReplicaId, service: &Service) -> Option<MoveStep> {
    let replica = service.replicas.get(&id.slot)?;
    let (original, new) = (replica.assignment.as_ref()?, &replica.successor.as_ref()?.assignment);
    let spec = service.spec_of(new).filter(|spec| spec.has_declared())?;
    if original.node == new.node {
        // It cannot run beside the other: that makes way.
        return shares_with_original(service, replica, new).then_some(MoveStep::Promote);
    }
    let number = replica.data?;
    let mut homes = spec.declared.paths.iter().flat_map(|path| homes(state, id, number, path));
    let is_elsewhere =
        homes.next().is_some_and(|first| *first != new.node && homes.all(|home| *home != new.node));
    is_elsewhere.then_some(MoveStep::Abandon(AbandonReason::Needless))
}

fn homes<'s>(state: &'s State, id: &ReplicaId, number: u32, path: &str) -> BTreeSet<&'s NodeId> {
    let key = &id.service;
    let name = declared_name(&key.deployment, &key.service, number, path);
    state.nodes_with_volume(&key.deployment, &name).collect()
}

#[cfg(test)]
mod tests {
    use plimsoll_model::testkit::{Cell, cell, cpus, node_id, replica_id, service_key, spread};
    use plimsoll_model::{Change, Generation, Millis, ObservedState, ServiceSpec, Writer};

    use super::*;
    use crate::orders;
    use crate::testkit::Passes;

    fn three() -> Cell {
        cell().node("ash", cpus(4)).node("birch", cpus(4)).node("cedar", cpus(4))
    }

    /// Every node that is to run something of the service says that its image declares `/data`.
    fn tell(mut cell: Cell, spec: &ServiceSpec) -> Cell {
        let service = service_key("shop/db");
        for node in cell.nodes_of("shop/db") {
            let (service, spec) = (service.clone(), spec.hash);
            let paths = ["/data".to_owned()].into();
            cell.change(Writer::Agent, Change::DeclareVolumes { service, spec, node, paths });
        }
        cell
    }

    /// The service with its replicas running and all that is declared known.
    fn settled(replicas: u32) -> Cell {
        let cell = three().deploy("shop", [("db", spread(replicas))]).pass();
        tell(cell, &spread(replicas)).settle()
    }

    fn mounts(cell: &Cell, replica: &str) -> Vec<String> {
        let id = replica_id(replica);
        let row = cell.state.replica(&id).unwrap();
        let node = &row.heading().unwrap().node;
        let order = orders::of(&cell.state, node, &id).last().unwrap();
        order.declared.into_values().collect()
    }

    #[test]
    fn nothing_is_mounted_before_its_node_is_noted_as_the_holder() {
        let cell = three().deploy("shop", [("db", spread(1))]).pass();
        assert_eq!(mounts(&cell, "shop/db/1"), [""; 0]);
        let cell = tell(cell, &spread(1));
        assert_eq!(mounts(&cell, "shop/db/1"), ["db.1.bd47413b5c03"]);
        let home = cell.nodes_of("shop/db");
        let name = "shop_db.1.bd47413b5c03";
        let deployment = service_key("shop/db").deployment;
        let noted: BTreeSet<NodeId> =
            cell.state.nodes_with_volume(&deployment, name).cloned().collect();
        assert_eq!(noted, home);
    }

    #[test]
    fn each_replica_has_its_own_and_finds_it_again_after_a_delete() {
        let cell = settled(2);
        let homes = cell.nodes_of("shop/db");
        let both = [mounts(&cell, "shop/db/1"), mounts(&cell, "shop/db/2")].concat();
        assert_eq!(both, ["db.1.bd47413b5c03", "db.2.bd47413b5c03"]);
        let crowd = [("a", spread(3).reserve(500, 64))];
        let cell = cell.undeploy("shop").settle().deploy("other", crowd).settle();
        let cell = cell.deploy("shop", [("db", spread(2))]).settle();
        assert_eq!(cell.nodes_of("shop/db"), homes);
        let mut again = [mounts(&cell, "shop/db/3"), mounts(&cell, "shop/db/4")].concat();
        again.sort_unstable();
        assert_eq!(again, both);
    }

    #[test]
    fn a_deployment_that_comes_back_waits_for_the_node_with_its_data() {
        for replicas in [1, 2] {
            let cell = settled(replicas);
            let home = cell.nodes_of("shop/db").first().unwrap().clone();
            let cell = cell.undeploy("shop").settle().down(home.as_str());
            let cell = cell.deploy("shop", [("db", spread(replicas))]).settle();
            assert!(!cell.nodes_of("shop/db").contains(&home), "{replicas}");
            assert_eq!(cell.nodes_of("shop/db").len(), replicas as usize - 1, "{replicas}");
            let service = cell.state.service(&service_key("shop/db")).unwrap();
            let why = service.row.unplaced.as_ref().unwrap().why.to_string();
            assert_eq!(why, "0 of 3 nodes can take it: 1 not_ready, 2 volume_elsewhere");
            let cell = cell.up(home.as_str()).settle();
            assert!(cell.nodes_of("shop/db").contains(&home), "{replicas}");
        }
    }

    #[test]
    fn a_new_one_waits_until_the_retired_one_that_had_its_data_has_stopped() {
        let cell = settled(1);
        let home = cell.nodes_of("shop/db");
        let cell = cell.undeploy("shop").pass().deploy("shop", [("db", spread(1))]).pass();
        assert_eq!(cell.nodes_of("shop/db"), home);
        assert_eq!(mounts(&cell, "shop/db/2"), [""; 0], "the other is still stopping");
        let (old, new) = (replica_id("shop/db/1"), replica_id("shop/db/2"));
        let touched = orders::touched(&cell.state, [plimsoll_model::Event::Replica(old)].iter());
        assert!(touched.contains(&new), "its node is told when that has stopped");
        let cell = cell.obey().settle();
        assert_eq!(mounts(&cell, "shop/db/2"), ["db.1.bd47413b5c03"]);
    }

    #[test]
    fn it_is_never_moved_by_itself_and_its_next_container_takes_its_place() {
        let cell = settled(1);
        let home = cell.nodes_of("shop/db");
        let cell = cell.deploy("shop", [("db", spread(1).image("app:2"))]).pass();
        let row = cell.state.replica(&replica_id("shop/db/1")).unwrap();
        assert!(row.successor.is_none() && row.leaving.len() == 1, "the old one makes way first");
        assert_eq!(cell.nodes_of("shop/db"), home);
        let cell = cell.settle();
        let cell = cell.down(home.first().unwrap().as_str()).later(Millis::minutes(10)).settle();
        assert_eq!(cell.nodes_of("shop/db"), home);
    }

    #[test]
    fn a_restart_that_began_before_its_data_was_known_makes_way() {
        let mut cell = three().deploy("shop", [("db", spread(1))]).pass();
        let id = replica_id("shop/db/1");
        let node = cell.nodes_of("shop/db").first().unwrap().clone();
        let (spec, cause) = (spread(1).hash, plimsoll_model::MoveCause::Restart);
        let change = Change::Succeed { replica: id.clone(), node: node.clone(), spec, cause };
        cell.change(Writer::Scheduler, change);
        let mut cell = tell(cell, &spread(1));
        let granted = |cell: &Cell| {
            let orders = orders::of(&cell.state, &node, &id);
            orders.map(|it| (it.assignment.generation.0, it.declared.len())).collect::<Vec<_>>()
        };
        assert_eq!(granted(&cell), [(1, 1), (2, 0)], "the first one has it");
        cell.report(&id, Generation(1), ObservedState::Running, None);
        let cell = cell.pass();
        assert_eq!(granted(&cell), [(2, 1)], "the first one stops");
    }

    #[test]
    fn a_move_that_began_before_its_data_was_known_is_called_off() {
        let mut cell = three().deploy("shop", [("db", spread(1))]).pass();
        let id = replica_id("shop/db/1");
        let home = cell.nodes_of("shop/db");
        let node = [node_id("ash"), node_id("birch")].into_iter().find(|it| !home.contains(it));
        let (spec, cause) = (spread(1).hash, plimsoll_model::MoveCause::NodeLost);
        let service = id.service.clone();
        let paths = ["/data".to_owned()].into();
        let node = node.unwrap();
        cell.change(Writer::Scheduler, Change::Succeed { replica: id, node, spec, cause });
        let node = home.first().unwrap().clone();
        cell.change(Writer::Agent, Change::DeclareVolumes { service, spec, node, paths });
        let cell = cell.pass();
        assert_eq!(cell.nodes_of("shop/db"), home);
    }
}
