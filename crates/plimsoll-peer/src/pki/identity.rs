//! A node's identity: its private key, which never leaves the node, the certificate its cell gave it for that key, and
//! the certificates of the authorities to judge others by: one, or two while the cell's authority is rotated. Where it is kept is settled in [`keep`](super::identity_file).

use std::fmt;

use plimsoll_model::access::Digest;
use plimsoll_model::{Millis, Timestamp};
use rcgen::{CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::crypto::ring::sign;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

use super::authority::{Csr, Fingerprint};
use super::caller::{Caller, Validity};
use super::trust::Anchor;
use super::{BACKDATE, Error};

/// A node's private key, PKCS #8. It shows itself to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct NodeKey(pub(super) Vec<u8>);

impl NodeKey {
    /// One that was kept elsewhere than in a file: a cell keeps the key it is known by in its fleet.
    pub fn from_pkcs8(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeKey")
    }
}

/// What a node shows to others, and what it judges them by.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    pub(super) key: NodeKey,
    pub(super) certificate: CertificateDer<'static>,
    /// The one that signed it.
    pub(super) authority: CertificateDer<'static>,
    /// Those that are trusted beside it.
    pub(super) others: Vec<CertificateDer<'static>>,
    /// When it was settled which authorities are trusted, as the cell counts.
    pub(super) epoch: u64,
    caller: Caller,
    validity: Validity,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("caller", &self.caller)
            .field("expires_at", &self.validity.until)
            .finish_non_exhaustive()
    }
}

impl Identity {
    /// A new key, and the request for a certificate to go with it.
    pub fn new_key() -> Result<(NodeKey, Csr), Error> {
        let failed = |source| Error::Make { what: "make the node's key", source };
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        Ok((NodeKey(key.serialize_der()), request(&key)?))
    }

    /// The request for another certificate for the same key: a node is known by it for as long as it is of the cell.
    pub fn another(&self) -> Result<(NodeKey, Csr), Error> {
        let failed = |source| Error::Make { what: "read the node's key", source };
        let der = PrivatePkcs8KeyDer::from(self.key.0.as_slice());
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ECDSA_P256_SHA256);
        Ok((self.key.clone(), request(&key.map_err(failed)?)?))
    }

    /// The identity that a key and what the cell answered make. A certificate for another key or from another
    /// authority is found out here, not when the next node refuses it.
    pub fn new(
        key: NodeKey,
        certificate: impl Into<CertificateDer<'static>>,
        authority: impl Into<CertificateDer<'static>>,
    ) -> Result<Self, Error> {
        let (certificate, authority) = (certificate.into(), authority.into());
        let caller = Caller::of(&certificate)?;
        let validity = Validity::of(&certificate)?;
        let (others, epoch) = (Vec::new(), 0);
        let identity = Self { key, certificate, authority, others, epoch, caller, validity };
        identity.certified()?.keys_match().map_err(|_| Error::KeyMismatch)?;
        // Whether it is still good is another question, with another answer; a certificate that has run out, or one
        // from a cell whose clock is ahead, is the node's all the same.
        let within = Timestamp(u64::midpoint(validity.from.0, validity.until.0));
        let anchor = Anchor::new(&identity.authority)?;
        anchor.check(&identity.certificate, within).map_err(Error::Untrusted)?;
        Ok(identity)
    }

    /// The same with the one of these authorities that signed it.
    pub fn signed_by_any<'a>(
        key: &NodeKey,
        certificate: impl Into<CertificateDer<'static>>,
        authorities: impl IntoIterator<Item = &'a CertificateDer<'static>>,
    ) -> Result<Self, Error> {
        let certificate = certificate.into();
        let mut last = Error::BadCertificate { why: "no authority is known" };
        for authority in authorities {
            match Self::new(key.clone(), certificate.clone(), authority.clone()) {
                Ok(identity) => return Ok(identity),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The authority that signed its certificate.
    pub fn authority(&self) -> &CertificateDer<'static> {
        &self.authority
    }

    /// The same, judging others by these authorities from this epoch of the cell on. The one that signed its own certificate
    /// is always among them: a node that did not believe itself could speak to nobody.
    #[must_use]
    pub fn trusting(
        mut self,
        anchors: impl IntoIterator<Item = CertificateDer<'static>>,
        epoch: u64,
    ) -> Self {
        self.others = anchors.into_iter().filter(|it| *it != self.authority).collect();
        self.epoch = epoch;
        self
    }

    /// The authorities it judges others by.
    pub fn anchors(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        std::iter::once(&self.authority).chain(&self.others)
    }

    pub fn trusts(&self, fingerprint: Fingerprint) -> bool {
        self.anchors().any(|anchor| Fingerprint::of(anchor) == fingerprint)
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// What its cell knows it by, whichever certificate it has for its key.
    pub fn key_digest(&self) -> Result<Digest, Error> {
        super::caller::key(&self.certificate)
    }

    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.authority)
    }

    pub fn expires_at(&self) -> Timestamp {
        self.validity.until
    }

    pub fn has_expired(&self, now: Timestamp) -> bool {
        now > self.validity.until
    }

    /// Whether it is time for a new certificate: a third of the lifetime is left to get it in.
    pub fn renew_due(&self, now: Timestamp) -> bool {
        let Validity { from, until } = self.validity;
        let lifetime = until.since(from.plus(BACKDATE));
        until.since(now) <= Millis(lifetime.0 / 3)
    }

    /// The form in which TLS takes it. The authority's certificate goes along for newcomers, who know only its
    /// fingerprint.
    pub(super) fn certified(&self) -> Result<CertifiedKey, Error> {
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.key.0.as_slice()));
        let key = sign::any_ecdsa_type(&key).map_err(Error::Tls)?;
        let chain = vec![self.certificate.clone(), self.authority.clone()];
        Ok(CertifiedKey::new(chain, key))
    }
}

fn request(key: &KeyPair) -> Result<Csr, Error> {
    let failed = |source| Error::Make { what: "ask for a certificate", source };
    let mut params = CertificateParams::default();
    // The cell names the node; a request that suggests a name would only be misunderstood.
    params.distinguished_name = DistinguishedName::new();
    Csr::from_der(params.serialize_request(key).map_err(failed)?.der())
}
