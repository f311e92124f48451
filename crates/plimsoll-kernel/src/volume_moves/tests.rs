use plimsoll_model::testkit::{Cell, cell, cpus, global, node_id, service_key, spread};
use plimsoll_model::volumes::VolumeMove;
use plimsoll_model::{Generation, Writer};

use super::*;
use crate::testkit::{Passes, decide};

pub(super) const DB: &str = "shop_d";

pub(super) fn shop() -> DeploymentName {
    DeploymentName::new("shop").unwrap()
}

/// A database with its volume on one of three nodes, and where that is.
pub(super) fn database() -> (Cell, NodeId, NodeId) {
    let cell = cell().node("ash", cpus(4)).node("birch", cpus(4)).node("cedar", cpus(4));
    let cell = cell.deploy("shop", [("db", spread(1).volume("d")), ("web", spread(2))]).settle();
    let src = cell.nodes_of("shop/db").pop_first().unwrap();
    let dst = node_id(if src.as_str() == "birch" { "cedar" } else { "birch" });
    (cell, src, dst)
}

pub(super) fn change(mut cell: Cell, writer: Writer, change: VolumeChange) -> Cell {
    cell.change(writer, Change::Volume { change });
    cell
}

fn begin(cell: Cell, src: &NodeId, dst: &NodeId) -> Cell {
    let (src, dst) = (src.clone(), dst.clone());
    let volumes = [DB.to_owned()].into();
    change(cell, Writer::Operator, VolumeChange::Move { deployment: shop(), volumes, src, dst })
}

pub(super) fn moving(cell: &Cell) -> Option<VolumeMove> {
    cell.state.volumes()[&shop()].moving.clone()
}

pub(super) fn copied(cell: Cell, node: &NodeId, order: Generation) -> Cell {
    let node = node.clone();
    change(cell, Writer::Agent, VolumeChange::Copied { deployment: shop(), node, order })
}

fn holders(cell: &Cell) -> Vec<NodeId> {
    cell.state.volumes()[&shop()].held[DB].nodes.iter().cloned().collect()
}

#[test]
fn a_move_stops_what_uses_the_volume_copies_it_and_starts_it_there() {
    let (cell, src, dst) = database();
    let cell = begin(cell, &src, &dst).pass();
    assert!(cell.nodes_of("shop/db").is_empty(), "it is told to stop");
    assert_eq!(cell.nodes_of("shop/web").len(), 2, "what has nothing to do with it runs on");
    let unplaced = cell.state.service(&service_key("shop/db")).unwrap().row.unplaced.clone();
    let why = unplaced.unwrap().why.to_string();
    assert_eq!(why, format!("stopped while its volumes move to {dst}"));

    let cell = cell.pass();
    let phase = |cell: &Cell| moving(cell).unwrap().phase;
    assert_eq!(phase(&cell), VolumeMovePhase::Stopping, "it has not stopped yet");
    let cell = cell.obey().pass();
    assert_eq!(phase(&cell), VolumeMovePhase::Copying);
    assert!(decide(&cell).batch.is_empty(), "from here on the destination has the word");
    assert_eq!(holders(&cell), std::slice::from_ref(&src));

    let order = moving(&cell).unwrap().order;
    let cell = copied(cell, &dst, order);
    assert_eq!((holders(&cell), moving(&cell)), (vec![dst.clone()], None));
    let cell = cell.settle();
    assert_eq!(cell.nodes_of("shop/db"), [dst].into());
    assert!(cell.state.volumes()[&shop()].held[DB].old.contains(&src), "it keeps an old copy");
}

#[test]
fn a_move_that_fails_starts_the_service_where_it_was_and_has_the_half_copy_removed() {
    for (phase, lost) in [
        (VolumeMovePhase::Stopping, "dst"),
        (VolumeMovePhase::Copying, "dst"),
        (VolumeMovePhase::Copying, "copy"),
    ] {
        let (cell, src, dst) = database();
        let mut cell = begin(cell, &src, &dst).pass();
        if phase == VolumeMovePhase::Copying {
            cell = cell.obey().pass();
        }
        let order = moving(&cell).unwrap().order;
        assert_eq!(moving(&cell).unwrap().phase, phase);
        cell = if lost == "dst" {
            cell.down(dst.as_str())
        } else {
            let why = VolumeMoveFailure::Copy { error: "no space left on device".to_owned() };
            let give_up = VolumeChange::GiveUp { deployment: shop(), order, why };
            change(cell, Writer::Agent, give_up)
        };
        let cell = cell.settle();
        assert_eq!(cell.nodes_of("shop/db"), [src.clone()].into(), "{phase:?} {lost}");
        assert_eq!((holders(&cell), moving(&cell)), (vec![src], None));
        let discards = &cell.state.volumes()[&shop()].held[DB].discards;
        let is_half = phase == VolumeMovePhase::Copying;
        assert_eq!(discards.get(&dst), is_half.then_some(&order), "{phase:?} {lost}");

        // The word of a destination that was given up says nothing any more.
        let cell = copied(cell, &dst, order).settle();
        assert_ne!(holders(&cell), [dst]);
    }
}

#[test]
fn a_source_that_is_lost_keeps_its_data_and_the_service_waits_for_it() {
    let (cell, src, dst) = database();
    let cell = begin(cell, &src, &dst).pass().obey().pass().down(src.as_str()).settle();
    assert_eq!((holders(&cell), moving(&cell)), (vec![src.clone()], None));
    assert!(cell.nodes_of("shop/db").is_empty());
    let cell = cell.up(src.as_str()).settle();
    assert_eq!(cell.nodes_of("shop/db"), [src].into());
}

#[test]
fn what_is_applied_during_a_move_waits_for_its_end() {
    let (cell, src, dst) = database();
    let cell = begin(cell, &src, &dst).pass().obey().pass();
    let again = spread(1).volume("d").image("app:2");
    let sharer = spread(1).volume("d");
    let cell = cell.deploy("shop", [("db", again), ("cron", sharer)]).settle();
    assert!(cell.nodes_of("shop/db").is_empty() && cell.nodes_of("shop/cron").is_empty());
    let order = moving(&cell).unwrap().order;
    let cell = copied(cell, &dst, order).settle();
    assert_eq!(cell.nodes_of("shop/db"), [dst.clone()].into());
    assert_eq!(cell.nodes_of("shop/cron"), [dst].into());
}

#[test]
fn an_old_copy_is_no_data_for_anyone_until_it_is_removed() {
    let (cell, src, dst) = database();
    let cell = begin(cell, &src, &dst).pass().obey().pass();
    let order = moving(&cell).unwrap().order;
    let cell = copied(cell, &dst, order).settle();
    // Each replica has its own from here on, and the one with the old copy is not among them.
    let cell = cell.deploy("shop", [("db", spread(3).volume("d"))]).settle();
    assert!(!cell.nodes_of("shop/db").contains(&src));
    let cell = cell.deploy("shop", [("db", global().volume("d"))]).settle();
    assert!(!cell.nodes_of("shop/db").contains(&src), "nor for a service that is everywhere");

    let (volume, node) = (DB.to_owned(), src.clone());
    let remove = VolumeChange::Remove { deployment: shop(), volume: volume.clone(), node };
    let cell = change(cell, Writer::Operator, remove).settle();
    assert!(!cell.nodes_of("shop/db").contains(&src), "the node has not said that it did");
    let order = cell.state.volumes()[&shop()].held[DB].discards[&src];
    let removed = VolumeChange::Removed { deployment: shop(), volume, node: src.clone(), order };
    let cell = change(cell, Writer::Agent, removed).settle();
    assert!(cell.nodes_of("shop/db").contains(&src));
}

#[test]
fn what_does_not_stop_is_not_waited_for_for_ever() {
    let (cell, src, dst) = database();
    let cell = begin(cell, &src, &dst).pass();
    let until = decide(&cell).wake;
    assert_eq!(until, Some(cell.now.plus(STOP_TIMEOUT)));
    let cell = cell.later(STOP_TIMEOUT).pass();
    assert_eq!(moving(&cell), None);
    let failed = cell.state.volumes()[&shop()].move_failed.clone().unwrap();
    assert_eq!(failed.why, VolumeMoveFailure::NotStopped);
    // What still stops is waited for, and then it starts where it was.
    assert_eq!(cell.settle().nodes_of("shop/db"), [src].into());
}

#[test]
fn a_copy_in_use_is_not_removed_and_a_node_that_is_down_is_not_asked() {
    let (mut cell, src, _) = database();
    let remove = |node: &NodeId| Change::Volume {
        change: VolumeChange::Remove {
            deployment: shop(),
            volume: DB.to_owned(),
            node: node.clone(),
        },
    };
    let said =
        |refused: Result<_, plimsoll_model::Rejection>| refused.unwrap_err().reason.to_string();
    let refused = said(cell.apply(Writer::Operator, vec![remove(&src).free()]));
    assert_eq!(refused, format!("volume shop_d is used by shop-db-1 on {src}"));

    let mut cell = cell.undeploy("shop").settle().down(src.as_str());
    let refused = said(cell.apply(Writer::Operator, vec![remove(&src).free()]));
    assert_eq!(refused, format!("node {src} is down"));
    let forget = |cell: Cell| {
        let (volume, node) = (DB.to_owned(), src.clone());
        change(cell, Writer::Operator, VolumeChange::Forget { deployment: shop(), volume, node })
    };
    assert!(forget(cell).state.volumes().is_empty());
}

#[test]
fn of_a_volume_on_two_nodes_one_is_removed_and_the_service_finds_the_other() {
    let cell = cell().node("ash", cpus(4)).node("birch", cpus(4));
    let cell = cell.deploy("shop", [("db", global().volume("d"))]).settle();
    let cell = cell.undeploy("shop").settle().deploy("shop", [("db", spread(1).volume("d"))]);
    let cell = cell.settle();
    assert!(cell.nodes_of("shop/db").is_empty(), "nothing chooses between two");
    let (volume, node) = (DB.to_owned(), node_id("ash"));
    let remove = VolumeChange::Remove { deployment: shop(), volume: volume.clone(), node };
    let cell = change(cell, Writer::Operator, remove).settle();
    assert!(cell.nodes_of("shop/db").is_empty(), "ash has not said that it did");
    let order = cell.state.volumes()[&shop()].held[DB].discards[&node_id("ash")];
    let node = node_id("ash");
    let removed = VolumeChange::Removed { deployment: shop(), volume, node, order };
    let cell = change(cell, Writer::Agent, removed).settle();
    assert_eq!(cell.nodes_of("shop/db"), [node_id("birch")].into());
}

#[test]
fn the_destination_of_a_group_has_room_for_all_of_it() {
    let big = |volume: &str| spread(1).volume(volume).reserve(1_500, 64);
    let cell = cell().node("ash", cpus(4)).node("birch", cpus(2)).node("oak", cpus(8));
    let stack = [("app", big("files")), ("cron", big("files")), ("web", spread(1))];
    let cell = cell.cordon("oak").deploy("shop", stack).settle();
    assert_eq!(cell.nodes_of("shop/app"), [node_id("ash")].into());
    let mut cell = cell;
    let availability = plimsoll_model::Availability::Active;
    let node = node_id("oak");
    cell.change(Writer::Operator, Change::SetAvailability { node, availability });
    let group = tied(&cell.state, &shop(), "shop_files").unwrap();
    let (signals, policy) = (Signals::default(), Policy::default());
    let found = |src| {
        destination(&cell.state, &signals, &policy, &shop(), &group, Some(&node_id(src)), cell.now)
    };
    assert_eq!(found("ash"), Some(node_id("oak")), "birch is too small for both");
    let roster = Roster::new(&cell.state, &signals, &policy);
    let refused =
        refused_by(&cell.state, &roster, &policy, &shop(), &group, &node_id("birch"), cell.now);
    assert!(refused.is_some());
}
