//! The peer port: what somebody gets with the certificate of a worker, of a removed node, or of a name that is not theirs.

use hyper::Method;
use plimsoll_lab::NAMES;
use plimsoll_model::{
    CellId, DeploymentName, Generation, NodeId, ReplicaId, ServiceKey, ServiceName, Slot,
};
use plimsoll_peer::pki::{Authority, AuthorityParts, Identity, NODE_LIFETIME};
use plimsoll_runtime::Tag;
use plimsoll_store::backup;
use serde_json::json;

use super::{AGENT, Impostor, code, mallory, operators, with_agent};
use crate::harness::Cell;

const OPERATORS: (Method, &str) = (Method::POST, "/v1/operators");
const ADMIN: [(&str, &str); 2] = [("plimsoll-identity", "unix:root"), ("plimsoll-role", "admin")];

/// The container of the shop on this node, as nodes name it to each other.
fn tag_on(cell: &Cell, at: usize) -> Tag {
    let shop = cell.json(0, "get deployments -o json");
    let replicas = shop[0]["services"][0]["replicas"].as_array().unwrap().clone();
    let on = replicas.iter().find(|it| it["now"]["node"] == NAMES[at]);
    let on = on.unwrap_or_else(|| panic!("{replicas:?}"));
    let slot = on["id"].as_str().unwrap().rsplit('-').next().unwrap().parse().unwrap();
    let (deployment, service) =
        (DeploymentName::new("shop").unwrap(), ServiceName::new("web").unwrap());
    Tag {
        cell_id: CellId::new(cell.json(0, "cell status -o json")["name"].as_str().unwrap())
            .unwrap(),
        replica: ReplicaId::new(ServiceKey::new(deployment, service), Slot::Index(slot)),
        generation: Generation(on["now"]["generation"].as_u64().unwrap()),
    }
}

fn exec(cell: &Cell, at: usize) -> Vec<u8> {
    let asked =
        json!({"tag": tag_on(cell, at), "command": ["true"], "timeout_ms": 5_000, "by": "nobody"});
    asked.to_string().into_bytes()
}

fn logs(cell: &Cell, at: usize) -> Vec<u8> {
    let asked = json!({"tags": [tag_on(cell, at)], "since": null, "tail": null, "follow": false});
    asked.to_string().into_bytes()
}

/// What a node serves to servers alone, with bodies that it would answer; and the content of a volume, which is for the node
/// that its leader named, and nobody else.
fn for_servers(cell: &Cell, to: usize) -> Vec<(&'static str, Vec<u8>)> {
    let volume = json!({"deployment": "shop", "name": "data"});
    let content = json!({"volume": volume, "order": 1});
    vec![
        ("/peer/exec", exec(cell, to)),
        ("/peer/logs", logs(cell, to)),
        ("/peer/attach", Vec::new()),
        ("/peer/challenge", b"shop.example token".to_vec()),
        ("/peer/resolve", b"[]".to_vec()),
        ("/peer/volume/size", volume.to_string().into_bytes()),
        ("/peer/volume/content", content.to_string().into_bytes()),
    ]
}

/// A certificate of the cell for this name and a key that nobody enrolled, as whoever had the authority's could make.
fn forged(cell: &Cell, name: &str) -> Impostor {
    let file = cell.dir.path().join("stolen.backup");
    if !file.exists() {
        let taken = cell.run(0, &format!("backup {}", file.display()));
        assert_eq!(taken.code(), 0, "{}", taken.text());
    }
    let (_, state) = backup::state(&file, &[cell.backup_key(0)]).unwrap();
    let kept = state.access().authority.clone().unwrap();
    let (cell_id, certificate, key) = (state.cell_id().clone(), kept.certificate, kept.key);
    let authority = Authority::from_parts(&AuthorityParts { cell_id, certificate, key }).unwrap();
    let (key, csr) = Identity::new_key().unwrap();
    let node = NodeId::new(name).unwrap();
    let now = plimsoll_daemon::clock::now();
    let signed = authority.issue(&csr, &node, now, NODE_LIFETIME).unwrap();
    Impostor(Identity::new(key, signed, authority.certificate().clone()).unwrap())
}

#[test]
fn the_word_of_a_node_counts_for_what_it_is_and_a_name_without_its_key_for_nothing() {
    let cell = with_agent();
    let leader = cell.until_led(&[0, 1, 2]);
    let server = cell.others(leader)[0];
    let (worker, peer) = (Impostor::of(&cell, AGENT), Impostor::of(&cell, server));

    a_worker_speaks_for_nobody(&cell, leader, &worker);
    a_server_speaks_for_whom_it_has_checked(&cell, leader, server, &peer);
    for name in [NAMES[AGENT], NAMES[server], "nobody"] {
        a_name_without_its_key_is_nobody(&cell, leader, &forged(&cell, name));
    }
    a_certificate_is_renewed_for_the_same_key_alone(&cell, leader, &worker);
    a_command_is_audited_where_it_runs(&cell, leader);
    a_removed_node_is_refused_everywhere(cell, leader, &worker);
}

fn a_worker_speaks_for_nobody(cell: &Cell, leader: usize, worker: &Impostor) {
    let ask = |to, what, headers: &[(&str, &str)], body| worker.ask(cell, to, what, headers, body);
    for headers in [&ADMIN[..], &ADMIN[..1], &ADMIN[1..]] {
        let answer = ask(leader, OPERATORS, headers, mallory());
        assert_eq!((answer.0, code(&answer).as_str()), (403, "not_a_server"), "{}", answer.1);
    }
    for (what, body) in [
        (OPERATORS, mallory()),
        ((Method::POST, "/v1/backup"), Vec::new()),
        ((Method::POST, "/v1/tokens/join"), b"{}".to_vec()),
        ((Method::GET, "/v1/operators"), Vec::new()),
        ((Method::DELETE, "/v1/deployments/shop"), Vec::new()),
        ((Method::GET, "/v1/deployments/shop/logs"), Vec::new()),
    ] {
        let answer = ask(leader, what.clone(), &[], body.clone());
        assert_eq!((answer.0, code(&answer).as_str()), (401, "token_needed"), "{what:?}");
        let answer = ask(leader, what.clone(), &ADMIN, body);
        assert_eq!((answer.0, code(&answer).as_str()), (403, "not_a_server"), "{what:?}");
        let bearer = [("authorization", "Bearer plo_nonsense")];
        let answer = ask(leader, what.clone(), &bearer, Vec::new());
        assert_eq!((answer.0, code(&answer).as_str()), (401, "unauthorized"), "{what:?}");
    }
    assert_eq!(ask(leader, (Method::GET, "/v1/nodes"), &[], Vec::new()).0, 200, "it may read");
    for to in [leader, cell.others(leader)[1]] {
        for (path, body) in for_servers(cell, to) {
            let answer = ask(to, (Method::POST, path), &[], body);
            assert_eq!(answer.0, 403, "{path}: {}", answer.1);
        }
    }
    assert_eq!(operators(cell), Vec::<String>::new());
}

fn a_server_speaks_for_whom_it_has_checked(
    cell: &Cell,
    leader: usize,
    server: usize,
    peer: &Impostor,
) {
    let unknown = [ADMIN[0], ("plimsoll-role", "root")];
    let twice = [ADMIN[0], ADMIN[1], ("plimsoll-role", "read")];
    for headers in [&ADMIN[..1], &ADMIN[1..], &unknown[..], &twice[..]] {
        let answer = peer.ask(cell, leader, OPERATORS, headers, mallory());
        assert_eq!(answer.0, 403, "there is no role by default: {headers:?} {}", answer.1);
    }
    let reader = [("plimsoll-identity", "token:ann"), ("plimsoll-role", "read")];
    assert_eq!(peer.ask(cell, leader, OPERATORS, &reader, mallory()).0, 403);
    // A server that lags may have checked a token that is revoked by now.
    let status = (Method::GET, "/v1/status");
    let answer = peer.ask(cell, leader, status, &reader, Vec::new());
    assert_eq!((answer.0, code(&answer).as_str()), (403, "forbidden"), "{}", answer.1);
    assert_eq!(operators(cell), Vec::<String>::new());
    let made = json!({"name": "made", "role": "read"}).to_string().into_bytes();
    let answer = peer.ask(cell, leader, OPERATORS, &ADMIN, made);
    assert_eq!(answer.0, 200, "{}", answer.1);
    let by = cell.json(0, "audit --type operator_added -o json")[0]["by"].clone();
    assert_eq!(by, format!("unix:root@{}", NAMES[server]), "the node it came by is named");
    assert_eq!(cell.run(0, "token revoke made").code(), 0);
}

fn a_name_without_its_key_is_nobody(cell: &Cell, leader: usize, forged: &Impostor) {
    let name = forged.0.caller().node.clone();
    for to in [leader, cell.others(leader)[1]] {
        let answer = forged.ask(cell, to, OPERATORS, &ADMIN, mallory());
        assert_eq!((answer.0, code(&answer).as_str()), (403, "removed"), "{name}: {}", answer.1);
        assert_eq!(forged.ask(cell, to, (Method::GET, "/v1/nodes"), &[], Vec::new()).0, 403);
    }
    for to in [leader, cell.others(leader)[1], AGENT] {
        let tunnel = ("/peer/tunnel", Vec::new());
        for (path, body) in for_servers(cell, to).into_iter().chain([tunnel]) {
            let answer = forged.ask(cell, to, (Method::POST, path), &[], body);
            assert_eq!(answer.0, 403, "{name} at {} {path}: {}", NAMES[to], answer.1);
        }
    }
    let linked = forged.ask(cell, leader, (Method::POST, "/peer/link"), &[], Vec::new());
    assert_eq!(linked.0, 403, "{name}: {}", linked.1);
    let (_, csr) = forged.0.another().unwrap();
    let renew = (Method::POST, "/peer/renew");
    let renewed = forged.ask(cell, leader, renew, &[], csr.as_der().to_vec());
    assert_eq!(renewed.0, 403, "{name}: {}", renewed.1);
    assert_eq!(operators(cell), Vec::<String>::new());
}

fn a_certificate_is_renewed_for_the_same_key_alone(cell: &Cell, leader: usize, worker: &Impostor) {
    let renew = (Method::POST, "/peer/renew");
    let (_, other) = Identity::new_key().unwrap();
    let refused = worker.ask(cell, leader, renew.clone(), &[], other.as_der().to_vec());
    assert_eq!((refused.0, code(&refused).as_str()), (403, "other_key"), "{}", refused.1);
    let (_, own) = worker.0.another().unwrap();
    assert_eq!(worker.ask(cell, leader, renew, &[], own.as_der().to_vec()).0, 200);
}

fn a_command_is_audited_where_it_runs(cell: &Cell, leader: usize) {
    let replica = tag_on(cell, AGENT).replica;
    let ran = cell.run(leader, &format!("exec {replica} -- echo hi"));
    assert_eq!(ran.stdout(), "hi\n", "{}", ran.text());
    cell.until("the node that ran it says so", |cell| {
        let events = cell.json(0, "audit --type command_served -o json");
        events.as_array().unwrap().iter().any(|event| {
            let text = event.to_string();
            event["by"] == NAMES[AGENT] && text.contains("unix:") && text.contains(NAMES[leader])
        })
    });
}

fn a_removed_node_is_refused_everywhere(mut cell: Cell, leader: usize, worker: &Impostor) {
    cell.kill(AGENT);
    cell.until("the loss is noticed", |cell| {
        let nodes = cell.json(leader, "node list -o json");
        nodes
            .as_array()
            .unwrap()
            .iter()
            .any(|it| it["name"] == NAMES[AGENT] && it["status"] == "down")
    });
    cell.until("nothing is left on it", |cell| {
        cell.run(leader, &format!("node remove {} --force", NAMES[AGENT])).code() == 0
    });
    let other = cell.others(leader)[1];
    cell.until("all servers know", |cell| {
        [leader, other]
            .iter()
            .all(|at| worker.ask(cell, *at, (Method::GET, "/v1/nodes"), &[], Vec::new()).0 == 403)
    });
    for to in [leader, other] {
        let others = ["/peer/tunnel", "/peer/link", "/peer/renew"].map(|path| (path, Vec::new()));
        for (path, body) in for_servers(&cell, to).into_iter().chain(others) {
            let answer = worker.ask(&cell, to, (Method::POST, path), &[], body);
            assert_eq!((answer.0, code(&answer).as_str()), (403, "removed"), "{path}");
        }
        let answer = worker.ask(&cell, to, OPERATORS, &ADMIN, mallory());
        assert_eq!((answer.0, code(&answer).as_str()), (403, "removed"));
    }
}
