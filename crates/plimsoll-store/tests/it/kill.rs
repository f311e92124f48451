//! `kill -9` at random moments: what was acknowledged is there, once. The process that is killed is this very test
//! binary, started anew with only [`propose_until_killed`] to run.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use plimsoll_model::AuditKind;
use plimsoll_store::embedded::EmbeddedConfig;
use plimsoll_store::{Embedded, Engine};

use crate::support::*;

const KILLS: u64 = 50;

/// The test gives up counting here, so that a slow machine does not wait for ever.
const LIMIT: Duration = Duration::from_secs(50);

const DATA_DIR: &str = "PLIMSOLL_KILL_DATA_DIR";
const FIRST: &str = "PLIMSOLL_KILL_FIRST";
const WRITERS: &str = "PLIMSOLL_KILL_WRITERS";

/// Proposes numbered commands, and prints each number once it is acknowledged.
#[test]
#[ignore = "it is run, and killed, by the test below"]
fn propose_until_killed() {
    let number = |name: &str| -> u64 { std::env::var(name).unwrap().parse().unwrap() };
    let data_dir: PathBuf = std::env::var_os(DATA_DIR).unwrap().into();
    let next = Arc::new(AtomicU64::new(number(FIRST)));
    runtime().block_on(async {
        // Snapshots and purges often, so that they are killed as well.
        let config = EmbeddedConfig { snapshot_every: 40, timing: None, ..config(&data_dir) };
        let engine = Embedded::start(config).await.expect("it starts, however it was stopped");
        let writers = (0..number(WRITERS)).map(|_| {
            let (engine, next) = (Arc::clone(&engine), Arc::clone(&next));
            tokio::spawn(async move {
                // More than any life has time for.
                for _ in 0..1_000_000 {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let proposed = engine.propose(join(&format!("n{number}"))).await;
                    proposed.expect("it leads alone").outcome.expect("a new node is welcome");
                    // One write a line, so that no line is half printed.
                    let mut out = std::io::stdout().lock();
                    out.write_all(format!("\n{number}\n").as_bytes()).unwrap();
                    out.flush().unwrap();
                }
            })
        });
        let writers: Vec<tokio::task::JoinHandle<()>> = writers.collect();
        for writer in writers {
            writer.await.expect("a writer goes on until it is killed");
        }
    });
}

/// Runs until killed, and returns the numbers that were acknowledged.
fn run_and_kill(data: &Path, first: u64, writers: u64, life: Duration) -> Vec<u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::propose_until_killed", "--ignored", "--nocapture"])
        .env(DATA_DIR, data)
        .env(FIRST, first.to_string())
        .env(WRITERS, writers.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let reader = std::thread::spawn(move || {
        let numbers = lines.map_while(Result::ok).filter_map(|line| line.parse::<u64>().ok());
        numbers.collect()
    });
    // Some lives end before the store is open, others in the midst of writing.
    std::thread::sleep(life);
    assert!(child.try_wait().unwrap().is_none(), "it ends only by being killed");
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

#[test]
fn every_acknowledged_command_survives_kill_9_exactly_once() {
    let dir = TempDir::new();
    let data = dir.join("data");
    let started = Instant::now();
    let mut acknowledged: Vec<u64> = Vec::new();
    let mut first = 0;
    let mut kills = 0;
    while kills < KILLS && started.elapsed() < LIMIT {
        let writers = [1, 4, 16][usize::try_from(kills % 3).unwrap()];
        // A spread of moments without a generator: from before the store is open to well after.
        let life = Duration::from_millis(5 + (kills * 7_919) % 450);
        acknowledged.extend(run_and_kill(&data, first, writers, life));
        // Each writer may have had one more under way.
        first = acknowledged.iter().max().map_or(first, |last| first.max(last + 1)) + writers;
        kills += 1;
    }
    assert!(kills >= 20, "only {kills} kills in {:?}", started.elapsed());
    assert!(acknowledged.len() > 100, "only {} were acknowledged", acknowledged.len());

    runtime().block_on(async {
        let engine = Embedded::start(config(&data)).await.unwrap();
        engine.machine().read(|state| {
            for number in &acknowledged {
                assert!(has_node(state, &format!("n{number}")), "{number} was acknowledged");
            }
            let joined = state.audit().events().filter_map(|event| match &event.what {
                AuditKind::NodeJoined { node } => Some(node.clone()),
                _ => None,
            });
            let mut joined: Vec<_> = joined.collect();
            let all = joined.len();
            joined.sort();
            joined.dedup();
            assert_eq!(joined.len(), all, "nothing was applied twice");
        });
        engine.shutdown().await.unwrap();
    });
    eprintln!("{kills} kills, {} acknowledged, {:?}", acknowledged.len(), started.elapsed());
}
