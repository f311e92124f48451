//! The certificates that routes with TLS are served with: issued by the cell's authority or by an ACME authority, or read
//! from files that somebody else keeps. A host without one is not served, and it is said why.
//!
//! ```text
//! certificates/shop.example.org.crt   the chain as PEM, the host's own certificate first
//! certificates/shop.example.org.key   its key
//! certificates/_.example.org.crt      for *.example.org
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use plimsoll_model::acme::{AcmeChallenge, ChallengeKind};
use plimsoll_model::spec::{RouteSpec, Tls, bare_name};
use plimsoll_model::{Millis, Timestamp};
use plimsoll_router::AcmeProof;
use plimsoll_runtime::chain;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::crypto::ring::sign;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use sha2::{Digest as _, Sha256};

use crate::route_certificates::{
    CertificateFacts, HeldCertificate, HostKey, LIFETIME, RENEWED, RouteCertificates, certified,
};
use plimsoll_peer::pki::Authority;

/// How often files are looked at, and what could not be had is tried again.
pub const LOOK: Duration = Duration::from_secs(5);

/// The most bytes a file may have: a chain has some ten thousand.
const MAX_FILE: u64 = 1 << 20;

/// What the routes' hosts show.
#[derive(Debug)]
pub struct Certificates {
    dir: PathBuf,
    held: BTreeMap<(Tls, String), LoadedCertificate>,
    /// The authority that signed those of our own.
    signer: Option<Vec<u8>>,
    proofs: BTreeMap<String, (AcmeChallenge, AcmeProof)>,
}

#[derive(Debug)]
struct LoadedCertificate {
    /// What is shown, or why there is nothing to show.
    shown: Result<Arc<CertifiedKey>, String>,
    /// When to see to it again, by this node's clock.
    due: Timestamp,
    source: LoadedFrom,
    /// Why a newer one is not shown instead.
    error: Option<String>,
    /// How many times in a row nothing good was found.
    failures: u32,
}

/// What it was made of: as long as that is the same, so is what is shown.
#[derive(Debug, PartialEq, Eq)]
enum LoadedFrom {
    Nothing,
    /// When two files were last written, and how long they were.
    Files([(SystemTime, u64); 2]),
    /// What this node was given.
    Given(Arc<HostKey>),
    Authority,
}

/// Certificates by host, and hosts without one with the reason.
pub type Shown = (BTreeMap<String, Arc<CertifiedKey>>, BTreeMap<String, String>);

impl Certificates {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, held: BTreeMap::new(), signer: None, proofs: BTreeMap::new() }
    }

    /// What another authority signed is issued again by this one.
    pub fn follow(&mut self, signer: Option<Vec<u8>>) {
        if self.signer != signer {
            self.held.retain(|(tls, _), _| *tls != Tls::Internal);
            self.signer = signer;
        }
    }

    /// What to show for these routes. Where a host has routes of several kinds an authority's wins over files, and files
    /// over our own.
    pub fn keep<'r>(
        &mut self,
        routes: impl Iterator<Item = &'r RouteSpec>,
        given: &RouteCertificates,
        authority: impl Fn() -> Option<Authority>,
        now: Timestamp,
    ) -> Shown {
        let wanted = routes.filter(|route| route.tls != Tls::Off);
        let wanted = wanted.filter_map(|route| Some((route.tls, route.host.clone()?)));
        let wanted: std::collections::BTreeSet<(Tls, String)> = wanted.collect();
        self.held.retain(|key, _| wanted.contains(key));
        let (mut shown, mut missing) = Shown::default();
        for (tls, host) in wanted {
            match self.see_to(tls, &host, given, &authority, now) {
                Ok(key) => {
                    missing.remove(&host);
                    shown.insert(host, key);
                }
                Err(why) if !shown.contains_key(&host) => drop(missing.insert(host, why)),
                Err(_) => {}
            }
        }
        (shown, missing)
    }

    /// What an ACME authority is answered, each made once.
    pub fn prove(&mut self, given: &RouteCertificates) -> BTreeMap<String, AcmeProof> {
        self.proofs.retain(|host, (challenge, _)| given.challenges.get(host) == Some(challenge));
        for (host, challenge) in &given.challenges {
            if self.proofs.contains_key(host) {
                continue;
            }
            match proof(host, challenge) {
                Ok(proof) => drop(self.proofs.insert(host.clone(), (challenge.clone(), proof))),
                Err(error) => tracing::warn!(host, %error, "cannot answer an ACME challenge"),
            }
        }
        self.proofs.iter().map(|(host, (_, proof))| (host.clone(), proof.clone())).collect()
    }

    /// The challenges that are answered, by host.
    pub fn answered(&self) -> BTreeMap<String, String> {
        let answered = self.proofs.iter();
        answered.map(|(host, (challenge, _))| (host.clone(), challenge.token.clone())).collect()
    }

    /// Everything this node holds or should hold.
    pub fn held(&self) -> Vec<HeldCertificate> {
        let told = |((tls, host), held): (&(Tls, String), &LoadedCertificate)| HeldCertificate {
            host: bare_name(host),
            tls: *tls,
            facts: held.shown.as_ref().ok().and_then(|it| CertificateFacts::of(it.cert.first()?)),
            renew_at: (held.source == LoadedFrom::Authority && held.shown.is_ok())
                .then_some(held.due),
            error: held.error.clone().or_else(|| held.shown.as_ref().err().cloned()),
            failures: held.failures,
        };
        self.held.iter().map(told).collect()
    }

    fn see_to(
        &mut self,
        tls: Tls,
        host: &str,
        given: &RouteCertificates,
        authority: &impl Fn() -> Option<Authority>,
        now: Timestamp,
    ) -> Result<Arc<CertifiedKey>, String> {
        let key = (tls, host.to_owned());
        let known = self.held.remove(&key);
        let name = bare_name(host);
        let held = match tls {
            Tls::Auto => taken(given.auto.get(&name), known, "no certificate was issued yet", now),
            Tls::Files => match known {
                Some(held) if held.due > now => held,
                known => read(&self.dir, host, known, now),
            },
            Tls::Internal | Tls::Off => match (known, given.internal.get(&name)) {
                (known, Some(given)) => taken(Some(given), known, "", now),
                (Some(held), None) if held.due > now && held.source == LoadedFrom::Authority => {
                    held
                }
                (known, None) => issued(host, authority(), known, now),
            },
        };
        let shown = held.shown.clone();
        self.held.insert(key, held);
        shown
    }
}

fn later(now: Timestamp) -> Timestamp {
    now.plus(Millis(u64::try_from(LOOK.as_millis()).unwrap_or(u64::MAX)))
}

impl LoadedCertificate {
    fn good(key: CertifiedKey, due: Timestamp, source: LoadedFrom) -> Self {
        Self { shown: Ok(Arc::new(key)), due, source, error: None, failures: 0 }
    }

    /// Nothing good was found: what was shown before is shown further.
    fn failed(known: Option<Self>, host: &str, why: String, due: Timestamp) -> Self {
        let failures = known.as_ref().map_or(0, |known| known.failures).saturating_add(1);
        if let Some(Self { shown: Ok(old), source, error, .. }) = known {
            // Said once, and then again when it is another.
            if error.as_ref() != Some(&why) {
                tracing::warn!(host, %why, "cannot use a new certificate; the one before it is shown");
            }
            return Self { shown: Ok(old), due, source, error: Some(why), failures };
        }
        let (shown, source) = (Err(why), LoadedFrom::Nothing);
        Self { shown, due, source, error: None, failures }
    }
}

fn issued(
    host: &str,
    authority: Option<Authority>,
    known: Option<LoadedCertificate>,
    now: Timestamp,
) -> LoadedCertificate {
    match authority.map(|it| it.issue_host(host, now, LIFETIME)) {
        Some(Ok(key)) => {
            let due = now.plus(Millis(LIFETIME.0 - RENEWED.0));
            LoadedCertificate::good(key, due, LoadedFrom::Authority)
        }
        Some(Err(error)) => LoadedCertificate::failed(known, host, chain(&error), later(now)),
        None => {
            let why = "the leader has not given this node one yet".to_owned();
            LoadedCertificate::failed(known, host, why, later(now))
        }
    }
}

/// What this node was given, made ready once.
fn taken(
    given: Option<&Arc<HostKey>>,
    known: Option<LoadedCertificate>,
    missing: &str,
    now: Timestamp,
) -> LoadedCertificate {
    let due = later(now);
    let Some(given) = given else {
        let (shown, source) = (Err(missing.to_owned()), LoadedFrom::Nothing);
        return LoadedCertificate { shown, due, source, error: None, failures: 0 };
    };
    let source = LoadedFrom::Given(Arc::clone(given));
    match known {
        Some(held) if held.source == source && held.shown.is_ok() => held,
        known => match certified(given) {
            Ok(key) => LoadedCertificate::good(key, due, source),
            Err(error) => LoadedCertificate::failed(known, "", error.to_string(), due),
        },
    }
}

/// What shows the authority that the host is ours.
fn proof(host: &str, challenge: &AcmeChallenge) -> Result<AcmeProof, rcgen::Error> {
    let AcmeChallenge { kind, token, key_authorization } = challenge;
    if *kind == ChallengeKind::Http01 {
        let (token, proof) = (token.clone(), key_authorization.clone());
        return Ok(AcmeProof::Http { token, proof });
    }
    let mut params = CertificateParams::new([host.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    let digest = Sha256::digest(key_authorization.as_bytes());
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(&digest)];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let key = sign::any_supported_type(&key).map_err(|_| rcgen::Error::CouldNotParseKeyPair)?;
    Ok(AcmeProof::Tls(Arc::new(CertifiedKey::new(vec![certificate.der().clone()], key))))
}

/// The host's certificate from its files. While new ones cannot be read, the old one is shown.
fn read(
    dir: &Path,
    host: &str,
    known: Option<LoadedCertificate>,
    now: Timestamp,
) -> LoadedCertificate {
    let name = bare_name(host).replace('*', "_");
    let paths = [dir.join(format!("{name}.crt")), dir.join(format!("{name}.key"))];
    let due = later(now);
    let stamp = stamp(&paths);
    match (known, stamp) {
        (Some(known), Ok(stamp))
            if known.source == LoadedFrom::Files(stamp) && known.error.is_none() =>
        {
            LoadedCertificate { due, ..known }
        }
        (known, stamp) => match stamp.and_then(|stamp| Ok((stamp, load(&paths)?))) {
            Ok((stamp, key)) => {
                if known.is_some_and(|known| known.shown.is_ok()) {
                    tracing::info!(host, "a new certificate is shown");
                }
                LoadedCertificate::good(key, due, LoadedFrom::Files(stamp))
            }
            Err(why) => LoadedCertificate::failed(known, host, why, due),
        },
    }
}

fn stamp(paths: &[PathBuf; 2]) -> Result<[(SystemTime, u64); 2], String> {
    let at = |path: &PathBuf| {
        let found = fs::metadata(path)?;
        if found.len() > MAX_FILE {
            return Err(io::Error::other("it is too large"));
        }
        Ok((found.modified()?, found.len()))
    };
    let said = |path: &PathBuf| at(path).map_err(|error| unread(path, &error));
    Ok([said(&paths[0])?, said(&paths[1])?])
}

fn load([chain, key]: &[PathBuf; 2]) -> Result<CertifiedKey, String> {
    let text = |path: &PathBuf| fs::read(path).map_err(|error| unread(path, &error));
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text(chain)?).collect();
    let certificates = certificates.map_err(|error| unread(chain, &error))?;
    let certificates: Vec<CertificateDer<'static>> = certificates;
    if certificates.is_empty() {
        return Err(unread(chain, &"there is no certificate in it"));
    }
    let private =
        PrivateKeyDer::from_pem_slice(&text(key)?).map_err(|error| unread(key, &error))?;
    let private = sign::any_supported_type(&private).map_err(|error| unread(key, &error))?;
    let certified = CertifiedKey::new(certificates, private);
    match certified.keys_match() {
        // Of some kinds of key nobody can tell.
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
            Ok(certified)
        }
        Err(_) => Err(unread(key, &"it is not the key of the certificate beside it")),
    }
}

fn unread(path: &Path, why: &impl std::fmt::Display) -> String {
    format!("cannot read {}: {why}", path.display())
}

#[cfg(test)]
mod tests {
    use plimsoll_model::ServiceName;
    use rcgen::generate_simple_self_signed;
    use rustls::pki_types::PrivatePkcs8KeyDer;

    use super::*;
    use plimsoll_peer::pki::testkit;

    fn route(host: &str, tls: Tls) -> RouteSpec {
        let (host, path) = (Some(host.to_owned()), "/".to_owned());
        let service = ServiceName::new("web").unwrap();
        RouteSpec { host, path, strip_path: false, service, port: 80, tls }
    }

    #[test]
    fn the_cells_authority_issues_and_renews_what_hosts_show() {
        let (mut certificates, now) = (Certificates::new(PathBuf::new()), testkit::now());
        let routes = [route("shop.example", Tls::Internal), route("plain.example", Tls::Off)];
        let authority = || Some(testkit::cell("blue"));
        let mut keep =
            |now| certificates.keep(routes.iter(), &RouteCertificates::default(), authority, now).0;
        let first = keep(now);
        assert_eq!(first.keys().collect::<Vec<_>>(), ["shop.example"]);
        let again = keep(now.plus(Millis::minutes(60)));
        assert!(Arc::ptr_eq(&first["shop.example"], &again["shop.example"]), "it is good still");
        let late = keep(now.plus(Millis(LIFETIME.0 - RENEWED.0)));
        assert!(!Arc::ptr_eq(&first["shop.example"], &late["shop.example"]), "in good time");
        certificates.follow(Some(vec![2]));
        let rotated =
            certificates.keep(routes.iter(), &RouteCertificates::default(), authority, now).0;
        assert!(!Arc::ptr_eq(&late["shop.example"], &rotated["shop.example"]), "another signs");
    }

    #[test]
    fn a_host_without_a_certificate_is_said_with_the_reason() {
        let mut certificates = Certificates::new(PathBuf::from("/nowhere"));
        let routes = [route("a.example", Tls::Internal), route("*.b.example", Tls::Files)];
        let (shown, missing) = certificates.keep(
            routes.iter(),
            &RouteCertificates::default(),
            || None,
            testkit::now(),
        );
        assert!(shown.is_empty());
        assert_eq!(missing["a.example"], "the leader has not given this node one yet");
        assert!(missing["*.b.example"].starts_with("cannot read /nowhere/_.b.example.crt: "));
        let (_, missing) =
            certificates.keep([].iter(), &RouteCertificates::default(), || None, testkit::now());
        assert!(missing.is_empty(), "what nobody asks for is not missed");
    }

    fn write(dir: &Path, host: &str, key_of: Option<&rcgen::CertifiedKey<KeyPair>>) {
        let made = generate_simple_self_signed([host.to_owned()]).unwrap();
        let pem = |label: &str, der: &[u8]| {
            use base64::Engine as _;
            let text = base64::engine::general_purpose::STANDARD.encode(der);
            format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
        };
        let key = &key_of.unwrap_or(&made).signing_key;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        fs::write(dir.join(format!("{host}.crt")), pem("CERTIFICATE", made.cert.der())).unwrap();
        let key = pem("PRIVATE KEY", key.secret_pkcs8_der());
        fs::write(dir.join(format!("{host}.key")), key).unwrap();
    }

    #[test]
    fn files_are_read_again_when_they_change_and_kept_while_they_cannot_be() {
        let dir = tempfile::TempDir::new().unwrap();
        let mut certificates = Certificates::new(dir.path().to_owned());
        let (routes, mut now) = ([route("shop.example", Tls::Files)], testkit::now());
        let mut keep = || {
            now = now.plus(Millis::minutes(1));
            let shown =
                certificates.keep(routes.iter(), &RouteCertificates::default(), || None, now);
            (shown.0, certificates.held())
        };
        write(dir.path(), "shop.example", None);
        let first = keep().0.remove("shop.example").unwrap();
        assert!(Arc::ptr_eq(&first, &keep().0["shop.example"]), "nothing has changed");
        let other = generate_simple_self_signed(["other.example".to_owned()]).unwrap();
        write(dir.path(), "shop.example", Some(&other));
        let (shown, held) = keep();
        assert!(Arc::ptr_eq(&first, &shown["shop.example"]), "the key is another's");
        let error = held[0].error.clone().unwrap();
        assert!(error.ends_with("it is not the key of the certificate beside it"), "{error}");
        assert_eq!((held[0].failures, keep().1[0].failures), (1, 2), "it is counted");
        assert!(held[0].facts.is_some(), "what is shown is told all the same");
        fs::write(dir.path().join("shop.example.crt"), "rubbish").unwrap();
        assert!(Arc::ptr_eq(&first, &keep().0["shop.example"]), "half a file is none");
        write(dir.path(), "shop.example", None);
        let (shown, held) = keep();
        assert!(!Arc::ptr_eq(&first, &shown["shop.example"]), "a new one is taken");
        assert_eq!((held[0].failures, held[0].error.clone()), (0, None));
    }

    #[test]
    fn what_a_node_is_given_is_shown_as_it_changes_and_kept_while_it_does_not() {
        let mut certificates = Certificates::new(PathBuf::new());
        let routes = [route("Auto.example", Tls::Auto), route("in.example", Tls::Internal)];
        let given = |host: &str| {
            let (chain, key) =
                testkit::cell("blue").issue_host_parts(host, testkit::now(), LIFETIME).unwrap();
            let key = plimsoll_model::acme::SecretKey::new(key);
            (host.to_owned(), Arc::new(HostKey { chain, key }))
        };
        let mut keep = |given: &RouteCertificates| {
            let shown = certificates.keep(routes.iter(), given, || None, testkit::now());
            (shown, certificates.held())
        };
        let ((shown, missing), _) = keep(&RouteCertificates::default());
        assert!(shown.is_empty());
        assert_eq!(missing["Auto.example"], "no certificate was issued yet");
        let (auto, internal) = ([given("auto.example")].into(), [given("in.example")].into());
        let told = RouteCertificates { auto, internal, ..RouteCertificates::default() };
        let ((shown, missing), held) = keep(&told);
        assert_eq!((shown.len(), missing.len()), (2, 0));
        assert_eq!(held[0].facts.as_ref().map(|it| it.issuer.starts_with("blue ")), Some(true));
        assert!(Arc::ptr_eq(&shown["in.example"], &keep(&told).0.0["in.example"]));
        let renewed = RouteCertificates { auto: [given("auto.example")].into(), ..told.clone() };
        let ((again, _), _) = keep(&renewed);
        assert!(!Arc::ptr_eq(&shown["Auto.example"], &again["Auto.example"]));
        assert!(Arc::ptr_eq(&shown["in.example"], &again["in.example"]));
    }

    #[test]
    fn files_win_where_a_host_has_both() {
        let dir = tempfile::TempDir::new().unwrap();
        write(dir.path(), "shop.example", None);
        let mut certificates = Certificates::new(dir.path().to_owned());
        let routes = [route("shop.example", Tls::Files), route("shop.example", Tls::Internal)];
        let authority = || Some(testkit::cell("blue"));
        let (shown, missing) = certificates.keep(
            routes.iter(),
            &RouteCertificates::default(),
            authority,
            testkit::now(),
        );
        assert_eq!(shown["shop.example"].cert.len(), 1, "ours comes with the authority's");
        assert!(missing.is_empty());
    }
}
