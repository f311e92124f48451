//! What people paste and newcomers send, broken at random: login strings, tokens with and without an address, addresses,
//! requests for a certificate, the file of a node's identity.

use std::fs;

use plimsoll_fuzz::Fuzz;

use super::testkit::{cell, now};
use super::*;

/// What no error may repeat: it is most of a secret.
const SECRET: std::ops::Range<usize> = 8..40;

fn logins() -> Vec<String> {
    let prints = [Fingerprint::of(b"blue"), Fingerprint::of(b"next")];
    let login = |addresses: &[&str]| {
        let addresses = addresses.iter().map(|&address| address.to_owned());
        Login::new(OperatorToken::new().unwrap(), prints, addresses).to_string()
    };
    vec![login(&[]), login(&["10.0.0.1:7654"]), login(&["ash:7654", "[fd00::2]:7654", "a:1"])]
}

#[test]
fn no_broken_login_or_token_breaks_its_reader_or_is_repeated() {
    let join = JoinToken::new(Fingerprint::of(b"blue")).unwrap();
    let mut corpus = logins();
    corpus.extend([
        join.to_string(),
        format!("{join}@10.0.0.1"),
        format!("{join}@[fd00::2]:7117"),
        format!("{join}@ash.example:7117"),
        OperatorToken::new().unwrap().to_string(),
        Fingerprint::of(b"blue").to_string(),
    ]);
    let secrets: Vec<String> = corpus.iter().map(|text| text[SECRET].to_owned()).collect();
    let words =
        ["@", ":", "[", "]", "plj_", "plo_", "pll_", "::", " ", "\n", "\u{130}", "\u{2028}", "é"];
    let fuzz = corpus.into_iter().fold(Fuzz::new("login").one_of(3).words(&words), Fuzz::input);
    fuzz.run(|input| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        let mut said = Vec::new();
        match text.parse::<Login>() {
            Ok(login) => assert_eq!(login.to_string().parse(), Ok(login)),
            Err(error) => said.push(error.to_string()),
        }
        match text.parse::<JoinAddress>() {
            Ok(join) => assert_eq!(join.to_string().parse(), Ok(join)),
            Err(InvalidJoin::Address(_)) => {}
            Err(error) => said.push(error.to_string()),
        }
        match text.parse::<JoinToken>() {
            Ok(token) => assert_eq!(token.to_string().parse(), Ok(token)),
            Err(error) => said.push(error.to_string()),
        }
        match text.parse::<OperatorToken>() {
            Ok(token) => assert_eq!(token.to_string().parse(), Ok(token)),
            Err(error) => said.push(error.to_string()),
        }
        if let Ok(address) = with_port(text) {
            assert_eq!(with_port(&address).as_ref(), Ok(&address), "it has its port");
        }
        let _ = (text.parse::<Fingerprint>(), Login::is_meant(text));
        for secret in &secrets {
            assert!(!said.iter().any(|said| said.contains(secret.as_str())), "{said:?}");
        }
    });
}

#[test]
fn no_broken_certificate_request_breaks_who_signs_it() {
    let authority = cell("blue");
    let (_, csr) = Identity::new_key().unwrap();
    let node = testkit::node("ash");
    let mut is_signed = false;
    Fuzz::new("csr").one_of(3).input(csr.as_der()).run(|input| {
        let Ok(csr) = Csr::from_der(input) else { return };
        is_signed = true;
        let signed = authority.issue(&csr, &node, now(), NODE_LIFETIME).unwrap();
        assert_eq!(Caller::of(&signed).unwrap().node, node, "it is for whom it was asked");
    });
    assert!(is_signed, "one that is whole is signed");
}

#[test]
fn no_broken_identity_file_breaks_its_reader() {
    let dir = tempfile::tempdir().unwrap();
    cell("blue").identity("ash", now(), NODE_LIFETIME).store(dir.path()).unwrap();
    let file = Identity::file(dir.path());
    let words =
        ["-----BEGIN CERTIFICATE-----\n", "-----END PRIVATE KEY-----\n", "authority-epoch: "];
    Fuzz::new("identity").one_of(3).words(&words).input(fs::read(&file).unwrap()).run(|input| {
        fs::write(&file, input).unwrap();
        let _ = Identity::load(dir.path());
        let _ = fingerprints_in(input);
        let _ = operator_key_in(input);
        let _ = OperatorCertificate::from_pem(input);
    });
}
