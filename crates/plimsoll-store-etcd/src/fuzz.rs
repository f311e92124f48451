//! Keys and values in etcd that were broken at random, as somebody who may write there could: each is taken in or refused.

use std::sync::Arc;

use bytes::Bytes;
use plimsoll_etcd::{EtcdClient, EtcdConfig, KeyChange, KeyValue};
use plimsoll_fuzz::Fuzz;
use plimsoll_model::testkit::{cell, cpus, node_id, spread};
use plimsoll_model::{Author, CellId, Change, Command, State, Term, Timestamp, Writer};
use plimsoll_seal::CellKey;
use plimsoll_store::{Machine, Peer, ServerId};
use tokio::runtime::Runtime;

use crate::layout::{
    Body, FORMAT, Layout, LeaderClaim, LogEntry, LostMark, Owner, ParsedKey, Snapshot, from_json,
    to_json,
};
use crate::migrate::{Moved, Reached};
use crate::rules;
use crate::seal::ValueSeal;
use crate::sync::{LeaderRecord, LogReader, SyncError, SyncLock, note};
use crate::tip::KnownTip;

/// How many entries the reader has applied.
const APPLIED: u64 = 40;

fn layout() -> Layout {
    Layout::new("/plimsoll/test/", "scheduler")
}

fn state() -> State {
    cell().node("ash", cpus(4)).deploy("shop", [("web", spread(2))]).state
}

/// A key and its value, with a line's end between.
fn pair(key: &[u8], value: &[u8]) -> Vec<u8> {
    [key, b"\n", value].concat()
}

fn seal() -> ValueSeal {
    ValueSeal::new(&CellKey::from_bytes(&[7; 32]).unwrap())
}

/// One of each kind of key.
fn corpus() -> Vec<Vec<u8>> {
    let layout = layout();
    let by = Author::new(Writer::Operator, "ann");
    let change = Change::PutNode { node: node_id("birch"), facts: cpus(2) };
    let command = Command::new(Timestamp(1), Term(1), by, vec![change.free()]);
    let command = Bytes::from(postcard::to_stdvec(&command).unwrap());
    let peer = Peer { name: "ash".into(), address: "10.0.0.1:7600".into() };
    let owner = Owner {
        terms_after: 7,
        came: Some(Reached { last_term: Term(3), last: 9, term: Term(4) }),
        moved: Some(Moved { to: peer.clone(), incarnation: serde_json::json!({"since": 4}) }),
        ..Owner::new(CellId::new("test").unwrap(), &seal())
    };
    let leader = LeaderClaim { server: ServerId(4), peer: peer.clone(), term: Some(12) };
    let lost = LostMark { server: ServerId(4), peer: peer.clone(), applied: 50 };
    let snapshot = Snapshot { format: FORMAT, index: 90, term: 4, bytes: 1 };
    let next = layout.entry(APPLIED + 1);
    let entry = |body| LogEntry::encode(&seal(), &next, 12, &body);
    vec![
        pair(&next, &entry(Body::Whole(command.clone()))),
        pair(&next, &entry(Body::Split { bytes: 9 })),
        // Without its seal, which whoever has the key puts on.
        pair(&next, &command),
        pair(&layout.entry(APPLIED + 9), b""),
        pair(&layout.leader(), &to_json(&leader)),
        pair(&layout.lost(), &to_json(&lost)),
        pair(&layout.member(ServerId(3)), &to_json(&peer)),
        pair(&layout.cell_id(), &to_json(&owner)),
        pair(&layout.snapshot(), &to_json(&snapshot)),
        pair(&layout.state_part(90, 4, 0), &postcard::to_stdvec(&state()).unwrap()),
    ]
}

/// A reader of a cell that has come so far.
fn reader(state: &State) -> LogReader {
    LogReader {
        client: EtcdClient::new(EtcdConfig::open(["http://127.0.0.1:1"])).unwrap(),
        layout: layout(),
        machine: Arc::new(Machine::new(state.clone(), APPLIED)),
        turn: SyncLock::default(),
        tip: KnownTip::default(),
        seal: seal(),
        owner: None,
        server: Some(ServerId(1)),
    }
}

#[test]
fn no_broken_value_in_etcd_breaks_its_reader() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    let _entered = runtime.enter();
    let (state, layout) = (state(), layout());
    let fuzz = corpus().into_iter().fold(Fuzz::new("etcd"), Fuzz::input);
    fuzz.run(|input| {
        let at = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
        let (key, value) = (&input[..at], input.get(at + 1..).unwrap_or_default());
        let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        let pair = KeyValue { key: key.clone(), value, mod_revision: 5, ..KeyValue::default() };
        let mut held = Some(LeaderRecord::of(&pair));
        for change in [KeyChange::Put(pair.clone()), KeyChange::Gone { key, revision: 6 }] {
            note(&layout, &change, &mut held);
        }
        // What is beside the log, whatever its key was meant to hold.
        if let Some(owner) = from_json::<Owner>(&pair.value) {
            assert!(owner.is_same(&owner));
        }
        let _ = from_json::<LostMark>(&pair.value);
        if let Some(meta) = from_json::<Snapshot>(&pair.value) {
            assert!(rules::deletable(meta.index, 1_000) <= meta.index);
        }
        if let ParsedKey::Entry(index) = layout.thing(&pair.key) {
            follow(&runtime, &state, index, &pair);
            let body = Body::Whole(pair.value.clone());
            let value = LogEntry::encode(&seal(), &pair.key, 12, &body);
            follow(&runtime, &state, index, &KeyValue { value, ..pair.clone() });
        }
    });
}

/// An entry is applied, or refused with nothing passed over.
fn follow(runtime: &Runtime, state: &State, index: u64, pair: &KeyValue) {
    // In parts it would be asked for elsewhere.
    let opened = LogEntry::decode(&pair.value).and_then(|it| it.open(&seal(), &pair.key).ok());
    if matches!(opened, Some(Body::Split { .. })) {
        return;
    }
    let reader = reader(state);
    let before = *reader.machine.applied().borrow();
    match runtime.block_on(reader.follow(index, pair)) {
        Ok(_) => {}
        Err(SyncError::Unreadable(why)) => {
            assert!(!why.is_empty());
            // One that raises the level beyond this build is applied, and then nothing more is.
            let is_outgrown = reader.machine.outgrown().is_some();
            let applied = *reader.machine.applied().borrow();
            assert!(is_outgrown || applied == before, "nothing is passed over");
        }
        Err(other) => panic!("etcd was asked: {other:?}"),
    }
}
