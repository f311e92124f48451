//! The authority of a cell, and how far its rotation has come.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Time;

/// What signs the certificates of the cell's nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Authority {
    /// SHA-256 of its certificate.
    pub fingerprint: String,
    /// The change to another one, while it is under way.
    #[serde(default)]
    pub rotation: Option<Rotation>,
}

/// A change of authority under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rotation {
    /// `trust`: every node learns to trust both; `renew`: every node gets a certificate of the one that signs.
    pub phase: String,
    /// Whether the former authority signs again.
    #[serde(default)]
    pub is_abort: bool,
    pub started_at: Time,
    /// The authority that is trusted beside the one that signs.
    pub other: String,
    /// The nodes that have done what the phase asks.
    pub done: Vec<String>,
    /// The nodes that it waits for.
    pub awaited: Vec<AwaitedNode>,
    /// The nodes that it does not wait for while they are down.
    pub without: Vec<String>,
}

/// A node that has yet to do its part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AwaitedNode {
    pub node: String,
    /// `ready` or `down`.
    pub status: String,
}

/// How the authority is to be rotated.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateAuthority {
    /// Nodes that are down and not waited for; also for a rotation that is under way.
    #[serde(default)]
    pub without: Vec<String>,
}

/// The header of every answer that says which authorities the cell trusts. Who knows one of them learns of the next in time.
pub const AUTHORITIES: &str = "plimsoll-authorities";

/// The most that are listed: a cell has two while it replaces one.
const MAX_LISTED: usize = 4;

/// What that header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorityNotice {
    /// Of two notices the one with the higher number is the later.
    pub epoch: u64,
    /// Their fingerprints, the one that signs first.
    pub fingerprints: Vec<String>,
}

impl fmt::Display for AuthorityNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.epoch, self.fingerprints.join(","))
    }
}

/// That a text is no such notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoNotice;

impl FromStr for AuthorityNotice {
    type Err = NoNotice;
    fn from_str(text: &str) -> Result<Self, NoNotice> {
        let (epoch, listed) = text.split_once(' ').ok_or(NoNotice)?;
        let fingerprints: Vec<String> = listed.split(',').map(str::to_owned).collect();
        let is_print =
            |text: &String| text.len() == 64 && text.bytes().all(|c| c.is_ascii_hexdigit());
        if fingerprints.len() > MAX_LISTED || !fingerprints.iter().all(is_print) {
            return Err(NoNotice);
        }
        Ok(Self { epoch: epoch.parse().map_err(|_| NoNotice)?, fingerprints })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_reads_as_it_was_written_and_nothing_else_does() {
        let fingerprints = vec!["ab".repeat(32), "cd".repeat(32)];
        let notice = AuthorityNotice { epoch: 3, fingerprints };
        assert_eq!(notice.to_string().parse(), Ok(notice));
        let print = "ab".repeat(32);
        let many = vec![print.as_str(); 5].join(",");
        for text in
            ["", "3", "3 ", "x ab", "3 ab", &print, &format!("-1 {print}"), &format!("3 {many}")]
        {
            assert_eq!(text.parse::<AuthorityNotice>(), Err(NoNotice), "{text:?}");
        }
    }
}
