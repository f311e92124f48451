//! The TLS configurations of a node. They share one [`Credentials`], whose certificate and whose authorities can be replaced
//! while connections are open: those go on as they are, the next ones show and are judged by the new. Once an authority is not
//! trusted any more, connections that it vouched for end.

use std::fmt;
use std::sync::{Arc, RwLock};

use plimsoll_model::access::Digest;
use plimsoll_model::{CellId, NodeId, Timestamp};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
};
use tokio::sync::watch;

use super::Error;
use super::authority::Fingerprint;
use super::caller::{Caller, Validity, key};
use super::identity::Identity;
use super::operator_certificate::{OperatorCertificate, OperatorVerifier};
use super::trust::{Anchors, NodeVerifier, PinVerifier, provider};

/// What both sides speak inside TLS.
const ALPN: &[u8] = b"h2";

/// What is spoken at the operators' door.
const OPERATOR_ALPN: &[u8] = b"http/1.1";

/// A node's identity in use. Clones share it.
#[derive(Clone)]
pub struct Credentials {
    caller: Caller,
    current: Arc<Current>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("caller", &self.caller).finish_non_exhaustive()
    }
}

struct Current {
    held: RwLock<Arc<Held>>,
    /// Who waits for an authority not to be trusted any more looks again.
    replaced: watch::Sender<()>,
}

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Current")
    }
}

/// What is shown, and what others are judged by.
struct Held {
    certified: Arc<CertifiedKey>,
    fingerprint: Fingerprint,
    anchors: Anchors,
    clients: Arc<dyn ClientCertVerifier>,
}

impl Held {
    fn new(identity: &Identity) -> Result<Self, Error> {
        let anchors = Anchors::new(identity.anchors())?;
        let clients = WebPkiClientVerifier::builder_with_provider(anchors.roots(), provider())
            .allow_unauthenticated()
            // Whoever has a certificate of ours knows our name; the others need not.
            .clear_root_hint_subjects()
            .build()
            .map_err(|_| Error::BadCertificate { why: "the authority's cannot be used" })?;
        let (certified, fingerprint) = (Arc::new(identity.certified()?), identity.fingerprint());
        Ok(Self { certified, fingerprint, anchors, clients })
    }
}

impl Credentials {
    pub fn new(identity: &Identity) -> Result<Self, Error> {
        let held = RwLock::new(Arc::new(Held::new(identity)?));
        let current = Arc::new(Current { held, replaced: watch::Sender::new(()) });
        Ok(Self { caller: identity.caller().clone(), current })
    }

    /// Shows this identity from the next connection on, and judges others by its authorities. It must be the same node's, with
    /// a certificate of an authority that is trusted already.
    pub fn renew(&self, identity: &Identity) -> Result<(), Error> {
        if *identity.caller() != self.caller || !self.trusts(identity.fingerprint()) {
            return Err(Error::BadCertificate { why: "it is for another node or cell" });
        }
        let held = Arc::new(Held::new(identity)?);
        *self.current.held.write().expect("no holder of the credentials panics") = held;
        self.current.replaced.send_replace(());
        Ok(())
    }

    pub fn node(&self) -> &NodeId {
        &self.caller.node
    }

    pub fn cell_id(&self) -> &CellId {
        &self.caller.cell_id
    }

    /// Of the authority that signed what is shown.
    pub fn fingerprint(&self) -> Fingerprint {
        self.current.get().fingerprint
    }

    pub fn trusts(&self, authority: Fingerprint) -> bool {
        self.current.get().anchors.contain(authority)
    }

    /// Returns once this authority is not trusted any more.
    pub(crate) async fn distrusted(&self, authority: Fingerprint) {
        let mut replaced = self.current.replaced.subscribe();
        while self.trusts(authority) {
            // The sender is ours.
            let _ = replaced.changed().await;
        }
    }

    /// Which authority vouches for a certificate that TLS has accepted.
    pub(crate) fn signer_of(&self, certificate: &CertificateDer<'_>) -> Result<Fingerprint, Error> {
        let Validity { from, until } = Validity::of(certificate)?;
        let within = Timestamp(u64::midpoint(from.0, until.0));
        let within = UnixTime::since_unix_epoch(std::time::Duration::from_millis(within.0));
        let judged = self.current.get().anchors.judge(certificate, within);
        judged.map(|(_, signer)| signer).map_err(Error::Untrusted)
    }

    /// The key that this node shows.
    pub fn key(&self) -> Result<Digest, Error> {
        let current = self.current.get();
        key(current.certified.cert.first().ok_or(Error::BadCertificate { why: "there is none" })?)
    }

    /// Whether an authority that this node trusts has signed a text.
    pub fn has_signed(&self, text: &[u8], signature: &[u8]) -> bool {
        self.current.get().anchors.have_signed(text, signature)
    }

    /// For the side that is connected to. Who shows a certificate must show a good one; who shows none may be a
    /// newcomer, and is told apart by [`caller_of`](Self::caller_of).
    pub fn server_config(&self) -> Result<ServerConfig, Error> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(Error::Tls)?
            .with_client_cert_verifier(Arc::clone(&self.current) as Arc<dyn ClientCertVerifier>)
            .with_cert_resolver(Arc::clone(&self.current) as Arc<dyn ResolvesServerCert>);
        forget_sessions(&mut config);
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }

    /// For operators, who are known by a token, or by the key of a certificate that they show.
    pub fn operator_config(&self) -> Result<ServerConfig, Error> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(Error::Tls)?
            .with_client_cert_verifier(Arc::new(OperatorVerifier::default()))
            .with_cert_resolver(Arc::clone(&self.current) as Arc<dyn ResolvesServerCert>);
        forget_sessions(&mut config);
        config.alpn_protocols = vec![OPERATOR_ALPN.to_vec()];
        Ok(config)
    }

    /// For the side that connects: it shows our certificate, and believes this one node.
    pub fn client_config(&self, expected: &NodeId) -> Result<ClientConfig, Error> {
        let verifier = NodeVerifier {
            anchors: self.current.get().anchors.clone(),
            expected: expected.clone(),
        };
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(Error::Tls)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_cert_resolver(Arc::clone(&self.current) as Arc<dyn ResolvesClientCert>);
        config.resumption = Resumption::disabled();
        // The name that is expected is the verifier's to know, and nobody else's to see.
        config.enable_sni = false;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }

    /// Who is on the other side of a connection to us, from the certificates that TLS has verified, and until when.
    pub(crate) fn caller_of(
        &self,
        verified: Option<&[CertificateDer<'_>]>,
    ) -> Result<Option<ShownCertificate>, Error> {
        let Some(certificate) = verified.and_then(|chain| chain.first()) else { return Ok(None) };
        let caller = Caller::of(certificate)?;
        if caller.cell_id != self.caller.cell_id {
            return Err(Error::BadCertificate { why: "it names another cell" });
        }
        let (key, until) = (key(certificate)?, Validity::of(certificate)?.until);
        let authority = self.signer_of(certificate)?;
        Ok(Some(ShownCertificate { caller, key, until, authority }))
    }
}

/// What somebody's certificate says.
#[derive(Debug, Clone)]
pub(crate) struct ShownCertificate {
    pub(crate) caller: Caller,
    pub(crate) key: Digest,
    pub(crate) until: Timestamp,
    /// The authority that vouches for it.
    pub(crate) authority: Fingerprint,
}

/// A resumed session is not judged again, so there are none: a renewed or expired certificate counts at once.
fn forget_sessions(config: &mut ServerConfig) {
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
}

/// For a newcomer: it shows nothing, and believes any node of the cell whose authority has this fingerprint.
pub fn join_config(fingerprint: Fingerprint) -> Result<Arc<ClientConfig>, Error> {
    pinned_config(vec![fingerprint], ALPN, None)
}

/// For an operator: the same, where the cell may have any of these authorities, as while one is being replaced.
pub fn operator_client_config(fingerprints: &[Fingerprint]) -> Result<Arc<ClientConfig>, Error> {
    operator_client_config_with(fingerprints, None)
}

/// The same for one who shows a certificate.
pub fn operator_client_config_with(
    fingerprints: &[Fingerprint],
    certificate: Option<&OperatorCertificate>,
) -> Result<Arc<ClientConfig>, Error> {
    pinned_config(fingerprints.to_vec(), OPERATOR_ALPN, certificate)
}

fn pinned_config(
    fingerprints: Vec<Fingerprint>,
    alpn: &'static [u8],
    certificate: Option<&OperatorCertificate>,
) -> Result<Arc<ClientConfig>, Error> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(Error::Tls)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinVerifier { fingerprints }));
    let mut config = match certificate {
        None => config.with_no_client_auth(),
        Some(OperatorCertificate(shown)) => {
            config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(shown))))
        }
    };
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    config.alpn_protocols = vec![alpn.to_vec()];
    Ok(Arc::new(config))
}

impl Current {
    fn get(&self) -> Arc<Held> {
        Arc::clone(&self.held.read().expect("no holder of the credentials panics"))
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.get().certified))
    }
}

impl ResolvesClientCert for Current {
    /// Whichever authorities a server asks for, ours is what we have: a refusal says more than silence.
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.get().certified))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Clients are judged by the authorities of the moment.
impl ClientCertVerifier for Current {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.get().clients.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.get().clients.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.get().clients.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.get().clients.supported_verify_schemes()
    }
}

#[cfg(test)]
impl Credentials {
    /// The same certificate, with another cell's authority to judge others by.
    pub(crate) fn trusting(self, authority: &super::Authority) -> Self {
        let anchors = Anchors::new(std::iter::once(authority.certificate())).unwrap();
        let Held { certified, fingerprint, clients, .. } = &*self.current.get();
        let (certified, clients) = (Arc::clone(certified), Arc::clone(clients));
        let held = Held { certified, fingerprint: *fingerprint, anchors, clients };
        let current =
            Current { held: RwLock::new(Arc::new(held)), replaced: watch::Sender::new(()) };
        Self { current: Arc::new(current), ..self }
    }
}
