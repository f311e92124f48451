//! Which certificates are due: given the state and the time, says for which hosts to order one, which orders to go on with,
//! and what to forget. How an authority is asked is left to the edges; whatever they learn comes back as a change, with
//! [`retry_at`] saying when to try again. Every leader decides alike, so a new one goes on where the last one stopped.

use std::collections::BTreeSet;

use plimsoll_model::acme::{
    AcmeChange, AcmeFailureKind, ChallengeKind, HostCertificate, IssuedCertificate,
    MAX_CELL_ORDERS, MAX_HOST_ORDERS, MAX_HOSTS, ORDER_WINDOW, is_recent,
};
use plimsoll_model::spec::{Tls, bare_name};
use plimsoll_model::{Change, Guarded, Millis, State, Timestamp};

use crate::policy::Policy;

#[cfg(test)]
mod tests;

/// The longest wait that an authority may ask for: beyond it is a slip of its own.
pub const MAX_RETRY_AFTER: Millis = Millis::minutes(7 * 24 * 60);

/// How the wait after failures grows: the first, by how much each next is longer, and the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub first: Millis,
    pub factor: u64,
    pub longest: Millis,
}

/// What is waited after a failure of this kind. A validation that failed mostly waits for a person to change a name or a
/// firewall, and authorities count it; an authority that cannot be reached costs nobody anything.
pub const fn backoff(kind: AcmeFailureKind) -> Backoff {
    let minutes = Millis::minutes;
    match kind {
        AcmeFailureKind::Unavailable => {
            Backoff { first: Millis::seconds(10), factor: 2, longest: minutes(60) }
        }
        AcmeFailureKind::Validation => {
            Backoff { first: minutes(5), factor: 4, longest: minutes(12 * 60) }
        }
        AcmeFailureKind::RateLimited => {
            Backoff { first: minutes(60), factor: 2, longest: minutes(24 * 60) }
        }
        AcmeFailureKind::Refused => {
            Backoff { first: minutes(15), factor: 4, longest: minutes(24 * 60) }
        }
    }
}

/// What to do for one host now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueCertificate {
    pub host: String,
    pub step: CertificateStep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CertificateStep {
    /// An order is open: ask how it stands and go on with it.
    Continue,
    /// Ask for a new one.
    Order,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CertificateDecision {
    /// What to write at once.
    pub batch: Vec<Guarded>,
    /// What to ask an authority for, the most urgent first.
    pub due: Vec<DueCertificate>,
    /// When the next is due though nothing changes.
    pub wake: Option<Timestamp>,
}

pub fn decide(state: &State, policy: &Policy, now: Timestamp) -> CertificateDecision {
    let (acme, wanted) = (state.acme(), hosts(state));
    let mut decision = CertificateDecision::default();
    let is_full = acme.hosts.len() >= MAX_HOSTS;
    for (host, row) in acme.hosts.iter().filter(|(host, _)| !wanted.contains(*host)) {
        let good = row.issued.as_ref().map(|issued| renew_at(host, issued, policy));
        if let Some(at) = kept_until(row, good.filter(|_| !is_full), now) {
            decision.wake_at(at);
        } else {
            let change = AcmeChange::Forget { host: host.clone() };
            decision.batch.push(Change::Acme { change }.free());
        }
    }
    let Some(settings) = &acme.settings else { return decision };
    let mut room = MAX_CELL_ORDERS.saturating_sub(acme.recent_orders(now));
    let nothing = HostCertificate::default();
    let mut due = Vec::new();
    for host in wanted {
        let row = acme.hosts.get(&host).unwrap_or(&nothing);
        // A time further ahead than any is set was set by a clock that has been put back since.
        if row.retry_at > now && row.retry_at.since(now) <= longest_wait() {
            decision.wake_at(row.retry_at);
            continue;
        }
        if row.order.is_some() {
            due.push((Timestamp(0), host, CertificateStep::Continue));
            continue;
        }
        let due_at = match &row.issued {
            Some(issued) if issued.directory == settings.directory => {
                renew_at(&host, issued, policy)
            }
            Some(_) | None => Timestamp(0),
        };
        if due_at > now {
            decision.wake_at(due_at);
        } else {
            due.push((due_at, host, CertificateStep::Order));
        }
    }
    // What nobody can be served with comes first, then what runs out soonest.
    due.sort();
    for (_, host, step) in due {
        let row = acme.hosts.get(&host).unwrap_or(&nothing);
        if step == CertificateStep::Order {
            let is_over = row.recent_orders(now) >= MAX_HOST_ORDERS;
            if is_over || room == 0 {
                let rows = acme.hosts.values();
                let first = if is_over {
                    oldest(&row.ordered_at, now)
                } else {
                    oldest(rows.flat_map(|row| &row.ordered_at), now)
                };
                decision.wake_at(first.unwrap_or(now).plus(ORDER_WINDOW));
                continue;
            }
            room -= 1;
        }
        decision.due.push(DueCertificate { host, step });
    }
    decision
}

impl CertificateDecision {
    fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |known| known.min(at)));
    }
}

/// The hosts that routes want a certificate of an authority for.
pub fn hosts(state: &State) -> BTreeSet<String> {
    let wanted = state.routes().filter(|(_, route)| route.tls == Tls::Auto);
    wanted.filter_map(|(_, route)| route.host.as_deref().map(bare_name)).collect()
}

/// When another takes its place: two thirds into its lifetime, and a little earlier, by the host, so that those issued
/// together do not all come due together.
pub fn renew_at(host: &str, issued: &IssuedCertificate, policy: &Policy) -> Timestamp {
    let lifetime = issued.lifetime().0;
    let earlier = lifetime / 50 * spread(host, 0) / SPREAD;
    issued.not_before.plus(Millis((lifetime / 3 * 2 - earlier) / policy.renewal_haste.max(1)))
}

/// When a host is tried again that has failed this way, after `failures` others in a row.
pub fn retry_at(
    host: &str,
    failures: u32,
    kind: AcmeFailureKind,
    retry_after: Option<Millis>,
    now: Timestamp,
) -> Timestamp {
    let Backoff { first, factor, longest } = backoff(kind);
    let grown = factor.saturating_pow(failures).saturating_mul(first.0).min(longest.0);
    let asked = retry_after.map_or(0, |asked| asked.0.min(MAX_RETRY_AFTER.0));
    let wait = grown.max(asked);
    // Up to a tenth more, so that hosts that failed together do not come back together.
    now.plus(Millis(wait + wait / 10 * spread(host, failures) / SPREAD))
}

/// How to show that a host is ours: as its nodes listen, and after a failed validation the other way.
pub fn challenge(row: &HostCertificate, is_http: bool, is_https: bool) -> ChallengeKind {
    let failed = row.failure.as_ref().is_some_and(|it| it.kind == AcmeFailureKind::Validation);
    match (is_http, is_https) {
        (true, false) => ChallengeKind::Http01,
        (false, true) => ChallengeKind::TlsAlpn01,
        _ if failed && row.failures % 2 == 1 => ChallengeKind::TlsAlpn01,
        _ => ChallengeKind::Http01,
    }
}

/// Until when a host is kept that no route names: a route that comes back should not cost an order, and what was ordered
/// counts for its hour. None: it is forgotten.
fn kept_until(row: &HostCertificate, good: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    let counted = row.ordered_at.iter().filter(|at| is_recent(**at, now)).max();
    let counted = counted.map(|at| at.plus(ORDER_WINDOW));
    counted.max(good.filter(|until| *until > now))
}

fn oldest<'a>(all: impl IntoIterator<Item = &'a Timestamp>, now: Timestamp) -> Option<Timestamp> {
    all.into_iter().filter(|at| is_recent(**at, now)).min().copied()
}

/// The longest that a wait can be, with its spread.
fn longest_wait() -> Millis {
    Millis(MAX_RETRY_AFTER.0 / 10 * 11)
}

const SPREAD: u64 = 1_000;

/// A number below [`SPREAD`] that is each host's own: the same on every leader, so nothing moves when another leads.
fn spread(host: &str, nth: u32) -> u64 {
    let bytes = host.bytes().chain(nth.to_be_bytes());
    // FNV-1a: any hash that is the same everywhere will do.
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash % SPREAD
}
