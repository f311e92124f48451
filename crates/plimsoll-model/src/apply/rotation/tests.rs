//! Each step waits for every node, a step back is a step like the others, and what is late changes nothing.

use crate::access::{Authority, Digest};
use crate::command::{Change, Refusal};
use crate::node::NodeStatus;
use crate::rotation::{RECOVERY_EPOCHS, RotationPhase};
use crate::testkit::{Cell, cell, cpus, node_id};
use crate::transition::Writer;

fn authority(byte: u8) -> Authority {
    Authority { certificate: vec![byte], key: vec![byte] }
}

/// Three nodes with a key under the authority 1.
fn founded() -> Cell {
    let mut cell = cell().node("ash", cpus(4));
    let (node, key) = (node_id("ash"), Digest([1; 32]));
    cell.change(Writer::Operator, Change::Found { authority: authority(1), node, key });
    for (name, byte) in [("birch", 2), ("cedar", 3)] {
        let (node, facts, key) = (node_id(name), cpus(4), Digest([byte; 32]));
        cell.change(Writer::Agent, Change::Enrol { node, facts, key });
    }
    cell
}

fn rotate(cell: &mut Cell) {
    let change = Change::RotateAuthority { next: authority(2), without: Vec::new() };
    cell.change(Writer::Operator, change);
}

fn refused(cell: &mut Cell, change: Change) -> Refusal {
    cell.apply(Writer::Operator, vec![change.free()]).unwrap_err().reason
}

fn confirm(cell: &mut Cell, names: &[&str]) {
    let epoch = cell.state.access().authority_epoch;
    for name in names {
        let node = node_id(name);
        cell.change(Writer::Agent, Change::ConfirmAuthority { node, epoch });
    }
}

fn awaited(cell: &Cell) -> Vec<&str> {
    cell.state.awaited().map(|(id, _)| id.as_str()).collect()
}

/// Which authorities are trusted; the first one signs.
fn anchors(cell: &Cell) -> Vec<u8> {
    cell.state.access().anchors().map(|certificate| certificate[0]).collect()
}

fn phase(cell: &Cell) -> Option<RotationPhase> {
    cell.state.access().rotation.as_ref().map(|rotation| rotation.phase)
}

#[test]
fn every_step_waits_for_every_node() {
    let mut cell = founded();
    assert_eq!((anchors(&cell), awaited(&cell)), (vec![1], vec![]));
    rotate(&mut cell);
    let all = ["ash", "birch", "cedar"];
    assert_eq!((anchors(&cell), awaited(&cell)), (vec![1, 2], all.to_vec()));
    confirm(&mut cell, &all[..2]);
    let early = refused(&mut cell, Change::SwitchAuthority);
    assert_eq!(early, Refusal::Awaited { node: node_id("cedar") });
    assert_eq!(refused(&mut cell, Change::RetireAuthority), Refusal::NotRotating, "out of turn");
    confirm(&mut cell, &["cedar"]);
    cell.change(Writer::Scheduler, Change::SwitchAuthority);
    assert_eq!((anchors(&cell), phase(&cell)), (vec![2, 1], Some(RotationPhase::Renew)));
    assert_eq!(awaited(&cell), all);
    let late = Change::ConfirmAuthority { node: node_id("ash"), epoch: 1 };
    assert!(cell.change(Writer::Agent, late).is_empty(), "a word on an earlier step");
    confirm(&mut cell, &all);
    cell.change(Writer::Scheduler, Change::RetireAuthority);
    assert_eq!((anchors(&cell), phase(&cell), awaited(&cell)), (vec![2], None, vec![]));
    assert_eq!(cell.state.access().authority_epoch, 3);
}

#[test]
fn one_rotation_is_under_way_at_a_time_and_needs_something_to_rotate() {
    let mut young = cell().node("ash", cpus(4));
    let start = || Change::RotateAuthority { next: authority(2), without: Vec::new() };
    assert_eq!(refused(&mut young, start()), Refusal::NoAuthority);
    let mut cell = founded();
    assert_eq!(refused(&mut cell, Change::AbortRotation), Refusal::NotRotating);
    let same = Change::RotateAuthority { next: authority(1), without: Vec::new() };
    assert_eq!(refused(&mut cell, same), Refusal::Founded);
    rotate(&mut cell);
    assert_eq!(refused(&mut cell, start()), Refusal::Rotating);
}

#[test]
fn it_goes_on_without_nodes_that_are_down_and_only_while_they_are() {
    let mut cell = founded();
    rotate(&mut cell);
    let without = || Change::RotateWithout { nodes: vec![node_id("cedar")] };
    let ready = Refusal::NodeReady { node: node_id("cedar") };
    assert_eq!(refused(&mut cell, without()), ready);
    let mut cell = cell.down("cedar");
    assert_eq!(awaited(&cell), ["ash", "birch", "cedar"], "one that is down is waited for");
    cell.change(Writer::Operator, without());
    assert_eq!(awaited(&cell), ["ash", "birch"]);
    cell = cell.up("cedar");
    assert_eq!(awaited(&cell), ["ash", "birch", "cedar"], "it is back in time");
    let mut cell = cell.down("cedar");
    confirm(&mut cell, &["ash", "birch"]);
    cell.change(Writer::Scheduler, Change::SwitchAuthority);
    confirm(&mut cell, &["ash", "birch"]);
    cell.change(Writer::Scheduler, Change::RetireAuthority);
    let last = cell.state.audit().events().next_back().unwrap().what.to_string();
    assert_eq!(last, "rotation of the authority finished without cedar");
    let unknown = Change::RotateAuthority { next: authority(3), without: vec![node_id("elm")] };
    assert_eq!(refused(&mut cell, unknown), Refusal::NoSuchNode { node: node_id("elm") });
    assert_eq!(phase(&cell), None, "nothing of it was begun");
}

#[test]
fn before_the_next_one_signs_an_abort_ends_it_and_after_that_every_node_goes_back() {
    let mut cell = founded();
    rotate(&mut cell);
    cell.change(Writer::Operator, Change::AbortRotation);
    assert_eq!((anchors(&cell), phase(&cell)), (vec![1], None));

    rotate(&mut cell);
    let all = ["ash", "birch", "cedar"];
    confirm(&mut cell, &all);
    cell.change(Writer::Scheduler, Change::SwitchAuthority);
    confirm(&mut cell, &all[..1]);
    cell.change(Writer::Operator, Change::AbortRotation);
    assert_eq!((anchors(&cell), awaited(&cell)), (vec![1, 2], all.to_vec()), "all trust both");
    assert!(cell.change(Writer::Operator, Change::AbortRotation).is_empty(), "asked for twice");
    confirm(&mut cell, &all);
    cell.change(Writer::Scheduler, Change::RetireAuthority);
    assert_eq!((anchors(&cell), phase(&cell)), (vec![1], None));
}

#[test]
fn a_node_that_is_removed_is_not_awaited_and_one_with_another_key_does_its_part_anew() {
    let mut cell = founded();
    rotate(&mut cell);
    confirm(&mut cell, &["ash", "birch"]);
    let mut cell = cell.down("cedar");
    cell.change(Writer::Operator, Change::RemoveNode { node: node_id("cedar") });
    assert_eq!(awaited(&cell), Vec::<&str>::new());
    let mut cell = cell.down("birch");
    let (node, facts, key) = (node_id("birch"), cpus(4), Digest([9; 32]));
    cell.change(Writer::Agent, Change::Enrol { node, facts, key });
    assert_eq!(awaited(&cell), ["birch"]);
    assert_eq!(cell.state.node(&node_id("birch")).unwrap().status, NodeStatus::Ready);
}

#[test]
fn what_a_recovered_cell_says_of_its_authorities_counts_more_than_what_the_lost_servers_said() {
    let mut cell = founded();
    rotate(&mut cell);
    let lost = vec![node_id("birch"), node_id("cedar")];
    let survive = Change::Survive { node: node_id("ash"), server: 7, lost };
    cell.change(Writer::Operator, survive);
    assert_eq!(cell.state.access().authority_epoch, 1 + RECOVERY_EPOCHS);
    assert_eq!((anchors(&cell), awaited(&cell)), (vec![1, 2], vec!["ash"]), "it goes on");
}
