//! Operators who show a certificate instead of a token. Who signed it says nothing: an admin has enrolled its key, as one does
//! with SSH, and whoever proves to hold that key is the operator, until the key is revoked or the certificate expires.

use std::fmt;
use std::sync::Arc;

use plimsoll_model::Timestamp;
use plimsoll_model::access::Digest;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, SignatureScheme};

use super::Error;
use super::caller::{Validity, key};
use super::identity_file::certificate_pem;
use super::token::kept;
use super::trust::provider;

/// What keys of operators are hashed with, so that no token has the hash of a key.
const KEY: &str = "operator key";

/// Whose certificates are asked for: nobody's. Programs show theirs whoever it is from; a browser asks its user only about
/// certificates of those that are named, and would otherwise ask everybody who opens the dashboard.
const NOBODY: &[u8] = b"\x31\x1b\x30\x19\x06\x03\x55\x04\x03\x0c\x12plimsoll operators";

/// What an operator with this certificate is known by.
pub fn operator_key(certificate: &CertificateDer<'_>) -> Result<Digest, Error> {
    Ok(kept(KEY, &key(certificate)?.0))
}

/// The same of the first certificate in a PEM file, with when it expires.
pub fn operator_key_in(pem: &[u8]) -> Result<(Digest, Timestamp), Error> {
    let certificate = CertificateDer::from_pem_slice(pem)
        .map_err(|_| Error::OperatorCertificate { why: "no certificate is in it" })?;
    let unread = |_| Error::OperatorCertificate { why: "its certificate cannot be read" };
    let until = Validity::of(&certificate).map_err(unread)?.until;
    Ok((operator_key(&certificate).map_err(unread)?, until))
}

/// The first certificate of a PEM file, and nothing else of it.
pub fn first_certificate_pem(pem: &[u8]) -> Option<String> {
    CertificateDer::from_pem_slice(pem).ok().map(|certificate| certificate_pem(&certificate))
}

/// A certificate and its key, which an operator shows.
#[derive(Clone)]
pub struct OperatorCertificate(pub(super) Arc<CertifiedKey>);

impl OperatorCertificate {
    /// From a PEM file that has both.
    pub fn from_pem(pem: &[u8]) -> Result<Self, Error> {
        let bad = |why| Error::OperatorCertificate { why };
        let chain: Result<Vec<CertificateDer<'static>>, _> =
            CertificateDer::pem_slice_iter(pem).collect();
        let chain = chain.map_err(|_| bad("it is not PEM"))?;
        if chain.is_empty() {
            return Err(bad("no certificate is in it"));
        }
        let key = PrivateKeyDer::from_pem_slice(pem)
            .map_err(|_| bad("no private key is in it: append the key to the certificate"))?;
        let certified = CertifiedKey::from_der(chain, key, &provider());
        let certified = certified.map_err(|_| bad("its key is not the certificate's"))?;
        Ok(Self(Arc::new(certified)))
    }
}

/// Its key shows itself to nobody.
impl fmt::Debug for OperatorCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OperatorCertificate")
    }
}

/// Lets whoever shows a certificate prove to hold its key. What that is worth is settled per request.
#[derive(Debug)]
pub(super) struct OperatorVerifier {
    hints: [DistinguishedName; 1],
}

impl Default for OperatorVerifier {
    fn default() -> Self {
        Self { hints: [DistinguishedName::in_sequence(NOBODY)] }
    }
}

impl ClientCertVerifier for OperatorVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let refused = |why: CertificateError| Err(rustls::Error::InvalidCertificate(why));
        let Ok(Validity { from, until }) = Validity::of(certificate) else {
            return refused(CertificateError::BadEncoding);
        };
        let now = Timestamp(now.as_secs().saturating_mul(1_000));
        if now < from {
            return refused(CertificateError::NotValidYet);
        }
        if now >= until {
            return refused(CertificateError::Expired);
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
