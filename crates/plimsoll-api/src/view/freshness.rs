//! How fresh an answer is, and the headers that say so.

#[cfg(feature = "client")]
use hyper::header::HeaderMap;

/// The node that answers.
pub const NODE: &str = "plimsoll-node";
/// Who leads, as far as it knows; left out where nobody does.
pub const LEADER: &str = "plimsoll-leader";
pub const TERM: &str = "plimsoll-term";
/// The last entry of the log that is in the answer.
pub const APPLIED: &str = "plimsoll-applied";
/// How many entries are committed and not in the answer.
pub const LAG: &str = "plimsoll-lag";
/// Milliseconds since the node last heard a leader; left out where it has heard none since it started.
pub const HEARD: &str = "plimsoll-heard-ms";

/// More entries than this are a node that has fallen behind; fewer are on their way at any moment.
pub const MAX_LAG: u64 = 1_000;

/// How far the answering node had come, and how long ago it last knew a leader.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Freshness {
    pub node: String,
    pub leader: Option<String>,
    pub term: u64,
    pub applied: u64,
    pub lag: u64,
    pub heard_ms: Option<u64>,
}

#[cfg(feature = "client")]
impl Freshness {
    /// None where the answer does not say.
    pub fn read(headers: &HeaderMap) -> Option<Self> {
        let text = |name: &str| headers.get(name)?.to_str().ok().map(str::to_owned);
        let number = |name: &str| text(name)?.parse::<u64>().ok();
        Some(Self {
            node: text(NODE)?,
            leader: text(LEADER),
            term: number(TERM)?,
            applied: number(APPLIED)?,
            lag: number(LAG)?,
            heard_ms: number(HEARD),
        })
    }
}
