//! Leads a fleet of cells, on the machinery of a cell that runs nothing: its log, its snapshots, its authority, its API and its
//! backups are those of any cell. What is decided is in `plimsoll-fleet`, what is written in the model; here the two meet a clock
//! and the messages of shards.
//!
//! A cell does not depend on this crate. It plugs into a node as its [`Coordinator`].

mod shortfalls;

use std::time::Duration;

use plimsoll_api::view::{Problem, ProblemCode};
use plimsoll_daemon::context::{now, span};
use plimsoll_daemon::fleet::{Coordinator, FleetMemory, HeardShard};
use plimsoll_daemon::log_writer::{LogWriter, WriteError};
use plimsoll_daemon::problem;
use plimsoll_daemon::shared::Shared;
use plimsoll_fleet::{FleetLeader, FleetPolicy};
use plimsoll_model::fleet::{CoordinatorAnswer, FleetChange, ShardId, ShardMessage};
use plimsoll_model::{Change, Refusal, Writer};
use plimsoll_runtime::BoxFuture;
use tokio::time::{Instant, sleep, timeout_at};

/// Who the audit says it was.
const IDENTITY: &str = "coordinator";

/// How long to wait when the log does not take something.
const RETRY: Duration = Duration::from_millis(500);

/// A coordinator's part of a node. Clones share what the leader has heard.
#[derive(Debug, Clone)]
pub struct FleetCoordinator {
    policy: FleetPolicy,
    /// What this node keeps while it leads; none while it does not.
    leader: Shared<Option<FleetLeader>>,
}

impl FleetCoordinator {
    pub fn new(policy: FleetPolicy) -> Self {
        Self { policy, leader: Shared::default() }
    }

    /// Founds the fleet where there is none, then decides whenever a pass is due. Returns once the log takes nothing more from
    /// this node.
    async fn passes(&self, log: &LogWriter) {
        loop {
            if log.engine.machine().read(|state| state.fleet().is_some()) {
                break;
            }
            match write(log, vec![FleetChange::Begin]).await {
                Ok(()) => {}
                Err(WriteError::Refused(rejection)) => {
                    tracing::error!(%rejection, "this cell cannot coordinate a fleet; use another data directory");
                    return std::future::pending().await;
                }
                Err(WriteError::Store(error)) => {
                    if is_deposed(&error) {
                        return;
                    }
                    sleep(RETRY).await;
                }
            }
        }
        loop {
            let next = self.with(|leader| leader.next_pass());
            let Some(next) = next else { return };
            sleep(span(next.since(now()))).await;
            let decided = log.engine.machine().read(|state| {
                let fleet = state.fleet()?;
                self.with(|leader| leader.pass(fleet, now()))
            });
            let Some(decision) = decided else { return };
            if decision.batch.is_empty() {
                continue;
            }
            match write(log, decision.batch).await {
                Ok(()) => {}
                // Decided on something that has changed meanwhile: the next pass decides anew.
                Err(WriteError::Refused(rejection)) => {
                    tracing::info!(%rejection, "a pass was outdated; deciding again");
                }
                Err(WriteError::Store(error)) if is_deposed(&error) => return,
                Err(WriteError::Store(error)) => {
                    tracing::warn!(%error, "cannot write what a pass decided");
                }
            }
        }
    }

    fn with<T>(&self, with: impl FnOnce(&mut FleetLeader) -> T) -> Option<T> {
        self.leader.lock().as_mut().map(with)
    }

    /// What the shard is to do by now.
    fn answer(&self, log: &LogWriter, shard: &ShardId) -> Result<CoordinatorAnswer, Problem> {
        let term = log.engine.leadership().borrow().term;
        let answered = log.engine.machine().read(|state| {
            let fleet = state.fleet()?;
            self.with(|leader| leader.answer(fleet, shard, term))
        });
        answered.ok_or_else(not_leading)
    }

    async fn heard_one(
        &self,
        log: &LogWriter,
        shard: ShardId,
        message: ShardMessage,
        wait: Duration,
    ) -> Result<CoordinatorAnswer, Problem> {
        let until = Instant::now() + wait;
        let heard = log.engine.machine().read(|state| {
            let fleet = state.fleet().ok_or_else(not_coordinating)?;
            let heard = self.with(|leader| leader.hear(fleet, &shard, &message, now()));
            let heard = heard.ok_or_else(not_leading)?;
            heard.map_err(|error| Problem::new(ProblemCode::BadRequest, error.to_string()))
        })?;
        let has_news = !heard.is_empty();
        if has_news {
            write(log, heard).await.map_err(|error| problem::written(&error))?;
        }
        let mut applied = log.engine.machine().applied();
        loop {
            applied.mark_unchanged();
            let answer = self.answer(log, &shard)?;
            // Whoever has something to do, or to say, is not kept waiting; nor is one whose word has just been written.
            if !answer.instructions.is_empty() || answer.wants_kinds || has_news {
                return Ok(answer);
            }
            // Until something is written, which may be for this shard.
            match timeout_at(until, applied.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Ok(answer),
            }
        }
    }
}

impl Coordinator for FleetCoordinator {
    fn lead<'a>(&'a self, log: &'a LogWriter) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            *self.leader.lock() = Some(FleetLeader::new(self.policy, now()));
            let _end = Deposed(self);
            self.passes(log).await;
        })
    }

    fn hear<'a>(
        &'a self,
        log: &'a LogWriter,
        shard: ShardId,
        message: ShardMessage,
        wait: Duration,
    ) -> BoxFuture<'a, Result<CoordinatorAnswer, Problem>> {
        Box::pin(self.heard_one(log, shard, message, wait))
    }

    fn heard(&self) -> Option<FleetMemory> {
        let at = now();
        self.with(|leader| {
            let shards = leader.reports().iter().map(|(id, report)| {
                let heard = HeardShard {
                    heard_at: report.heard_at,
                    is_paused: report.is_paused,
                    supply: report.supply.clone(),
                    shortfalls: report.shortfalls.len(),
                };
                (id.clone(), heard)
            });
            FleetMemory {
                next_pass: leader.next_pass(),
                shards: shards.collect(),
                shortfalls: shortfalls::told(leader, at),
            }
        })
    }
}

/// What a leader has heard ends with its leadership, however that ends.
struct Deposed<'c>(&'c FleetCoordinator);

impl Drop for Deposed<'_> {
    fn drop(&mut self) {
        *self.0.leader.lock() = None;
    }
}

async fn write(log: &LogWriter, batch: Vec<FleetChange>) -> Result<(), WriteError> {
    let change = |change| Change::Fleet { change: Box::new(change) }.free();
    let batch = batch.into_iter().map(change).collect();
    log.write(Writer::Scheduler, IDENTITY, batch).await.map(drop)
}

fn is_deposed(error: &plimsoll_store::Error) -> bool {
    use plimsoll_store::Error::{NoLeader, NotLeader, Stopped};
    matches!(error, NoLeader | NotLeader { .. } | Stopped)
}

fn not_leading() -> Problem {
    Problem::new(ProblemCode::NotLeader, "this node does not lead the coordinator")
}

fn not_coordinating() -> Problem {
    problem::refusal(&Refusal::NotCoordinator)
}
