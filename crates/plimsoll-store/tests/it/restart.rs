//! A store that is stopped and started again is the store it was.

use std::sync::Arc;

use plimsoll_model::testkit::{node_id, pack, spread};
use plimsoll_model::{
    Availability, Change, Command, DeploymentName, NodeId, NodeStatus, Rejection, ServiceName,
};
use plimsoll_store::disk::sim::SimDisk;
use plimsoll_store::embedded::{EmbeddedConfig, MAX_COMMAND, OpenError};
use plimsoll_store::{Embedded, Engine, Error};
use proptest::prelude::*;

use crate::support::*;

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_restart() {
    let dir = TempDir::new();
    let data = dir.join("data");
    let engine = Embedded::start(config(&data)).await.unwrap();
    let first = engine.propose(join("ash")).await.unwrap();
    let again = engine.propose(join("ash")).await.unwrap();
    assert_eq!(again.index, first.index + 1);
    assert_eq!(again.outcome.unwrap().len(), 0, "what is there already changes nothing");
    let leadership = *engine.leadership().borrow();
    assert!(leadership.is_me && leadership.leader == Some(engine.id()));
    let before = state_bytes(&engine);
    engine.shutdown().await.unwrap();
    assert_eq!(engine.propose(join("late")).await, Err(Error::Stopped));
    assert!(!engine.leadership().borrow().is_me);

    let engine = Embedded::start(config(&data)).await.unwrap();
    assert_eq!(state_bytes(&engine), before);
    assert!(engine.cut().is_none());
    let next = engine.propose(join("birch")).await.unwrap();
    assert!(next.index > again.index);
    assert_eq!(engine.catch_up().await, Ok(next.index));
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_refused_command_is_an_entry_that_changes_nothing() {
    let dir = TempDir::new();
    let engine = Embedded::start(config(&dir.join("data"))).await.unwrap();
    let before = state_bytes(&engine);
    let committed = engine.propose(leave("nobody")).await.unwrap();
    let rejection: Rejection = committed.outcome.unwrap_err();
    assert_eq!(rejection.to_string(), "change 0 of the batch was refused: there is no node nobody");
    assert_eq!(*engine.machine().applied().borrow(), committed.index);
    assert_eq!(state_bytes(&engine), before);
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_command_too_large_for_the_log_is_refused_before_it_is_written() {
    let dir = TempDir::new();
    let engine = Embedded::start(config(&dir.join("data"))).await.unwrap();
    let mut large = join("ash");
    let Change::PutNode { facts, .. } = &mut large.batch[0].change else { unreachable!() };
    facts.labels.insert("large".to_owned(), "x".repeat(MAX_COMMAND));
    let before = *engine.machine().applied().borrow();
    let error = engine.propose(large).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { max: MAX_COMMAND, .. }), "{error}");
    assert!(!error.may_have_committed());
    assert_eq!(*engine.machine().applied().borrow(), before);
    engine.propose(join("ash")).await.unwrap();
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_second_process_is_refused_and_told_the_directory() {
    let dir = TempDir::new();
    let data = dir.join("data");
    let engine = Embedded::start(config(&data)).await.unwrap();
    let error = Embedded::start(config(&data)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "{} is in use by another plimsoll; stop that one, or choose another data directory",
            data.display()
        )
    );
    engine.shutdown().await.unwrap();
    let other = EmbeddedConfig { cell_id: "other".parse().unwrap(), ..config(&data) };
    let error = Embedded::start(other).await.unwrap_err();
    assert!(matches!(error, OpenError::OtherCell { .. }), "{error}");
    Embedded::start(config(&data)).await.unwrap().shutdown().await.unwrap();
}

#[tokio::test]
async fn a_lost_log_is_never_an_empty_one() {
    let dir = TempDir::new();
    let data = dir.join("data");
    let engine = Embedded::start(config(&data)).await.unwrap();
    engine.propose(join("ash")).await.unwrap();
    engine.shutdown().await.unwrap();
    std::fs::rename(data.join("log"), data.join("mislaid")).unwrap();
    let error = Embedded::start(config(&data)).await.unwrap_err();
    let expected = format!("no log found in {}; was it moved?", data.join("log").display());
    assert_eq!(error.to_string(), expected);
    std::fs::remove_dir_all(data.join("log")).unwrap();
    std::fs::rename(data.join("mislaid"), data.join("log")).unwrap();
    let engine = Embedded::start(config(&data)).await.unwrap();
    assert!(engine.machine().read(|state| has_node(state, "ash")));
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_snapshot_on_demand_replaces_the_log_behind_it() {
    let dir = TempDir::new();
    let data = dir.join("data");
    let small = || EmbeddedConfig { snapshot_every: 50, ..config(&data) };
    let engine = Embedded::start(small()).await.unwrap();
    for nth in 0..170 {
        engine.propose(join(&format!("n{nth}"))).await.unwrap();
    }
    let index = engine.snapshot().await.unwrap();
    assert_eq!(engine.snapshot().await, Ok(index), "nothing is new since");
    engine.propose(join("after")).await.unwrap();
    let before = state_bytes(&engine);
    engine.shutdown().await.unwrap();
    let engine = Embedded::start(small()).await.unwrap();
    assert_eq!(state_bytes(&engine), before);
    engine.shutdown().await.unwrap();

    std::fs::remove_file(data.join("snapshot")).unwrap();
    let error = Embedded::start(small()).await.unwrap_err();
    assert!(matches!(error, OpenError::SnapshotLost { .. }), "{error}");
}

#[tokio::test]
async fn watchers_hear_what_was_proposed() {
    let dir = TempDir::new();
    let engine: Arc<dyn Engine> = Embedded::start(config(&dir.join("data"))).await.unwrap();
    let mut watcher = engine.machine().watch(*engine.machine().applied().borrow() + 1);
    let mut proposed = Vec::new();
    for name in ["ash", "birch", "cedar"] {
        proposed.push(engine.propose(join(name)).await.unwrap());
    }
    for committed in proposed {
        let applied = watcher.next().await.unwrap();
        assert_eq!(applied.index, committed.index);
        assert_eq!(Ok(applied.events), committed.outcome);
    }
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_full_disk_stops_the_store_and_loses_nothing() {
    let disk = SimDisk::new();
    let engine = Embedded::start(on_sim(&disk)).await.unwrap();
    engine.propose(join("ash")).await.unwrap();
    disk.set_room(1 << 20);
    let mut acknowledged = 0;
    let error = loop {
        let mut large = join(&format!("n{acknowledged}"));
        let Change::PutNode { facts, .. } = &mut large.batch[0].change else { unreachable!() };
        facts.labels.insert("large".to_owned(), "x".repeat(1 << 20));
        match engine.propose(large).await {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, Error::DiskFull { .. }), "{error}");
    assert!(matches!(engine.propose(join("late")).await, Err(Error::DiskFull { .. })));
    assert!(matches!(engine.broken().await, Error::DiskFull { .. }));
    engine.shutdown().await.ok();
    drop(engine);
    let engine = Embedded::start(on_sim(&disk.after_crash(3))).await.unwrap();
    for nth in 0..acknowledged {
        assert!(engine.machine().read(|state| has_node(state, &format!("n{nth}"))), "n{nth}");
    }
    engine.shutdown().await.unwrap();
}

/// A command that may or may not be refused.
fn any_command() -> impl Strategy<Value = Command> {
    let name = (0..6_u8).prop_map(|nth| format!("n{nth}"));
    let node = || (0..6_u8).prop_map(|nth| NodeId::new(format!("n{nth}")).unwrap());
    prop_oneof![
        4 => name.prop_map(|name| join(&name)),
        1 => node().prop_map(|node| command(Change::RemoveNode { node })),
        1 => node().prop_map(|node| {
            command(Change::SetAvailability { node, availability: Availability::Cordoned })
        }),
        1 => node().prop_map(|node| {
            command(Change::SetStatus { node, status: NodeStatus::Down })
        }),
        2 => (0..3_u8, 1..4_u32, any::<bool>()).prop_map(|(nth, replicas, packs)| {
            let spec = if packs { pack(replicas) } else { spread(replicas) };
            let services = [(ServiceName::new("web").unwrap(), Arc::new(spec))];
            let deployment = DeploymentName::new(format!("d{nth}")).unwrap();
            let services = services.into_iter().collect();
            command(Change::Deploy { deployment, services, routes: Vec::new() })
        }),
        1 => (0..3_u8).prop_map(|nth| {
            command(Change::Undeploy { deployment: DeploymentName::new(format!("d{nth}")).unwrap() })
        }),
        1 => Just(command(Change::PutNode { node: node_id("odd"), facts: plimsoll_model::testkit::cpus(1) })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_state_is_the_same_byte_for_byte_after_a_restart(
        lives in prop::collection::vec(prop::collection::vec(any_command(), 0..40), 1..4),
        snapshot_every in prop_oneof![Just(5_u64), Just(17), Just(10_000)],
        seed in any::<u64>(),
    ) {
        runtime().block_on(async {
            let mut disk = SimDisk::new();
            let mut before = None;
            for (nth, life) in lives.iter().enumerate() {
                let config = EmbeddedConfig { snapshot_every, ..on_sim(&disk) };
                let engine = Embedded::start(config).await.unwrap();
                if let Some(before) = &before {
                    assert_eq!(&state_bytes(&engine), before, "start {nth}");
                }
                for command in life {
                    engine.propose(command.clone()).await.unwrap();
                }
                before = Some(state_bytes(&engine));
                // Stopped in order, or by pulling the plug: the same.
                if seed >> (nth % 64) & 1 == 0 {
                    engine.shutdown().await.unwrap();
                }
                disk = disk.after_crash(seed.rotate_left(u32::try_from(nth).unwrap()));
            }
        });
    }
}

#[tokio::test]
async fn a_server_without_its_vote_is_refused_and_can_still_be_backed_up() {
    let dir = TempDir::new();
    let data = dir.join("data");
    let engine = Embedded::start(config(&data)).await.unwrap();
    engine.propose(give_backup_key()).await.unwrap();
    engine.propose(join("ash")).await.unwrap();
    engine.shutdown().await.unwrap();
    let (vote, away) = (data.join("log/meta"), dir.join("meta"));
    std::fs::rename(&vote, &away).unwrap();
    let refused = Embedded::start(config(&data)).await.unwrap_err().to_string();
    assert!(refused.contains("log/meta is missing, which holds the vote"), "{refused}");
    assert!(refused.contains("plimsoll backup FILE"), "with the next step: {refused}");
    assert!(!vote.exists(), "and nothing is made in its place");
    let file = dir.join("backup");
    plimsoll_store::backup::take_stopped(&data, &file, None).unwrap();
    let (_, state) = plimsoll_store::backup::state(&file, &[backup_key()]).unwrap();
    assert!(state.nodes().keys().eq([&node_id("ash")]));
    std::fs::rename(&away, &vote).unwrap();
    Embedded::start(config(&data)).await.unwrap().shutdown().await.unwrap();
}

#[tokio::test]
async fn a_log_of_few_large_entries_is_snapshotted_too() {
    let dir = TempDir::new();
    let data = dir.join("data");
    let small = || EmbeddedConfig { snapshot_bytes: 1 << 20, ..config(&data) };
    let engine = Embedded::start(small()).await.unwrap();
    let large = |nth: usize| {
        let mut command = join("ash");
        let Change::PutNode { facts, .. } = &mut command.batch[0].change else { unreachable!() };
        // Another value each time, of an encoded state that stays small beside the log.
        facts.labels.insert("large".to_owned(), format!("{nth}-{}", "x".repeat(128 << 10)));
        command
    };
    // Far fewer than what is counted, and twenty times what the bytes allow.
    for nth in 0..160 {
        engine.propose(large(nth)).await.unwrap();
    }
    eventually("old entries are dropped", || async { engine.held().start > 0 }).await;
    engine.propose(join("birch")).await.unwrap();
    let before = state_bytes(&engine);
    engine.shutdown().await.unwrap();
    let kept: u64 = std::fs::read_dir(data.join("log"))
        .unwrap()
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    assert!(kept <= 3 * plimsoll_store::log::SEGMENT_SIZE, "{kept} bytes of log are left");
    let engine = Embedded::start(small()).await.unwrap();
    assert_eq!(state_bytes(&engine), before);
    engine.shutdown().await.unwrap();
}

/// A state that is read for long, or a command that takes long to apply, holds up no other task: heartbeats are among them.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn elections_and_heartbeats_go_on_while_the_state_is_waited_for() {
    let dir = TempDir::new();
    let engine = Embedded::start(config(&dir.join("data"))).await.unwrap();
    let (taken, is_taken) = tokio::sync::oneshot::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let reader = Arc::clone(engine.machine());
    let reader = std::thread::spawn(move || {
        reader.read(|_| {
            taken.send(()).ok();
            released.recv().ok();
        });
    });
    is_taken.await.unwrap();
    let writer = Arc::clone(&engine);
    let written = tokio::spawn(async move { writer.propose(join("ash")).await });
    // The reader lets go when the other task has had many turns, and not before: with its thread held up it has none.
    let turns = tokio::spawn(async move {
        for _ in 0..50 {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        release.send(()).ok();
    });
    let held_up = std::time::Duration::from_secs(20);
    let went_on = tokio::task::spawn_blocking(move || reader.join());
    tokio::time::timeout(held_up, went_on).await.unwrap().unwrap().unwrap();
    turns.await.unwrap();
    written.await.unwrap().unwrap();
    engine.shutdown().await.unwrap();
}
