//! When containers served, told exactly: from the moment they said so themselves, by writing a file, to the moment their
//! engine was told to end them or they ended. Both are taken from the engine and the container, so nothing is missed
//! between two looks, and no orchestrator is asked what it thinks.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bollard::models::EventMessage;
use bollard::query_parameters::{
    ContainerArchiveInfoOptionsBuilder, EventsOptions, ListContainersOptions,
};
use bollard::{API_DEFAULT_VERSION, Docker};
use futures_util::StreamExt;
use jiff::Timestamp;
use tokio::runtime::Runtime;
use tokio::time::sleep;

use crate::error::Error;

/// What a container writes once it serves. Its healthcheck looks for the same.
pub const READY: &str = "/tmp/well";

/// How often a container is asked whether it has. That delays what is known, not what is told.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

const SECONDS: u64 = 120;

/// One run of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerRun {
    pub container: String,
    /// Which engine, by its place in the list that is watched.
    pub engine: usize,
    /// What it is a copy of: those of one slot stand in for each other.
    pub slot: String,
    /// When its run before ended. A file that is older says nothing of this one.
    before: Option<Timestamp>,
    pub ready: Option<Timestamp>,
    /// When it was told to end, or ended by itself.
    pub leaves: Option<Timestamp>,
    pub ended: Option<Timestamp>,
}

impl ContainerRun {
    fn serves(&self, at: Timestamp) -> bool {
        let is_ready = self.ready.is_some_and(|ready| ready <= at);
        is_ready && self.leaves.is_none_or(|leaves| leaves > at)
    }
}

/// The fewest slots that were served at once between two moments. Fewer can only be after one leaves.
pub fn fewest(lives: &[ContainerRun], from: Timestamp, to: Timestamp) -> usize {
    let leaves = lives.iter().filter_map(|life| life.leaves);
    let moments = leaves.filter(|at| (from..=to).contains(at));
    moments.chain([from]).map(|at| served(lives, at)).min().unwrap_or_default()
}

/// How many slots have a container that serves at this moment.
pub fn served(lives: &[ContainerRun], at: Timestamp) -> usize {
    let serving = lives.iter().filter(|life| life.serves(at));
    serving.map(|life| life.slot.as_str()).collect::<BTreeSet<_>>().len()
}

/// Watches some engines' containers until it is dropped.
#[derive(Debug)]
pub struct ContainerWatch {
    book: Arc<Mutex<Vec<ContainerRun>>>,
    /// From when on everything is known.
    pub begun: Timestamp,
    // Its tasks end with it.
    _threads: Runtime,
}

impl ContainerWatch {
    /// The containers with this label on the engines with these sockets; those that run are known when this returns.
    pub fn begin(sockets: &[PathBuf], label: &str) -> Result<Self, Error> {
        let mut threads = tokio::runtime::Builder::new_multi_thread();
        let threads = threads.worker_threads(1).enable_all().build().map_err(Error::Threads)?;
        let book = Arc::default();
        for (engine, socket) in sockets.iter().enumerate() {
            let page = EngineJournal { book: Arc::clone(&book), engine };
            threads
                .block_on(page.open(socket, label))
                .map_err(|source| Error::Watch { socket: socket.display().to_string(), source })?;
        }
        Ok(Self { book, begun: Timestamp::now(), _threads: threads })
    }

    /// The fewest slots that were served at once since it began.
    pub fn fewest(&self) -> usize {
        fewest(&self.lives(), self.begun, Timestamp::now())
    }

    /// Everything that was seen so far.
    pub fn lives(&self) -> Vec<ContainerRun> {
        lock(&self.book).clone()
    }
}

/// What is written of one engine.
#[derive(Debug, Clone)]
struct EngineJournal {
    book: Arc<Mutex<Vec<ContainerRun>>>,
    engine: usize,
}

impl EngineJournal {
    async fn open(self, socket: &Path, label: &str) -> Result<(), bollard::errors::Error> {
        let docker =
            Docker::connect_with_unix(&socket.to_string_lossy(), SECONDS, API_DEFAULT_VERSION)?;
        let filter = |key: &str, values: &[&str]| {
            (key.to_owned(), values.iter().map(|&value| value.to_owned()).collect::<Vec<_>>())
        };
        // What happens from now on is told, also what happens before the engine hears that we listen.
        let now = Timestamp::now();
        let options = EventsOptions {
            since: Some(format!("{}.{:09}", now.as_second(), now.subsec_nanosecond())),
            until: None,
            filters: Some(HashMap::from([
                filter("type", &["container"]),
                filter("event", &["start", "kill", "die"]),
                filter("label", &[label]),
            ])),
        };
        let filters = Some(HashMap::from([filter("label", &[label])]));
        let there = ListContainersOptions { filters, ..ListContainersOptions::default() };
        for container in docker.list_containers(Some(there)).await? {
            let (id, labels) =
                (container.id.unwrap_or_default(), container.labels.unwrap_or_default());
            self.begin(&id, slot(&labels));
            if !self.is_ready(&docker, &id).await {
                tokio::spawn(self.clone().until_ready(docker.clone(), id));
            }
        }
        tokio::spawn(self.follow(docker, options));
        Ok(())
    }

    async fn follow(self, docker: Docker, options: EventsOptions) {
        let mut events = Box::pin(docker.events(Some(options)));
        while let Some(Ok(event)) = events.next().await {
            let Some((action, id, labels, at)) = understood(event) else { continue };
            match action.as_str() {
                "start" if self.begin(&id, slot(&labels)) => {
                    tokio::spawn(self.clone().until_ready(docker.clone(), id));
                }
                "kill" => self.of(&id, |life| life.leaves = life.leaves.or(Some(at))),
                "die" => self.of(&id, |life| {
                    life.leaves = life.leaves.or(Some(at));
                    life.ended = Some(at);
                }),
                _ => {}
            }
        }
    }

    /// Whether it is a run that was not known.
    fn begin(&self, container: &str, slot: String) -> bool {
        let mut book = lock(&self.book);
        if book.iter().any(|life| life.container == container && life.ended.is_none()) {
            return false;
        }
        let earlier = book.iter().filter(|life| life.container == container);
        let before = earlier.filter_map(|life| life.ended).max();
        let container = container.to_owned();
        let (ready, leaves, ended) = (None, None, None);
        book.push(ContainerRun {
            container,
            engine: self.engine,
            slot,
            before,
            ready,
            leaves,
            ended,
        });
        true
    }

    /// Changes the last run of a container.
    fn of(&self, container: &str, change: impl FnOnce(&mut ContainerRun)) {
        let mut book = lock(&self.book);
        if let Some(life) = book.iter_mut().rev().find(|life| life.container == container) {
            change(life);
        }
    }

    async fn until_ready(self, docker: Docker, container: String) {
        while !self.is_ready(&docker, &container).await {
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Whether a container serves or has ended; there is no more to ask of it then.
    async fn is_ready(&self, docker: &Docker, container: &str) -> bool {
        let options = ContainerArchiveInfoOptionsBuilder::default().path(READY).build();
        let found = docker.get_container_archive_info(container, Some(options)).await;
        let written = found.ok().and_then(|found| found.modification_time?.parse().ok());
        let mut is_over = false;
        self.of(container, |life| {
            let is_new = |at: &Timestamp| life.before.is_none_or(|before| *at > before);
            life.ready = written.filter(is_new);
            is_over = life.ready.is_some() || life.ended.is_some();
        });
        is_over
    }
}

/// What happened, to which container, with which labels, and when.
fn understood(event: EventMessage) -> Option<(String, String, HashMap<String, String>, Timestamp)> {
    let actor = event.actor?;
    let at = Timestamp::from_nanosecond(i128::from(event.time_nano?)).ok()?;
    Some((event.action?, actor.id?, actor.attributes.unwrap_or_default(), at))
}

/// Ours have a replica's name; Swarm's have a task's, which begins with the service and the slot.
fn slot(labels: &HashMap<String, String>) -> String {
    let task = labels.get("com.docker.swarm.task.name");
    let slot = task.and_then(|task| task.rsplit_once('.')).map(|(slot, _)| slot.to_owned());
    labels.get("plimsoll.replica").cloned().or(slot).unwrap_or_default()
}

fn lock(book: &Mutex<Vec<ContainerRun>>) -> MutexGuard<'_, Vec<ContainerRun>> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Serves from one second until another.
    fn life(slot: &str, ready: i64, leaves: Option<i64>) -> ContainerRun {
        ContainerRun {
            container: format!("{slot}-{ready}"),
            engine: 0,
            slot: slot.to_owned(),
            before: None,
            ready: Some(at(ready)),
            leaves: leaves.map(at),
            ended: None,
        }
    }

    #[test]
    fn a_slot_is_missed_from_when_its_last_container_leaves_until_the_next_serves() {
        for (case, lives, expected) in [
            ("all stay", vec![life("a", 0, None), life("b", 0, None)], 2),
            ("the next was there before", vec![life("a", 0, Some(5)), life("a", 4, None)], 1),
            ("the next came after", vec![life("a", 0, Some(5)), life("a", 6, None)], 0),
            ("at the same moment", vec![life("a", 0, Some(5)), life("a", 5, None)], 1),
            ("two of one slot are one", vec![life("a", 0, None), life("a", 1, None)], 1),
            (
                "another's second copy does not stand in",
                vec![
                    life("a", 0, Some(5)),
                    life("a", 6, None),
                    life("b", 0, None),
                    life("b", 1, None),
                ],
                1,
            ),
            ("it was missing before", vec![life("a", 0, Some(0)), life("a", 1, None)], 1),
        ] {
            assert_eq!(fewest(&lives, at(2), at(9)), expected, "{case}");
        }
    }
}
