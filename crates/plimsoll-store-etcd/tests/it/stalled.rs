//! A leader that is stopped in its tracks and goes on later, none the wiser. It is this very test binary, started anew
//! with only [`lead_until_killed`] to run.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_etcd::testkit::EtcdLab;
use plimsoll_store::Engine;
use plimsoll_store_etcd::Etcd;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::*;

const ENDPOINT: &str = "PLIMSOLL_STALLED_ENDPOINT";

/// Proposes numbered commands and prints each number once it is acknowledged, with the term it leads at by then.
#[test]
#[ignore = "it is run, stopped and killed by the test below"]
fn lead_until_killed() {
    let endpoint = std::env::var(ENDPOINT).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let etcd = plimsoll_etcd::EtcdConfig::open([endpoint]);
        let engine = Etcd::start(config(etcd, 1)).await.unwrap();
        for nth in 0_u64.. {
            let line = match engine.propose(join(&format!("n{nth}"))).await {
                Ok(committed) => format!("\nwrote {nth} {}\n", committed.index),
                Err(error) => {
                    // It is refused until it leads again; there is no hurry.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    format!("\nrefused {nth} {error}\n")
                }
            };
            let mut out = std::io::stdout().lock();
            out.write_all(line.as_bytes()).unwrap();
            out.flush().unwrap();
        }
    });
}

struct Stalled {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Stalled {
    fn start(endpoint: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "stalled::lead_until_killed", "--ignored", "--nocapture"])
            .env(ENDPOINT, endpoint)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (output, written) = (child.stdout.take().unwrap(), Arc::clone(&lines));
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                written.lock().unwrap().push(line);
            }
        });
        Self { child, lines }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    fn said(&self, word: &str) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter(|line| line.starts_with(word)).cloned().collect()
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_leader_that_slept_for_three_leases_not_one_write_lands_afterwards() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let client = client(&lab);
    let stalled = Stalled::start(&lab.endpoints[0]);
    eventually("it leads and writes", || stalled.said("wrote").len() > 50).await;
    let standby = server(&lab, 2).await;
    let old_term = key(&client).await.unwrap().1.cast_unsigned();
    stalled.signal(Signal::STOP);
    tokio::time::sleep(TTL * 3).await;
    eventually("the standby leads", || leads(&standby)).await;
    // Nothing is written yet: the place that the old leader would write to next is free.
    let last = history(&client).await.last().unwrap().0;
    let before = stalled.said("refused").len();
    stalled.signal(Signal::CONT);
    // It tries again, and learns.
    eventually("it is refused", || stalled.said("refused").len() > before + 20).await;
    standby.propose(join("after")).await.unwrap();
    let entries = history(&client).await;
    let late = entries.iter().filter(|(index, term)| *index > last && *term <= old_term);
    assert_eq!(late.count(), 0, "not one write of the old term");
    assert!(leads(&standby), "and the new leader was not disturbed");
    for line in stalled.said("wrote") {
        let name = format!("n{}", line.split(' ').nth(1).unwrap());
        assert!(knows(&standby, &name), "{name} was acknowledged");
    }
    // It is a standby now, and leads again when it is its turn.
    let wrote = stalled.said("wrote").len();
    standby.shutdown().await.unwrap();
    eventually("it leads again", || stalled.said("wrote").len() > wrote + 10).await;
    history(&client).await;
}
