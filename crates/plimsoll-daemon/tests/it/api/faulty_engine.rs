//! A log that fails when it is told to.

use std::path::Path;
use std::sync::{Arc, Mutex};

use plimsoll_model::{Command, Refusal, Rejection};
use plimsoll_store::backup::Summary;
use plimsoll_store::engine::EngineFuture;
use plimsoll_store::{
    Committed, Embedded, Engine, Error, Leadership, LeadershipInfo, LogPosition, Machine, Member,
};
use tokio::sync::watch;

/// What becomes of whatever is written, or read with all that was written before.
#[derive(Debug, Clone)]
pub(super) enum Fault {
    Store(Error),
    /// The command is in the log, and the state refuses it.
    Refused(Refusal),
    /// It knows that it takes no writes, before anybody tries.
    Impaired(Error),
}

#[derive(Debug)]
pub(super) struct FaultyEngine {
    inner: Arc<Embedded>,
    fault: Mutex<Option<Fault>>,
}

impl FaultyEngine {
    pub(super) fn new(inner: Arc<Embedded>) -> Self {
        Self { inner, fault: Mutex::default() }
    }

    pub(super) fn set(&self, fault: Option<Fault>) {
        *self.fault.lock().unwrap() = fault;
    }

    fn fault(&self) -> Option<Fault> {
        self.fault.lock().unwrap().clone()
    }

    fn check(&self) -> Result<(), Error> {
        match self.fault() {
            Some(Fault::Store(error) | Fault::Impaired(error)) => Err(error),
            Some(Fault::Refused(_)) | None => Ok(()),
        }
    }
}

impl Engine for FaultyEngine {
    fn propose(&self, command: Command) -> EngineFuture<'_, Committed> {
        Box::pin(async {
            self.check()?;
            match self.fault() {
                Some(Fault::Refused(reason)) => {
                    Ok(Committed { index: 1, outcome: Err(Rejection { position: 0, reason }) })
                }
                _ => self.inner.propose(command).await,
            }
        })
    }

    fn catch_up(&self) -> EngineFuture<'_, u64> {
        Box::pin(async {
            self.check()?;
            self.inner.catch_up().await
        })
    }

    fn backup<'a>(&'a self, file: &'a Path) -> EngineFuture<'a, Summary> {
        Box::pin(async {
            self.check()?;
            self.inner.backup(file).await
        })
    }

    fn leadership(&self) -> watch::Receiver<Leadership> {
        self.inner.leadership()
    }

    fn trouble(&self) -> Option<Error> {
        self.inner.trouble()
    }

    fn impairment(&self) -> Option<Error> {
        match self.fault() {
            Some(Fault::Impaired(error)) => Some(error),
            _ => self.trouble(),
        }
    }

    fn machine(&self) -> &Arc<Machine> {
        self.inner.machine()
    }

    fn members(&self) -> Vec<Member> {
        self.inner.members()
    }

    fn members_since(&self) -> u64 {
        self.inner.members_since()
    }

    fn is_changing(&self) -> bool {
        self.inner.is_changing()
    }

    fn log_position(&self) -> LogPosition {
        self.inner.log_position()
    }

    fn leadership_info(&self) -> LeadershipInfo {
        self.inner.leadership_info()
    }

    fn snapshot(&self) -> EngineFuture<'_, u64> {
        self.inner.snapshot()
    }

    fn shutdown(&self) -> EngineFuture<'_, ()> {
        self.inner.shutdown()
    }
}
