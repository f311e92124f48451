//! Orders, from the first to one that another leader ends.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::*;

/// Asks a node in the clear.
fn plain(at: usize, host: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(format!("{}:{HTTP}", ip(at))).unwrap();
    stream.set_read_timeout(Some(ANSWER)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn every_node_answers_the_authority_and_serves_what_it_issues_over_http() {
    // Every fifth nonce is refused, and nothing is believed because it was before.
    let environment =
        [("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_WFE_NONCEREJECT", "20"), ("PEBBLE_AUTHZREUSE", "0")];
    let Some(pebble) = Pebble::start(&environment) else { return };
    let cell = cell(3, &pebble, &["--http", "--https"], &[]);
    for at in 0..3 {
        pebble.point(&format!("at-{at}.example"), &ip(at));
    }
    let hosts = ["at-0.example", "at-1.example", "at-2.example"];
    apply(&cell, &hosts.map(|host| (host, "auto")));
    for host in hosts {
        until_shown(&cell, &[0, 1, 2], host, &pebble);
        let told = told(&cell, 0, host);
        assert_eq!((told["source"].as_str(), told["last_error"].as_str()), (Some("auto"), None));
        assert!(told["issuer"].as_str().unwrap().starts_with("Pebble Intermediate"), "{told}");
        assert!(told["renew_at"].as_str() < told["expires_at"].as_str(), "{told}");
    }
    assert_eq!(pebble.issued(), 3, "one for each host\n{}", pebble.said());

    // What a stranger gets who knows where the authority asks.
    for path in ["abc", "", "../../../etc/passwd", "%2e%2e/key"] {
        let answer = plain(1, "at-1.example", &format!("/.well-known/acme-challenge/{path}"));
        let is_refused = answer.starts_with("HTTP/1.1 404") || answer.starts_with("HTTP/1.1 400");
        let is_redirected = path.starts_with("..") && answer.starts_with("HTTP/1.1 308");
        assert!(is_refused || is_redirected, "{path}: {answer}");
    }

    let table = cell.run(0, "get certificates");
    assert!(table.stdout().contains("at-2.example"), "{}", table.text());
    let route = cell.run(0, "explain route at-1.example/");
    assert!(
        route.stdout().contains("certificate (auto) by Pebble Intermediate"),
        "{}",
        route.text()
    );
    nothing_gives_a_key_away(&cell);
}

/// Neither the account's key nor any certificate's is in an answer, an export, the audit or a log. Keys are PKCS #8 of one
/// curve, which begin alike in whatever way they are written down.
fn nothing_gives_a_key_away(cell: &Cell) {
    let beginnings =
        ["MIGHAgEAMBMGByqGSM49", "308187020100301306072a8648ce3d0201", "48,129,135,2,1,0,48,19"];
    let mut told = vec![("log", (0..3).map(|at| cell.said(at)).collect::<String>())];
    for path in
        ["/v1/certificates", "/v1/audit", "/v1/status", "/v1/snapshot", "/v1/cell", "/v1/routes"]
    {
        told.push((path, cell.get(0, path).unwrap_or_default().to_string()));
    }
    for command in ["snapshot export", "audit -o json", "get certificates -o json"] {
        told.push((command, cell.run(0, command).text()));
    }
    for (whence, text) in &told {
        let plain: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        for beginning in beginnings {
            assert!(!plain.contains(beginning), "{whence} has a key");
        }
    }
    let audit = &told[2].1;
    assert!(audit.contains("certificate_issued") && audit.contains("acme_configured"), "{audit}");
}

#[test]
fn a_node_without_a_port_in_the_clear_proves_its_hosts_over_tls() {
    let Some(pebble) = Pebble::start(&[("PEBBLE_VA_NOSLEEP", "1")]) else { return };
    let cell = cell(1, &pebble, &["--https"], &[]);
    apply(&cell, &[("shop.example", "auto")]);
    until_shown(&cell, &[0], "shop.example", &pebble);
    let said = pebble.said();
    assert!(!said.contains("Attempting to validate w/ HTTP"), "{said}");
}

#[test]
fn a_validation_that_fails_says_why_and_waits_long_before_it_is_tried_again() {
    let Some(pebble) = Pebble::start(&[("PEBBLE_VA_NOSLEEP", "1")]) else { return };
    let cell = cell(1, &pebble, &["--http", "--https"], &[]);
    // Nobody listens there.
    pebble.point("lost.example", &ip(9));
    apply(&cell, &[("lost.example", "auto"), ("shop.example", "auto")]);
    cell.until("the failure is told", |cell| {
        !told(cell, 0, "lost.example")["last_error"].is_null()
    });
    let failed = told(&cell, 0, "lost.example");
    let error = failed["last_error"].as_str().unwrap();
    assert!(error.starts_with("connection: "), "{failed}");
    assert!(!failed["retry_at"].is_null() && failed["failures"] == 1, "{failed}");
    until_shown(&cell, &[0], "shop.example", &pebble);
    assert_eq!(
        told(&cell, 0, "lost.example")["failures"],
        1,
        "the other is not held up, and this one waits"
    );
    let route = cell.run(0, "explain route lost.example/");
    assert!(
        route.stdout().contains("certificate (auto): none; last error: connection"),
        "{}",
        route.text()
    );
}

#[test]
fn the_next_leader_ends_the_order_of_one_that_was_killed_with_one_certificate() {
    let environment = [("PEBBLE_VA_SLEEPTIME", "4"), ("PEBBLE_AUTHZREUSE", "0")];
    let Some(pebble) = Pebble::start(&environment) else { return };
    let mut cell = cell(3, &pebble, &["--http", "--https"], &[]);
    let leader = cell.until_led(&[0, 1, 2]);
    let left = cell.others(leader);
    pebble.point("shop.example", &ip(left[0]));
    apply(&cell, &[("shop.example", "auto")]);
    cell.until("the authority begins to ask", |_| pebble.said().contains("Pulled a task"));
    cell.kill(leader);
    until_shown(&cell, &left, "shop.example", &pebble);
    assert_eq!(pebble.issued(), 1, "{}", pebble.said());
    let orders = pebble.said().matches("Added order").count();
    assert_eq!(orders, 1, "it goes on with the same order\n{}", pebble.said());
}
