//! Who leads: what openraft says, and two things it does not. A leader that has fallen silent leads no longer as far
//! as we can tell, and one that resumes its term after a restart may not decide before it has caught up with itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use openraft::{Raft, RaftMetrics};
use plimsoll_model::Term;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Timing;
use super::state::StateMachine;
use super::types::Types;
use crate::engine::{Leadership, ServerId};

/// What this server knows of its own start and of its leader's voice.
#[derive(Debug)]
pub(crate) struct Seat {
    server: ServerId,
    timing: Timing,
    started: Instant,
    /// Milliseconds from the start to the last word from a leader, and one; 0: none yet.
    last_heard: AtomicU64,
    /// The term it was in when it last stopped.
    started_in: u64,
    /// One more than the last entry that it found in its log.
    recovered: u64,
}

impl Seat {
    pub(crate) fn new(server: ServerId, timing: Timing, started_in: u64, recovered: u64) -> Self {
        let (started, last_heard) = (Instant::now(), AtomicU64::new(0));
        Self { server, timing, started, last_heard, started_in, recovered }
    }

    /// A leader spoke to us.
    pub(crate) fn heard(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.last_heard.store(now + 1, Ordering::Relaxed);
    }

    /// Twice the longest that anyone waits before it stands for election.
    fn is_silent(&self) -> bool {
        let heard = self.last_heard.load(Ordering::Relaxed);
        let Some(heard) = heard.checked_sub(1) else { return true };
        let silence = self.started.elapsed().saturating_sub(Duration::from_millis(heard));
        silence > self.timing.election * 4
    }

    pub(crate) fn leadership(&self, metrics: &RaftMetrics<Types>) -> Leadership {
        let term = metrics.current_term;
        let leader = metrics.current_leader.filter(|_| metrics.running_state.is_ok());
        let leads = leader == Some(self.server) && metrics.state.is_leader();
        let applied = metrics.last_applied.as_ref();
        // A leader begins its term with an entry of its own: once that is applied, so is all before it. One that
        // resumes the term it stopped in began it long ago; it must apply what it found.
        let caught_up = applied.is_some_and(|id| {
            *id.leader_id == term && (term > self.started_in || id.index + 1 >= self.recovered)
        });
        Leadership {
            term: Term(term),
            leader: leader.filter(|leader| *leader == self.server || !self.is_silent()),
            is_me: leads && caught_up,
        }
    }

    /// Keeps what we say in step, until openraft ends.
    pub(crate) fn follow(
        self: &Arc<Self>,
        raft: &Raft<Types, StateMachine>,
    ) -> watch::Receiver<Leadership> {
        let mut metrics = raft.metrics();
        let seat = Arc::clone(self);
        let (sender, receiver) = watch::channel(seat.leadership(&metrics.borrow_watched()));
        tokio::spawn(async move {
            loop {
                let follows = {
                    let metrics = metrics.borrow_watched();
                    metrics.current_leader.is_some_and(|leader| leader != seat.server)
                };
                // Silence changes no metric, so a follower looks at the clock; others need not.
                let changed = if follows {
                    tokio::time::timeout(seat.timing.heartbeat, metrics.changed()).await
                } else {
                    Ok(metrics.changed().await)
                };
                let ended = changed.is_ok_and(|changed| changed.is_err());
                let mut now = seat.leadership(&metrics.borrow_watched());
                if ended {
                    now = Leadership { leader: None, is_me: false, ..now };
                }
                sender.send_if_modified(|before| std::mem::replace(before, now) != now);
                if ended {
                    return;
                }
            }
        });
        receiver
    }
}
