//! A cell that has lost too many servers: what it says, what it still shows, and that it comes back.

use std::fs;

use plimsoll_api::client::{Client, Endpoint};
use plimsoll_api::view::{Ready, ReasonCode};

use crate::harness::{Cell, SHOP, Site};

/// What the node says of itself, with the hash of its state.
pub(crate) fn ready(cell: &Cell, at: usize) -> Option<Ready> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = Client::new(Endpoint::Unix(cell.path(at).join("plimsoll.sock")));
    runtime.block_on(client.ready(true)).ok()
}

#[test]
fn a_cell_without_a_quorum_says_how_many_are_needed_and_what_it_still_shows_is_dated() {
    let mut cell = Cell::of_three(Site::Loopback);
    fs::write(cell.dir.path().join("compose.yaml"), SHOP).unwrap();
    assert_eq!(cell.run(0, "apply -f compose.yaml").code(), 0);
    let fresh = cell.run(2, "node list");
    assert!(!fresh.stderr().contains("no leader"), "{}", fresh.text());
    assert_eq!(cell.run(2, "status --consistent").code(), 0);
    cell.until("all have the same state", |cell| {
        let said: Vec<_> = (0..3).filter_map(|at| ready(cell, at)).collect();
        let hashes: Vec<_> =
            said.iter().map(|it| (it.health.applied, it.health.hash.clone())).collect();
        said.iter().all(|it| it.is_ready)
            && hashes.len() == 3
            && hashes.iter().all(|it| *it == hashes[0])
    });

    cell.kill(0);
    cell.kill(1);
    let sentence = "quorum_lost: 1 of 3 servers answers; 2 are needed (ash and birch do not)";
    cell.until("the loss is named", |cell| {
        let write = cell.run(2, "scale shop web=7 -d");
        assert_ne!(write.code(), 0, "two of three are gone");
        write.stderr().contains(sentence)
    });
    let write = cell.run(2, "scale shop web=7 -d");
    assert!(write.stderr().contains("plimsoll cell recover"), "{}", write.text());
    let status = cell.run(2, "status");
    assert_eq!(status.code(), 0, "what it knows it shows");
    assert!(
        status.stdout().contains("ago: cedar has had no leader since then"),
        "{}",
        status.text()
    );
    let nodes = cell.run(2, "node list");
    assert!(nodes.stderr().contains("ago: cedar has had no leader since then"), "{}", nodes.text());
    for read in ["status --consistent", "get deployments --consistent", "node list --consistent"] {
        let refused = cell.run(2, read);
        assert_eq!(refused.code(), 2, "{read}: {}", refused.text());
        assert!(refused.stderr().contains("quorum_lost"), "{read}: {}", refused.text());
    }
    let said = ready(&cell, 2).unwrap();
    assert!(!said.is_ready && said.why[0].word == ReasonCode::QuorumLost, "{said:?}");
    assert!(cell.run(2, "cell status").stdout().contains("1 of 3 servers answers"));

    cell.up(1, None);
    cell.until("a write succeeds", |cell| cell.run(2, "scale shop web=5 -d").code() == 0);
    cell.until("it is ready again", |cell| ready(cell, 2).is_some_and(|it| it.is_ready));
}

#[test]
fn a_leader_whom_the_others_have_left_knows_that_it_leads_nobody() {
    let mut cell = Cell::of_three(Site::Loopback);
    let at = cell.until_led(&[0, 1, 2]);
    for other in (0..3).filter(|other| *other != at) {
        cell.kill(other);
    }
    cell.until("the loss is named", |cell| {
        let write = cell.run(at, "token create ann --role read");
        assert_ne!(write.code(), 0, "two of three are gone");
        write.stderr().contains("quorum_lost: 1 of 3 servers answers; 2 are needed")
    });
    let status = cell.json(at, "status -o json");
    assert_eq!(status["cell"]["leader"], serde_json::Value::Null, "it claims nothing");
    assert!(status["cell"]["heard_ms"].as_u64().unwrap() > 0);
    assert_eq!(cell.run(at, "status --consistent").code(), 2);
    let said = ready(&cell, at).unwrap();
    assert!(!said.is_ready && said.why[0].word == ReasonCode::QuorumLost, "{said:?}");
}
