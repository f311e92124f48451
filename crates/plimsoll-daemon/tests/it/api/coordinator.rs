//! A cell that coordinates a fleet beside the one that runs deployments: no cell is both, and operations of a fleet take the first.

use std::sync::Arc;

use plimsoll_api::view::NewOperator;
use plimsoll_daemon::context::now;
use plimsoll_model::access::{Authority, Digest, MAX_TOKENS};
use plimsoll_model::acme::SecretKey;
use plimsoll_model::fleet::{FleetChange, FleetMembership, MembershipChange, ShardId};
use plimsoll_model::testkit::{cpus, node_id};
use plimsoll_model::{CellId, Change, NodeFacts, Timestamp, Writer};

use super::faulty_engine::FaultyEngine;
use super::support::{Daemon, daemon_with_faults};

pub(super) const JOIN: &str = "POST /v1/fleet/membership";
pub(super) const LEAVE: &str = "DELETE /v1/fleet/membership";
const PAUSE: &str = "POST /v1/fleet";
pub(super) const QUOTA: &str = "POST /v1/fleet/quota";
const TOKEN: &str = "POST /v1/fleet/tokens";
const EXPEL: &str = "DELETE /v1/fleet/shards/{name}";

/// What only a coordinator does.
pub(super) fn is_coordinators(operation: &str) -> bool {
    [PAUSE, QUOTA, TOKEN, EXPEL].contains(&operation)
}

/// Stands for a string to join a fleet with, whose coordinator does not answer.
pub(super) const UNREACHABLE: &str = "UNREACHABLE COORDINATOR";

/// One request to each operation that succeeds, in an order in which all of them do.
pub(super) const GOOD: &[(&str, &str, &str)] = &[
    ("GET /v1/fleet", "/v1/fleet", ""),
    (PAUSE, "/v1/fleet", r#"{"paused":true}"#),
    (
        QUOTA,
        "/v1/fleet/quota",
        r#"{"machine_type":"m5.large","zone":"eu-1a","shard":"north","slice":10}"#,
    ),
    (TOKEN, "/v1/fleet/tokens", r#"{"shard":"south"}"#),
    (EXPEL, "/v1/fleet/shards/north", ""),
    (JOIN, "/v1/fleet/membership", UNREACHABLE),
    (LEAVE, "/v1/fleet/membership", ""),
];

/// What the cell that runs deployments refuses, since it coordinates none and is in none.
pub(super) const REFUSALS: &[(u16, &str, &str, &str)] = &[
    (409, PAUSE, "/v1/fleet", r#"{"paused":true}"#),
    (
        409,
        QUOTA,
        "/v1/fleet/quota",
        r#"{"machine_type":"m5.large","zone":"eu-1a","shard":"north","slice":10}"#,
    ),
    (409, TOKEN, "/v1/fleet/tokens", r#"{"shard":"south"}"#),
    (409, EXPEL, "/v1/fleet/shards/north", ""),
    (409, LEAVE, "/v1/fleet/membership", ""),
    (403, JOIN, "/v1/fleet/membership", r#"{"join":"plf_none@127.0.0.1:1"}"#),
];

/// What the coordinator itself refuses once it is [full](fill).
pub(super) const COORDINATORS_REFUSALS: &[(u16, &str, &str, &str)] = &[
    (409, JOIN, "/v1/fleet/membership", UNREACHABLE),
    (400, TOKEN, "/v1/fleet/tokens", r#"{"shard":"No Name"}"#),
    (
        404,
        QUOTA,
        "/v1/fleet/quota",
        r#"{"machine_type":"m5.large","zone":"eu-1a","shard":"none","slice":10}"#,
    ),
    (422, TOKEN, "/v1/fleet/tokens", r#"{"shard":"one-more"}"#),
];

/// A coordinator with one shard, `north`. Returns a token that may only read, too.
pub(super) async fn coordinator() -> (Daemon, Arc<FaultyEngine>, String) {
    let (daemon, engine) = daemon_with_faults().await;
    let address = Some("127.0.0.1:7080".to_owned());
    let ash = NodeFacts { address, ..cpus(4) };
    let authority = Authority { certificate: vec![1], key: vec![1] };
    let batch = vec![
        Change::PutNode { node: node_id("ash"), facts: ash }.free(),
        Change::Found { authority, node: node_id("ash"), key: Digest([1; 32]) }.free(),
    ];
    daemon.write(Writer::Operator, batch).await;
    write(&daemon, [FleetChange::Begin]).await;
    let (token, key) = (Digest([2; 32]), Digest([3; 32]));
    let made = FleetChange::CreateToken { shard: shard("north"), token, expires_at: NEVER };
    write(&daemon, [made, FleetChange::Enrol { token, shard: shard("north"), key }]).await;
    let (name, role) = ("viewer".to_owned(), "read".to_owned());
    let viewer = NewOperator { name, role, ..NewOperator::default() };
    let viewer = daemon.client.add_operator(&viewer).await.unwrap().token;
    (daemon, engine, viewer)
}

const NEVER: Timestamp = Timestamp(u64::MAX);

fn shard(name: &str) -> ShardId {
    ShardId::new(name).unwrap()
}

async fn write(daemon: &Daemon, changes: impl IntoIterator<Item = FleetChange>) {
    let batch = changes.into_iter().map(|it| Change::Fleet { change: Box::new(it) }.free());
    daemon.write(Writer::Operator, batch.collect()).await;
}

/// As many tokens as there may be.
pub(super) async fn fill(daemon: &Daemon) {
    let known = daemon.cell.engine.machine().read(|state| state.fleet().unwrap().tokens().len());
    let tokens = (known..MAX_TOKENS).map(|at| {
        let mut token = Digest([5; 32]);
        token.0[..8].copy_from_slice(&at.to_be_bytes());
        let shard = ShardId::new(format!("shard-{at}")).unwrap();
        FleetChange::CreateToken { shard, token, expires_at: NEVER }
    });
    write(daemon, tokens).await;
}

/// The cell is the shard `north` of some fleet.
pub(super) async fn enter(daemon: &Daemon) {
    let membership = FleetMembership {
        shard: shard("north"),
        coordinator: CellId::new("hub").unwrap(),
        servers: [(node_id("hub"), "127.0.0.1:1".to_owned())].into(),
        key: SecretKey::new(vec![1]),
        certificate: vec![1],
        authorities: vec![vec![1]],
        joined_at: now(),
    };
    let change = MembershipChange::Set { membership: Box::new(membership) };
    daemon.write(Writer::Operator, vec![Change::FleetMembership { change }.free()]).await;
}
