use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use expect_test::expect;
use plimsoll_model::{CellId, Millis, Timestamp};

use super::testkit::{cell, node, now};
use super::token::with_port;
use super::trust::Anchor;
use super::{
    AUTHORITY_LIFETIME, Authority, Caller, CertificateRefusal, Credentials, Csr, Error,
    Fingerprint, Identity, InvalidJoin, InvalidToken, JoinAddress, JoinToken, NODE_LIFETIME,
    OperatorToken,
};

#[test]
fn a_certificate_names_the_node_that_the_cell_says_from_an_hour_ago_until_its_lifetime_is_over() {
    let authority = cell("blue");
    let at = now();
    let identity = authority.identity("ash", at, NODE_LIFETIME);
    assert_eq!(identity.caller().to_string(), "ash of cell blue");
    let anchor = Anchor::new(authority.certificate()).unwrap();
    let hours = |count: u64| Millis::minutes(60 * count);
    let back = |span: Millis| Timestamp(at.0 - span.0);
    let good = Ok(Caller::new(authority.cell_id(), &node("ash")));
    for (case, time, judged) in [
        ("now", at, good.clone()),
        ("to a clock that is 15 s behind", back(Millis::seconds(15)), good.clone()),
        ("to a clock that is 59 min behind", back(Millis::minutes(59)), good.clone()),
        (
            "to a clock that is two hours behind",
            back(hours(2)),
            Err(CertificateRefusal::NotYetValid),
        ),
        ("on its last day", at.plus(hours(30 * 24 - 1)), good),
        ("a day later", at.plus(hours(31 * 24)), Err(CertificateRefusal::Expired)),
    ] {
        assert_eq!(anchor.check(identity.certificate(), time), judged, "{case}");
    }
}

#[test]
fn an_authority_is_the_same_after_it_was_kept_and_shows_its_key_to_nobody() {
    let authority = cell("blue");
    let parts = authority.to_parts();
    let kept = serde_json::to_string(&parts).unwrap();
    let parts = serde_json::from_str(&kept).unwrap();
    let again = Authority::from_parts(&parts).unwrap();
    assert_eq!(again.fingerprint(), authority.fingerprint());
    let identity = again.identity("ash", now(), NODE_LIFETIME);
    let anchor = Anchor::new(authority.certificate()).unwrap();
    assert!(anchor.check(identity.certificate(), now()).is_ok());

    let shown = format!("{authority:?} {parts:?} {identity:?} {:?}", Credentials::new(&identity));
    assert!(!shown.contains(&format!("{:?}", &parts.key[..4]).replace(['[', ']'], "")), "{shown}");
    assert!(shown.contains(&authority.fingerprint().to_string()), "{shown}");
    let (key, _) = Identity::new_key().unwrap();
    assert_eq!(format!("{key:?}"), "NodeKey");
}

#[test]
fn a_certificate_does_not_outlive_its_authority() {
    let authority = cell("blue");
    let late = now().plus(Millis(AUTHORITY_LIFETIME.0 - Millis::minutes(60).0));
    let identity = authority.identity("ash", late, NODE_LIFETIME);
    assert!(identity.expires_at() <= now().plus(AUTHORITY_LIFETIME));
}

#[test]
fn a_certificate_of_another_cell_is_told_from_one_of_nobody() {
    let (blue, other_blue, green) = (cell("blue"), cell("blue"), cell("green"));
    let anchor = Anchor::new(blue.certificate()).unwrap();
    for other in [&other_blue, &green] {
        let identity = other.identity("ash", now(), NODE_LIFETIME);
        let says = identity.caller().clone();
        let judged = anchor.check(identity.certificate(), now());
        assert_eq!(judged, Err(CertificateRefusal::WrongCell { says }));
    }
    let judged = anchor.check(green.certificate(), now());
    assert!(judged.is_err(), "an authority is no node");
    assert!(anchor.check(blue.certificate(), now()).is_err(), "not even our own: {judged:?}");
    assert_eq!(anchor.check(&vec![0; 100].into(), now()), Err(CertificateRefusal::Malformed));
}

#[test]
fn a_request_must_be_signed_with_its_own_key_of_the_one_kind() {
    let (_, csr) = Identity::new_key().unwrap();
    let der = csr.as_der().to_vec();
    assert_eq!(Csr::from_der(&der).unwrap(), csr);
    let mut forged = der.clone();
    let last = forged.len() - 3;
    forged[last] ^= 1;
    for (case, der) in [("forged", &forged[..]), ("cut", &der[..50]), ("empty", &[])] {
        assert!(matches!(Csr::from_der(der), Err(Error::BadRequest)), "{case}");
    }
    let other = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let other = rcgen::CertificateParams::default().serialize_request(&other).unwrap();
    assert!(matches!(Csr::from_der(other.der()), Err(Error::BadRequest)), "another kind of key");
}

#[test]
fn what_a_request_says_beside_its_key_is_not_heard() {
    let authority = cell("blue");
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let names = vec!["birch.blue.plimsoll.internal".to_owned()];
    let mut wish = rcgen::CertificateParams::new(names).unwrap();
    wish.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    let csr = Csr::from_der(wish.serialize_request(&key).unwrap().der()).unwrap();
    let certificate = authority.issue(&csr, &node("ash"), now(), NODE_LIFETIME).unwrap();
    assert_eq!(Caller::of(&certificate).unwrap().node, node("ash"));
    // Nor does it sign others: not even for somebody who has chosen to believe it.
    let issuer = rcgen::Issuer::from_ca_cert_der(&certificate, key).unwrap();
    assert_eq!(issuer.key_usages(), [rcgen::KeyUsagePurpose::DigitalSignature]);
}

#[test]
fn an_identity_is_made_of_what_belongs_together() {
    let (blue, green) = (cell("blue"), cell("green"));
    let (key, csr) = Identity::new_key().unwrap();
    let (other_key, _) = Identity::new_key().unwrap();
    let certificate = blue.issue(&csr, &node("ash"), now(), NODE_LIFETIME).unwrap();
    let made = Identity::new(other_key, certificate.clone(), blue.certificate().clone());
    assert!(matches!(made, Err(Error::KeyMismatch)), "{made:?}");
    let made = Identity::new(key, certificate, green.certificate().clone());
    assert!(
        matches!(made, Err(Error::Untrusted(CertificateRefusal::WrongCell { .. }))),
        "{made:?}"
    );
}

#[test]
fn an_identity_is_kept_for_its_owner_alone_and_replaced_whole() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(Identity::load(dir.path()).unwrap(), None);
    let authority = cell("blue");
    for name in ["ash", "birch"] {
        let identity = authority.identity(name, now(), NODE_LIFETIME);
        // What a crash left behind is in nobody's way.
        let file = Identity::file(dir.path());
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file.with_extension("pem.new"), "half").unwrap();
        identity.store(dir.path()).unwrap();
        assert_eq!(Identity::load(dir.path()).unwrap(), Some(identity));
        let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file), mode(&dir.path().join("tls"))), (0o600, 0o700));
    }
    let file = Identity::file(dir.path());
    let text = fs::read_to_string(&file).unwrap();
    let without_authority = &text[..text.rfind("-----BEGIN").unwrap()];
    for (case, damaged) in
        [("empty", ""), ("cut", &text[..200]), ("a part short", without_authority)]
    {
        fs::write(&file, damaged).unwrap();
        let error = Identity::load(dir.path()).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{case}: {error}");
        assert!(!error.to_string().contains("MIG"), "the key stays out of the message");
    }
}

#[test]
fn a_certificate_is_renewed_when_a_third_of_its_lifetime_is_left() {
    let days = |count: u64| Millis::minutes(count * 24 * 60);
    let at = now();
    let identity = cell("blue").identity("ash", at, NODE_LIFETIME);
    for (case, after, due, expired) in [
        ("new", 0, false, false),
        ("after 19 days of 30", 19, false, false),
        ("after 21 days", 21, true, false),
        ("after 31 days", 31, true, true),
    ] {
        let then = at.plus(days(after));
        assert_eq!(
            (identity.renew_due(then), identity.has_expired(then)),
            (due, expired),
            "{case}"
        );
    }
}

#[test]
fn credentials_are_renewed_by_the_same_node_of_the_same_cell_only() {
    let (blue, green) = (cell("blue"), cell("green"));
    let credentials = blue.node("ash");
    credentials.renew(&blue.identity("ash", now(), NODE_LIFETIME)).unwrap();
    for other in
        [blue.identity("birch", now(), NODE_LIFETIME), green.identity("ash", now(), NODE_LIFETIME)]
    {
        assert!(matches!(credentials.renew(&other), Err(Error::BadCertificate { .. })));
    }
}

#[test]
fn a_node_trusts_two_authorities_for_a_while_and_remembers_which() {
    let (old, new, dir) = (cell("blue"), cell("blue"), tempfile::tempdir().unwrap());
    let both = || [old.certificate().clone(), new.certificate().clone()];
    let identity = old.identity("ash", now(), NODE_LIFETIME);
    let credentials = Credentials::new(&identity).unwrap();
    let theirs = new.identity("ash", now(), NODE_LIFETIME);
    assert!(credentials.renew(&theirs).is_err(), "it is not trusted yet");

    let identity = identity.trusting(both(), 7);
    credentials.renew(&identity).unwrap();
    identity.store(dir.path()).unwrap();
    let kept = Identity::load(dir.path()).unwrap().unwrap();
    assert_eq!((&kept, kept.epoch(), kept.anchors().count()), (&identity, 7, 2));
    let text = b"a text";
    for authority in [&old, &new] {
        assert!(credentials.trusts(authority.fingerprint()));
        assert!(credentials.has_signed(text, &authority.sign(text).unwrap()));
    }

    credentials.renew(&theirs.clone().trusting(both(), 8)).unwrap();
    assert_eq!(credentials.fingerprint(), new.fingerprint());
    credentials.renew(&theirs.trusting([new.certificate().clone()], 9)).unwrap();
    assert!(!credentials.trusts(old.fingerprint()) && credentials.trusts(new.fingerprint()));
    assert!(!credentials.has_signed(text, &old.sign(text).unwrap()), "nor what it has signed");
}

#[test]
fn a_join_token_carries_the_fingerprint_and_its_hash_stays_the_same() {
    let fingerprint = cell("blue").fingerprint();
    let token = JoinToken::new(fingerprint).unwrap();
    let text = token.to_string();
    assert!(text.starts_with("plj_") && text.len() == 92, "{text}");
    let read: JoinToken = text.parse().unwrap();
    assert_eq!((read.fingerprint(), read.secret_hash()), (fingerprint, token.secret_hash()));
    assert_eq!(text.to_uppercase().parse(), Ok(token.clone()), "also when it was shouted");
    assert_ne!(JoinToken::new(fingerprint).unwrap().secret_hash(), token.secret_hash());
    assert!(!format!("{token:?}").contains(&text[4..20]));
    assert_eq!(fingerprint.to_string().parse::<Fingerprint>().unwrap(), fingerprint);

    let operator = OperatorToken::new().unwrap();
    let text = operator.to_string();
    assert!(text.starts_with("plo_") && text.len() == 60, "{text}");
    assert_eq!(text.parse::<OperatorToken>().unwrap().hash(), operator.hash());
    assert_eq!(format!("{operator:?}"), "OperatorToken");
}

#[test]
fn a_text_that_is_no_token_says_why_and_does_not_repeat_itself() {
    let token = JoinToken::new(Fingerprint::of(b"blue")).unwrap().to_string();
    let operator = OperatorToken::new().unwrap().to_string();
    let typo = format!("{}{}", &token[..91], if token.ends_with('7') { '8' } else { '7' });
    let mut said = String::new();
    for text in [
        "",
        "SWMTKN-1-abc",
        &operator,
        &token[..80],
        &format!("{}!{}", &token[..30], &token[31..]),
        &typo,
    ] {
        let error = text.parse::<JoinToken>().unwrap_err();
        writeln!(said, "{error}").unwrap();
        assert!(!said.contains(&token[8..20]));
    }
    writeln!(said, "{}", token.parse::<OperatorToken>().unwrap_err()).unwrap();
    writeln!(said, "{}", "hunter2".parse::<OperatorToken>().unwrap_err()).unwrap();
    expect![[r"
        there is no token
        this is not a join token: those begin with plj_
        this is an operator token; a join token begins with plj_
        the token has 76 characters after plj_, it should have 88: part of it is missing or doubled
        the token has '!' as its character 31, which no token has
        the token is mistyped: its check does not fit
        this is a join token; an operator token begins with plo_
        this is not an operator token: those begin with plo_
    "]]
    .assert_eq(&said);
}

#[test]
fn a_token_comes_with_an_address_and_the_port_is_filled_in() {
    let token = JoinToken::new(Fingerprint::of(b"blue")).unwrap();
    let parse = |address: &str| format!("{token}@{address}").parse::<JoinAddress>();
    for (given, understood) in [
        ("10.0.0.1", "10.0.0.1:7117"),
        ("10.0.0.1:99", "10.0.0.1:99"),
        ("ash.example.org", "ash.example.org:7117"),
        ("ash:7000", "ash:7000"),
        ("::1", "[::1]:7117"),
        ("[fd00::2]", "[fd00::2]:7117"),
        ("[fd00::2]:7000", "[fd00::2]:7000"),
    ] {
        let joined = parse(given).unwrap();
        assert_eq!((joined.token.clone(), joined.address.as_str()), (token.clone(), understood));
        assert_eq!(joined.to_string().parse(), Ok(joined));
    }
    for address in
        ["", ":7117", "ash:", "ash:0", "ash:70000", "a sh", "[ash]", "[::1", "[::1]7", "a/b"]
    {
        let error = parse(address).unwrap_err();
        assert!(matches!(error, InvalidJoin::Address(_)), "{address}: {error}");
        assert!(with_port(address).is_err());
    }
    assert_eq!(token.to_string().parse::<JoinAddress>(), Err(InvalidJoin::NoAddress));
    let error = "hunter2".parse::<JoinAddress>().unwrap_err();
    assert!(matches!(error, InvalidJoin::Token(InvalidToken::Prefix { .. })), "{error}");
}

#[test]
fn two_cells_of_one_name_have_two_authorities() {
    let blue = CellId::new("blue").unwrap();
    let (one, other) = (Authority::found(&blue, now()), Authority::found(&blue, now()));
    assert_ne!(one.unwrap().fingerprint(), other.unwrap().fingerprint());
}

#[test]
fn a_hosts_certificate_is_nobodys_proof_of_being_a_node() {
    let authority = cell("blue");
    let issue = |host: &str| authority.issue_host(host, now(), NODE_LIFETIME);
    for reserved in
        ["ash.blue.plimsoll.internal", "Ash.Blue.Plimsoll.Internal.", "*.blue.plimsoll.internal"]
    {
        assert!(issue(reserved).is_err(), "{reserved}");
    }
    let issued = issue("shop.example").unwrap();
    assert!(Caller::of(&issued.cert[0]).is_err(), "it names no node");
    let (_, parsed) = x509_parser::parse_x509_certificate(&issued.cert[0]).unwrap();
    let usage = parsed.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.server_auth && !usage.client_auth);
    let wild = issue("*.Shop.Example.").unwrap();
    let (_, parsed) = x509_parser::parse_x509_certificate(&wild.cert[0]).unwrap();
    let names = parsed.subject_alternative_name().unwrap().unwrap().value;
    assert_eq!(format!("{:?}", names.general_names), "[DNSName(\"*.shop.example\")]");
}
