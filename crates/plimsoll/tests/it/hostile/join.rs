//! The one thing a stranger may ask for, and how much the state takes of those who are none.

use std::fs;

use bytes::Bytes;
use plimsoll_daemon::cell::join::{JoinRequest, PATH, VERSION};
use plimsoll_model::{Level, NodeFacts, NodeId, Resources};
use plimsoll_peer::pki::{Identity, JoinAddress, JoinToken};
use serde_json::Value;

use super::{ANSWER, say_unix};
use crate::harness::{Cell, Site};

/// Asks to join with this token, and gets the status and what was said.
fn ask(cell: &Cell, token: &JoinToken, name: &str) -> (u16, Value) {
    let (_, csr) = Identity::new_key().unwrap();
    let request = JoinRequest {
        version: VERSION,
        level: Level::BUILD,
        token: token.to_string(),
        node: NodeId::new(name).unwrap(),
        facts: NodeFacts { address: Some(cell.address(1)), ..NodeFacts::new(Resources::default()) },
        csr: csr.as_der().to_vec(),
    };
    let body = Bytes::from(serde_json::to_vec(&request).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (print, address) = (token.fingerprint(), cell.address(0));
    let met = runtime.block_on(plimsoll_peer::ask(print, &address, PATH, body, ANSWER)).unwrap();
    let told = serde_json::from_slice(&met.response.body).unwrap_or_default();
    (met.response.status.as_u16(), told)
}

fn applied(cell: &Cell) -> u64 {
    cell.get(0, "/healthz").unwrap()["applied"].as_u64().unwrap()
}

#[test]
fn a_stranger_who_guesses_join_tokens_writes_nothing_and_is_soon_told_to_wait() {
    let mut cell = Cell::idle(Site::Loopback);
    cell.up(0, None);
    let good: JoinAddress = cell.token(0).parse().unwrap();
    let before = applied(&cell);
    let (mut unknown, mut limited) = (0, 0);
    for nth in 0..60 {
        let guessed = JoinToken::new(good.token.fingerprint()).unwrap();
        let (status, told) = ask(&cell, &guessed, &format!("guess-{nth}"));
        match told["code"].as_str() {
            Some("token_unknown") => unknown += 1,
            Some("join_limited") => {
                assert_eq!(status, 429);
                limited += 1;
            }
            _ => panic!("{status} {told}"),
        }
    }
    assert!(unknown <= 20 && limited >= 40, "{unknown} looked at, {limited} sent away");
    let written = applied(&cell) - before;
    assert!(written < 10, "{written} entries for nobody");
    // It is the source that waits, not the token.
    assert_eq!(ask(&cell, &good.token, "birch").1["code"], "join_limited");
}

#[test]
fn what_a_deployment_keeps_is_bounded_and_the_refusal_says_by_how_much() {
    let mut cell = Cell::idle(Site::Loopback);
    cell.up(0, None);
    let dir = cell.dir.path();
    // Each as large as a file may be.
    let names: Vec<String> = (0..3).map(|nth| format!("big-{nth}")).collect();
    let files: Vec<String> =
        names.iter().map(|name| format!("  {name}: {{file: ./big.txt}}\n")).collect();
    let compose = format!(
        "name: big\nservices:\n  web:\n    image: any\n    command: [sleep, '1000']\n    configs: [{}]\nconfigs:\n{}",
        names.join(", "),
        files.concat()
    );
    fs::write(dir.join("compose.yaml"), compose).unwrap();
    fs::write(dir.join("big.txt"), "x".repeat(1_000_000)).unwrap();
    let refused = cell.run(0, "apply -f compose.yaml -d");
    assert_eq!(refused.code(), 1, "{}", refused.text());
    let said = refused.stderr();
    assert!(said.contains("revision of big") && said.contains("at most 8388608"), "{said}");
    let (_, listed) = say_unix(&cell, 0, "GET /v1/deployments", &[], b"").unwrap();
    assert_eq!(listed.trim(), "[]");
}
