//! A container engine that is down for good while its node is heard: what ran there is replaced, unless it runs on.

use std::time::{Duration, Instant};

use serde_json::Value;

use plimsoll_lab::Lab;

use super::routed::{Engines, must_do, three_at};
use super::{SEED, can_be};
use crate::harness::{Cell, NodeSetup, Site};
use crate::lab::compose::{compose, sh};
use crate::lab::harness::lab;

/// Three nodes with an engine each, which see the processes of their containers, as nodes do.
fn three() -> Option<(Engines, Cell)> {
    lab("DOCKER")?;
    let site = can_be().then(|| Site::Hosts(Lab::seeing_processes(3, SEED).unwrap()))?;
    Some(three_at(site, |_, _| NodeSetup::default()))
}

fn status(cell: &Cell, node: &str) -> String {
    let nodes = cell.json(0, "node list -o json");
    let found = nodes.as_array().unwrap().iter().find(|it| it["name"] == node);
    found.and_then(|it| it["status"].as_str()).unwrap_or_default().to_owned()
}

fn shop(cell: &Cell) -> Value {
    cell.get(0, "/v1/deployments/shop").unwrap_or_default()
}

/// The node and the state of every replica.
fn replicas(cell: &Cell) -> Vec<(String, String)> {
    let shop = shop(cell);
    let services = shop["services"].as_array().cloned().unwrap_or_default();
    let all = services.iter().flat_map(|it| it["replicas"].as_array().cloned().unwrap_or_default());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    all.map(|it| (text(&it["now"]["node"]), text(&it["now"]["state"]))).collect()
}

fn is_steady(cell: &Cell) -> bool {
    shop(cell)["progress"]["is"] == "steady"
}

fn apply(cell: &Cell, replicas: u32) {
    let web = sh("trap 'exit 0' TERM; httpd -f -p 80 -h /www & wait");
    let file = compose(&[("web", &[&web, &format!("deploy: {{replicas: {replicas}}}")])]);
    std::fs::write(cell.dir.path().join("shop.yaml"), file).unwrap();
    must_do(cell, 0, "apply -f shop.yaml -p shop");
}

#[test]
fn what_went_with_its_engine_is_replaced_and_nothing_new_goes_there() {
    let Some((engines, cell)) = three() else { return };
    apply(&cell, 3);
    cell.until("it is steady", is_steady);
    engines.0[2].halt().unwrap();
    cell.until("the cell knows", |cell| status(cell, "cedar") == "runtime_unavailable");
    cell.until("its replica is unknown, and the deployment is not steady", |cell| {
        let unknown = ("cedar".to_owned(), "unknown".to_owned());
        replicas(cell).contains(&unknown) && !is_steady(cell)
    });
    let why = cell.run(0, "explain cedar").text();
    assert!(why.contains("does not answer"), "{why}");
    let said = cell.run(0, "status").text();
    assert!(said.contains("runtime_unavailable") || said.contains("does not answer"), "{said}");
    let took = cell.until("it runs elsewhere", |cell| {
        let all = replicas(cell);
        all.len() == 3 && all.iter().all(|(node, state)| node != "cedar" && state == "running")
    });
    assert!(took > Duration::from_secs(20), "it had time to come back: {took:?}");
    let audit = cell.run(0, "audit").text();
    assert!(audit.contains("runtime_unavailable") && audit.contains("runtime_lost"), "{audit}");
    apply(&cell, 6);
    cell.until("three more run", |cell| is_steady(cell) && replicas(cell).len() == 6);
    assert!(replicas(&cell).iter().all(|(node, _)| node != "cedar"), "{:?}", replicas(&cell));

    engines.0[2].start().unwrap();
    cell.until("it is ready again", |cell| status(cell, "cedar") == "ready");
    cell.until("it is steady", is_steady);
}

#[test]
fn what_runs_on_without_its_engine_is_not_moved() {
    let Some((engines, cell)) = three() else { return };
    apply(&cell, 3);
    cell.until("it is steady", is_steady);
    engines.0[2].kill().unwrap();
    cell.until("the cell knows", |cell| status(cell, "cedar") == "runtime_unavailable");
    assert!(!is_steady(&cell), "{}", shop(&cell));
    let said = cell.run(0, "status shop").text();
    assert!(said.contains("its process runs on"), "{said}");
    // Longer than the time after which what is gone would be replaced.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(75) {
        let all = replicas(&cell);
        let stays = all.is_empty() || all.iter().any(|(node, _)| node == "cedar");
        assert!(stays, "{all:?}\n{}", cell.run(0, "audit").text());
        std::thread::sleep(Duration::from_secs(1));
    }
    engines.0[2].start().unwrap();
    cell.until("it is ready again", |cell| status(cell, "cedar") == "ready");
    cell.until("it is steady", |cell| is_steady(cell) && replicas(cell).len() == 3);
}
