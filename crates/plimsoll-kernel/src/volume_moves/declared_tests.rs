//! Moves of what images declare.

use plimsoll_model::spec::declared_name;
use plimsoll_model::testkit::{Cell, cell, cpus, node_id, replica_id, service_key, spread};
use plimsoll_model::volume_holds::HoldPurpose;
use plimsoll_model::{ServiceSpec, Writer};

use super::tests::{change, copied, moving, shop};
use super::*;
use crate::testkit::Passes;

const FIRST: &str = "shop_db.1.bd47413b5c03";

/// A service whose image declares `/data`, and which runs.
fn settled(spec: &ServiceSpec) -> Cell {
    settled_with(spec, "/data")
}

fn settled_with(spec: &ServiceSpec, path: &str) -> Cell {
    let cell = cell().node("ash", cpus(4)).node("birch", cpus(4)).node("cedar", cpus(4));
    let mut cell = cell.deploy("shop", [("db", spec.clone())]).pass();
    for node in cell.nodes_of("shop/db") {
        let (service, spec) = (service_key("shop/db"), spec.hash);
        let paths = [path.to_owned()].into();
        cell.change(Writer::Agent, Change::DeclareVolumes { service, spec, node, paths });
    }
    cell.settle()
}

fn other(node: &NodeId) -> NodeId {
    node_id(if node.as_str() == "birch" { "cedar" } else { "birch" })
}

fn moved(cell: Cell, volumes: BTreeSet<String>, src: &NodeId, dst: &NodeId) -> Cell {
    let (src, dst) = (src.clone(), dst.clone());
    let begin = VolumeChange::Move { deployment: shop(), volumes, src, dst: dst.clone() };
    let cell = change(cell, Writer::Operator, begin).pass();
    assert!(cell.nodes_of("shop/db").is_empty(), "it is told to stop");
    let cell = cell.obey().pass();
    let order = moving(&cell).unwrap().order;
    copied(cell, &dst, order).settle()
}

#[test]
fn what_an_image_declares_moves_and_the_next_replica_has_it() {
    let cell = settled(&spread(1));
    let src = cell.nodes_of("shop/db").pop_first().unwrap();
    let dst = other(&src);
    let volumes = tied(&cell.state, &shop(), FIRST).unwrap().volumes;
    assert_eq!(volumes, [FIRST.to_owned()].into());
    let cell = moved(cell, volumes, &src, &dst);
    assert_eq!(cell.nodes_of("shop/db"), [dst.clone()].into());
    assert_eq!(cell.state.replica(&replica_id("shop/db/2")).unwrap().data, Some(1));
    let held = &cell.state.volumes()[&shop()].held[FIRST];
    assert_eq!((held.nodes.clone(), held.old.clone()), ([dst.clone()].into(), [src].into()));
    // It stays there through a delete, like any other.
    let cell = cell.undeploy("shop").settle().deploy("shop", [("db", spread(1))]).settle();
    assert_eq!(cell.nodes_of("shop/db"), [dst].into());
}

#[test]
fn it_moves_with_what_the_file_mounts_beside_it_and_not_without() {
    let spec = spread(1).volume("d");
    let mut cell = settled_with(&spec, "/log");
    let src = cell.nodes_of("shop/db").pop_first().unwrap();
    let dst = other(&src);
    let log = declared_name(&shop(), &service_key("shop/db").service, 1, "/log");
    for volume in [log.as_str(), "shop_d"] {
        let group = tied(&cell.state, &shop(), volume).unwrap();
        assert_eq!(group.volumes, [log.clone(), "shop_d".to_owned()].into(), "{volume}");
    }
    let alone = VolumeChange::Move {
        deployment: shop(),
        volumes: ["shop_d".to_owned()].into(),
        src: src.clone(),
        dst: dst.clone(),
    };
    let refused = cell.apply(Writer::Operator, vec![Change::Volume { change: alone }.free()]);
    let said = refused.unwrap_err().reason.to_string();
    assert!(said.contains("moves with the rest of its replica's data"), "{said}");
    let both = tied(&cell.state, &shop(), &log).unwrap().volumes;
    let cell = moved(cell, both, &src, &dst);
    assert_eq!(cell.nodes_of("shop/db"), [dst].into());
}

#[test]
fn of_several_replicas_one_s_data_moves_and_all_find_their_own() {
    let cell = settled(&spread(2));
    let held = |cell: &Cell, number: u32| {
        let volumes = &cell.state.volumes()[&shop()];
        let of = volumes.held.values().find(|it| it.declared.as_ref().unwrap().number == number);
        of.unwrap().nodes.first().unwrap().clone()
    };
    let (src, second) = (held(&cell, 1), held(&cell, 2));
    let third = ["ash", "birch", "cedar"].map(node_id);
    let dst = third.into_iter().find(|it| *it != src && *it != second).unwrap();
    let volumes = tied(&cell.state, &shop(), FIRST).unwrap().volumes;
    let cell = moved(cell, volumes, &src, &dst);
    assert_eq!(cell.nodes_of("shop/db"), [dst.clone(), second.clone()].into());
    assert_eq!((held(&cell, 1), held(&cell, 2)), (dst, second));
}

#[test]
fn it_is_backed_up_like_any_other() {
    let cell = settled(&spread(1));
    let home = cell.nodes_of("shop/db").pop_first().unwrap();
    let (volume, node, purpose) = (FIRST.to_owned(), home.clone(), HoldPurpose::Backup);
    let hold = VolumeChange::Hold { deployment: shop(), volume, node, purpose };
    let cell = change(cell, Writer::Operator, hold).pass();
    assert!(cell.nodes_of("shop/db").is_empty(), "it is told to stop");
    let cell = cell.obey().settle();
    assert!(cell.nodes_of("shop/db").is_empty(), "and waits");
    let order = cell.state.volumes()[&shop()].hold.as_ref().unwrap().order;
    let done = VolumeChange::EndHold { deployment: shop(), order, failure: None };
    let cell = change(cell, Writer::Operator, done).settle();
    assert_eq!(cell.nodes_of("shop/db"), [home].into());
}
