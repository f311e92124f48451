//! Why one side of a connection would not have the other's certificate.

use std::io;

use plimsoll_model::NodeId;
use rustls::{AlertDescription, CertificateError};
use thiserror::Error;

use super::caller::Caller;

/// What is wrong with a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CertificateRefusal {
    #[error("it is from another cell: it says it is for {says}")]
    WrongCell { says: Caller },
    #[error("this cell's authority did not sign it")]
    UnknownAuthority,
    #[error("the authority with the fingerprint that is expected is not among what it shows")]
    WrongAuthority,
    #[error("it has expired, or one of the clocks is wrong")]
    Expired,
    #[error("it is not valid yet, or one of the clocks is wrong")]
    NotYetValid,
    #[error("it is for {found}, not for {expected}")]
    WrongNode { expected: NodeId, found: Caller },
    #[error("it does not name a node of a cell")]
    Nameless,
    #[error("there is none, and here one is needed")]
    Missing,
    #[error("it is malformed")]
    Malformed,
    #[error("it is not acceptable")]
    Unacceptable,
}

/// Whose certificate a handshake failed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Blame {
    /// We would not have theirs.
    Theirs(CertificateRefusal),
    /// They would not have ours.
    Ours(CertificateRefusal),
}

impl CertificateRefusal {
    /// In the form in which a verifier has to return it.
    pub(super) fn into_tls(self) -> rustls::Error {
        let other = rustls::OtherError(std::sync::Arc::new(self));
        rustls::Error::InvalidCertificate(CertificateError::Other(other))
    }

    pub(super) fn of(error: &CertificateError) -> Self {
        use CertificateError as E;
        match error {
            E::Other(other) => {
                other.0.downcast_ref::<Self>().cloned().unwrap_or(Self::Unacceptable)
            }
            E::Expired | E::ExpiredContext { .. } => Self::Expired,
            E::NotValidYet | E::NotValidYetContext { .. } => Self::NotYetValid,
            // An authority of the same name with another key leaves a signature that does not fit.
            E::UnknownIssuer | E::BadSignature => Self::UnknownAuthority,
            E::BadEncoding => Self::Malformed,
            _ => Self::Unacceptable,
        }
    }

    fn of_alert(alert: AlertDescription) -> Option<Self> {
        Some(match alert {
            AlertDescription::UnknownCA | AlertDescription::DecryptError => Self::UnknownAuthority,
            AlertDescription::CertificateExpired => Self::Expired,
            AlertDescription::CertificateRequired => Self::Missing,
            AlertDescription::BadCertificate => Self::Malformed,
            AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRevoked
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::AccessDenied => Self::Unacceptable,
            _ => return None,
        })
    }
}

impl Blame {
    /// What a failure of a TLS stream says about certificates, if it is about them.
    pub(crate) fn of(error: &io::Error) -> Option<Self> {
        match error.get_ref()?.downcast_ref::<rustls::Error>()? {
            rustls::Error::InvalidCertificate(why) => {
                Some(Self::Theirs(CertificateRefusal::of(why)))
            }
            rustls::Error::NoCertificatesPresented => {
                Some(Self::Theirs(CertificateRefusal::Missing))
            }
            rustls::Error::AlertReceived(alert) => {
                CertificateRefusal::of_alert(*alert).map(Self::Ours)
            }
            _ => None,
        }
    }
}
