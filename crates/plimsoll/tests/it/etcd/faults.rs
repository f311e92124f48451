//! What a cell on etcd survives, and that what its log says and what runs agree afterwards.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use plimsoll_etcd::testkit::EtcdLab;
use plimsoll_lab::{NAMES, Process};
use serde_json::Value;

use super::{TTL, cell_of, cell_with, flags};
use crate::harness::{Cell, PATIENCE, faketime, loopback};
use crate::http;
use crate::lab::found::{Found, Processes};
use crate::run::{binary, run_in};

/// How long etcd is away.
const OUTAGE: Duration = Duration::from_mins(1);

/// Every replica of the shop is assigned once and runs once, where the log says; the nodes agree on the log.
#[track_caller]
pub(super) fn must_agree(cell: &Cell, nodes: &[usize], replicas: usize) {
    cell.until("all replicas run, each where it is assigned and nowhere else", |cell| {
        let assigned = assigned(&cell.json(nodes[0], "get deployments -o json"));
        let mut running: Vec<Placed> = cell.nodes().flat_map(|at| running_on(cell, at)).collect();
        running.sort();
        assigned.len() == replicas && running == assigned
    });
    cell.until("the servers agree on the state", |cell| {
        let told: Option<Vec<Value>> =
            nodes.iter().map(|at| cell.get(*at, "/healthz?hash=true")).collect();
        let told = told.unwrap_or_default();
        let hashes: BTreeSet<(Option<u64>, Option<&str>)> =
            told.iter().map(|one| (one["applied"].as_u64(), one["hash"].as_str())).collect();
        told.len() == nodes.len() && hashes.len() == 1
    });
}

/// A replica, the generation it is at, and its node.
type Placed = (String, u64, String);

/// What really runs there, whatever anybody says.
fn running_on(cell: &Cell, at: usize) -> Vec<Placed> {
    let placed = |one: Found| (one.replica.replace('/', "-"), one.generation, NAMES[at].to_owned());
    cell.found_on(at).into_iter().map(placed).collect()
}

/// What the log says, each replica once.
fn assigned(deployments: &Value) -> Vec<Placed> {
    let services = deployments[0]["services"].as_array().cloned().unwrap_or_default();
    let replicas =
        services.iter().flat_map(|it| it["replicas"].as_array().cloned().unwrap_or_default());
    let one = |replica: Value| {
        let (now, id) = (&replica["now"], replica["id"].as_str()?.to_owned());
        Some((id, now["generation"].as_u64()?, now["node"].as_str()?.to_owned()))
    };
    let mut placed: Vec<Placed> = replicas.filter_map(one).collect();
    placed.sort();
    placed
}

/// The log as etcd holds it has no gap, no entry was written twice, and no term comes back once another has begun.
#[track_caller]
fn must_be_one_history(lab: &EtcdLab) {
    let text = lab.ctl(&["get", "/plimsoll/home/scheduler/entry/", "--prefix", "-w", "json"]);
    let found: Value = serde_json::from_str(&text).unwrap();
    let entries: Vec<(u64, u64)> = found["kvs"].as_array().unwrap().iter().map(entry).collect();
    assert!(!entries.is_empty());
    for pair in entries.windows(2) {
        assert_eq!(pair[1].0, pair[0].0 + 1, "no gap");
        assert!(pair[1].1 >= pair[0].1, "a term that was over came back: {pair:?}");
    }
}

/// Its index and its term.
fn entry(pair: &Value) -> (u64, u64) {
    use base64::Engine as _;
    let bytes = |field: &str| {
        let text = pair[field].as_str().unwrap();
        base64::engine::general_purpose::STANDARD.decode(text).unwrap()
    };
    assert_eq!(pair["version"], 1, "an entry is written once");
    let key = String::from_utf8(bytes("key")).unwrap();
    let value = bytes("value");
    let index = key.rsplit('/').next().unwrap().parse().unwrap();
    (index, u64::from_le_bytes(value[1..9].try_into().unwrap()))
}

#[track_caller]
pub(super) fn apply_shop(cell: &Cell, at: usize) {
    cell.write_shop();
    let applied = cell.run(at, "apply -f compose.yaml");
    assert!(applied.code() == 0, "{}", applied.text());
}

#[test]
fn three_nodes_on_an_etcd_form_a_cell_and_the_loss_of_its_leader_costs_nothing() {
    let Some(lab) = EtcdLab::start(3, &[]) else { return };
    let mut cell = cell_of(3, &lab);
    let leader = cell.until_led(&[0, 1, 2]);
    let others = cell.others(leader);
    apply_shop(&cell, others[0]);
    let mut places = cell.running_on(others[1]);
    places.sort();
    assert_eq!(places, ["ash", "ash", "birch", "birch", "cedar", "cedar"]);
    must_agree(&cell, &[0, 1, 2], 6);

    let name = cell.get(leader, "/healthz").unwrap()["node"].clone();
    cell.kill(leader);
    let begun = Instant::now();
    cell.until("a write succeeds", |cell| cell.run(others[0], "scale shop web=7 -d").code() == 0);
    let took = begun.elapsed();
    // The promise is the lease and a second on a quiet machine; here it must only not be a matter of luck.
    assert!(took < TTL + Duration::from_secs(10), "{took:?}");
    cell.until("all run elsewhere", |cell| {
        let places = cell.running_on(others[1]);
        places.len() == 7 && places.iter().all(|node| name != *node.as_str())
    });

    cell.setups[leader].args.clear();
    cell.up(leader, None);
    cell.until("it is back, and was told nothing", |cell| {
        let nodes = cell.json(others[0], "node list -o json");
        nodes.as_array().unwrap().iter().all(|node| node["status"] == "ready")
    });
    must_agree(&cell, &[0, 1, 2], 7);
    must_be_one_history(&lab);
}

#[test]
fn a_leader_on_etcd_that_is_stopped_is_followed_at_once() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let mut cell = cell_of(3, &lab);
    apply_shop(&cell, 0);
    let mut spans = Vec::new();
    for _ in 0..3 {
        let leader = cell.until_led(&[0, 1, 2]);
        let other = cell.others(leader)[0];
        let before = cell.term(other);
        cell.daemon(leader).terminate().unwrap();
        let begun = Instant::now();
        // Each at another count, so that none is answered without a write.
        let scale = format!("scale shop web={} -d", 7 + spans.len());
        while cell.term(other) == before || cell.run(other, &scale).code() != 0 {
            sleep(Duration::from_millis(1));
        }
        spans.push(begun.elapsed());
        cell.until_ended(leader);
        assert!(!cell.said(leader).contains("does not end"), "{}", cell.said(leader));
        cell.up(leader, None);
    }
    spans.sort();
    eprintln!("followed after {spans:?}");
    // Half a second is promised; the middle one, because a busy machine may hold any of them up.
    assert!(spans[1] < Duration::from_millis(500), "{spans:?}");
    must_agree(&cell, &[0, 1, 2], 9);
    must_be_one_history(&lab);
}

#[test]
fn a_leader_that_slept_for_three_leases_writes_nothing_of_its_old_term() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let cell = cell_of(3, &lab);
    apply_shop(&cell, 0);
    let leader = cell.until_led(&[0, 1, 2]);
    let others = cell.others(leader);
    let old = cell.term(leader).unwrap();
    cell.daemon(leader).pause().unwrap();
    let begun = Instant::now();
    cell.until("a write succeeds", |cell| cell.run(others[0], "scale shop web=7 -d").code() == 0);
    let new = cell.until_led(&others);
    let since = cell.term(new).unwrap();
    assert!(since > old);
    sleep((TTL * 3).saturating_sub(begun.elapsed()));
    cell.daemon(leader).resume().unwrap();
    // It wakes believing that it leads: what it is asked at once is refused or passed on, and never written by itself.
    let asked = cell.run(leader, "scale shop web=8 -d");
    assert!(asked.code() == 0 || asked.stderr().contains("leads"), "{}", asked.text());
    cell.until("it follows", |cell| cell.leader_of(&[0, 1, 2]).is_some());
    let written = cell.run(leader, "scale shop web=9 -d");
    assert!(written.code() == 0, "{}", written.text());
    must_agree(&cell, &[0, 1, 2], 9);
    must_be_one_history(&lab);
}

#[test]
fn without_etcd_nobody_leads_and_replicas_run_on_until_it_is_back() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let cell = cell_of(3, &lab);
    apply_shop(&cell, 0);
    must_agree(&cell, &[0, 1, 2], 6);
    let before = processes(&cell);
    lab.pause(1);
    cell.until("nobody leads, and each says why", |cell| {
        cell.nodes().all(|at| {
            let ready = cell.get(at, "/readyz").unwrap_or_default();
            let why = ready["why"].to_string();
            ready["leader"].is_null() && why.contains("no_leader") && why.contains("etcd")
        })
    });
    let refused = cell.run(1, "scale shop web=7 -d");
    assert!(refused.code() == 2 && refused.stderr().contains("etcd"), "{}", refused.text());
    let read = cell.run(1, "status");
    assert!(read.code() == 0, "what is known is still told: {}", read.text());
    // Far longer than a node may be silent before it is taken for lost: whoever leads next gives each its time first.
    sleep(OUTAGE);
    assert_eq!(processes(&cell), before, "nothing was touched");
    lab.resume(1);
    cell.until("a write succeeds", |cell| cell.run(1, "scale shop web=7 -d").code() == 0);
    must_agree(&cell, &[0, 1, 2], 7);
    assert!(processes(&cell).is_superset(&before), "and what ran runs on");
    must_be_one_history(&lab);
}

#[test]
fn clocks_that_jump_by_an_hour_unseat_nobody_and_lose_nothing() {
    let Some(library) = faketime() else {
        println!("not tested: faketime is not installed");
        return;
    };
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let cell = cell_with(3, &lab, |cell| {
        for at in 0..3 {
            let clock = cell.path(at).with_extension("clock");
            fs::write(&clock, "+0s").unwrap();
            // Wall clocks only: time that has passed is not a matter of opinion.
            let environment = [
                ("LD_PRELOAD", &*library),
                ("FAKETIME_TIMESTAMP_FILE", clock.to_str().unwrap()),
                ("FAKETIME_NO_CACHE", "1"),
                ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ];
            cell.setups[at].environment =
                environment.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        }
    });
    apply_shop(&cell, 0);
    must_agree(&cell, &[0, 1, 2], 6);
    let leader = cell.until_led(&[0, 1, 2]);
    let (term, before) = (cell.term(leader), processes(&cell));
    for (nth, (at, clock)) in
        [(leader, "+1h"), (leader, "-1h"), (cell.others(leader)[0], "+1h")].into_iter().enumerate()
    {
        fs::write(cell.path(at).with_extension("clock"), clock).unwrap();
        // As long as a lease lasts: who went by the clock would have lost it, or kept one that is over.
        sleep(TTL);
        let scale = format!("scale shop web={} -d", 7 + nth);
        let scaled = cell.run(cell.others(leader)[1], &scale);
        assert!(scaled.code() == 0, "{clock}: {}", scaled.text());
        assert_eq!(cell.term(leader), term, "{clock}: nobody else leads");
    }
    must_agree(&cell, &[0, 1, 2], 9);
    assert!(processes(&cell).is_superset(&before), "what ran runs on");
    let lost = cell.get(leader, "/v1/audit?type=node_down").unwrap();
    assert_eq!(lost.as_array().map(Vec::len), Some(0), "and nobody was taken for lost: {lost}");
    must_be_one_history(&lab);
}

fn processes(cell: &Cell) -> BTreeSet<(String, u64)> {
    cell.found().iter().map(|one| (one.replica.clone(), one.generation)).collect()
}

#[test]
fn a_node_without_etcd_joins_with_a_token_and_outlives_its_leader() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let mut cell = cell_of(2, &lab);
    let agent = 2;
    let token = cell.token(0);
    cell.up(agent, Some(&token));
    cell.until_heard(agent, 3);
    let servers = cell.get(agent, "/v1/cell").unwrap_or_default()["servers"].clone();
    assert_eq!(servers.as_array().unwrap().len(), 2, "it holds no log: {servers}");
    let made = cell.run(0, "token create boss --role admin");
    let boss = made.stdout().trim().to_owned();
    // Its word for who asks does not count, so that a token has to say it.
    let as_boss = |cell: &Cell, args: &str| {
        let socket = cell.socket(agent);
        let env = [("PLIMSOLL_HOST", socket.to_str().unwrap()), ("PLIMSOLL_TOKEN", &boss)];
        run_in(cell.dir.path(), args, "", &env).code()
    };
    cell.write_shop();
    assert_eq!(as_boss(&cell, "apply -f compose.yaml"), 0);
    assert!(cell.running_on(agent).contains(&"cedar".to_owned()));
    let leader = cell.until_led(&[0, 1]);
    cell.kill(leader);
    cell.until("it finds the next leader", |cell| as_boss(cell, "scale shop web=7 -d") == 0);
    cell.stop(agent);
    cell.up(agent, None);
    cell.until("also after a restart", |cell| as_boss(cell, "scale shop web=5 -d") == 0);

    // A server that lost its disk comes back under its name and takes up what is there.
    fs::remove_dir_all(cell.path(leader).join("tls")).unwrap();
    fs::remove_file(cell.path(leader).join("node.json")).unwrap();
    cell.up(leader, None);
    cell.until("it is of the cell", |cell| {
        let nodes = cell.get(agent, "/v1/nodes").unwrap_or_default();
        let nodes = nodes.as_array().cloned().unwrap_or_default();
        nodes.len() == 3 && nodes.iter().all(|node| node["status"] == "ready")
    });
    let servers: Vec<usize> = [0, 1].into();
    must_agree(&cell, &servers, 5);
}

#[test]
fn a_lone_server_that_lost_its_disk_and_its_address_takes_its_name_up_once_the_old_one_is_silent() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let mut cell = cell_of(1, &lab);
    cell.write_shop();
    assert_eq!(cell.run(0, "apply -f compose.yaml -d").code(), 0);
    cell.stop(0);
    let (elsewhere, log) =
        (cell.dir.path().join("elsewhere"), cell.dir.path().join("elsewhere.log"));
    let mut command = binary();
    command.args(["up", "--runtime", "process", "--name", NAMES[0], "--address", &loopback(6)]);
    command.args(flags(&lab)).arg("--data-dir").arg(&elsewhere);
    command.stderr(fs::File::create(&log).unwrap());
    let _stranger = Stranger(Process::new(command.spawn().unwrap()), elsewhere.clone());
    let socket = elsewhere.join("plimsoll.sock");
    let nodes = || -> Value {
        let asked = http::ask(&socket, "GET", "/v1/nodes", b"", PATIENCE);
        asked.ok().and_then(|(_, body)| serde_json::from_slice(&body).ok()).unwrap_or_default()
    };
    cell.until("it is heard under its name", |_| {
        let nodes = nodes();
        nodes[0]["status"] == "ready" && !nodes[0]["last_heard"].is_null()
    });
    cell.until("what was asked for is known", |_| {
        let asked = http::ask(&socket, "GET", "/v1/deployments/shop", b"", PATIENCE);
        asked.is_ok_and(|(status, _)| status == 200)
    });
}

/// A daemon that is none of the cell's, and what it runs.
struct Stranger(Process, PathBuf);

impl Drop for Stranger {
    fn drop(&mut self) {
        self.0.kill();
        Processes::below(&self.1).kill();
    }
}
