//! Who should get nothing of a fleet: a stranger, a cell that was expelled, one that would speak for another, whoever replays a token,
//! and a node of the coordinator that would pass for a shard.

use bytes::Bytes;
use hyper::{Method, StatusCode};
use plimsoll_daemon::fleet::{
    ENROL, EnrolRequest, Enrolment, REPORT, ReportAnswer, ReportRequest, VERSION,
};
use plimsoll_model::fleet::{ReportOrder, ShardKinds, ShardMessage};
use plimsoll_peer::pki::{Credentials, FleetAddress, FleetToken, Identity, NodeKey};
use plimsoll_peer::{PeerClient, Response, Target};
use serde_json::Value;

use super::ANSWER;
use crate::harness::{Cell, Site};
use plimsoll_model::NodeId;

/// A coordinator of one node.
fn coordinator() -> Cell {
    let mut cell = Cell::idle(Site::Loopback);
    cell.setups[0].is_coordinator = true;
    cell.up(0, None);
    cell.until("the fleet has begun", |cell| {
        cell.json(0, "fleet status -o json")["role"] == "coordinator"
    });
    cell
}

fn token(cell: &Cell, name: &str) -> FleetAddress {
    let made = cell.run(0, &format!("fleet token create {name}"));
    assert_eq!(made.code(), 0, "{}", made.text());
    made.stdout().trim().parse().unwrap()
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

/// Brings a token with a key. The status, and what was said.
fn enrol(cell: &Cell, token: &FleetToken, csr: &[u8]) -> (u16, Value) {
    let request = EnrolRequest { version: VERSION, token: token.to_string(), csr: csr.to_vec() };
    let body = Bytes::from(serde_json::to_vec(&request).unwrap());
    let address = cell.address(0);
    let asked = plimsoll_peer::ask(token.fingerprint(), &address, ENROL, body, ANSWER);
    let met = wait(asked).unwrap();
    let told = serde_json::from_slice(&met.response.body).unwrap_or_default();
    (met.response.status.as_u16(), told)
}

/// A cell that was let in under this name.
fn enrolled(cell: &Cell, name: &str) -> Credentials {
    let (key, csr) = Identity::new_key().unwrap();
    let at = token(cell, name);
    let (status, told) = enrol(cell, &at.token, csr.as_der());
    assert_eq!(status, 200, "{told}");
    let enrolment: Enrolment = serde_json::from_value(told).unwrap();
    assert_eq!(enrolment.shard.as_str(), name);
    credentials(&key, &enrolment)
}

fn credentials(key: &NodeKey, enrolment: &Enrolment) -> Credentials {
    let anchors: Vec<_> = enrolment.authorities.anchors().collect();
    let identity = Identity::signed_by_any(key, enrolment.certificate.clone(), &anchors).unwrap();
    Credentials::new(&identity).unwrap()
}

fn said() -> Vec<u8> {
    let message = ShardMessage {
        order: ReportOrder { epoch: 1, cycle: 1 },
        is_paused: false,
        kinds: Some(ShardKinds::default()),
        summary: Vec::new(),
        shortfalls: Vec::new(),
        preemptible: Vec::new(),
        acks: Vec::new(),
    };
    postcard::to_stdvec(&ReportRequest { message, csr: None, wait_ms: 0 }).unwrap()
}

fn report(cell: &Cell, as_whom: &Credentials, body: Vec<u8>) -> Response {
    let to = Target { node: NodeId::new("ash").unwrap(), address: cell.address(0) };
    let client = PeerClient::new(as_whom.clone());
    wait(
        async move { client.call(&to, Method::POST, REPORT, Bytes::from(body), ANSWER).await.unwrap() },
    )
}

fn shards(cell: &Cell) -> Vec<String> {
    let all = cell.json(0, "fleet shards -o json");
    all.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_token_for_a_fleet_lets_one_cell_in_and_no_other() {
    let cell = coordinator();
    let at = token(&cell, "north");
    let (_, stranger) = Identity::new_key().unwrap();
    let guessed = FleetToken::new(at.token.fingerprint()).unwrap();
    let (status, told) = enrol(&cell, &guessed, stranger.as_der());
    assert_eq!((status, told["code"].as_str()), (403, Some("token_unknown")), "{told}");
    let (_, csr) = Identity::new_key().unwrap();
    assert_eq!(enrol(&cell, &at.token, csr.as_der()).0, 200);
    // Replayed by whoever saw it.
    let (status, told) = enrol(&cell, &at.token, stranger.as_der());
    assert_eq!((status, told["code"].as_str()), (403, Some("token_used")), "{told}");
    assert_eq!(shards(&cell), ["north"]);
    // A token that nodes join with is none, nor is a fleet's one for nodes.
    let joins = cell.run(0, "token create-join").stdout();
    assert!(joins.trim().parse::<FleetAddress>().is_err());
    assert!(at.token.to_string().parse::<plimsoll_peer::pki::JoinToken>().is_err());
}

#[test]
fn a_shard_speaks_for_itself_until_it_is_expelled() {
    let cell = coordinator();
    let (north, south) = (enrolled(&cell, "north"), enrolled(&cell, "south"));
    for shard in [&north, &south] {
        let told = report(&cell, shard, said());
        assert_eq!(told.status, StatusCode::OK);
        let answer: ReportAnswer = postcard::from_bytes(&told.body).unwrap();
        assert!(answer.answer.instructions.is_empty());
    }
    assert_eq!(cell.run(0, "fleet expel north").code(), 0);
    assert_eq!(report(&cell, &north, said()).status, StatusCode::FORBIDDEN);
    assert_eq!(report(&cell, &south, said()).status, StatusCode::OK);
    // Another cell gets its name: the key of the first is worth nothing.
    let heir = enrolled(&cell, "north");
    assert_eq!(report(&cell, &heir, said()).status, StatusCode::OK);
    assert_eq!(report(&cell, &north, said()).status, StatusCode::FORBIDDEN);
}

#[test]
fn neither_a_stranger_nor_a_node_of_the_coordinator_passes_for_a_shard() {
    let cell = coordinator();
    let north = enrolled(&cell, "north");
    let ash = Identity::load(&cell.path(0)).unwrap().unwrap();
    let node = Credentials::new(&ash).unwrap();
    assert_eq!(report(&cell, &node, said()).status, StatusCode::UNAUTHORIZED);
    // A shard that would be a node: of the API behind the peer port it gets nothing, nor can it join or renew.
    let to = Target { node: NodeId::new("ash").unwrap(), address: cell.address(0) };
    let client = PeerClient::new(north);
    for (method, path) in [
        (Method::GET, "/v1/status"),
        (Method::GET, "/v1/fleet"),
        (Method::POST, "/peer/link"),
        (Method::POST, "/peer/renew"),
        (Method::POST, "/peer/raft"),
    ] {
        let asked = client.call(&to, method, path, Bytes::new(), ANSWER);
        let told = wait(asked).unwrap();
        assert_eq!(told.status, StatusCode::UNAUTHORIZED, "{path}");
    }
}

#[test]
fn what_a_shard_sends_is_read_as_far_as_a_report_can_be_long() {
    let cell = coordinator();
    let north = enrolled(&cell, "north");
    for (case, body, status) in [
        ("not a report", vec![0xff; 10], StatusCode::BAD_REQUEST),
        ("too long", vec![0; (4 << 20) + 1], StatusCode::PAYLOAD_TOO_LARGE),
        ("a report", said(), StatusCode::OK),
    ] {
        assert_eq!(report(&cell, &north, body).status, status, "{case}");
    }
    let (_, csr) = Identity::new_key().unwrap();
    let at = token(&cell, "west");
    let long = vec![0; 70 << 10];
    assert_eq!(enrol(&cell, &at.token, &long).0, 413);
    assert_eq!(enrol(&cell, &at.token, csr.as_der()).0, 200, "and the token is as good as before");
}
