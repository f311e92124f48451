//! How a certificate is judged: signed by an authority of the cell, good at this time, and for the node that was meant. The
//! mathematics is webpki's; which names are good is ours.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_model::{NodeId, Timestamp};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::Error;
use super::authority::Fingerprint;
use super::caller::Caller;
use super::refusal::CertificateRefusal;

/// The algorithms, always handed over and never looked up: which provider a process has installed is not our question.
pub(super) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: std::sync::OnceLock<Arc<CryptoProvider>> = std::sync::OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(ring::default_provider())))
}

/// The one authority that is believed.
#[derive(Debug, Clone)]
pub(super) struct Anchor(pub(super) Arc<RootCertStore>);

impl Anchor {
    pub(super) fn new(authority: &CertificateDer<'_>) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        roots
            .add(authority.clone().into_owned())
            .map_err(|_| Error::BadCertificate { why: "the authority's cannot be read" })?;
        Ok(Self(Arc::new(roots)))
    }

    /// Whom the certificate is for, if it holds at that time.
    pub(super) fn check(
        &self,
        certificate: &CertificateDer<'_>,
        now: Timestamp,
    ) -> Result<Caller, CertificateRefusal> {
        self.judge(certificate, UnixTime::since_unix_epoch(Duration::from_millis(now.0)))
    }

    fn judge(
        &self,
        certificate: &CertificateDer<'_>,
        now: UnixTime,
    ) -> Result<Caller, CertificateRefusal> {
        let refusal = |error: rustls::Error| match error {
            rustls::Error::InvalidCertificate(why) => CertificateRefusal::of(&why),
            _ => CertificateRefusal::Malformed,
        };
        let parsed = ParsedCertificate::try_from(certificate).map_err(refusal)?;
        let algorithms = provider().signature_verification_algorithms.all;
        // What else was shown does not matter: a node's certificate is signed by the authority itself.
        let judged =
            verify_server_cert_signed_by_trust_anchor(&parsed, &self.0, &[], now, algorithms);
        match judged.map_err(refusal) {
            Ok(()) => Caller::of(certificate).map_err(|_| CertificateRefusal::Nameless),
            // What it claims is not to be believed, but says where somebody may have gone wrong.
            Err(CertificateRefusal::UnknownAuthority) => Err(Caller::of(certificate)
                .map_or(CertificateRefusal::UnknownAuthority, |says| {
                    CertificateRefusal::WrongCell { says }
                })),
            Err(refusal) => Err(refusal),
        }
    }
}

/// Whether the key of this certificate has signed a text.
pub fn has_signed(signer: &CertificateDer<'_>, text: &[u8], signature: &[u8]) -> bool {
    let Ok(key) = super::caller::public_key(signer) else { return false };
    let mapping = provider().signature_verification_algorithms.mapping;
    let found = mapping.iter().find(|(it, _)| *it == SignatureScheme::ECDSA_NISTP256_SHA256);
    let mut algorithms = found.into_iter().flat_map(|(_, algorithms)| algorithms.iter());
    algorithms.any(|algorithm| algorithm.verify_signature(&key, text, signature).is_ok())
}

/// The authorities that are believed: one, or two while one takes the place of the other.
#[derive(Debug, Clone)]
pub(super) struct Anchors {
    each: Vec<(Fingerprint, CertificateDer<'static>, Anchor)>,
    all: Arc<RootCertStore>,
}

impl Anchors {
    pub(super) fn new<'a>(
        authorities: impl Iterator<Item = &'a CertificateDer<'static>>,
    ) -> Result<Self, Error> {
        let each = authorities.map(|it| Ok((Fingerprint::of(it), it.clone(), Anchor::new(it)?)));
        let each: Vec<_> = each.collect::<Result<_, Error>>()?;
        let mut all = RootCertStore::empty();
        all.roots.extend(each.iter().flat_map(|(_, _, anchor)| anchor.0.roots.iter().cloned()));
        Ok(Self { each, all: Arc::new(all) })
    }

    pub(super) fn roots(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.all)
    }

    pub(super) fn contain(&self, fingerprint: Fingerprint) -> bool {
        self.each.iter().any(|(known, ..)| *known == fingerprint)
    }

    /// Whether one of them has signed a text.
    pub(super) fn have_signed(&self, text: &[u8], signature: &[u8]) -> bool {
        self.each.iter().any(|(_, signer, _)| has_signed(signer, text, signature))
    }

    /// Whom the certificate is for, and which of them signed it.
    pub(super) fn judge(
        &self,
        certificate: &CertificateDer<'_>,
        now: UnixTime,
    ) -> Result<(Caller, Fingerprint), CertificateRefusal> {
        let mut refused = CertificateRefusal::UnknownAuthority;
        for (fingerprint, _, anchor) in &self.each {
            match anchor.judge(certificate, now) {
                Ok(caller) => return Ok((caller, *fingerprint)),
                // What the one that did sign it has to say about it, where one did.
                Err(why) if !is_foreign(&why) => return Err(why),
                Err(why) => refused = why,
            }
        }
        Err(refused)
    }
}

fn is_foreign(why: &CertificateRefusal) -> bool {
    matches!(why, CertificateRefusal::UnknownAuthority | CertificateRefusal::WrongCell { .. })
}

/// Judges the server a node connects to.
#[derive(Debug)]
pub(super) struct NodeVerifier {
    pub(super) anchors: Anchors,
    pub(super) expected: NodeId,
}

/// Judges the server that a newcomer or an operator connects to: they know the fingerprints of the authorities that the
/// cell may have, and nothing else.
#[derive(Debug)]
pub(super) struct PinVerifier {
    pub(super) fingerprints: Vec<Fingerprint>,
}

impl NodeVerifier {
    fn judge(
        &self,
        certificate: &CertificateDer<'_>,
        now: UnixTime,
    ) -> Result<(), CertificateRefusal> {
        let (found, _) = self.anchors.judge(certificate, now)?;
        if found.node == self.expected && !found.is_shard() {
            return Ok(());
        }
        Err(CertificateRefusal::WrongNode { expected: self.expected.clone(), found })
    }
}

impl PinVerifier {
    fn judge(
        &self,
        certificate: &CertificateDer<'_>,
        shown: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), CertificateRefusal> {
        let mut refusal = CertificateRefusal::WrongAuthority;
        for authority in self.fingerprints.iter().filter_map(|print| pinned(*print, shown)) {
            let anchor = Anchor::new(authority).map_err(|_| CertificateRefusal::Malformed)?;
            match anchor.judge(certificate, now) {
                // A shard of the cell's fleet is no node that anybody could join or ask.
                Ok(found) if found.is_shard() => refusal = CertificateRefusal::Nameless,
                Ok(_) => return Ok(()),
                Err(why) => refusal = why,
            }
        }
        Err(refusal)
    }
}

/// The certificate with this fingerprint, among what a server showed.
pub(crate) fn pinned<'a>(
    fingerprint: Fingerprint,
    shown: &'a [CertificateDer<'a>],
) -> Option<&'a CertificateDer<'a>> {
    shown.iter().find(|certificate| Fingerprint::of(certificate) == fingerprint)
}

macro_rules! verifier {
    ($type:ty, $judge:expr) => {
        impl ServerCertVerifier for $type {
            fn verify_server_cert(
                &self,
                end_entity: &CertificateDer<'_>,
                intermediates: &[CertificateDer<'_>],
                _: &ServerName<'_>,
                _: &[u8],
                now: UnixTime,
            ) -> Result<ServerCertVerified, rustls::Error> {
                let judge: fn(&Self, &CertificateDer<'_>, &[CertificateDer<'_>], UnixTime) -> _ =
                    $judge;
                judge(self, end_entity, intermediates, now)
                    .map(|()| ServerCertVerified::assertion())
                    .map_err(CertificateRefusal::into_tls)
            }

            fn verify_tls12_signature(
                &self,
                message: &[u8],
                certificate: &CertificateDer<'_>,
                signed: &DigitallySignedStruct,
            ) -> Result<HandshakeSignatureValid, rustls::Error> {
                let algorithms = &provider().signature_verification_algorithms;
                verify_tls12_signature(message, certificate, signed, algorithms)
            }

            fn verify_tls13_signature(
                &self,
                message: &[u8],
                certificate: &CertificateDer<'_>,
                signed: &DigitallySignedStruct,
            ) -> Result<HandshakeSignatureValid, rustls::Error> {
                let algorithms = &provider().signature_verification_algorithms;
                verify_tls13_signature(message, certificate, signed, algorithms)
            }

            fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
                provider().signature_verification_algorithms.supported_schemes()
            }
        }
    };
}

verifier!(NodeVerifier, |verifier, certificate, _, now| verifier.judge(certificate, now));
verifier!(PinVerifier, Self::judge);
