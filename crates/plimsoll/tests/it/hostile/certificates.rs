//! Operators who show a certificate: only the key that an admin enrolled counts, until it is revoked or expires, and never
//! on behalf of a page in a browser.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use plimsoll_peer::pki::{OperatorCertificate, operator_client_config_with};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};

use super::{code, exchange, operators, secured};
use crate::harness::{Cell, Site};
use crate::run::{Ran, run_in};

/// A certificate that nobody signed but its holder, with its key behind it.
fn certificate(dir: &Path, name: &str, last_year: i32) -> PathBuf {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    (params.not_before, params.not_after) =
        (date_time_ymd(2020, 1, 1), date_time_ymd(last_year, 1, 1));
    let certificate = params.self_signed(&key).unwrap();
    let path = dir.join(format!("{name}-{last_year}.pem"));
    fs::write(&path, certificate.pem() + &key.serialize_pem()).unwrap();
    path
}

struct Person<'c> {
    cell: &'c Cell,
    home: tempfile::TempDir,
}

impl Person<'_> {
    fn run(&self, args: &str) -> Ran {
        let config = self.home.path().to_str().unwrap();
        run_in(self.cell.dir.path(), args, "", &[("XDG_CONFIG_HOME", config)])
    }

    /// With the certificate and nothing else.
    fn showing(&self, certificate: &Path, args: &str) -> Ran {
        let host = format!("https://{}", self.cell.api(0).unwrap());
        let authority = self.cell.authority();
        let shown = certificate.display();
        self.run(&format!("{args} --host {host} --authority {authority} --certificate {shown}"))
    }
}

fn cell_of_one() -> Cell {
    let mut cell = Cell::idle(Site::Loopback);
    cell.up(0, None);
    cell
}

#[test]
fn a_certificate_is_worth_what_its_key_was_enrolled_for_and_only_until_it_is_revoked() {
    let cell = cell_of_one();
    let person = Person { cell: &cell, home: tempfile::tempdir().unwrap() };
    let dir = tempfile::tempdir().unwrap();
    let (own, other) = (certificate(dir.path(), "ci", 2090), certificate(dir.path(), "eve", 2090));

    let stranger = person.showing(&own, "status");
    assert_eq!(stranger.code(), 1, "{}", stranger.text());
    assert!(stranger.stderr().contains("not a certificate of this cell"), "{}", stranger.text());

    let enrolled =
        cell.run(0, &format!("token create ci --role deploy --for-certificate {}", own.display()));
    assert_eq!((enrolled.code(), enrolled.stdout().as_str()), (0, ""), "{}", enrolled.text());
    assert_eq!(person.showing(&own, "status").code(), 0);
    let who = person.showing(&own, "node drain ash");
    assert_eq!(who.code(), 1, "{}", who.text());
    assert!(who.stderr().contains("token ci has role deploy; this needs admin"), "{}", who.text());
    assert_ne!(person.showing(&other, "status").code(), 0, "another key, though it is named alike");

    // It is in a context as a token would be, and its key stays where it is.
    let host = format!("https://{}", cell.api(0).unwrap());
    let (authority, shown) = (cell.authority(), own.display());
    let login = person
        .run(&format!("login {host} --authority {authority} --certificate {shown} --name home"));
    assert_eq!(login.code(), 0, "{}", login.text());
    assert!(login.stderr().contains("as token:ci with role deploy"), "{}", login.text());
    assert_eq!(person.run("status").code(), 0);
    let kept = fs::read_to_string(person.home.path().join("plimsoll/contexts/home.json")).unwrap();
    assert!(!kept.contains("PRIVATE KEY") && kept.contains("\"token\": \"\""), "{kept}");

    let again = cell.run(0, &format!("token create dup --for-certificate {shown}"));
    assert_eq!(again.code(), 1, "one key is one identity: {}", again.text());
    assert_eq!(operators(&cell), ["ci"]);

    assert_eq!(cell.run(0, "token revoke ci").code(), 0);
    let revoked = person.run("status");
    assert_eq!(revoked.code(), 1, "{}", revoked.text());
    assert!(revoked.stderr().contains("or it was revoked"), "{}", revoked.text());
}

#[test]
fn a_certificate_that_expired_a_file_without_one_and_a_browser_are_refused() {
    let cell = cell_of_one();
    let person = Person { cell: &cell, home: tempfile::tempdir().unwrap() };
    let dir = tempfile::tempdir().unwrap();
    let (own, old) = (certificate(dir.path(), "ci", 2090), certificate(dir.path(), "ci", 2021));
    let enrol =
        |path: &Path| cell.run(0, &format!("token create ci --for-certificate {}", path.display()));
    let refused = enrol(&old);
    assert_eq!(refused.code(), 1, "{}", refused.text());
    assert!(refused.stderr().contains("has expired"), "{}", refused.text());
    let none = dir.path().join("none.pem");
    fs::write(&none, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    for path in [&none, &dir.path().join("missing.pem")] {
        assert_ne!(enrol(path).code(), 0, "{}", path.display());
        assert_ne!(person.showing(path, "status").code(), 0, "{}", path.display());
    }
    assert!(operators(&cell).is_empty());
    assert_ne!(person.showing(&old, "status").code(), 0, "no handshake with it");
    assert_eq!(enrol(&own).code(), 0);

    let shown = OperatorCertificate::from_pem(&fs::read(&own).unwrap()).unwrap();
    let ask = |headers: &[(&str, &str)]| {
        let tls = operator_client_config_with(&[cell.authority()], Some(&shown)).unwrap();
        let stream = TcpStream::connect(cell.api(0).unwrap()).unwrap();
        exchange(secured(stream, tls).unwrap(), "GET /v1/nodes", headers, b"").unwrap()
    };
    assert_eq!(ask(&[]).0, 200);
    for header in [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")] {
        let answer = ask(&[header]);
        assert_eq!((answer.0, code(&answer).as_str()), (401, "unauthorized"), "{header:?}");
        assert!(answer.1.contains("for programs"), "{}", answer.1);
    }
    let bearer = [("authorization", "Bearer plo_wrong")];
    assert_eq!(ask(&bearer).0, 401, "who brings a token asks with that");
}
