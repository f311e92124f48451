//! What is known on disk of one generation: who runs it and how it ended. The disk is the only memory; a new daemon
//! reads the same and knows as much.

use std::fs::{File, TryLockError};
use std::io;

use plimsoll_model::Timestamp;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::launch::Launch;
use super::paths::{RunDir, read_json, write_json};
use super::table::{ProcessIdentity, ProcessTable};
use crate::runtime::{ContainerStatus, Exit, wall_clock};

/// Written by the supervisor: first of itself, then with the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) since: Timestamp,
    pub(super) supervisor: ProcessIdentity,
    pub(super) service: Option<ProcessIdentity>,
}

/// Written by the supervisor as its last act, or by whoever finds that it could not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EndRecord {
    pub(super) at: Timestamp,
    pub(super) exit: Exit,
}

/// How things stand, and with whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RunState {
    /// Its supervisor is at work and the service is not up yet.
    Starting,
    Running(Record, ProcessIdentity),
    /// Nothing runs. The status says whether anything ever did.
    Idle(ContainerStatus),
    /// The supervisor is gone and did not say how the service ended.
    Lost(Record),
}

impl RunDir {
    pub(super) fn run_state(&self) -> io::Result<RunState> {
        let record: Option<Record> = read_json(&self.record())?;
        let ended: Option<EndRecord> = read_json(&self.exit())?;
        Ok(match (record, ended) {
            (None, _) if self.is_locked()? => RunState::Starting,
            (None, _) => RunState::Idle(ContainerStatus::Created),
            (Some(Record { since, .. }), Some(EndRecord { at, exit })) => {
                RunState::Idle(ContainerStatus::Exited { since, at, exit })
            }
            (Some(record), None) if record.supervisor.is_alive() => match record.service.clone() {
                Some(service) => RunState::Running(record, service),
                None => RunState::Starting,
            },
            // It may have ended between the two looks above.
            (Some(record), None) => match read_json::<EndRecord>(&self.exit())? {
                Some(EndRecord { at, exit }) => {
                    RunState::Idle(ContainerStatus::Exited { since: record.since, at, exit })
                }
                None => RunState::Lost(record),
            },
        })
    }

    pub(super) fn read_launch(&self) -> io::Result<Option<Launch>> {
        read_json(&self.launch())
    }

    /// Whether a supervisor lives that has not written its record yet.
    fn is_locked(&self) -> io::Result<bool> {
        match File::open(self.lock()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
            Ok(file) => match file.try_lock_shared() {
                Ok(()) => Ok(false),
                Err(TryLockError::WouldBlock) => Ok(true),
                Err(TryLockError::Error(error)) => Err(error),
            },
        }
    }

    /// Ends what a lost supervisor left behind and writes down that nobody saw how it ended.
    pub(super) fn bury(&self, record: &Record) -> io::Result<Exit> {
        // The kernel kills the service with its supervisor; what the service started is still about.
        if let Some(service) = &record.service {
            service.signal(Signal::KILL);
            let boot = &service.boot;
            for stat in ProcessTable::read().session(service.pid) {
                if stat.start >= service.start {
                    let stray =
                        ProcessIdentity { pid: stat.pid, start: stat.start, boot: boot.clone() };
                    stray.signal(Signal::KILL);
                }
            }
        }
        let exit = Exit { status: None, oom: false };
        write_json(&self.exit(), &EndRecord { at: wall_clock(), exit })?;
        Ok(exit)
    }
}
