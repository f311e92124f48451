//! Who leads: what openraft says, and three things it does not. A leader that has fallen silent leads no longer as far
//! as we can tell, nor does one whom the others have ceased to answer; and one that resumes its term after a restart may
//! not decide before it has caught up with itself.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use openraft::{Instant as _, Raft, RaftMetrics};
use plimsoll_model::Term;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Timing;
use super::incarnation::IncarnationGuard;
use super::state::StateMachine;
use super::types::Types;
use crate::engine::{Leadership, LeadershipInfo, LogPosition, ServerId, ServerRole};

/// What this engine is called.
const ENGINE: &str = "embedded";

/// After so many election timeouts of silence nobody leads: twice the longest that anyone waits before it stands.
pub(crate) const SILENT_ELECTIONS: u32 = 4;

/// What this server knows of its own start and of its leader's voice.
#[derive(Debug)]
pub(crate) struct LeaderTracker {
    guard: Arc<IncarnationGuard>,
    server: ServerId,
    timing: Timing,
    started: Instant,
    /// Milliseconds from the start to the last word from a leader, and one; 0: none yet.
    last_heard: AtomicU64,
    /// The term it was in when it last stopped.
    started_in: u64,
    /// One more than the last entry that it found in its log.
    recovered: u64,
    history: Mutex<LeaderHistory>,
    has_panicked: AtomicBool,
    /// Who is told; it is gone once openraft has ended.
    told: OnceLock<Weak<watch::Sender<Leadership>>>,
}

/// The leaders that this server has seen.
#[derive(Debug, Default)]
struct LeaderHistory {
    last: Option<(Term, ServerId)>,
    count: u64,
    /// When the last one was first seen; none while nobody leads.
    since: Option<Instant>,
}

impl LeaderHistory {
    fn note(&mut self, now: Leadership) {
        let Some(leader) = now.leader else {
            self.since = None;
            return;
        };
        let seen = Some((now.term, leader));
        if self.last != seen {
            self.count += 1;
        }
        if self.last != seen || self.since.is_none() {
            (self.last, self.since) = (seen, Some(Instant::now()));
        }
    }
}

impl LeaderTracker {
    pub(crate) fn new(
        guard: &Arc<IncarnationGuard>,
        server: ServerId,
        timing: Timing,
        started_in: u64,
        recovered: u64,
    ) -> Self {
        let (started, last_heard) = (Instant::now(), AtomicU64::new(0));
        let (guard, history) = (Arc::clone(guard), Mutex::default());
        let (has_panicked, told) = (AtomicBool::new(false), OnceLock::new());
        Self {
            guard,
            server,
            timing,
            started,
            last_heard,
            started_in,
            recovered,
            history,
            has_panicked,
            told,
        }
    }

    /// Whether openraft ended without saying why, as only a panic ends it.
    pub(crate) fn has_panicked(&self) -> bool {
        self.has_panicked.load(Ordering::Relaxed)
    }

    fn history(&self) -> MutexGuard<'_, LeaderHistory> {
        self.history.lock().expect("nobody panics while counting leaders")
    }

    pub(crate) fn leadership_info(&self) -> LeadershipInfo {
        let history = self.history();
        let since = history.since.map(|since| since.elapsed());
        LeadershipInfo {
            engine: ENGINE,
            since,
            elections: history.count,
            ..LeadershipInfo::default()
        }
    }

    /// A leader spoke to us.
    pub(crate) fn heard(&self) {
        self.heard_before(Duration::ZERO);
    }

    /// Likewise, so long ago.
    fn heard_before(&self, ago: Duration) {
        let at = self.started.elapsed().saturating_sub(ago).as_millis();
        let at = u64::try_from(at).unwrap_or(u64::MAX - 1);
        self.last_heard.fetch_max(at + 1, Ordering::Relaxed);
    }

    /// How long ago a leader last spoke to us; none: not since the start.
    fn silence(&self) -> Option<Duration> {
        let heard = self.last_heard.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.started.elapsed().saturating_sub(Duration::from_millis(heard)))
    }

    fn is_alone(&self, metrics: &RaftMetrics<Types>) -> bool {
        metrics.membership_config.voter_ids().all(|voter| voter == self.server)
    }

    /// Whether anything depends on openraft's ticks, which call elections and send heartbeats. Who leads a cell of its own
    /// has nobody to hear from and nobody to tell, and a hundred ticks a second would be most of what it costs at rest.
    fn needs_ticks(&self, metrics: &RaftMetrics<Types>) -> bool {
        let mut members = metrics.membership_config.nodes();
        !metrics.state.is_leader() || members.any(|(member, _)| *member != self.server)
    }

    /// How long ago this server, leading, was last answered by most of the others.
    fn unanswered(&self, metrics: &RaftMetrics<Types>) -> Option<Duration> {
        if self.is_alone(metrics) {
            return Some(Duration::ZERO);
        }
        metrics.last_quorum_acked.as_ref().map(|acked| acked.elapsed())
    }

    /// Whether the one who leads by openraft's word has been silent, or without an answer, for too long, or this server's
    /// cell is no more.
    fn is_lost(&self, leader: ServerId, metrics: &RaftMetrics<Types>) -> bool {
        if self.guard.is_superseded() {
            return true;
        }
        let limit = self.timing.election * SILENT_ELECTIONS;
        if leader == self.server {
            return self.unanswered(metrics).is_some_and(|silence| silence > limit);
        }
        self.silence().is_none_or(|silence| silence > limit)
    }

    /// Whether this server, which leads by openraft's word, has been without the answer of most others for so long that
    /// another may lead by now. Then it says so, and takes no command.
    pub(crate) fn leads_nobody(&self, metrics: &RaftMetrics<Types>) -> bool {
        self.is_lost(self.server, metrics)
    }

    pub(crate) fn log_position(&self, metrics: &RaftMetrics<Types>) -> LogPosition {
        let leads = metrics.state.is_leader();
        let role = if leads {
            ServerRole::Leader
        } else if metrics.membership_config.voter_ids().any(|voter| voter == self.server) {
            ServerRole::Voter
        } else {
            ServerRole::Learner
        };
        let known = metrics.cluster_committed.as_ref().max(metrics.local_committed.as_ref());
        LogPosition {
            role,
            applied: metrics.last_applied.as_ref().map_or(0, |id| id.index),
            committed: known.map_or(0, |id| id.index),
            last: metrics.last_log_index.unwrap_or(0),
            is_superseded: self.guard.is_superseded(),
            outgrown: None,
            heard: if leads { self.unanswered(metrics) } else { self.silence() },
        }
    }

    pub(crate) fn leadership(&self, metrics: &RaftMetrics<Types>) -> Leadership {
        let term = metrics.current_term;
        let leader = metrics.current_leader.filter(|_| metrics.running_state.is_ok());
        let leader = leader.filter(|leader| !self.is_lost(*leader, metrics));
        let leads = leader == Some(self.server) && metrics.state.is_leader();
        let applied = metrics.last_applied.as_ref();
        // A leader begins its term with an entry of its own: once that is applied, so is all before it. One that
        // resumes the term it stopped in began it long ago; it must apply what it found.
        let caught_up = applied.is_some_and(|id| {
            *id.leader_id == term && (term > self.started_in || id.index + 1 >= self.recovered)
        });
        Leadership { term: Term(term), leader, is_me: leads && caught_up }
    }

    /// Says who leads, as of now.
    pub(crate) fn tell(&self, metrics: &RaftMetrics<Types>) {
        self.put(self.leadership(metrics));
        // One that led has heard as much as it was answered, should it ask later how long the cell is without a leader.
        if let Some(ago) = self.unanswered(metrics).filter(|_| metrics.state.is_leader()) {
            self.heard_before(ago);
        }
    }

    fn put(&self, now: Leadership) {
        self.history().note(now);
        if let Some(told) = self.told.get().and_then(Weak::upgrade) {
            told.send_if_modified(|before| std::mem::replace(before, now) != now);
        }
    }

    /// Keeps what we say in step, and has openraft tick while that is of use, until it ends.
    pub(crate) fn follow(
        self: &Arc<Self>,
        raft: &Raft<Types, StateMachine>,
    ) -> watch::Receiver<Leadership> {
        let mut metrics = raft.metrics();
        let (tracker, raft) = (Arc::clone(self), raft.clone());
        let sender = Arc::new(watch::Sender::new(Leadership::default()));
        let _ = tracker.told.set(Arc::downgrade(&sender));
        tracker.tell(&metrics.borrow_watched());
        let receiver = sender.subscribe();
        tokio::spawn(async move {
            // Whoever listens learns from its end that openraft has ended.
            let _sender = sender;
            loop {
                let listens = {
                    let metrics = metrics.borrow_watched();
                    raft.runtime_config().tick(tracker.needs_ticks(&metrics));
                    metrics.current_leader.is_some() && !tracker.is_alone(&metrics)
                };
                // Silence changes no metric, so who depends on another's word looks at the clock.
                let changed = if listens {
                    tokio::time::timeout(tracker.timing.heartbeat, metrics.changed()).await
                } else {
                    Ok(metrics.changed().await)
                };
                let ended = changed.is_ok_and(|changed| changed.is_err());
                if ended {
                    let is_panic = metrics.borrow_watched().running_state.is_ok();
                    tracker.has_panicked.store(is_panic, Ordering::Relaxed);
                    let last = tracker.leadership(&metrics.borrow_watched());
                    tracker.put(Leadership { leader: None, is_me: false, ..last });
                    return;
                }
                tracker.tell(&metrics.borrow_watched());
            }
        });
        receiver
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use plimsoll_model::CellId;

    use super::super::channel::Switchboard;
    use super::super::{Embedded, EmbeddedConfig, Founding};
    use super::*;
    use crate::disk::sim::SimDisk;
    use crate::engine::{Engine, Peer};

    const FIRST: ServerId = ServerId(1);
    const SECOND: ServerId = ServerId(2);

    async fn start(board: &Switchboard, server: ServerId, founding: Founding) -> Arc<Embedded> {
        let alone = EmbeddedConfig::alone(Path::new("data"), CellId::new("test").unwrap());
        let config = EmbeddedConfig {
            server,
            founding,
            disk: Arc::new(SimDisk::new()),
            timing: Some(Timing::from_append(Duration::from_millis(1))),
            network: board.port(server),
            ..alone
        };
        let server = Embedded::start(config).await.unwrap();
        board.plug(&server);
        server
    }

    /// How often openraft has something to say within ten heartbeats.
    async fn stirs(server: &Embedded) -> usize {
        let mut metrics = server.raft.metrics();
        let _ = metrics.borrow_and_update();
        let mut stirs = 0;
        let counting = async {
            while metrics.changed().await.is_ok() {
                stirs += 1;
            }
        };
        let _ = tokio::time::timeout(server.timing.heartbeat * 10, counting).await;
        stirs
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_cell_of_one_at_rest_is_woken_by_nothing_until_it_has_a_second_server() {
        let board = Switchboard::new();
        let first = start(&board, FIRST, Founding::Alone).await;
        // What its start has left behind ends.
        tokio::time::sleep(first.timing.election).await;
        assert_eq!(stirs(&first).await, 0, "nobody listens, and still it ticks");

        let second = start(&board, SECOND, Founding::Join).await;
        first.add_server(SECOND, Peer::default(), true).await.unwrap();
        assert!(stirs(&first).await >= 5, "a learner is not sent heartbeats");
        first.set_voters([FIRST, SECOND].into()).await.unwrap();
        first.set_voters([FIRST].into()).await.unwrap();
        assert!(stirs(&second).await > 0);
        first.remove_server(SECOND).await.unwrap();
        tokio::time::sleep(first.timing.election).await;
        assert_eq!(stirs(&first).await, 0, "it ticks for a server that is gone");
        assert!(first.leadership().borrow().is_me);
        second.shutdown().await.unwrap();
        first.shutdown().await.unwrap();
    }
}
