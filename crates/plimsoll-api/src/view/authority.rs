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

/// What that header says. Each authority has signed it: a node that holds none of their keys cannot make one up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorityNotice {
    /// Of two notices the one with the higher number is the later.
    pub epoch: u64,
    /// Their fingerprints, the one that signs first.
    pub fingerprints: Vec<String>,
    /// What each of them made of the [text](Self::text), in the same order.
    pub signatures: Vec<Vec<u8>>,
}

impl AuthorityNotice {
    /// What is signed.
    pub fn text(epoch: u64, fingerprints: &[String]) -> String {
        format!("plimsoll authorities {epoch} {}", fingerprints.join(","))
    }

    /// What the authority with this fingerprint made of the text.
    pub fn signature_of(&self, fingerprint: &str) -> Option<&[u8]> {
        let at = self.fingerprints.iter().position(|known| known == fingerprint)?;
        self.signatures.get(at).map(Vec::as_slice)
    }
}

/// The number, a space, and for each authority its fingerprint, a colon and its signature.
impl fmt::Display for AuthorityNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.epoch)?;
        for (nth, (print, signature)) in self.fingerprints.iter().zip(&self.signatures).enumerate()
        {
            write!(f, "{}{print}:", if nth == 0 { ' ' } else { ',' })?;
            signature.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        }
        Ok(())
    }
}

/// That a text is no such notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoNotice;

impl FromStr for AuthorityNotice {
    type Err = NoNotice;
    fn from_str(text: &str) -> Result<Self, NoNotice> {
        let (epoch, listed) = text.split_once(' ').ok_or(NoNotice)?;
        let epoch = epoch.parse().map_err(|_| NoNotice)?;
        let mut notice = Self { epoch, fingerprints: Vec::new(), signatures: Vec::new() };
        for one in listed.split(',') {
            let (print, signature) = one.split_once(':').ok_or(NoNotice)?;
            let is_hex = one.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':');
            let is_full = notice.fingerprints.len() == MAX_LISTED;
            if print.len() != 64 || !is_hex || is_full || !signature.len().is_multiple_of(2) {
                return Err(NoNotice);
            }
            let bytes = (0..signature.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(signature.get(at..at + 2)?, 16).ok());
            notice.fingerprints.push(print.to_owned());
            notice.signatures.push(bytes.collect::<Option<_>>().ok_or(NoNotice)?);
        }
        Ok(notice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_reads_as_it_was_written_and_nothing_else_does() {
        let fingerprints = vec!["ab".repeat(32), "cd".repeat(32)];
        let signatures = vec![vec![1, 0xff], vec![2; 70]];
        let notice = AuthorityNotice { epoch: 3, fingerprints, signatures };
        assert_eq!(notice.to_string().parse(), Ok(notice.clone()));
        assert_eq!(notice.signature_of(&"cd".repeat(32)), Some(&[2; 70][..]));
        assert_eq!(notice.signature_of("cd"), None);
        let one = format!("{}:01", "ab".repeat(32));
        let many = [one.as_str(); 5].join(",");
        for text in [
            "",
            "3",
            "3 ",
            "3 ab:01",
            &one,
            &format!("-1 {one}"),
            &format!("3 {one}0"),
            &format!("3 {one}:01"),
            &format!("3 {many}"),
            &format!("3 {}", one.replace(':', "")),
        ] {
            assert_eq!(text.parse::<AuthorityNotice>(), Err(NoNotice), "{text:?}");
        }
    }
}
