//! The TLS configurations of a node. They share one [`Credentials`], whose certificate can be replaced while
//! connections are open: those go on as they are, the next ones show the new certificate.

use std::fmt;
use std::sync::{Arc, RwLock};

use plimsoll_model::access::Digest;
use plimsoll_model::{CellId, NodeId, Timestamp};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::pki_types::CertificateDer;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig, SignatureScheme};

use super::Error;
use super::authority::Fingerprint;
use super::caller::{Caller, Validity, key};
use super::identity::Identity;
use super::trust::{Anchor, NodeVerifier, PinVerifier, has_signed, provider};

/// What both sides speak inside TLS.
const ALPN: &[u8] = b"h2";

/// What is spoken at the operators' door.
const OPERATOR_ALPN: &[u8] = b"http/1.1";

/// A node's identity in use. Clones share it.
#[derive(Clone)]
pub struct Credentials {
    caller: Caller,
    fingerprint: Fingerprint,
    authority: CertificateDer<'static>,
    anchor: Anchor,
    current: Arc<Current>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("caller", &self.caller).finish_non_exhaustive()
    }
}

struct Current(RwLock<Arc<CertifiedKey>>);

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Current")
    }
}

impl Credentials {
    pub fn new(identity: &Identity) -> Result<Self, Error> {
        Ok(Self {
            caller: identity.caller().clone(),
            fingerprint: identity.fingerprint(),
            authority: identity.authority().clone(),
            anchor: Anchor::new(identity.authority())?,
            current: Arc::new(Current(RwLock::new(Arc::new(identity.certified()?)))),
        })
    }

    /// Shows this identity from the next connection on. It must be the same node's, of the same cell.
    pub fn renew(&self, identity: &Identity) -> Result<(), Error> {
        if *identity.caller() != self.caller || identity.fingerprint() != self.fingerprint {
            return Err(Error::BadCertificate { why: "it is for another node or cell" });
        }
        let certified = Arc::new(identity.certified()?);
        *self.current.0.write().expect("no holder of the credentials panics") = certified;
        Ok(())
    }

    pub fn node(&self) -> &NodeId {
        &self.caller.node
    }

    pub fn cell_id(&self) -> &CellId {
        &self.caller.cell_id
    }

    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The key that this node shows.
    pub fn key(&self) -> Result<Digest, Error> {
        let current = self.current.0.read().expect("no holder of the credentials panics");
        key(current.cert.first().ok_or(Error::BadCertificate { why: "there is none" })?)
    }

    /// Whether the authority that this node trusts has signed a text.
    pub fn has_signed(&self, text: &[u8], signature: &[u8]) -> bool {
        has_signed(&self.authority, text, signature)
    }

    /// For the side that is connected to. Who shows a certificate must show a good one; who shows none may be a
    /// newcomer, and is told apart by [`caller_of`](Self::caller_of).
    pub fn server_config(&self) -> Result<ServerConfig, Error> {
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&self.anchor.0), provider())
                .allow_unauthenticated()
                // Whoever has a certificate of ours knows our name; the others need not.
                .clear_root_hint_subjects()
                .build()
                .map_err(|_| Error::BadCertificate { why: "the authority's cannot be used" })?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(Error::Tls)?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::clone(&self.current) as Arc<dyn ResolvesServerCert>);
        forget_sessions(&mut config);
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }

    /// For operators, who connect with a token and no certificate: none is asked for, and whoever has one gains nothing by it.
    pub fn operator_config(&self) -> Result<ServerConfig, Error> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(Error::Tls)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&self.current) as Arc<dyn ResolvesServerCert>);
        forget_sessions(&mut config);
        config.alpn_protocols = vec![OPERATOR_ALPN.to_vec()];
        Ok(config)
    }

    /// For the side that connects: it shows our certificate, and believes this one node.
    pub fn client_config(&self, expected: &NodeId) -> Result<ClientConfig, Error> {
        let verifier = NodeVerifier { anchor: self.anchor.clone(), expected: expected.clone() };
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
        Ok(Some(ShownCertificate { caller, key, until }))
    }
}

/// What somebody's certificate says.
#[derive(Debug, Clone)]
pub(crate) struct ShownCertificate {
    pub(crate) caller: Caller,
    pub(crate) key: Digest,
    pub(crate) until: Timestamp,
}

/// A resumed session is not judged again, so there are none: a renewed or expired certificate counts at once.
fn forget_sessions(config: &mut ServerConfig) {
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
}

/// For a newcomer: it shows nothing, and believes any node of the cell whose authority has this fingerprint.
pub fn join_config(fingerprint: Fingerprint) -> Result<Arc<ClientConfig>, Error> {
    pinned_config(vec![fingerprint], ALPN)
}

/// For an operator: the same, where the cell may have any of these authorities, as while one is being replaced.
pub fn operator_client_config(fingerprints: &[Fingerprint]) -> Result<Arc<ClientConfig>, Error> {
    pinned_config(fingerprints.to_vec(), OPERATOR_ALPN)
}

fn pinned_config(
    fingerprints: Vec<Fingerprint>,
    alpn: &'static [u8],
) -> Result<Arc<ClientConfig>, Error> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(Error::Tls)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinVerifier { fingerprints }))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    config.alpn_protocols = vec![alpn.to_vec()];
    Ok(Arc::new(config))
}

impl Current {
    fn get(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.0.read().expect("no holder of the credentials panics"))
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.get())
    }
}

impl ResolvesClientCert for Current {
    /// Whichever authorities a server asks for, ours is what we have: a refusal says more than silence.
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.get())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[cfg(test)]
impl Credentials {
    /// The same certificate, with another cell's authority to judge others by.
    pub(crate) fn trusting(self, authority: &super::Authority) -> Self {
        let anchor = Anchor::new(authority.certificate()).unwrap();
        Self { anchor, ..self }
    }
}
