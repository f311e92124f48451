//! The certificates that routes with TLS are served with: issued by the cell's authority, where this node holds it, or read
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

use plimsoll_model::spec::{RouteSpec, Tls};
use plimsoll_model::{Millis, Timestamp};
use plimsoll_runtime::chain;
use rustls::crypto::ring::sign;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use plimsoll_peer::pki::Authority;

/// How long one of our own is good for. It is in memory alone, and made anew with every start.
const LIFETIME: Millis = Millis::minutes(7 * 24 * 60);

/// How long before its end another takes its place: a node that cannot get one has days to be noticed.
const RENEWED: Millis = Millis::minutes(3 * 24 * 60);

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
}

#[derive(Debug)]
struct LoadedCertificate {
    /// What is shown, or why there is nothing to show.
    shown: Result<Arc<CertifiedKey>, String>,
    /// When to see to it again, by this node's clock.
    due: Timestamp,
    /// How the files were when they were read.
    stamp: Option<Stamp>,
}

/// When two files were last written.
type Stamp = (SystemTime, SystemTime);

/// Certificates by host, and hosts without one with the reason.
pub type Shown = (BTreeMap<String, Arc<CertifiedKey>>, BTreeMap<String, String>);

impl Certificates {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, held: BTreeMap::new(), signer: None }
    }

    /// What another authority signed is issued again by this one.
    pub fn follow(&mut self, signer: Option<Vec<u8>>) {
        if self.signer != signer {
            self.held.retain(|(tls, _), _| *tls != Tls::Internal);
            self.signer = signer;
        }
    }

    /// What to show for these routes. Files win over our own where a host has routes of both kinds.
    pub fn keep<'r>(
        &mut self,
        routes: impl Iterator<Item = &'r RouteSpec>,
        authority: impl Fn() -> Option<Authority>,
        now: Timestamp,
    ) -> Shown {
        let wanted = routes.filter(|route| route.tls != Tls::Off);
        let wanted = wanted.filter_map(|route| Some((route.tls, route.host.clone()?)));
        let wanted: std::collections::BTreeSet<(Tls, String)> = wanted.collect();
        self.held.retain(|key, _| wanted.contains(key));
        let (mut shown, mut missing) = Shown::default();
        for (tls, host) in wanted {
            match self.see_to(tls, &host, &authority, now) {
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

    fn see_to(
        &mut self,
        tls: Tls,
        host: &str,
        authority: &impl Fn() -> Option<Authority>,
        now: Timestamp,
    ) -> Result<Arc<CertifiedKey>, String> {
        let key = (tls, host.to_owned());
        let known = self.held.remove(&key);
        let held = match known {
            Some(held) if held.due > now => held,
            known if tls == Tls::Files => read(&self.dir, host, known, now),
            _ => issued(host, authority(), now),
        };
        let shown = held.shown.clone();
        self.held.insert(key, held);
        shown
    }
}

fn later(now: Timestamp) -> Timestamp {
    now.plus(Millis(u64::try_from(LOOK.as_millis()).unwrap_or(u64::MAX)))
}

fn issued(host: &str, authority: Option<Authority>, now: Timestamp) -> LoadedCertificate {
    let shown = match authority.map(|it| it.issue_host(host, now, LIFETIME)) {
        Some(Ok(key)) => Ok(Arc::new(key)),
        Some(Err(error)) => Err(chain(&error)),
        None => Err("this node does not hold the cell's authority".to_owned()),
    };
    let due = if shown.is_ok() { now.plus(Millis(LIFETIME.0 - RENEWED.0)) } else { later(now) };
    LoadedCertificate { shown, due, stamp: None }
}

/// The host's certificate from its files. While new ones cannot be read, the old one is shown.
fn read(
    dir: &Path,
    host: &str,
    known: Option<LoadedCertificate>,
    now: Timestamp,
) -> LoadedCertificate {
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase().replace('*', "_");
    let paths = [dir.join(format!("{name}.crt")), dir.join(format!("{name}.key"))];
    let due = later(now);
    let stamp = stamp(&paths);
    if let Some(known) = known {
        if stamp.as_ref().ok() == known.stamp.as_ref() && known.shown.is_ok() {
            return LoadedCertificate { due, ..known };
        }
        let fresh = stamp.and_then(|stamp| Ok((stamp, load(&paths)?)));
        return match (fresh, known.shown) {
            (Ok((stamp, key)), _) => {
                LoadedCertificate { shown: Ok(Arc::new(key)), due, stamp: Some(stamp) }
            }
            (Err(why), Ok(old)) => {
                tracing::warn!(host, %why, "the certificate before it is shown");
                LoadedCertificate { shown: Ok(old), due, stamp: known.stamp }
            }
            (Err(why), Err(_)) => LoadedCertificate { shown: Err(why), due, stamp: None },
        };
    }
    match stamp.and_then(|stamp| Ok((stamp, load(&paths)?))) {
        Ok((stamp, key)) => LoadedCertificate { shown: Ok(Arc::new(key)), due, stamp: Some(stamp) },
        Err(why) => LoadedCertificate { shown: Err(why), due, stamp: None },
    }
}

fn stamp(paths: &[PathBuf; 2]) -> Result<Stamp, String> {
    let at = |path: &PathBuf| {
        let found = fs::metadata(path)?;
        if found.len() > MAX_FILE {
            return Err(io::Error::other("it is too large"));
        }
        found.modified()
    };
    let said = |path: &PathBuf| at(path).map_err(|error| unread(path, &error));
    Ok((said(&paths[0])?, said(&paths[1])?))
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
        let mut keep = |now| certificates.keep(routes.iter(), authority, now).0;
        let first = keep(now);
        assert_eq!(first.keys().collect::<Vec<_>>(), ["shop.example"]);
        let again = keep(now.plus(Millis::minutes(60)));
        assert!(Arc::ptr_eq(&first["shop.example"], &again["shop.example"]), "it is good still");
        let late = keep(now.plus(Millis(LIFETIME.0 - RENEWED.0)));
        assert!(!Arc::ptr_eq(&first["shop.example"], &late["shop.example"]), "in good time");
        certificates.follow(Some(vec![2]));
        let rotated = certificates.keep(routes.iter(), authority, now).0;
        assert!(!Arc::ptr_eq(&late["shop.example"], &rotated["shop.example"]), "another signs");
    }

    #[test]
    fn a_host_without_a_certificate_is_said_with_the_reason() {
        let mut certificates = Certificates::new(PathBuf::from("/nowhere"));
        let routes = [route("a.example", Tls::Internal), route("*.b.example", Tls::Files)];
        let (shown, missing) = certificates.keep(routes.iter(), || None, testkit::now());
        assert!(shown.is_empty());
        assert_eq!(missing["a.example"], "this node does not hold the cell's authority");
        assert!(missing["*.b.example"].starts_with("cannot read /nowhere/_.b.example.crt: "));
        let (_, missing) = certificates.keep([].iter(), || None, testkit::now());
        assert!(missing.is_empty(), "what nobody asks for is not missed");
    }

    fn write(dir: &Path, host: &str, key_of: Option<&rcgen::CertifiedKey<rcgen::KeyPair>>) {
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
            certificates.keep(routes.iter(), || None, now)
        };
        write(dir.path(), "shop.example", None);
        let first = keep().0.remove("shop.example").unwrap();
        assert!(Arc::ptr_eq(&first, &keep().0["shop.example"]), "nothing has changed");
        let other = generate_simple_self_signed(["other.example".to_owned()]).unwrap();
        write(dir.path(), "shop.example", Some(&other));
        assert!(Arc::ptr_eq(&first, &keep().0["shop.example"]), "the key is another's");
        write(dir.path(), "shop.example", None);
        assert!(!Arc::ptr_eq(&first, &keep().0["shop.example"]), "a new one is taken");
    }

    #[test]
    fn files_win_where_a_host_has_both() {
        let dir = tempfile::TempDir::new().unwrap();
        write(dir.path(), "shop.example", None);
        let mut certificates = Certificates::new(dir.path().to_owned());
        let routes = [route("shop.example", Tls::Files), route("shop.example", Tls::Internal)];
        let authority = || Some(testkit::cell("blue"));
        let (shown, missing) = certificates.keep(routes.iter(), authority, testkit::now());
        assert_eq!(shown["shop.example"].cert.len(), 1, "ours comes with the authority's");
        assert!(missing.is_empty());
    }
}
