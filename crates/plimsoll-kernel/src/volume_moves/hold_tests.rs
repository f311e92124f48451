//! Backups and restores: what is stopped for them, what ends them, and what they leave.

use plimsoll_model::testkit::{Cell, node_id, service_key, spread};
use plimsoll_model::volume_holds::{HOLD_LEASE, HoldPurpose};
use plimsoll_model::{Generation, Writer};

use super::tests::{DB, change, database, shop};
use super::*;
use crate::testkit::{Passes, decide};

fn begin(cell: Cell, node: &NodeId, purpose: HoldPurpose) -> Cell {
    hold_of(cell, DB, node, purpose)
}

fn hold_of(cell: Cell, volume: &str, node: &NodeId, purpose: HoldPurpose) -> Cell {
    let (volume, node) = (volume.to_owned(), node.clone());
    let hold = VolumeChange::Hold { deployment: shop(), volume, node, purpose };
    change(cell, Writer::Operator, hold)
}

fn hold(cell: &Cell) -> Option<VolumeHold> {
    cell.state.volumes().get(&shop()).and_then(|it| it.hold.clone())
}

fn order(cell: &Cell) -> Generation {
    hold(cell).unwrap().order
}

fn end(cell: Cell, order: Generation) -> Cell {
    let end = VolumeChange::EndHold { deployment: shop(), order, failure: None };
    change(cell, Writer::Operator, end)
}

fn refused(cell: &mut Cell, change: VolumeChange) -> String {
    let refused = cell.apply(Writer::Operator, vec![Change::Volume { change }.free()]);
    refused.unwrap_err().reason.to_string()
}

fn why(cell: &Cell) -> Option<String> {
    let service = cell.state.service(&service_key("shop/db")).unwrap();
    service.row.unplaced.as_ref().map(|it| it.why.to_string())
}

#[test]
fn a_backup_stops_what_uses_the_volume_and_it_starts_again_where_it_was() {
    let (cell, home, _) = database();
    let cell = begin(cell, &home, HoldPurpose::Backup).pass();
    assert!(cell.nodes_of("shop/db").is_empty(), "it is told to stop");
    assert_eq!(cell.nodes_of("shop/web").len(), 2, "what has nothing to do with it runs on");
    assert_eq!(why(&cell).as_deref(), Some("stopped for the backup of volume shop_d"));
    let cell = cell.pass();
    assert_eq!(hold(&cell).unwrap().phase, VolumeHoldPhase::Stopping, "it has not stopped yet");
    let cell = cell.obey().pass();
    assert_eq!(hold(&cell).unwrap().phase, VolumeHoldPhase::Open);
    let decision = decide(&cell);
    assert!(decision.batch.is_empty(), "from here on the client has the word");
    assert_eq!(decision.wake, Some(hold(&cell).unwrap().until));
    let order = order(&cell);
    let cell = end(cell, order).settle();
    assert_eq!((hold(&cell), cell.nodes_of("shop/db")), (None, [home].into()));
    assert_eq!(why(&cell), None);
}

#[test]
fn a_live_backup_stops_nothing_and_may_be_read_at_once() {
    let (cell, home, _) = database();
    let cell = begin(cell, &home, HoldPurpose::LiveBackup).pass();
    assert_eq!(cell.nodes_of("shop/db"), [home].into());
    assert_eq!(hold(&cell).unwrap().phase, VolumeHoldPhase::Open);
    assert!(decide(&cell).batch.is_empty());
}

#[test]
fn a_client_that_is_not_heard_of_holds_nothing_for_long_and_cannot_say_that_all_was_well() {
    let (cell, home, _) = database();
    let cell = begin(cell, &home, HoldPurpose::Backup).pass().obey().pass();
    let order = order(&cell);
    let renew = VolumeChange::RenewHold { deployment: shop(), order };
    let almost = Millis(HOLD_LEASE.0 - 1);
    let cell = change(cell.later(almost), Writer::Operator, renew.clone()).later(almost).pass();
    assert!(hold(&cell).is_some(), "it was heard of");
    let mut cell = cell.later(Millis(1)).settle();
    assert_eq!((hold(&cell), cell.nodes_of("shop/db")), (None, [home].into()));
    // Something runs with it again: what was copied meanwhile is no backup.
    let over = "the hold on the volume of shop is over";
    assert_eq!(refused(&mut cell, renew), over);
    let done = VolumeChange::EndHold { deployment: shop(), order, failure: None };
    assert_eq!(refused(&mut cell, done), over);
    // That it failed may be said at any time.
    let failure = Some(VolumeHoldFailure::Client { error: "no space left".to_owned() });
    change(cell, Writer::Operator, VolumeChange::EndHold { deployment: shop(), order, failure });
}

#[test]
fn what_is_said_to_be_whole_before_all_has_stopped_is_refused() {
    let (cell, home, _) = database();
    let mut cell = begin(cell, &home, HoldPurpose::Backup).pass();
    let order = order(&cell);
    let done = VolumeChange::EndHold { deployment: shop(), order, failure: None };
    assert_eq!(refused(&mut cell, done), "the hold on the volume of shop is over");
}

#[test]
fn a_node_that_is_lost_ends_a_hold_and_its_data_is_waited_for() {
    let (cell, home, _) = database();
    let cell = begin(cell, &home, HoldPurpose::Restore).pass().obey().pass();
    let cell = cell.down(home.as_str()).settle();
    assert!(hold(&cell).is_none() && cell.nodes_of("shop/db").is_empty());
    assert_eq!(cell.up(home.as_str()).settle().nodes_of("shop/db"), [home].into());
}

#[test]
fn nothing_is_done_to_a_volume_that_is_held_and_nothing_is_held_that_moves() {
    let (cell, home, other) = database();
    let mut cell = begin(cell, &home, HoldPurpose::Backup).pass();
    let (volume, node) = (DB.to_owned(), home.clone());
    let busy = "volume shop_d is held: a backup is under way";
    let again = VolumeChange::Hold {
        deployment: shop(),
        volume: volume.clone(),
        node: node.clone(),
        purpose: HoldPurpose::Restore,
    };
    assert_eq!(refused(&mut cell, again.clone()), busy);
    let (volumes, src, dst) = ([volume.clone()].into(), home.clone(), other.clone());
    let moved = VolumeChange::Move { deployment: shop(), volumes, src, dst };
    assert_eq!(refused(&mut cell, moved.clone()), busy);
    let removed = VolumeChange::Remove { deployment: shop(), volume, node };
    assert_eq!(refused(&mut cell, removed), busy);

    let (cell, ..) = database();
    let mut cell = change(cell, Writer::Operator, moved).pass();
    assert_eq!(refused(&mut cell, again), format!("volumes of shop are moving to {other}"));
}

#[test]
fn what_is_applied_during_a_restore_waits_for_its_end() {
    let (cell, home, _) = database();
    let cell = begin(cell, &home, HoldPurpose::Restore).pass().obey().pass();
    let again = spread(1).volume("d").image("app:2");
    let cell = cell.deploy("shop", [("db", again), ("cron", spread(1).volume("d"))]).settle();
    assert!(cell.nodes_of("shop/db").is_empty() && cell.nodes_of("shop/cron").is_empty());
    let order = order(&cell);
    let cell = end(cell, order).settle();
    assert_eq!(cell.nodes_of("shop/db"), [home.clone()].into());
    assert_eq!(cell.nodes_of("shop/cron"), [home].into());
}

#[test]
fn a_volume_that_is_nowhere_begins_with_a_restore_and_ends_with_one_that_fails() {
    let new = "shop_new";
    let birch = node_id("birch");
    let begun = |cell: Cell| hold_of(cell, new, &birch, HoldPurpose::Restore).pass();
    let (cell, ..) = database();
    let cell = begun(cell);
    assert_eq!(hold(&cell).map(|it| it.phase), Some(VolumeHoldPhase::Open), "nothing uses it");
    let order = order(&cell);
    let cell = end(cell, order);
    let held = cell.state.volumes()[&shop()].held[new].nodes.clone();
    assert_eq!(held, [birch.clone()].into());
    let cell = cell.deploy("shop", [("db", spread(1).volume("new"))]).settle();
    assert_eq!(cell.nodes_of("shop/db"), [birch.clone()].into(), "whoever mounts it goes there");

    let (cell, ..) = database();
    let cell = begun(cell);
    let order = self::order(&cell);
    let failure = Some(VolumeHoldFailure::Client { error: "cut off".to_owned() });
    let failed = VolumeChange::EndHold { deployment: shop(), order, failure };
    let cell = change(cell, Writer::Operator, failed);
    let holders = cell.state.volumes()[&shop()].held[new].clone();
    assert!(holders.nodes.is_empty() && holders.discards.get(&birch) == Some(&order));
    let (volume, node) = (new.to_owned(), birch);
    let removed = VolumeChange::Removed { deployment: shop(), volume, node, order };
    let cell = change(cell, Writer::Agent, removed);
    assert!(!cell.state.volumes()[&shop()].held.contains_key(new), "it is nowhere again");
}

#[test]
fn what_cannot_be_held_says_why() {
    let (cell, home, other) = database();
    let mut cell = cell;
    for (case, volume, node, purpose, why) in [
        ("a backup of nothing", "shop_none", &home, HoldPurpose::Backup, "is not on"),
        ("a backup elsewhere", DB, &other, HoldPurpose::Backup, "is not on"),
        ("a second home", DB, &other, HoldPurpose::Restore, "is not on"),
    ] {
        let (volume, node) = (volume.to_owned(), node.clone());
        let hold = VolumeChange::Hold { deployment: shop(), volume, node, purpose };
        let said = refused(&mut cell, hold);
        assert!(said.contains(why), "{case}: {said}");
    }
    let mut cell = cell.down(home.as_str());
    let (volume, node) = (DB.to_owned(), home.clone());
    let purpose = HoldPurpose::Backup;
    let hold = VolumeChange::Hold { deployment: shop(), volume, node, purpose };
    assert_eq!(refused(&mut cell, hold), format!("node {home} is down"));
}
