//! What can become of a call to another node.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use plimsoll_model::{CellId, NodeId};
use thiserror::Error;

use crate::pki::{Blame, CertificateRefusal};

/// Why a call has no good answer. `to` is the node and its address.
#[derive(Debug, Clone, Error)]
pub enum Error {
    #[error("cannot connect to {to}")]
    Unreachable { to: Arc<str>, source: Arc<io::Error> },
    /// It has said to nobody where it is, as one of a restored cell until it leads.
    #[error("nobody knows yet where {node} is")]
    Unlocated { node: NodeId },
    #[error("{to} speaks no TLS that we understand")]
    Tls { to: Arc<str>, source: Arc<io::Error> },
    #[error("{to} shows a certificate that we do not accept")]
    Refused { to: Arc<str>, source: CertificateRefusal },
    #[error("{to} does not accept our certificate")]
    RefusedByPeer { to: Arc<str>, source: CertificateRefusal },
    #[error("{to} has not answered within {within:?}")]
    TimedOut { to: Arc<str>, within: Duration },
    #[error("the connection to {to} has closed")]
    Closed { to: Arc<str>, source: Arc<dyn StdError + Send + Sync> },
    #[error("the answer of {to} is longer than {limit} bytes")]
    TooLong { to: Arc<str>, limit: usize },
    #[error("{to} answered with status {status}")]
    Answered { to: Arc<str>, status: StatusCode, body: Bytes },
    #[error("{path:?} is not the path of a request")]
    Path { path: String },
}

impl Error {
    /// A failure before anything could be asked.
    pub(super) fn connecting(to: &Arc<str>, error: io::Error) -> Self {
        let to = Arc::clone(to);
        match Blame::of(&error) {
            Some(Blame::Theirs(source)) => Self::Refused { to, source },
            Some(Blame::Ours(source)) => Self::RefusedByPeer { to, source },
            None if is_tls(&error) => Self::Tls { to, source: Arc::new(error) },
            None => Self::Unreachable { to, source: Arc::new(error) },
        }
    }

    pub(super) fn closed(to: &Arc<str>, source: impl StdError + Send + Sync + 'static) -> Self {
        Self::Closed { to: Arc::clone(to), source: Arc::new(source) }
    }

    /// Whether another attempt may fare better without anybody doing something about it.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Unlocated { .. }
            | Self::TimedOut { .. }
            | Self::Closed { .. } => true,
            Self::Answered { status, .. } => status.is_server_error(),
            Self::Tls { .. }
            | Self::Refused { .. }
            | Self::RefusedByPeer { .. }
            | Self::TooLong { .. }
            | Self::Path { .. } => false,
        }
    }

    /// Whether the two sides are of one cell and have certificates of two authorities that are not both trusted: one of them
    /// was away while the authority was rotated.
    pub fn is_other_authority(&self, own: &CellId) -> bool {
        match self {
            Self::Refused { source: CertificateRefusal::WrongCell { says }, .. } => {
                says.cell_id == *own
            }
            Self::RefusedByPeer { source, .. } => *source == CertificateRefusal::UnknownAuthority,
            _ => false,
        }
    }

    /// Whether what was asked may have been carried out all the same. Then look before asking again.
    pub fn may_have_arrived(&self) -> bool {
        match self {
            Self::TimedOut { .. }
            | Self::Closed { .. }
            | Self::TooLong { .. }
            | Self::Answered { .. } => true,
            Self::Unreachable { .. }
            | Self::Unlocated { .. }
            | Self::Tls { .. }
            | Self::Refused { .. }
            | Self::RefusedByPeer { .. }
            | Self::Path { .. } => false,
        }
    }
}

/// Whether somebody answered, but not in TLS that we understand.
pub(super) fn is_tls(error: &io::Error) -> bool {
    matches!(error.get_ref(), Some(inner) if inner.is::<rustls::Error>())
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Unreachable { source, .. } => source.kind(),
            Error::Unlocated { .. } => io::ErrorKind::NotConnected,
            Error::Refused { .. } | Error::RefusedByPeer { .. } => io::ErrorKind::PermissionDenied,
            Error::TimedOut { .. } => io::ErrorKind::TimedOut,
            Error::Closed { .. } => io::ErrorKind::ConnectionReset,
            Error::TooLong { .. } | Error::Tls { .. } => io::ErrorKind::InvalidData,
            Error::Path { .. } => io::ErrorKind::InvalidInput,
            Error::Answered { .. } => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
