//! Who is who in a cell: its certificate authority, the identity of each node, the tokens that let newcomers and
//! operators in, and the TLS configurations that enforce it all.
//!
//! A node is known by the name in a certificate that its cell's authority signed, and by nothing else. What a known
//! node may do is settled by whoever is asked; how bytes travel, in this crate.

mod authority;
mod base32;
mod caller;
mod credentials;
mod identity;
mod identity_file;
mod login;
mod operator_certificate;
mod random;
mod refusal;
mod token;
mod trust;

#[cfg(test)]
mod fuzz;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;

use plimsoll_model::Millis;
use thiserror::Error;

pub use authority::{Authority, AuthorityParts, Csr, Fingerprint};
pub use caller::{Caller, is_reserved, server_name};
pub(crate) use credentials::ShownCertificate;
pub use credentials::{
    Credentials, join_config, operator_client_config, operator_client_config_with,
};
pub use identity::{Identity, NodeKey};
pub use identity_file::{certificate_pem, fingerprints_in};
pub use login::{InvalidLogin, Login, MAX_ADDRESSES};
pub use operator_certificate::{
    OperatorCertificate, first_certificate_pem, operator_key, operator_key_in,
};
pub(crate) use refusal::Blame;
pub use refusal::CertificateRefusal;
pub use token::with_port;
pub use token::{
    FleetAddress, FleetToken, InvalidAddress, InvalidJoin, InvalidToken, JoinAddress, JoinToken,
    OperatorToken,
};
pub use trust::has_signed;
pub(crate) use trust::pinned;

/// Where nodes reach each other, unless told otherwise.
pub const DEFAULT_PORT: u16 = 7117;

/// How long a node's certificate is good for: short, since a node that was removed keeps its key.
pub const NODE_LIFETIME: Millis = Millis::minutes(30 * 24 * 60);

/// Nobody replaces an authority in passing, so it outlives the machines it is for.
pub const AUTHORITY_LIFETIME: Millis = Millis::minutes(10 * 365 * 24 * 60);

/// A certificate is good from before it was made: the clock of the node that checks it may be behind.
pub const BACKDATE: Millis = Millis::minutes(60);

/// What goes wrong with keys and certificates.
#[derive(Debug, Error)]
pub enum Error {
    #[error("cannot {what}")]
    Make { what: &'static str, source: rcgen::Error },
    #[error("the certificate request is not one: it must be signed with its own P-256 key")]
    BadRequest,
    #[error("the certificate is not one that a cell gives to a node: {why}")]
    BadCertificate { why: &'static str },
    #[error("it cannot be used as the certificate of an operator: {why}")]
    OperatorCertificate { why: &'static str },
    #[error("the certificate is not for this key")]
    KeyMismatch,
    #[error("the certificate does not hold")]
    Untrusted(#[source] CertificateRefusal),
    #[error("cannot {action} {}", path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{} is damaged: {why}; remove it and join the cell again", path.display())]
    Damaged { path: PathBuf, why: String },
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
    #[error("the system gives no random bytes")]
    Random(#[source] io::Error),
}
