//! Who may be of the cell, and who may ask it for things: its authority, the tokens nodes join with, and the tokens
//! operators hold. Secrets are here as hashes only, but for the authority's key, which the cell signs with, and the key that
//! backups are encrypted with.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::hex::{self, Hex};
use crate::ids::{DeploymentName, InvalidName, NodeId};
use crate::rotation::Rotation;
use crate::units::{Millis, Timestamp};

/// How many tokens of each kind there may be at once.
pub const MAX_TOKENS: usize = 1_000;

/// How long a join token that is used or has run out is remembered, so that its bearer is told which of the two.
pub const TOKEN_MEMORY: Millis = Millis::minutes(7 * 24 * 60);

/// How long the key of a node that left is refused: longer than any certificate for it can last.
pub const KEY_MEMORY: Millis = Millis::minutes(60 * 24 * 60);

/// SHA-256 of something secret, or of a public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Digest(#[serde(with = "hex")] pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hex(&self.0).fmt(f)
    }
}

/// The first digits are enough to tell one from another.
impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_string()[..hex::SHORT])
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Access {
    /// What signs. None until the cell is founded.
    pub authority: Option<Authority>,
    /// The change to another one, while it is under way.
    pub rotation: Option<Rotation>,
    /// How often it was settled anew which authorities are trusted and which one signs: of two words, the later one counts.
    pub authority_epoch: u64,
    pub join_tokens: BTreeMap<Digest, JoinToken>,
    pub operators: BTreeMap<String, Operator>,
    /// The number the next node gets. No number comes twice: a server that lost its disk is another one.
    pub next_server: u64,
    /// What backups are encrypted with. None until the cell is founded.
    pub backup_key: Option<BackupKey>,
    /// The keys of nodes that are no longer of the cell, and since when. Their certificates would be good a while yet.
    pub revoked: BTreeMap<Digest, Timestamp>,
}

/// What the cell signs the certificates of its nodes with.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

/// The key stays out of every log.
impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("certificate", &self.certificate.len())
            .finish_non_exhaustive()
    }
}

/// What backups of the cell are encrypted with from a moment on. Who has an older one still opens older backups with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupKey {
    pub secret: KeyBytes,
    pub created_at: Timestamp,
}

/// A symmetric key. It stays out of every log.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyBytes(pub [u8; 32]);

impl fmt::Debug for KeyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyBytes")
    }
}

/// What was done with the backup key, for the audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackupKeyStep {
    Rotated,
    /// Somebody has read it.
    Shown,
}

impl fmt::Display for BackupKeyStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rotated => "backup key rotated; it encrypts backups from now on",
            Self::Shown => "backup key shown",
        })
    }
}

/// A secret that one node may join with, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinToken {
    /// Of those that are good no two have the same.
    pub name: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub used_by: Option<NodeId>,
    pub revoked_at: Option<Timestamp>,
}

impl JoinToken {
    /// Whether a node may still join with it.
    pub fn is_good(&self, at: Timestamp) -> bool {
        self.used_by.is_none() && self.revoked_at.is_none() && at < self.expires_at
    }
}

/// What a good join token is brought for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinCheck {
    New,
    /// The same node with the same key has joined with it.
    Repeated,
}

/// Someone who asks the cell for things over the network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operator {
    pub token: Digest,
    pub role: Role,
    pub created_at: Timestamp,
    /// The deployments it is bound to.
    #[serde(default)]
    pub scope: Scope,
    /// None: it is good until it is revoked.
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
}

impl Operator {
    pub fn has_expired(&self, at: Timestamp) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= at)
    }
}

/// How many names and prefixes one operator may be bound to.
pub const MAX_PATTERNS: usize = 100;

/// Which deployments an operator may read and change; all of them where none is named.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Scope(BTreeSet<DeploymentPattern>);

impl Scope {
    /// Whether there are deployments that it leaves out.
    pub fn is_bound(&self) -> bool {
        !self.0.is_empty()
    }

    pub fn admits(&self, deployment: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|pattern| pattern.admits(deployment))
    }

    pub fn patterns(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|pattern| pattern.0.as_str())
    }
}

impl FromIterator<DeploymentPattern> for Scope {
    fn from_iter<T: IntoIterator<Item = DeploymentPattern>>(patterns: T) -> Self {
        Self(patterns.into_iter().collect())
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let patterns: Vec<&str> = self.patterns().collect();
        f.write_str(if patterns.is_empty() { "*" } else { "" })?;
        f.write_str(&patterns.join(", "))
    }
}

/// Deployments by name, or by how their names begin: `shop`, `shop-*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct DeploymentPattern(String);

impl DeploymentPattern {
    /// A deployment's name, or the beginning of one with `*` behind it.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        DeploymentName::new(text.strip_suffix('*').unwrap_or(text))?;
        Ok(Self(text.to_owned()))
    }

    fn admits(&self, deployment: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(prefix) => deployment.starts_with(prefix),
            None => deployment == self.0,
        }
    }
}

impl TryFrom<String> for DeploymentPattern {
    type Error = InvalidName;
    fn try_from(text: String) -> Result<Self, InvalidName> {
        Self::new(&text)
    }
}

/// What an operator may do; each includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Read,
    Deploy,
    Admin,
}

impl Role {
    pub const ALL: [Self; 3] = [Self::Read, Self::Deploy, Self::Admin];

    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Deploy => "deploy",
            Self::Admin => "admin",
        }
    }
}

impl Access {
    /// Whose token has this digest, whether it is still good or not.
    pub fn operator(&self, token: &Digest) -> Option<(&str, &Operator)> {
        let held = self.operators.iter().find(|(_, operator)| operator.token == *token);
        held.map(|(name, operator)| (name.as_str(), operator))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_is_bound_to_deployments_by_name_or_by_prefix() {
        let scope = |patterns: &[&str]| -> Scope {
            patterns.iter().map(|it| DeploymentPattern::new(it).unwrap()).collect()
        };
        for (patterns, deployment, admits) in [
            (&[][..], "shop", true),
            (&["shop"], "shop", true),
            (&["shop"], "shop-eu", false),
            (&["shop-*"], "shop-eu", true),
            (&["shop-*"], "shop", false),
            (&["shop-*"], "shopper", false),
            (&["blog", "shop*"], "shopper", true),
            (&["blog", "shop*"], "blog2", false),
        ] {
            assert_eq!(scope(patterns).admits(deployment), admits, "{patterns:?} {deployment}");
        }
        for wrong in ["", "*", "sh*p", "shop**", "Shop", "shop/web"] {
            assert!(DeploymentPattern::new(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(scope(&["shop-*", "blog"]).to_string(), "blog, shop-*");
    }
}
