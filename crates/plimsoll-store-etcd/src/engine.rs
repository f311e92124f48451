//! The engine as others hold it: a door to the task that does the work.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_model::Command;
use plimsoll_store::backup::{self, Summary};
use plimsoll_store::engine::EngineFuture;
use plimsoll_store::{
    Committed, Engine, Error, Leadership, LeadershipInfo, LogPosition, Machine, Member, ServerId,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::MAX_COMMAND;
use crate::core::{LeaderRequest, PendingProposal};
use crate::shared::EtcdShared;

/// How long the next leader may take: a few round trips to etcd.
const HANDED_OVER: Duration = Duration::from_secs(1);

/// A server of the etcd engine.
#[derive(Debug)]
pub struct Etcd {
    shared: Arc<EtcdShared>,
    asks: mpsc::Sender<LeaderRequest>,
    /// Whether it leads when nobody does.
    stands: watch::Sender<bool>,
    has_left: AtomicBool,
    stop: watch::Sender<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Etcd {
    pub(crate) fn new(
        shared: Arc<EtcdShared>,
        asks: mpsc::Sender<LeaderRequest>,
        stands: watch::Sender<bool>,
        stop: watch::Sender<bool>,
        task: JoinHandle<()>,
    ) -> Self {
        let (has_left, task) = (AtomicBool::new(false), Mutex::new(Some(task)));
        Self { shared, asks, stands, has_left, stop, task }
    }

    /// Waits until it is known who leads, for so long at most.
    pub(crate) async fn settle(&self, limit: Duration) {
        let mut leadership = self.leadership();
        let known = leadership.wait_for(|now| now.leader.is_some());
        let _ = tokio::time::timeout(limit, known).await;
    }

    pub fn id(&self) -> ServerId {
        self.shared.server
    }

    /// Returns once the server cannot go on, with why. It answers reads still; only another start makes it write again.
    pub async fn broken(&self) -> Error {
        let mut failed = self.shared.failed.subscribe();
        // The sender lives as long as this does.
        let _ = failed.wait_for(Option::is_some).await;
        self.shared.failure().unwrap_or(Error::Stopped)
    }

    /// Whether this server leads when nobody does. One that has handed over does not, whatever is said here.
    pub fn stand(&self, stands: bool) {
        let stands = stands && !self.has_left.load(Ordering::Relaxed);
        self.stands.send_if_modified(|before| std::mem::replace(before, stands) != stands);
    }

    /// Leaves the leadership, where this server has it, to whoever takes it, and does not take it again. Returns once
    /// another leads, or has had its time to.
    pub async fn hand_over(&self) {
        let mut leadership = self.leadership();
        let leads = leadership.borrow_and_update().is_me;
        if !leads || !self.shared.others() {
            return;
        }
        self.has_left.store(true, Ordering::Relaxed);
        self.stand(false);
        // Its own key may still be seen for a moment after it has given it up.
        let own = self.id();
        let led = leadership.wait_for(|now| now.leader.is_some_and(|leader| leader != own));
        let _ = tokio::time::timeout(HANDED_OVER, led).await;
    }

    async fn ask<T>(
        &self,
        ask: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> LeaderRequest,
        dropped: Error,
    ) -> Result<T, Error> {
        if self.asks.is_closed() && self.shared.machine.outgrown().is_none() {
            return Err(Error::Stopped);
        }
        self.shared.check_leading()?;
        let (reply, answer) = oneshot::channel();
        self.asks.send(ask(reply)).await.map_err(|_| Error::Stopped)?;
        answer.await.unwrap_or(Err(dropped))
    }

    async fn write(&self, command: Command) -> Result<Committed, Error> {
        let bytes = postcard::to_stdvec(&command).expect("every command can be written");
        if bytes.len() > MAX_COMMAND {
            return Err(Error::TooLarge { size: bytes.len(), max: MAX_COMMAND });
        }
        // The level only rises, so what may be written now may be written wherever it ends up in the log.
        let (needed, cell) = (command.level, self.shared.machine.level());
        if needed > cell {
            return Err(Error::Early { needed, cell });
        }
        let bytes = bytes.into();
        // A proposal that is dropped had been sent when the leadership came into doubt.
        self.ask(
            |reply| LeaderRequest::Propose(PendingProposal { bytes, command, reply }),
            Error::Unsettled,
        )
        .await
    }

    async fn write_backup(&self, file: &Path) -> Result<Summary, Error> {
        let term = self.leadership().borrow().term;
        let (machine, file) = (Arc::clone(&self.shared.machine), file.to_owned());
        let written = tokio::task::spawn_blocking(move || backup::take(&machine, term, &file));
        match written.await {
            Ok(Ok(summary)) => Ok(summary),
            Ok(Err(error)) => Err(Error::Disk(backup::chain(&error).into())),
            Err(_) => Err(Error::Stopped),
        }
    }

    async fn end(&self) -> Result<(), Error> {
        self.stop.send_replace(true);
        let task = self.task.lock().expect("no holder of the task panics").take();
        if let Some(task) = task {
            task.await.map_err(|_| Error::Stopped)?;
        }
        Ok(())
    }
}

impl Engine for Etcd {
    fn propose(&self, command: Command) -> EngineFuture<'_, Committed> {
        Box::pin(self.write(command))
    }

    fn leadership(&self) -> watch::Receiver<Leadership> {
        self.shared.leadership.subscribe()
    }

    fn trouble(&self) -> Option<Error> {
        self.shared.failure()
    }

    fn impairment(&self) -> Option<Error> {
        self.shared.impairment()
    }

    fn machine(&self) -> &Arc<Machine> {
        &self.shared.machine
    }

    fn members(&self) -> Vec<Member> {
        self.shared.members()
    }

    /// They are not in the log: who has a lease is one.
    fn members_since(&self) -> u64 {
        self.shared.members_since()
    }

    fn is_member_for_good(&self) -> bool {
        true
    }

    fn log_position(&self) -> LogPosition {
        self.shared.log_position()
    }

    fn leadership_info(&self) -> LeadershipInfo {
        self.shared.leadership_info()
    }

    fn catch_up(&self) -> EngineFuture<'_, u64> {
        Box::pin(self.ask(LeaderRequest::CatchUp, Error::NoLeader))
    }

    fn snapshot(&self) -> EngineFuture<'_, u64> {
        Box::pin(self.ask(LeaderRequest::Snapshot, Error::NoLeader))
    }

    fn backup<'a>(&'a self, file: &'a Path) -> EngineFuture<'a, Summary> {
        Box::pin(self.write_backup(file))
    }

    fn shutdown(&self) -> EngineFuture<'_, ()> {
        Box::pin(self.end())
    }
}
