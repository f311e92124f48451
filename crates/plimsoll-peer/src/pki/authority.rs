//! The authority of a cell: a self-signed certificate and its key, made when the cell is founded and kept in the
//! replicated state. It says which key belongs to which node; whether a node may have a certificate at all is decided
//! by whoever asks it to sign.

use std::fmt;
use std::str::FromStr;

use plimsoll_model::access::Digest;
use plimsoll_model::{CellId, Millis, NodeId, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PublicKey, PublicKeyData, SanType, SerialNumber, SigningKey,
};
use rustls::crypto::ring::sign;
use rustls::pki_types::{
    CertificateDer, CertificateSigningRequestDer, PrivateKeyDer, PrivatePkcs8KeyDer,
};
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;

use super::caller::{Caller, Validity, is_reserved};
use super::{AUTHORITY_LIFETIME, BACKDATE, Error, random};

/// The SHA-256 of an authority's certificate: what a join token pins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub fn of(certificate: &[u8]) -> Self {
        Self(Sha256::digest(certificate).into())
    }

    pub(super) const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(super) const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Fingerprint {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || Error::BadCertificate { why: "a fingerprint has 64 hexadecimal digits" };
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return Err(bad());
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| bad())?;
        }
        Ok(Self(bytes))
    }
}

/// A node's wish for a certificate, proven to come from the holder of its key. What it says beside that is not heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Csr {
    der: Vec<u8>,
    key: PublicKey,
}

impl Csr {
    pub fn from_der(der: &[u8]) -> Result<Self, Error> {
        let parsed =
            CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(der));
        let parsed = parsed.map_err(|_| Error::BadRequest)?;
        // One kind of key: a weak one that a client chose would be good for as long as a strong one.
        if *parsed.public_key.algorithm() != PKCS_ECDSA_P256_SHA256 {
            return Err(Error::BadRequest);
        }
        Ok(Self { der: der.to_vec(), key: parsed.public_key })
    }

    pub fn as_der(&self) -> &[u8] {
        &self.der
    }

    /// The key it is for.
    pub fn key(&self) -> Digest {
        Digest(Sha256::digest(self.key.subject_public_key_info()).into())
    }
}

/// An authority as it is kept. Whoever holds this can make any node of the cell.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorityParts {
    pub cell_id: CellId,
    pub certificate: Vec<u8>,
    /// PKCS #8.
    pub key: Vec<u8>,
}

impl fmt::Debug for AuthorityParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthorityParts")
            .field("cell", &self.cell_id)
            .field("fingerprint", &Fingerprint::of(&self.certificate))
            .finish_non_exhaustive()
    }
}

/// Signs the certificates of one cell.
pub struct Authority {
    cell_id: CellId,
    certificate: CertificateDer<'static>,
    until: Timestamp,
    issuer: Issuer<'static, KeyPair>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("cell", &self.cell_id)
            .field("fingerprint", &self.fingerprint())
            .finish_non_exhaustive()
    }
}

impl Authority {
    pub fn found(cell_id: &CellId, now: Timestamp) -> Result<Self, Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
            .map_err(making("make the authority's key"))?;
        // Two cells of one name have authorities of two names, so that one is never looked for in the other's place.
        let key_hash = Fingerprint::of(key.public_key_raw()).to_string();
        let mut subject = DistinguishedName::new();
        subject.push(DnType::CommonName, format!("{cell_id} {}", &key_hash[..16]));
        let mut params = params(subject, now, AUTHORITY_LIFETIME)?;
        // It signs nodes, never another authority.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate =
            params.self_signed(&key).map_err(making("make the authority's certificate"))?;
        Self::with(cell_id.clone(), certificate.der().clone(), key)
    }

    pub fn from_parts(parts: &AuthorityParts) -> Result<Self, Error> {
        let key = PrivatePkcs8KeyDer::from(parts.key.as_slice());
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ECDSA_P256_SHA256)
            .map_err(making("read the authority's key"))?;
        Self::with(parts.cell_id.clone(), parts.certificate.clone().into(), key)
    }

    fn with(
        cell_id: CellId,
        certificate: CertificateDer<'static>,
        key: KeyPair,
    ) -> Result<Self, Error> {
        let until = Validity::of(&certificate)?.until;
        let issuer = Issuer::from_ca_cert_der(&certificate, key)
            .map_err(making("read the authority's certificate"))?;
        Ok(Self { cell_id, certificate, until, issuer })
    }

    pub fn to_parts(&self) -> AuthorityParts {
        AuthorityParts {
            cell_id: self.cell_id.clone(),
            certificate: self.certificate.to_vec(),
            key: self.issuer.key().serialize_der(),
        }
    }

    pub fn cell_id(&self) -> &CellId {
        &self.cell_id
    }

    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// The authority's word on a text. A certificate never begins as a text does, so neither is ever taken for the other.
    pub fn sign(&self, text: &[u8]) -> Result<Vec<u8>, Error> {
        self.issuer.key().sign(text).map_err(making("sign"))
    }

    /// A certificate for the node's key, under the name that the cell gives the node.
    pub fn issue(
        &self,
        csr: &Csr,
        node: &NodeId,
        now: Timestamp,
        lifetime: Millis,
    ) -> Result<CertificateDer<'static>, Error> {
        self.issue_to(csr, &Caller::new(&self.cell_id, node), now, lifetime)
    }

    /// A certificate for the key of a cell, which is a shard of the fleet that this cell coordinates. It makes nobody a node:
    /// no node of this cell believes a server that shows it.
    pub fn issue_shard(
        &self,
        csr: &Csr,
        shard: &NodeId,
        now: Timestamp,
        lifetime: Millis,
    ) -> Result<CertificateDer<'static>, Error> {
        self.issue_to(csr, &Caller::shard(&self.cell_id, shard), now, lifetime)
    }

    fn issue_to(
        &self,
        csr: &Csr,
        caller: &Caller,
        now: Timestamp,
        lifetime: Millis,
    ) -> Result<CertificateDer<'static>, Error> {
        // The subject stays empty: the names are the alternative ones, which have room for them.
        let left = self.until.since(now);
        let mut params = params(DistinguishedName::new(), now, lifetime.min(left))?;
        let name = caller.name().try_into().map_err(making("name the node"))?;
        let of_cell = caller.cell_name().try_into().map_err(making("name the cell"))?;
        params.subject_alt_names = vec![SanType::DnsName(name), SanType::DnsName(of_cell)];
        if caller.is_shard() {
            // The name of the cell is its nodes'.
            params.subject_alt_names.truncate(1);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let signed = params.signed_by(&csr.key, &self.issuer);
        Ok(signed.map_err(making("sign the node's certificate"))?.der().clone())
    }
}

impl Authority {
    /// A key and a certificate for a host that is served in the cell's name. It proves nothing between nodes: their names
    /// are never given to a host, and it is good for servers only.
    pub fn issue_host(
        &self,
        host: &str,
        now: Timestamp,
        lifetime: Millis,
    ) -> Result<CertifiedKey, Error> {
        let (chain, key) = self.issue_host_parts(host, now, lifetime)?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key));
        let key = sign::any_ecdsa_type(&key).map_err(Error::Tls)?;
        Ok(CertifiedKey::new(chain.into_iter().map(CertificateDer::from).collect(), key))
    }

    /// The same as it travels to a node that cannot issue its own: the chain, and the key as PKCS #8.
    pub fn issue_host_parts(
        &self,
        host: &str,
        now: Timestamp,
        lifetime: Millis,
    ) -> Result<(Vec<Vec<u8>>, Vec<u8>), Error> {
        if is_reserved(host) {
            return Err(Error::BadCertificate { why: "its name is a node's" });
        }
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256);
        let key = key.map_err(making("make the host's key"))?;
        let left = self.until.since(now);
        let mut params = params(DistinguishedName::new(), now, lifetime.min(left))?;
        let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let name = name.try_into().map_err(making("name the host"))?;
        params.subject_alt_names = vec![SanType::DnsName(name)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let signed = params.signed_by(&key, &self.issuer);
        let signed = signed.map_err(making("sign the host's certificate"))?;
        let chain = vec![signed.der().to_vec(), self.certificate.to_vec()];
        Ok((chain, key.serialize_der()))
    }
}

fn params(
    subject: DistinguishedName,
    now: Timestamp,
    lifetime: Millis,
) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject;
    // A random one: two servers may lead one after the other, and neither counts.
    let mut serial = random::bytes::<16>()?;
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.not_before = date(Timestamp(now.0.saturating_sub(BACKDATE.0)));
    params.not_after = date(now.plus(lifetime));
    Ok(params)
}

/// A clock beyond the year 9999 is as wrong as one that says 1970.
fn date(time: Timestamp) -> OffsetDateTime {
    let seconds = i64::try_from(time.0 / 1_000).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

fn making(what: &'static str) -> impl FnOnce(rcgen::Error) -> Error {
    move |source| Error::Make { what, source }
}
