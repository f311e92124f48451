//! Stopping a service and clearing it away.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, sleep, timeout};

use super::launch::Stop;
use super::paths::{RunDir, absent_is_fine};
use super::reader::blocking;
use super::record::{Record, RunState};
use super::watch::ExitWatch;
use super::{ProcessInner, RunLookup};
use crate::error::{Error, Operation, Result};
use crate::runtime::{RuntimeEvent, Tag};

/// How long a killed service may take to be gone. Only one stuck in the kernel takes longer.
const KILL_WAIT: Duration = Duration::from_secs(15);

/// How long a supervisor that is just starting its service may take.
const START_WAIT: Duration = Duration::from_secs(30);

const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// How often a directory is tried that somebody still writes into: a supervisor that ends has a few lines left at most.
const REMOVE_TRIES: u32 = 20;

impl ProcessInner {
    pub(super) async fn stop(&self, tag: &Tag) -> Result<()> {
        let failed = |error: io::Error| Error::failed(Operation::Stop, tag, error);
        // A start under way comes to its end first; a stop itself takes no turn, since it may take its grace.
        drop(self.turn(tag.generation).lock().await);
        let Some(run) = self.own(Operation::Stop, tag)?.here() else { return Ok(()) };
        let Some(record) = settled(&run).await.map_err(failed)? else { return Ok(()) };
        let launch = run.read_launch().map_err(failed)?;
        let stop = launch.map_or(Stop { signal: 15, grace: plimsoll_model::Millis(0) }, |l| l.stop);
        let mut ended = ExitWatch::on(&record.supervisor).map_err(failed)?;

        signal(&record, stop.signal());
        if timeout(Duration::from_millis(stop.grace.0), ended.ended()).await.is_ok() {
            return Ok(());
        }
        signal(&record, Signal::KILL);
        timeout(KILL_WAIT, ended.ended()).await.map_err(|_| {
            let text = format!("still running {} s after SIGKILL", KILL_WAIT.as_secs());
            failed(io::Error::new(io::ErrorKind::TimedOut, text))
        })
    }

    pub(super) async fn remove(&self, tag: &Tag) -> Result<()> {
        let turn = self.turn(tag.generation);
        let _turn = turn.lock().await;
        let (RunLookup::Here(place) | RunLookup::Free(place)) = self.own(Operation::Remove, tag)?
        else {
            return Ok(());
        };
        let removed = blocking(move || {
            if !place.0.is_dir() {
                return Ok(Removal::Nothing);
            }
            match place.run_state()? {
                RunState::Starting | RunState::Running(..) => return Ok(Removal::Runs),
                RunState::Lost(record) => drop(place.bury(&record)?),
                RunState::Idle(_) => {}
            }
            // The launch goes first: a directory without one is not listed, whatever else is left of it.
            absent_is_fine(fs::remove_file(place.launch()))?;
            remove_tree(&place.0)?;
            Ok(Removal::Done)
        });
        match removed.await.map_err(|error| Error::failed(Operation::Remove, tag, error))? {
            Removal::Runs => return Err(Error::StillRunning { tag: tag.clone() }),
            Removal::Nothing => {}
            Removal::Done => self.bus.tell(RuntimeEvent::Removed { tag: tag.clone() }),
        }
        self.home.secrets().remove(tag.generation);
        self.cgroups.remove(&tag.generation.to_string());
        self.turns
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .remove(&tag.generation);
        Ok(())
    }
}

/// Removes a directory into which a supervisor that ends may still write its last lines.
fn remove_tree(dir: &Path) -> io::Result<()> {
    for _ in 0..REMOVE_TRIES {
        match fs::remove_dir_all(dir) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                std::thread::sleep(LOOK_AGAIN);
            }
            done => return absent_is_fine(done),
        }
    }
    absent_is_fine(fs::remove_dir_all(dir))
}

enum Removal {
    Nothing,
    Runs,
    Done,
}

/// Who runs the service, once that is settled; none if nothing does. A start under way is waited for, and what was lost
/// is buried.
pub(super) async fn settled(run: &RunDir) -> io::Result<Option<Record>> {
    let begin = Instant::now();
    loop {
        let place = run.clone();
        match blocking(move || place.run_state()).await? {
            RunState::Running(record, _) => return Ok(Some(record)),
            RunState::Idle(_) => return Ok(None),
            RunState::Lost(record) => {
                run.bury(&record)?;
                return Ok(None);
            }
            RunState::Starting if begin.elapsed() > START_WAIT => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "its start did not finish"));
            }
            RunState::Starting => sleep(LOOK_AGAIN).await,
        }
    }
}

/// To the first process alone, as a container engine does: what that started is its own to stop.
fn signal(record: &Record, signal: Signal) {
    if let Some(service) = &record.service {
        service.signal(signal);
    }
}
