//! While the container runtime does not answer: which of this node's containers run on all the same, and which are gone.
//!
//! With live-restore containers outlive their engine, and without it they end with it; only their processes tell. The agent
//! notes the first process of every container whenever the runtime lists them, on disk as well, so that a daemon that starts
//! beside a dead engine knows as much. What cannot be told is taken for gone: requests are not sent on a guess.

use std::collections::BTreeMap;
use std::path::PathBuf;

use plimsoll_kernel::agent::ContainerPhase;
use plimsoll_model::{Generation, ObservedCode, ObservedState, ReplicaId};
use plimsoll_runtime::{ContainerInfo, ProcessIdentity};

use super::work::WorkOutcome;
use super::{Agent, Unit};

/// The file below the data directory that holds what was last seen of the processes.
const FILE: &str = "processes.json";

type ContainerKey = (ReplicaId, Generation);

/// The first process of each container that ran when the runtime was last asked.
#[derive(Debug, Default)]
pub(super) struct KnownProcesses {
    known: BTreeMap<ContainerKey, ProcessIdentity>,
    /// Where they are kept; none in tests that keep nothing.
    path: Option<PathBuf>,
    is_writing: bool,
    is_written: bool,
    has_warned: bool,
}

impl KnownProcesses {
    /// What an earlier daemon kept there. Without it nothing is known, until the runtime answers.
    pub(super) fn read(data_dir: &std::path::Path) -> Self {
        let path = data_dir.join(FILE);
        let text = std::fs::read(&path).unwrap_or_default();
        let kept: Vec<(ContainerKey, ProcessIdentity)> =
            serde_json::from_slice(&text).unwrap_or_default();
        let known = kept.into_iter().collect();
        Self { known, path: Some(path), is_writing: false, is_written: true, has_warned: false }
    }

    /// Takes in what the runtime has. True if that is news.
    fn note(&mut self, found: &[ContainerInfo]) -> bool {
        let running = found.iter().filter_map(|it| {
            let key = (it.tag.replica.clone(), it.tag.generation);
            Some((key, it.process.clone()?))
        });
        let running: BTreeMap<_, _> = running.collect();
        let is_news = running != self.known;
        self.known = running;
        is_news
    }

    /// Whether the container's process runs; none where nobody knows which it is.
    fn is_alive(&self, id: &ReplicaId, generation: Generation) -> Option<bool> {
        self.known.get(&(id.clone(), generation)).map(ProcessIdentity::is_alive)
    }
}

/// What became of containers whose runtime does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Survivors {
    pub(super) running: usize,
    pub(super) gone: usize,
}

impl Agent {
    /// Notes which processes the containers have, and keeps that on disk.
    pub(super) fn note_processes(&mut self, found: &[ContainerInfo]) {
        if self.processes.note(found) {
            self.processes.is_written = false;
        }
        let is_unseen = |it: &&ContainerInfo| it.status.is_running() && it.process.is_none();
        let unseen = found.iter().find(is_unseen).filter(|_| !self.processes.has_warned);
        if let Some(container) = unseen {
            self.processes.has_warned = true;
            tracing::warn!(
                replica = %container.tag.replica,
                "cannot see the processes of containers from here: if the container runtime dies, what it ran is taken for gone and \
                 replaced, also where it runs on; run the daemon with the process numbers of the host (--pid host)"
            );
        }
        self.keep_processes();
    }

    fn keep_processes(&mut self) {
        let Some(path) = self.processes.path.clone() else { return };
        if self.processes.is_writing || self.processes.is_written {
            return;
        }
        (self.processes.is_writing, self.processes.is_written) = (true, true);
        let kept: Vec<_> = self.processes.known.iter().collect();
        let text = serde_json::to_vec(&kept).expect("names and numbers are JSON");
        self.beside(async move {
            let write = move || plimsoll_files::write(&path, &text, 0o600);
            let written = tokio::task::spawn_blocking(write).await;
            WorkOutcome::Kept(written.expect("a file is written without a panic"))
        });
    }

    pub(super) fn kept_processes(&mut self, written: std::io::Result<()>) {
        self.processes.is_writing = false;
        if let Err(error) = written {
            // The next look tries again: what is in memory is as good until this process ends.
            self.processes.is_written = false;
            tracing::warn!(%error, "cannot keep the processes of containers");
        }
    }

    /// Looks for the processes of all that should run, and tells what is gone.
    pub(super) fn look_for_survivors(&mut self) -> Survivors {
        let mut survivors = Survivors::default();
        if !self.sweeps.has_looked() {
            let all: Vec<ReplicaId> = self.briefs.keys().cloned().collect();
            self.tell_unseen(&all);
            return survivors;
        }
        let is_up = |unit: &&Unit| {
            matches!(unit.phase, Some(ContainerPhase::Up | ContainerPhase::Stopping))
        };
        let units = self.units.iter().flat_map(|(id, units)| {
            units.iter().filter(is_up).map(|unit| (id.clone(), unit.generation))
        });
        let units: Vec<ContainerKey> = units.collect();
        for (id, generation) in units {
            let is_alive = self.processes.is_alive(&id, generation);
            if is_alive == Some(true) {
                survivors.running += 1;
                continue;
            }
            survivors.gone += 1;
            if self.is_wanted(&id, generation) {
                if let Some(unit) = self.unit_mut(&id, generation) {
                    unit.unwatch();
                }
                self.tell(&id, generation, UNKNOWN);
            } else if is_alive == Some(false) {
                // Nothing runs of it any more, which is all the cell waits for.
                self.tell(&id, generation, (ObservedState::Stopped, None));
            }
        }
        survivors
    }

    /// The daemon started beside a runtime that does not answer: what the cell believes to run here may be gone.
    pub(super) fn tell_unseen(&mut self, replicas: &[ReplicaId]) {
        let wanted = replicas.iter().filter_map(|id| Some((id, self.briefs.get(id)?)));
        let believed = wanted.flat_map(|(id, brief)| {
            let up = brief.wanted.iter().filter(|wanted| {
                let seen = wanted.observed.as_ref();
                seen.is_some_and(|seen| {
                    matches!(
                        seen.state,
                        ObservedState::Starting | ObservedState::Running | ObservedState::Degraded
                    ) && !seen.is_completed()
                })
            });
            up.map(|wanted| (id.clone(), wanted.generation))
        });
        let believed: Vec<ContainerKey> = believed.collect();
        for (id, generation) in believed {
            if self.processes.is_alive(&id, generation) != Some(true)
                && self.unseen.insert((id.clone(), generation))
            {
                self.tell(&id, generation, UNKNOWN);
            }
        }
    }
}

/// What the cell is told of a replica that is gone, or of which nobody knows.
pub(super) const UNKNOWN: super::container::Seen =
    (ObservedState::Unknown, Some(ObservedCode::RuntimeUnavailable));
