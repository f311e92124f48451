//! Clients that write and read all the time, at whichever node they happen to ask, and note what they were told.
//!
//! A register is a deployment without replicas, and a value the name of its image. All clients write to one register at a
//! time, so that they meet; after as many writes as a deployment keeps revisions, they go on to the next.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use plimsoll_api::view::{Applied, Apply, Deployment, Problem, ProblemCode};
use plimsoll_lab::LabRng;
use plimsoll_lab::history::{History, Read, Write, WriteOutcome};
use plimsoll_model::state::MAX_REVISIONS;
use plimsoll_model::{ServiceName, testkit};

use crate::harness::{self, Cell};
use crate::http::{self, Silence};

/// As many as meet often, and leave the machine to the servers.
const CLIENTS: u64 = 4;

/// Between two requests of one client.
const PACE: Duration = Duration::from_millis(50);

/// Longer than an election, shorter than it takes a node to give up on another: what is not answered by then counts as
/// unknown.
const PATIENCE: Duration = Duration::from_secs(5);

/// Of a hundred requests, so many only read.
const READS: u8 = 25;

/// The most writes that one register is asked for: all of them are kept.
const WRITES: u64 = MAX_REVISIONS as u64;

/// What a daemon says when it is certain that it wrote nothing.
const NOT_DONE: [ProblemCode; 3] =
    [ProblemCode::NoLeader, ProblemCode::NotLeader, ProblemCode::QuorumLost];

pub(super) struct Load {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<History>>,
}

struct Shared {
    sockets: Vec<PathBuf>,
    begun: Instant,
    writes: AtomicU64,
    acknowledged: AtomicU64,
    is_over: AtomicBool,
    /// What the last write that failed was told.
    trouble: Mutex<String>,
}

impl Load {
    pub(super) fn on(cell: &Cell, seed: u64) -> Self {
        let shared = Arc::new(Shared {
            sockets: cell.nodes().map(|at| cell.socket(at)).collect(),
            begun: Instant::now(),
            writes: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            trouble: Mutex::default(),
        });
        let client = |nth| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.live(LabRng::new(seed ^ (nth << 32))))
        };
        let clients = (0..CLIENTS).map(client).collect();
        Self { shared, clients }
    }

    /// Writes that were acknowledged so far.
    pub(super) fn acknowledged(&self) -> u64 {
        self.shared.acknowledged.load(Ordering::Relaxed)
    }

    /// Waits until so many more writes are acknowledged.
    #[track_caller]
    pub(super) fn goes_on(&self, cell: &Cell, writes: u64) {
        let (target, begun) = (self.acknowledged() + writes, Instant::now());
        while self.acknowledged() < target {
            let trouble = || self.shared.trouble.lock().unwrap().clone();
            let is_late = begun.elapsed() > harness::PATIENCE;
            assert!(!is_late, "no more writes: {}\n{}", trouble(), cell.diagnosis());
            sleep(PACE);
        }
    }

    /// No more requests; everything that clients were told.
    pub(super) fn end(self) -> History {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let mut history = History::default();
        for client in self.clients {
            history.append(client.join().unwrap());
        }
        history
    }
}

impl Shared {
    fn live(&self, mut chance: LabRng) -> History {
        let mut history = History::default();
        while !self.is_over.load(Ordering::Relaxed) {
            let socket = &self.sockets[chance.below(self.sockets.len())];
            if chance.happens(READS) {
                let register = register(self.writes.load(Ordering::Relaxed));
                history.reads.extend(self.read(socket, register));
            } else {
                history.writes.push(self.write(socket));
            }
            sleep(PACE);
        }
        history
    }

    fn write(&self, socket: &std::path::Path) -> Write {
        let nth = self.writes.fetch_add(1, Ordering::Relaxed);
        let (register, value) = (register(nth), format!("any:{nth}"));
        let mut service = testkit::spread(0).image(&value);
        service.container.command = Some(vec!["true".to_owned()]);
        let services = BTreeMap::from([(ServiceName::new("web").unwrap(), service)]);
        let body =
            serde_json::to_vec(&Apply { services, routes: Vec::new(), expect: None }).unwrap();
        let path = format!("/v1/deployments/{register}");
        let invoked = self.begun.elapsed();
        let answer = http::ask(socket, "PUT", &path, &body, PATIENCE);
        let said = answer.as_ref().map(|(_, body)| String::from_utf8_lossy(body).into_owned());
        let said = said.unwrap_or_else(|silence| format!("{silence:?}"));
        let outcome = outcome(answer, self.begun.elapsed());
        if matches!(outcome, WriteOutcome::Acknowledged { .. }) {
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
        } else {
            *self.trouble.lock().unwrap() = said;
        }
        Write { register, value, invoked, outcome }
    }

    /// None where it was not answered.
    fn read(&self, socket: &std::path::Path, register: String) -> Option<Read> {
        let path = format!("/v1/deployments/{register}?consistent=true");
        let invoked = self.begun.elapsed();
        let (status, body) = http::ask(socket, "GET", &path, b"", PATIENCE).ok()?;
        let answered = self.begun.elapsed();
        let seen = if status == 200 {
            let found: Deployment = serde_json::from_slice(&body).ok()?;
            Some((found.revision, found.services.first()?.image.clone()))
        } else {
            let problem: Problem = serde_json::from_slice(&body).ok()?;
            (problem.code == ProblemCode::NoSuchDeployment).then_some(())?;
            None
        };
        Some(Read { register, invoked, answered, seen })
    }
}

pub(super) fn register(nth: u64) -> String {
    format!("r{}", nth / WRITES)
}

fn outcome(answer: Result<(u16, Vec<u8>), Silence>, at: Duration) -> WriteOutcome {
    let (status, body) = match answer {
        Ok(answer) => answer,
        Err(Silence::NotAsked) => return WriteOutcome::Refused,
        Err(Silence::NotAnswered) => return WriteOutcome::Unknown,
    };
    if status == 200 {
        let Ok(applied) = serde_json::from_slice::<Applied>(&body) else {
            return WriteOutcome::Unknown;
        };
        let index = applied.index.expect("it was written");
        return WriteOutcome::Acknowledged { at, revision: applied.revision, index };
    }
    match serde_json::from_slice::<Problem>(&body) {
        Ok(problem) if problem.is_refusal || NOT_DONE.contains(&problem.code) => {
            WriteOutcome::Refused
        }
        _ => WriteOutcome::Unknown,
    }
}
