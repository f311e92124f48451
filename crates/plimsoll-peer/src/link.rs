//! The connection to one node: opened by the first who needs it, shared by all, opened again when it breaks, and left
//! alone for a while when that fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::client::conn::http2::SendRequest;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::Target;
use super::body::Outgoing;
use super::dial::{DialOptions, Dialed, dial};
use super::error::Error;
use crate::pki::{CertificateRefusal, Credentials, Fingerprint};

/// After a first failure the next attempt waits this long, then twice as long, up to the longest: short enough for a
/// node that restarts and is needed for a quorum at once, long enough not to be a burden on one that cannot answer.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

pub(super) type Requests = SendRequest<Outgoing>;

#[derive(Debug)]
pub(super) struct Link {
    target: Target,
    pub(super) to: Arc<str>,
    credentials: Credentials,
    options: DialOptions,
    state: watch::Sender<State>,
    made: Instant,
    /// In milliseconds since it was made.
    last_used: AtomicU64,
}

#[derive(Debug, Clone)]
enum State {
    Closed,
    Opening,
    /// With the authority that vouched for the other side.
    Open(Requests, Fingerprint),
    Failed {
        error: Error,
        failures: u32,
        until: Instant,
    },
}

impl Link {
    pub(super) fn new(target: &Target, credentials: &Credentials, options: DialOptions) -> Self {
        Self {
            target: target.clone(),
            to: target.to_string().into(),
            credentials: credentials.clone(),
            options,
            state: watch::Sender::new(State::Closed),
            made: Instant::now(),
            last_used: AtomicU64::new(0),
        }
    }

    /// An open connection, if there is one or one can be had.
    ///
    /// Opening goes on when whoever asked for it gives up: a caller with little patience would never get to use it.
    pub(super) async fn ready(self: &Arc<Self>) -> Result<Requests, Error> {
        let age = u64::try_from(self.made.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_used.store(age, Ordering::Relaxed);
        if let State::Open(requests, vouched) = &*self.state.borrow()
            && self.is_usable(requests, *vouched)
        {
            return Ok(requests.clone());
        }
        let mut states = self.state.subscribe();
        let mut failures_before = None;
        self.state.send_if_modified(|state| {
            let failures = match state {
                State::Opening => return false,
                State::Open(requests, vouched) if self.is_usable(requests, *vouched) => {
                    return false;
                }
                State::Failed { until, .. } if Instant::now() < *until => return false,
                State::Failed { failures, .. } => *failures,
                State::Open(..) | State::Closed => 0,
            };
            *state = State::Opening;
            failures_before = Some(failures);
            true
        });
        if let Some(failures) = failures_before {
            tokio::spawn(Arc::clone(self).open(failures));
        }
        let settled = states.wait_for(|state| !matches!(state, State::Opening)).await;
        match &*settled.expect("the link holds the sender") {
            State::Open(requests, _) => Ok(requests.clone()),
            State::Failed { error, .. } => Err(error.clone()),
            State::Closed | State::Opening => unreachable!("it was waited for"),
        }
    }

    async fn open(self: Arc<Self>, failures: u32) {
        let Target { node, address } = &self.target;
        let opened = match self.credentials.client_config(node) {
            _ if address.is_empty() => Err(Error::Unlocated { node: node.clone() }),
            Ok(mut tls) => {
                self.options.carries.announce(&mut tls);
                let dialed = dial(&self.to, address, Arc::new(tls), &self.options).await;
                dialed.and_then(|dialed| {
                    let vouched = self.vouched(&dialed)?;
                    Ok((dialed, vouched))
                })
            }
            Err(error) => Err(Error::connecting(&self.to, std::io::Error::other(error))),
        };
        let state = match opened {
            Ok((dialed, vouched)) => {
                let (credentials, drain) = (self.credentials.clone(), self.options.carries.drain());
                tokio::spawn(drained(credentials, vouched, drain, dialed.carried));
                State::Open(dialed.sender, vouched)
            }
            Err(error) => {
                let pause = FIRST_PAUSE * 2_u32.saturating_pow(failures.min(8));
                let until = Instant::now() + pause.min(LONGEST_PAUSE);
                State::Failed { error, failures: failures.saturating_add(1), until }
            }
        };
        self.state.send_replace(state);
    }

    fn is_usable(&self, requests: &Requests, vouched: Fingerprint) -> bool {
        !requests.is_closed() && self.credentials.trusts(vouched)
    }

    /// The authority that vouches for whom we have reached.
    fn vouched(&self, dialed: &Dialed) -> Result<Fingerprint, Error> {
        let shown = dialed.shown.first().ok_or(CertificateRefusal::Missing);
        let signer = shown.and_then(|shown| {
            let signer = self.credentials.signer_of(shown);
            signer.map_err(|_| CertificateRefusal::UnknownAuthority)
        });
        signer.map_err(|source| Error::Refused { to: Arc::clone(&self.to), source })
    }

    /// Whether nobody has asked for it for so long.
    pub(super) fn is_idle_for(&self, long: Duration) -> bool {
        let last_used = Duration::from_millis(self.last_used.load(Ordering::Relaxed));
        self.made.elapsed().saturating_sub(last_used) >= long
    }
}

/// Nothing new goes over a connection whose other side nobody vouches for any more; what is under way has its time to end. It
/// holds no link: one that nobody uses ends its connection.
async fn drained(
    credentials: Credentials,
    vouched: Fingerprint,
    drain: Duration,
    mut carried: JoinHandle<()>,
) {
    tokio::select! {
        _ = &mut carried => return,
        () = credentials.distrusted(vouched) => {}
    }
    if timeout(drain, &mut carried).await.is_err() {
        carried.abort();
    }
}
