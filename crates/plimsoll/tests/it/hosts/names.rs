//! Services find each other by name on three hosts with an engine each, at whichever port, wherever their replicas run;
//! and find nobody whose network they do not share.

use std::fs::File;
use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use plimsoll_lab::{LabEngine, within};

use super::routed::{must_do, three_with_engines};
use crate::harness::Cell;
use crate::lab::compose::{compose, sh};

/// Where a service takes datagrams.
const DATAGRAMS: u16 = 5_353;

const PATIENCE: Duration = Duration::from_secs(10);

/// Requests that are made while a service moves, at least.
const REQUESTS: usize = 200;

/// A web server at that port which says what its container is called.
fn server(port: u16) -> String {
    let say = "hostname > /tmp/index.html; trap 'exit 0' TERM;";
    sh(&format!("{say} httpd -f -p {port} -h /tmp & wait"))
}

fn on(node: &str) -> String {
    format!("deploy: {{placement: {{constraints: [node.hostname == {node}]}}}}")
}

#[track_caller]
fn apply(cell: &Cell, deployment: &str, file: &str) {
    let name = format!("{deployment}.yaml");
    std::fs::write(cell.dir.path().join(&name), file).unwrap();
    must_do(cell, 0, &format!("apply -f {name} -p {deployment}"));
}

/// What a command in a replica prints; none if it fails.
fn inside(cell: &Cell, replica: &str, command: &str) -> Option<String> {
    let ran = cell.run(0, &format!("exec {replica} -- {command}"));
    (ran.code() == 0).then(|| ran.stdout().trim().to_owned())
}

/// The network of a service's container on an engine.
fn network(engine: &LabEngine, service: &str) -> File {
    let ask = |args: &[&str]| {
        let host = format!("unix://{}", engine.socket().display());
        let ran = Command::new("docker").args(["-H", &host]).args(args).output().unwrap();
        String::from_utf8_lossy(&ran.stdout).trim().to_owned()
    };
    let label = format!("label=com.docker.compose.service={service}");
    let id = ask(&["ps", "-q", "--filter", &label]);
    File::open(format!("/proc/{}/ns/net", ask(&["inspect", "-f", "{{.State.Pid}}", &id]))).unwrap()
}

fn fetch(cell: &Cell, replica: &str, url: &str) -> Option<String> {
    inside(cell, replica, &format!("timeout 5 wget -q -O - {url}"))
}

/// The replicas of a service of the shop on a node.
fn replicas(cell: &Cell, service: &str, node: &str) -> Vec<String> {
    let all = cell.get(0, "/v1/deployments/shop").unwrap_or_default();
    let services = all["services"].as_array().cloned().unwrap_or_default();
    let own = services.iter().filter(|it| it["name"] == service);
    let replicas = own.flat_map(|it| it["replicas"].as_array().cloned().unwrap_or_default());
    let here = replicas.filter(|replica| replica["now"]["node"] == node);
    here.filter_map(|replica| Some(replica["id"].as_str()?.to_owned())).collect()
}

fn count(cell: &Cell, file: &str) -> usize {
    let counted = inside(cell, "shop/asker", &format!("wc -l {file}"));
    counted.and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn a_service_is_reached_by_its_name_at_any_port_wherever_its_replicas_run() {
    let Some((_engines, mut cell)) = three_with_engines(|_, _| Vec::new()) else { return };
    let ask = "touch /tmp/ok /tmp/failed; trap 'exit 0' TERM; \
        (while :; do if timeout 5 wget -q -O /dev/null http://db:5000/; then echo >> /tmp/ok; else echo >> /tmp/failed; fi; done) & wait";
    let shop = |at: &str| {
        let (web, db) = (server(80), server(5_000));
        compose(&[
            ("web", &[&web, "networks: [default]", &on("ash")]),
            ("asker", &[&sh(ask), "networks: [default]", &on("cedar")]),
            ("db", &[&db, "networks: {default: {aliases: [database]}}", &on(at)]),
            ("api", &[&web, "networks: [default]", "deploy: {replicas: 3}"]),
        ])
    };
    apply(&cell, "shop", &shop("birch"));
    let db = |cell: &Cell| fetch(cell, "shop/web", "http://db:5000/");
    cell.until("db is reached by its name", |cell| db(cell).is_some());
    assert!(
        fetch(&cell, "shop/web", "http://DATABASE:5000/").is_some(),
        "by its alias, in any letters"
    );
    assert_eq!(fetch(&cell, "shop/web", "http://db:5001/"), None, "nobody listens there");
    assert_eq!(fetch(&cell, "shop/web", "http://nobody/"), None);
    assert!(fetch(&cell, "shop/db", "http://db:5000/").is_some(), "it finds itself");

    let near: Vec<String> = replicas(&cell, "api", "ash")
        .iter()
        .filter_map(|replica| inside(&cell, replica, "hostname"))
        .collect();
    for _ in 0..10 {
        let answered = fetch(&cell, "shop/web", "http://api/").expect("it is there");
        assert!(near.contains(&answered), "{answered} is not on ash, where {near:?} are");
    }

    let (begun, failed) = (count(&cell, "/tmp/ok"), count(&cell, "/tmp/failed"));
    apply(&cell, "shop", &shop("cedar"));
    cell.until("enough were asked", |cell| count(cell, "/tmp/ok") >= begun + REQUESTS);
    assert_eq!(count(&cell, "/tmp/failed"), failed, "while db moved to another node");

    let before = resolve(&cell, "shop/web", "db");
    cell.kill(0);
    cell.up(0, None);
    cell.until("names are answered by the next daemon", |cell| db(cell).is_some());
    assert_eq!(resolve(&cell, "shop/web", "db"), before, "programs keep what they were told");
}

/// The address that a container is told for a name; none if it is told none.
fn resolve(cell: &Cell, replica: &str, name: &str) -> Option<String> {
    let text = inside(cell, replica, &format!("nslookup {name}"))?;
    let lines = text.lines().rev().filter_map(|line| line.strip_prefix("Address"));
    lines.filter_map(|line| line.split(": ").nth(1)).map(|it| it.trim().to_owned()).next()
}

#[test]
fn who_shares_no_network_finds_nobody_and_reaches_nobody() {
    let Some((engines, cell)) = three_with_engines(|_, _| Vec::new()) else { return };
    let (web, ash) = (server(80), on("ash"));
    let (birch, cedar) = (on("birch"), on("cedar"));
    let shop = compose(&[
        ("web", &[&web, "networks: [front]", &ash]),
        ("api", &[&web, "networks: [front, back]", &birch]),
        ("db", &[&web, "networks: [back]", &cedar]),
        ("echo", &["networks: [front]", "expose: ['5353/udp']", &cedar]),
    ]);
    apply(&cell, "shop", &format!("{shop}networks:\n  front: {{}}\n  back: {{internal: true}}\n"));
    let blog = [("spy", ["networks: [default]", ash.as_str()])];
    apply(&cell, "blog", &compose(&blog.each_ref().map(|(name, lines)| (*name, lines.as_slice()))));

    let reaches = |from: &str, to: &str| fetch(&cell, from, &format!("http://{to}/")).is_some();
    cell.until("web reaches api", |_| reaches("shop/web", "api"));
    cell.until("api reaches db, on a network that leads nowhere else", |_| {
        reaches("shop/api", "db")
    });
    cell.until("db reaches api", |_| reaches("shop/db", "api"));
    assert!(reaches("shop/api", "web"), "through its other network");
    assert_eq!(resolve(&cell, "shop/web", "db"), None, "web and db share no network");
    assert!(!reaches("shop/db", "web"));

    let api = resolve(&cell, "shop/web", "api").expect("web knows api");
    assert!(reaches("shop/web", &api));
    assert_eq!(resolve(&cell, "blog/spy", "api"), None, "another deployment");
    assert!(!reaches("blog/spy", &api), "though it may guess {api}");
    let own = inside(&cell, "shop/web", "hostname -i").expect("it has an address");
    assert!(!reaches("blog/spy", &own), "nor the container itself, at {own}");

    let echo = resolve(&cell, "shop/web", "echo").expect("web knows echo");
    let (client, server) = (network(&engines.0[0], "web"), network(&engines.0[2], "echo"));
    let listens = within(&server, || UdpSocket::bind(("0.0.0.0", DATAGRAMS))).unwrap().unwrap();
    listens.set_read_timeout(Some(PATIENCE)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut space = [0; 64];
            let (length, from) = listens.recv_from(&mut space).unwrap();
            listens.send_to(&space[..length], from).unwrap();
        });
        let asks = within(&client, || UdpSocket::bind(("0.0.0.0", 0))).unwrap().unwrap();
        asks.set_read_timeout(Some(PATIENCE)).unwrap();
        asks.send_to(b"ahoy", (echo.as_str(), DATAGRAMS)).unwrap();
        let mut space = [0; 64];
        let (length, from) = asks.recv_from(&mut space).expect("datagrams go there and back");
        assert_eq!((&space[..length], from.ip().to_string()), (b"ahoy".as_slice(), echo));
    });
}
