//! What is known on disk of one generation: who runs it and how it ended. The disk is the only memory; a new daemon
//! reads the same and knows as much.

use std::fs::{File, TryLockError};
use std::io;

use plimsoll_model::Timestamp;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::launch::Launch;
use super::paths::{RunDir, read_json, write_json};
use super::table::{Identity, Table};
use crate::runtime::{Exit, Status, wall_clock};

/// Written by the supervisor: first of itself, then with the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) since: Timestamp,
    pub(super) supervisor: Identity,
    pub(super) service: Option<Identity>,
}

/// Written by the supervisor as its last act, or by whoever finds that it could not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ended {
    pub(super) at: Timestamp,
    pub(super) exit: Exit,
}

/// How things stand, and with whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// Its supervisor is at work and the service is not up yet.
    Starting,
    Running(Record, Identity),
    /// Nothing runs. The status says whether anything ever did.
    Idle(Status),
    /// The supervisor is gone and did not say how the service ended.
    Lost(Record),
}

impl RunDir {
    pub(super) fn standing(&self) -> io::Result<Standing> {
        let record: Option<Record> = read_json(&self.record())?;
        let ended: Option<Ended> = read_json(&self.exit())?;
        Ok(match (record, ended) {
            (None, _) if self.is_locked()? => Standing::Starting,
            (None, _) => Standing::Idle(Status::Created),
            (Some(Record { since, .. }), Some(Ended { at, exit })) => {
                Standing::Idle(Status::Exited { since, at, exit })
            }
            (Some(record), None) if record.supervisor.is_alive() => match record.service.clone() {
                Some(service) => Standing::Running(record, service),
                None => Standing::Starting,
            },
            // It may have ended between the two looks above.
            (Some(record), None) => match read_json::<Ended>(&self.exit())? {
                Some(Ended { at, exit }) => {
                    Standing::Idle(Status::Exited { since: record.since, at, exit })
                }
                None => Standing::Lost(record),
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
            for stat in Table::read().session(service.pid) {
                if stat.start >= service.start {
                    let stray = Identity { pid: stat.pid, start: stat.start, boot: boot.clone() };
                    stray.signal(Signal::KILL);
                }
            }
        }
        let exit = Exit { status: None, oom: false };
        write_json(&self.exit(), &Ended { at: wall_clock(), exit })?;
        Ok(exit)
    }
}
