//! How a call finds a member that answers: from the one that answered last, on to the next when it does not, until the
//! deadline. What had, or may have had, its effect is sent again only if that is harmless.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::auth::{AuthSession, HeldToken};
use crate::config::{EtcdConfig, EtcdCredentials};
use crate::error::{CallFault, Error, fault, words};

/// Between two rounds over the members: an election among them takes about a second.
const PAUSE: Duration = Duration::from_millis(50);

/// The most bytes an answer may have. We ask for pages well below that.
pub(crate) const MAX_ANSWER: usize = 64 << 20;

/// A client of one etcd cluster. Clones share their connections.
#[derive(Clone)]
pub struct EtcdClient(Arc<EtcdClientInner>);

struct EtcdClientInner {
    members: Vec<Member>,
    endpoints: Arc<str>,
    /// The one that answered last.
    current: AtomicUsize,
    limit: Duration,
    credentials: Option<EtcdCredentials>,
    session: AuthSession,
}

struct Member {
    endpoint: String,
    channel: Channel,
}

impl fmt::Debug for EtcdClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdClient").field("endpoints", &self.0.endpoints).finish_non_exhaustive()
    }
}

/// What a call changes, and so whether it may be sent twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    /// Doing it twice is doing it once.
    Repeatable,
    Once,
}

/// A call: what it is called in errors, and how much patience it has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Want {
    pub(crate) action: &'static str,
    pub(crate) effect: Effect,
    pub(crate) until: Instant,
}

/// A request on its way, boxed so that calls can be spawned.
pub(crate) type Sent<R> = Pin<Box<dyn Future<Output = Result<Response<R>, Status>> + Send>>;

/// What went wrong, as etcd means it and as we say it.
pub(crate) type Failed = (CallFault, Error);

impl EtcdClient {
    /// Checks the settings. Nothing is sent yet: connections are made when they are needed.
    pub fn new(config: EtcdConfig) -> Result<Self, Error> {
        let checked = config.checked()?;
        let pairs = config.endpoints.iter().zip(checked);
        let members = pairs.map(|(endpoint, checked)| Member {
            endpoint: endpoint.clone(),
            channel: checked.connect_lazy(),
        });
        Ok(Self(Arc::new(EtcdClientInner {
            members: members.collect(),
            endpoints: config.endpoints.join(", ").into(),
            current: AtomicUsize::new(0),
            limit: config.limit,
            credentials: config.credentials,
            session: AuthSession::default(),
        })))
    }

    pub(crate) fn credentials(&self) -> Option<&EtcdCredentials> {
        self.0.credentials.as_ref()
    }

    pub(crate) fn limit(&self) -> Duration {
        self.0.limit
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = (&str, Channel)> {
        self.0.members.iter().map(|member| (member.endpoint.as_str(), member.channel.clone()))
    }

    /// The next call, and the next stream, begins with another member.
    pub fn turn(&self) {
        self.turn_from(self.0.current.load(Ordering::Relaxed));
    }

    fn turn_from(&self, from: usize) {
        let next = (from + 1) % self.0.members.len();
        // Whoever finds the member changed already leaves it so.
        self.0.current.compare_exchange(from, next, Ordering::Relaxed, Ordering::Relaxed).ok();
    }

    /// Makes a call within the client's limit, with a token where etcd wants one.
    pub(crate) async fn call<M, R>(
        &self,
        action: &'static str,
        effect: Effect,
        message: M,
        send: impl Fn(Channel, Request<M>) -> Sent<R> + Sync,
    ) -> Result<R, Error>
    where
        M: Clone,
    {
        let want = Want { action, effect, until: Instant::now() + self.limit() };
        let held = self.0.session.token(self, want.until).await?;
        match self.reach(&want, &held, message.clone(), &send).await {
            Err((CallFault::Token, _)) => {
                let held = self.0.session.renewed(self, held.nth, want.until).await?;
                let again = self.reach(&want, &held, message, &send).await;
                again.map_err(|(_, error)| error)
            }
            result => result.map_err(|(_, error)| error),
        }
    }

    /// Makes a call with the token at hand.
    pub(crate) async fn reach<M, R>(
        &self,
        want: &Want,
        held: &HeldToken,
        message: M,
        send: impl Fn(Channel, Request<M>) -> Sent<R> + Sync,
    ) -> Result<R, Failed>
    where
        M: Clone,
    {
        let started = Instant::now();
        let count = self.0.members.len();
        let (mut tries, mut unconnected) = (0, 0);
        // The first try whose effect is not known: later ones cannot take that back.
        let mut doubt = None;
        loop {
            let at = self.0.current.load(Ordering::Relaxed);
            let left = want.until.saturating_duration_since(Instant::now());
            let patience = patience(want.effect, left, self.limit(), count);
            let request = authorised(held, message.clone());
            let asked = send(self.0.members[at].channel.clone(), request);
            let failed = match tokio::time::timeout(patience, asked).await {
                Ok(Ok(response)) => return Ok(response.into_inner()),
                Ok(Err(status)) => self.failed(want, &status),
                Err(_) => {
                    let after = started.elapsed();
                    (CallFault::Unanswered, Error::TimedOut { action: want.action, after })
                }
            };
            tries += 1;
            unconnected = if failed.0 == CallFault::NotSent { unconnected + 1 } else { 0 };
            let step = next_step(want.effect, &failed.0, tries, unconnected, count);
            if want.effect != Effect::None && failed.1.may_have_happened() {
                doubt.get_or_insert_with(|| failed.clone());
            }
            let failed = doubt.clone().unwrap_or(failed);
            match step {
                Step::GiveUp => return Err(failed),
                Step::Next => self.turn_from(at),
                Step::NextAfterPause => {
                    self.turn_from(at);
                    tokio::time::sleep(PAUSE).await;
                }
                Step::GiveUpAndTurn => {
                    self.turn_from(at);
                    return Err(failed);
                }
            }
            if Instant::now() >= want.until {
                return Err(failed);
            }
        }
    }

    /// Opens a stream at a member that takes it.
    pub(crate) async fn stream<R>(
        &self,
        action: &'static str,
        open: impl Fn(Channel, Request<()>) -> Sent<R> + Sync,
    ) -> Result<R, Error> {
        self.call(action, Effect::None, (), open).await
    }

    pub(crate) fn failed(&self, want: &Want, status: &Status) -> Failed {
        let fault = fault(status);
        let error = self.error(want.action, &fault, words(status));
        (fault, error)
    }

    pub(crate) fn error(&self, action: &'static str, fault: &CallFault, why: String) -> Error {
        match fault {
            CallFault::NotSent | CallFault::Busy | CallFault::Unanswered => {
                let sent = *fault == CallFault::Unanswered;
                Error::Unreachable { action, endpoints: Arc::clone(&self.0.endpoints), why, sent }
            }
            CallFault::Token | CallFault::Credentials => {
                let user = self.credentials().map(|credentials| credentials.user.clone());
                Error::AuthFailed { action, user }
            }
            CallFault::Denied => Error::Denied { action },
            CallFault::NoSpace => Error::NoSpace { action },
            CallFault::Compacted => Error::Compacted { action },
            CallFault::TooLarge => Error::TooLarge { action, why },
            CallFault::NoSuchLease => Error::NoSuchLease { action },
            CallFault::NoAuth | CallFault::Other => Error::Refused { action, why },
        }
    }
}

fn authorised<M>(held: &HeldToken, message: M) -> Request<M> {
    let mut request = Request::new(message);
    if let Some(token) = &held.token {
        request.metadata_mut().insert("token", token.clone());
    }
    request
}

/// How long one member may take. What can be sent again does not wait for a member that hangs.
fn patience(effect: Effect, left: Duration, limit: Duration, members: usize) -> Duration {
    if effect == Effect::Once || members < 2 {
        return left;
    }
    left.min(limit / u32::try_from(members).unwrap_or(u32::MAX))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Next,
    NextAfterPause,
    GiveUp,
    /// The call is over, and the next one had better ask another member.
    GiveUpAndTurn,
}

/// What follows a call that failed, after so many tries, of which the last few found no connection.
fn next_step(
    effect: Effect,
    fault: &CallFault,
    tries: usize,
    unconnected: usize,
    members: usize,
) -> Step {
    let round_over = tries.is_multiple_of(members);
    match fault {
        CallFault::NotSent if unconnected >= members => Step::GiveUp,
        CallFault::Busy => Step::NextAfterPause,
        CallFault::Unanswered if effect == Effect::Once => Step::GiveUpAndTurn,
        CallFault::Unanswered if round_over => Step::NextAfterPause,
        CallFault::NotSent | CallFault::Unanswered => Step::Next,
        _ => Step::GiveUp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_sent_again_only_where_that_is_harmless() {
        use Effect::{None as Read, Once, Repeatable};
        for (case, effect, fault, (tries, unconnected), expected) in [
            ("a write that reached nobody", Once, CallFault::NotSent, (1, 1), Step::Next),
            ("nobody is there", Once, CallFault::NotSent, (3, 3), Step::GiveUp),
            ("nobody is there to read", Read, CallFault::NotSent, (3, 3), Step::GiveUp),
            ("a write without an answer", Once, CallFault::Unanswered, (1, 0), Step::GiveUpAndTurn),
            ("a read without an answer", Read, CallFault::Unanswered, (1, 0), Step::Next),
            ("no answer from any", Read, CallFault::Unanswered, (3, 0), Step::NextAfterPause),
            ("a deletion", Repeatable, CallFault::Unanswered, (1, 0), Step::Next),
            ("turned away", Once, CallFault::Busy, (1, 0), Step::NextAfterPause),
            ("a clear no", Read, CallFault::Denied, (1, 0), Step::GiveUp),
        ] {
            assert_eq!(next_step(effect, &fault, tries, unconnected, 3), expected, "{case}");
        }
    }

    #[test]
    fn a_member_that_hangs_costs_a_read_only_its_share_of_the_time() {
        let (left, limit) = (Duration::from_secs(6), Duration::from_secs(6));
        assert_eq!(patience(Effect::None, left, limit, 3), Duration::from_secs(2));
        assert_eq!(patience(Effect::Once, left, limit, 3), left);
        assert_eq!(patience(Effect::None, left, limit, 1), left);
        let little = Duration::from_millis(10);
        assert_eq!(patience(Effect::None, little, limit, 3), little);
    }
}
