//! Where a node keeps its identity: one file, since a key and a certificate that do not belong together are worse than
//! neither, in a directory that is the daemon's alone. The file is PEM, which every other tool reads as well: the key, its
//! certificate, the authority that signed it, and those that are trusted beside it; a line of text before them says as of when.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{PemObject, SectionKind};

use super::Error;
use super::authority::Fingerprint;
use super::identity::{Identity, NodeKey};

const DIR: &str = "tls";
const FILE: &str = "node.pem";

/// What the line begins with that says as of which epoch authorities are trusted.
const EPOCH: &str = "authority-epoch: ";

/// The most bytes the file may have: a key and three certificates have 3 kB.
const MAX_FILE: u64 = 64 << 10;

/// Characters a line, as PEM has it.
const LINE: usize = 64;

impl Identity {
    /// Where a daemon with this data directory keeps its identity.
    pub fn file(data_dir: &Path) -> PathBuf {
        data_dir.join(DIR).join(FILE)
    }

    /// The identity kept there, if this node has one already.
    pub fn load(data_dir: &Path) -> Result<Option<Self>, Error> {
        let path = Self::file(data_dir);
        let damaged = |why: &str| Error::Damaged { path: path.clone(), why: why.to_owned() };
        match fs::metadata(&path) {
            Ok(found) if found.len() > MAX_FILE => return Err(damaged("it is too large")),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(file("look at", &path, source)),
        }
        let text = fs::read(&path).map_err(|source| file("read", &path, source))?;
        let sections: Result<Vec<(SectionKind, Vec<u8>)>, _> =
            <(SectionKind, Vec<u8>)>::pem_slice_iter(&text).collect();
        let sections = sections.map_err(|_| damaged("it is not PEM"))?;
        let [
            (SectionKind::PrivateKey, key),
            (SectionKind::Certificate, certificate),
            (SectionKind::Certificate, authority),
            others @ ..,
        ] = sections.as_slice()
        else {
            return Err(damaged("a key, its certificate and the authority's must be in it"));
        };
        if others.iter().any(|(kind, _)| *kind != SectionKind::Certificate) {
            return Err(damaged("there are more keys in it than one"));
        }
        let key = NodeKey(key.clone());
        let identity = Self::new(key, certificate.clone(), authority.clone());
        let identity = identity.map_err(|error| damaged(&error.to_string()))?;
        let others = others.iter().map(|(_, der)| der.clone().into());
        Ok(Some(identity.trusting(others, epoch(&text))))
    }

    /// Keeps it in place of the one before. At any moment one of the two is there, whole.
    pub fn store(&self, data_dir: &Path) -> Result<(), Error> {
        let dir = data_dir.join(DIR);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        made.and_then(|()| fs::set_permissions(&dir, Permissions::from_mode(0o700)))
            .map_err(|source| file("create", &dir, source))?;
        let path = Self::file(data_dir);
        plimsoll_files::write(&path, self.pem().as_bytes(), 0o600)
            .map_err(|source| file("write", &path, source))
    }

    fn pem(&self) -> String {
        let mut text = format!("{EPOCH}{}\n", self.epoch);
        text += &section("PRIVATE KEY", self.key.0.as_slice());
        for certificate in std::iter::once(&self.certificate).chain(self.anchors()) {
            text += &section("CERTIFICATE", certificate);
        }
        text
    }
}

/// A certificate as every other tool reads it.
pub fn certificate_pem(der: &[u8]) -> String {
    section("CERTIFICATE", der)
}

/// The fingerprints of the certificates in a file of them.
pub fn fingerprints_in(pem: &[u8]) -> Result<Vec<Fingerprint>, Error> {
    let certificates: Result<Vec<CertificateDer<'_>>, _> =
        CertificateDer::pem_slice_iter(pem).collect();
    let certificates =
        certificates.map_err(|_| Error::BadCertificate { why: "the file is not PEM" })?;
    Ok(certificates.iter().map(|it| Fingerprint::of(it)).collect())
}

/// Where nothing is said, nothing was ever settled anew.
fn epoch(text: &[u8]) -> u64 {
    let first = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let first = std::str::from_utf8(first).unwrap_or_default();
    first.strip_prefix(EPOCH).and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

fn section(kind: &str, der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let mut text = format!("-----BEGIN {kind}-----\n");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(LINE));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text + &format!("-----END {kind}-----\n")
}

fn file(action: &'static str, path: &Path, source: io::Error) -> Error {
    Error::File { action, path: path.to_owned(), source }
}
