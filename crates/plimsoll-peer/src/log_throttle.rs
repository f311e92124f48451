//! Says what is wrong with incoming connections once, and then only how often: whoever knocks must not be able to fill the log.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// How long a trouble of one kind keeps quiet after it was told.
const INTERVAL: Duration = Duration::from_mins(1);

/// Why somebody was turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum ConnectionFailure {
    Plaintext,
    NotTls,
    Slow,
    Crowded,
    TooManyConnections,
    OtherCell,
    Expired,
    BadCertificate,
    RefusesUs,
    Handshake,
    Protocol,
    Accept,
}

const KINDS: usize = ConnectionFailure::Accept as usize + 1;

impl fmt::Display for ConnectionFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plaintext => "somebody speaks without TLS to a port that speaks nothing else",
            Self::NotTls => "somebody sends what is not TLS to a port that speaks nothing else",
            Self::Slow => "somebody did not finish a handshake in time",
            Self::Crowded => "too many handshakes at once; the one that took longest has made room",
            Self::TooManyConnections => {
                "there are as many connections as there may be; one more was closed"
            }
            Self::OtherCell => "a certificate that this cell's authority did not sign was refused",
            Self::Expired => "a certificate that is not good at this time was refused",
            Self::BadCertificate => "a certificate that is not a node's was refused",
            Self::RefusesUs => "somebody does not accept this node's certificate",
            Self::Handshake => "a handshake failed",
            Self::Protocol => "a connection was closed that broke the rules of HTTP/2",
            Self::Accept => "cannot accept a connection",
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct LogThrottle {
    told: Mutex<[Option<Told>; KINDS]>,
}

#[derive(Debug, Clone, Copy)]
struct Told {
    at: Instant,
    since: u64,
}

impl LogThrottle {
    pub(super) fn note(
        &self,
        trouble: ConnectionFailure,
        from: Option<SocketAddr>,
        detail: &dyn fmt::Display,
    ) {
        let Some(untold) = self.is_due(trouble, Instant::now()) else { return };
        let from = from.map_or_else(String::new, |from| from.to_string());
        tracing::warn!(%from, %detail, untold, "{trouble}");
    }

    /// How many of the kind went untold, if it is time to tell again.
    fn is_due(&self, trouble: ConnectionFailure, now: Instant) -> Option<u64> {
        let mut told = self.told.lock().expect("no holder of the log panics");
        match &mut told[trouble as usize] {
            Some(told) if now.duration_since(told.at) < INTERVAL => {
                told.since += 1;
                None
            }
            slot => Some(slot.replace(Told { at: now, since: 0 }).map_or(0, |told| told.since)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_trouble_is_told_once_an_interval_with_the_number_that_went_untold() {
        let quiet = LogThrottle::default();
        let start = Instant::now();
        assert_eq!(quiet.is_due(ConnectionFailure::Slow, start), Some(0));
        for _ in 0..1_000 {
            assert_eq!(quiet.is_due(ConnectionFailure::Slow, start), None);
        }
        assert_eq!(
            quiet.is_due(ConnectionFailure::NotTls, start),
            Some(0),
            "another kind is its own"
        );
        assert_eq!(quiet.is_due(ConnectionFailure::Slow, start + INTERVAL), Some(1_000));
        assert_eq!(quiet.is_due(ConnectionFailure::Slow, start + INTERVAL), None);
    }
}
