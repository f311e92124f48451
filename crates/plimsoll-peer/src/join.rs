//! How a newcomer asks to be let in. It has no certificate and knows only the fingerprint of the cell's authority, so
//! it makes one call on a connection of its own, and learns from it who the cell is.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use rustls::pki_types::CertificateDer;
use tokio::time::timeout;

use super::body::Outgoing;
use super::client::{Response, request, uri, whole};
use super::dial::{DialOptions, dial};
use super::error::Error;
use crate::pki::{Caller, CertificateRefusal, Fingerprint, join_config, pinned};

/// An answer, and who gave it.
#[derive(Debug, Clone)]
pub struct Introduction {
    pub response: Response,
    /// The node that answered, and so the cell.
    pub by: Caller,
    /// The certificate with the fingerprint that was asked for.
    pub authority: CertificateDer<'static>,
}

/// Asks any node of the cell whose authority has this fingerprint. Nothing is sent before that is certain.
pub async fn ask(
    fingerprint: Fingerprint,
    address: &str,
    path: &str,
    body: Bytes,
    within: Duration,
) -> Result<Introduction, Error> {
    let to: Arc<str> = address.into();
    let request = request(Method::POST, uri(path)?, Outgoing::whole(body));
    let asked = async {
        let tls = join_config(fingerprint)
            .map_err(|error| Error::connecting(&to, std::io::Error::other(error)))?;
        let mut dialed = dial(&to, address, tls, &DialOptions::default()).await?;
        let by = shown(&to, &dialed.shown)?;
        let nameless =
            || Error::Refused { to: Arc::clone(&to), source: CertificateRefusal::Nameless };
        let authority = pinned(fingerprint, &dialed.shown).ok_or_else(nameless)?.clone();
        let response = dialed.sender.send_request(request).await;
        let response = response.map_err(|error| Error::closed(&to, error))?;
        let authority = authority.into_owned();
        Ok(Introduction { response: whole(&to, response).await?, by, authority })
    };
    let late = Error::TimedOut { to: Arc::clone(&to), within };
    timeout(within, asked).await.unwrap_or(Err(late))
}

/// Who answers there for the cell whose authority has this fingerprint. Nothing is asked.
pub async fn meet(
    fingerprint: Fingerprint,
    address: &str,
    within: Duration,
) -> Result<Caller, Error> {
    let to: Arc<str> = address.into();
    let met = async {
        let tls = join_config(fingerprint)
            .map_err(|error| Error::connecting(&to, std::io::Error::other(error)))?;
        shown(&to, &dial(&to, address, tls, &DialOptions::default()).await?.shown)
    };
    let late = Error::TimedOut { to: Arc::clone(&to), within };
    timeout(within, met).await.unwrap_or(Err(late))
}

/// Whose certificate was shown.
fn shown(to: &Arc<str>, shown: &[CertificateDer<'static>]) -> Result<Caller, Error> {
    let nameless = || Error::Refused { to: Arc::clone(to), source: CertificateRefusal::Nameless };
    Caller::of(shown.first().ok_or_else(nameless)?).map_err(|_| nameless())
}
