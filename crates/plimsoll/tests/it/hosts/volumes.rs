//! Volumes of containers on hosts with an engine each: they move, are drained away, backed up and restored with every row, and when
//! a daemon or an engine dies in the middle exactly one node has the data.

use std::fs;

use plimsoll_lab::NAMES;
use serde_json::Value;

use super::routed::{Engines, must_do, three_with_setups};
use crate::harness::{Cell, NodeSetup};
use crate::lab::compose::{compose, sh};

const DATA: &str = "shop_data";

/// How much is in the volume where something is to happen while it is copied.
const LARGE_MIB: usize = 192;

/// Adds a row ten times a second, and has so many MiB beside them.
fn writer(dir: &str, mib: usize) -> String {
    writer_that_ends(dir, mib, "exit 0")
}

/// The same, which does this when it is told to stop.
fn writer_that_ends(dir: &str, mib: usize, end: &str) -> String {
    let fill = format!("[ -e {dir}/large ] || head -c {mib}m /dev/urandom > {dir}/large");
    let write = format!("echo row >> {dir}/rows; sleep 0.1");
    sh(&format!("trap '{end}' TERM; {fill}; while :; do {write}; done"))
}

fn three() -> Option<(Engines, Cell)> {
    three_with_setups(|_, _| NodeSetup::default())
}

/// Has the service run with a named volume, and says where that is.
fn deployed(cell: &Cell, mib: usize) -> usize {
    deployed_as(cell, &writer("/data", mib))
}

fn deployed_as(cell: &Cell, writer: &str) -> usize {
    let file = compose(&[("db", &[writer, "volumes: ['data:/data']"])]);
    apply(cell, &format!("{file}volumes: {{data: {{}}}}\n"));
    until_written(cell, "/data", 5);
    home(cell, DATA)
}

fn apply(cell: &Cell, file: &str) {
    fs::write(cell.dir.path().join("shop.yaml"), file).unwrap();
    must_do(cell, 0, "apply -f shop.yaml -p shop");
}

fn volume(cell: &Cell, at: usize, name: &str) -> Value {
    cell.get(at, &format!("/v1/deployments/shop/volumes/{name}")).unwrap_or_default()
}

/// The nodes that have the data, of which there is to be one.
fn holders(cell: &Cell, at: usize, name: &str) -> Vec<usize> {
    let copies = volume(cell, at, name)["copies"].as_array().cloned().unwrap_or_default();
    let holders = copies.iter().filter(|copy| copy["state"] == "data");
    holders.filter_map(|it| NAMES.iter().position(|name| it["node"] == *name)).collect()
}

#[track_caller]
fn home(cell: &Cell, name: &str) -> usize {
    let holders = holders(cell, 0, name);
    assert_eq!(holders.len(), 1, "{}", volume(cell, 0, name));
    holders[0]
}

/// The replica that runs, and its node.
fn running(cell: &Cell, at: usize) -> Option<(String, String)> {
    let shop = cell.get(at, "/v1/deployments/shop")?;
    let all = shop["services"][0]["replicas"].as_array()?.clone();
    let up = all.iter().find(|it| it["now"]["state"] == "running")?;
    Some((up["id"].as_str()?.to_owned(), up["now"]["node"].as_str()?.to_owned()))
}

/// How many rows the service finds; none while it does not run.
fn rows(cell: &Cell, at: usize, dir: &str) -> Option<usize> {
    let (replica, _) = running(cell, at)?;
    let counted = cell.run(at, &format!("exec {replica} -- wc -l {dir}/rows"));
    counted.stdout().split_whitespace().next()?.parse().ok()
}

/// Waits until the service runs and has more than so many rows.
#[track_caller]
fn until_written(cell: &Cell, dir: &str, more_than: usize) -> usize {
    let mut found = 0;
    cell.until("it runs, with all its rows", |cell| {
        let at = cell.nodes().find(|at| rows(cell, *at, dir).is_some());
        found = at.and_then(|at| rows(cell, at, dir)).unwrap_or(0);
        found > more_than
    });
    found
}

fn names_of_volumes(cell: &Cell) -> Vec<String> {
    let all = cell.json(0, "volume list -o json");
    let names = all.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned());
    names.collect()
}

#[test]
fn volumes_of_containers_move_and_drain_with_every_row_also_those_of_images() {
    let Some((_engines, cell)) = three() else { return };
    let src = deployed(&cell, 1);
    let dst = (src + 1) % 3;
    let before = until_written(&cell, "/data", 20);
    must_do(&cell, 2, &format!("volume move {DATA} {}", NAMES[dst]));
    until_written(&cell, "/data", before);
    assert_eq!(home(&cell, DATA), dst);
    assert_eq!(running(&cell, 0).unwrap().1, NAMES[dst]);
    must_do(&cell, 0, &format!("volume rm {DATA} --node {}", NAMES[src]));

    let before = until_written(&cell, "/data", before);
    must_do(&cell, 0, &format!("node drain {} --move-volumes", NAMES[dst]));
    until_written(&cell, "/data", before);
    assert_ne!(home(&cell, DATA), dst);
    must_do(&cell, 0, &format!("node uncordon {}", NAMES[dst]));
    must_do(&cell, 0, "delete shop --volumes -y");
    cell.until("nothing is left of it", |cell| names_of_volumes(cell).is_empty());

    apply(&cell, &compose(&[("db", &["image: plimsoll-test:data", &writer("/kept", 1)])]));
    let before = until_written(&cell, "/kept", 5);
    let name = names_of_volumes(&cell).remove(0);
    let src = home(&cell, &name);
    let dst = (src + 1) % 3;
    must_do(&cell, 1, &format!("volume move {name} {}", NAMES[dst]));
    let before = until_written(&cell, "/kept", before);
    assert_eq!(home(&cell, &name), dst);
    must_do(&cell, 0, &format!("volume rm {name} --node {}", NAMES[src]));
    must_do(&cell, 0, &format!("node drain {} --move-volumes", NAMES[dst]));
    until_written(&cell, "/kept", before);
    assert_ne!(home(&cell, &name), dst);
}

#[test]
fn volumes_of_containers_are_backed_up_and_restored() {
    let Some((_engines, cell)) = three() else { return };
    let at = deployed(&cell, 1);
    let before = until_written(&cell, "/data", 20);
    must_do(&cell, (at + 1) % 3, &format!("volume backup {DATA} -o data.volume"));
    let later = |verb: &str| {
        let (replica, _) = running(&cell, 0).unwrap();
        cell.run(0, &format!("exec {replica} -- {verb} /data/later")).code()
    };
    until_written(&cell, "/data", before);
    assert_eq!((later("touch"), later("ls")), (0, 0));
    must_do(&cell, (at + 2) % 3, &format!("volume restore {DATA} -i data.volume"));
    until_written(&cell, "/data", before - 1);
    assert_ne!(later("ls"), 0, "what came after the backup is gone");
    assert_eq!(home(&cell, DATA), at);

    must_do(&cell, 0, "delete shop --volumes -y");
    cell.until("nothing is left of it", |cell| names_of_volumes(cell).is_empty());
    let dst = (at + 1) % 3;
    let args = format!("volume restore {DATA} -i data.volume --node {}", NAMES[dst]);
    must_do(&cell, 0, &args);
    must_do(&cell, 0, "apply -f shop.yaml -p shop");
    until_written(&cell, "/data", before - 1);
    assert_eq!(home(&cell, DATA), dst, "the service goes to what was restored for it");

    // What an image declares, too.
    apply(&cell, &compose(&[("db", &["image: plimsoll-test:data", &writer("/kept", 1)])]));
    let before = until_written(&cell, "/kept", 5);
    let names = names_of_volumes(&cell);
    let name = names.iter().find(|name| name.starts_with("shop_db.1.")).unwrap();
    must_do(&cell, 0, &format!("volume backup {name} -o image.volume"));
    until_written(&cell, "/kept", before + 10);
    must_do(&cell, 0, &format!("volume restore {name} -i image.volume"));
    until_written(&cell, "/kept", before - 1);
}

/// A move of which some has arrived, over a slow wire.
fn half_moved(cell: &Cell) -> (usize, usize, usize) {
    let src = deployed(cell, LARGE_MIB);
    let dst = (src + 1) % 3;
    let before = until_written(cell, "/data", 20);
    cell.lab().delay(src, dst, std::time::Duration::from_millis(40));
    must_do(cell, dst, &format!("volume move {DATA} {} --detach", NAMES[dst]));
    let witness = (src + 2) % 3;
    cell.until("some of it has arrived", |cell| {
        let moving = &volume(cell, witness, DATA)["moving"];
        moving["phase"] == "copying" && moving["copied"]["bytes"].as_u64() > Some(1 << 20)
    });
    (src, dst, before)
}

#[test]
fn a_destination_whose_engine_dies_in_the_middle_leaves_the_data_where_it_was() {
    let Some((engines, cell)) = three() else { return };
    let (src, dst, before) = half_moved(&cell);
    engines.0[dst].kill().unwrap();
    cell.until("the move is given up", |cell| volume(cell, src, DATA)["moving"].is_null());
    cell.lab().heal_all();
    until_written(&cell, "/data", before);
    assert_eq!(holders(&cell, src, DATA), [src]);
    assert_eq!(running(&cell, src).unwrap().1, NAMES[src]);
    engines.0[dst].start().unwrap();
    cell.until("its engine is back", |cell| {
        let nodes = cell.json(src, "node list -o json");
        nodes.as_array().unwrap().iter().all(|it| it["status"] == "ready")
    });
    cell.until("half a copy is gone", |cell| {
        let copies = volume(cell, src, DATA)["copies"].as_array().cloned().unwrap_or_default();
        copies.len() == 1
    });
    must_do(&cell, src, &format!("volume move {DATA} {}", NAMES[dst]));
    until_written(&cell, "/data", before);
    assert_eq!(home(&cell, DATA), dst);
}

#[test]
fn a_source_whose_daemon_is_killed_in_the_middle_has_the_data_when_it_is_back() {
    let Some((_engines, mut cell)) = three() else { return };
    let (src, dst, before) = half_moved(&cell);
    cell.kill(src);
    cell.lab().heal_all();
    cell.until("the move is given up", |cell| {
        let seen = volume(cell, dst, DATA);
        !seen["copies"].is_null() && seen["moving"].is_null()
    });
    assert_eq!(holders(&cell, dst, DATA), [src]);
    cell.up(src, None);
    until_written(&cell, "/data", before);
    assert_eq!(home(&cell, DATA), src);
    assert_eq!(running(&cell, 0).unwrap().1, NAMES[src]);
    cell.until("half a copy is gone", |cell| {
        let copies = volume(cell, 0, DATA)["copies"].as_array().cloned().unwrap_or_default();
        copies.len() == 1
    });
}

/// Whose daemon is killed while a volume moves.
#[derive(Debug, Clone, Copy)]
enum MoveVictim {
    Source,
    Destination,
    Leader,
}

/// Kills a daemon at one step of a move, starts it again, and sees where the data is.
fn killed_at(cell: &mut Cell, step: &str, victim: MoveVictim) {
    let src = home(cell, DATA);
    let (dst, witness) = ((src + 1) % 3, (src + 2) % 3);
    let before = until_written(cell, "/data", 0);
    cell.lab().delay(src, dst, std::time::Duration::from_millis(40));
    must_do(cell, witness, &format!("volume move {DATA} {} --detach", NAMES[dst]));
    cell.until(step, |cell| match step {
        "moved" => holders(cell, witness, DATA) == [dst],
        phase => volume(cell, witness, DATA)["moving"]["phase"] == phase,
    });
    let at = match victim {
        MoveVictim::Source => src,
        MoveVictim::Destination => dst,
        MoveVictim::Leader => cell.until_led(&[0, 1, 2]),
    };
    cell.kill(at);
    cell.lab().heal_all();
    cell.up(at, None);
    cell.until("the move is over", |cell| {
        let seen = volume(cell, witness, DATA);
        !seen["copies"].is_null() && seen["moving"].is_null()
    });
    until_written(cell, "/data", before);
    let now = home(cell, DATA);
    assert!(now == src || now == dst, "{step}, {victim:?}: it is on {}", NAMES[now]);
    assert!(step != "moved" || now == dst, "{victim:?}: it had changed hands");
    assert_eq!(running(cell, 0).unwrap().1, NAMES[now], "{step}, {victim:?}");
    if now == dst {
        must_do(cell, 0, &format!("volume rm {DATA} --node {}", NAMES[src]));
    }
    cell.until("one copy is left", |cell| {
        let copies = volume(cell, 0, DATA)["copies"].as_array().cloned().unwrap_or_default();
        copies.len() == 1
    });
    println!("{victim:?} killed while {step}: the data is on {}", NAMES[now]);
}

fn killed_at_every_step(victim: MoveVictim) {
    let Some((_engines, mut cell)) = three() else { return };
    // It takes its time to stop, and there is something to copy.
    deployed_as(&cell, &writer_that_ends("/data", 48, "sleep 2; exit 0"));
    for step in ["stopping", "copying", "moved"] {
        killed_at(&mut cell, step, victim);
    }
}

#[test]
fn a_source_killed_at_any_step_leaves_one_node_with_the_data_and_the_service_comes_back() {
    killed_at_every_step(MoveVictim::Source);
}

#[test]
fn a_destination_killed_at_any_step_leaves_one_node_with_the_data_and_the_service_comes_back() {
    killed_at_every_step(MoveVictim::Destination);
}

#[test]
fn a_leader_killed_at_any_step_leaves_one_node_with_the_data_and_the_service_comes_back() {
    killed_at_every_step(MoveVictim::Leader);
}

/// What comes in the place of a container with data begins when that has stopped, and not before, by whatever name.
#[test]
fn two_containers_never_write_one_volume_at_once() {
    let Some((_engines, cell)) = three() else { return };
    // Both at once would find the other's lock.
    let lock = "[ ! -e /data/lock ] || echo twice >> /data/twice; touch /data/lock";
    let script = format!(
        "trap 'sleep 3; rm /data/lock; exit 0' TERM; {lock}; while :; do echo row >> /data/rows; sleep 0.1; done"
    );
    let service = sh(&script);
    let lines: &[&str] = &[&service, "volumes: ['data:/data']"];
    let file = |name: &str| format!("{}volumes: {{data: {{}}}}\n", compose(&[(name, lines)]));
    apply(&cell, &file("db"));
    let written = until_written(&cell, "/data", 5);
    must_do(&cell, 0, "scale shop db=0 -d");
    must_do(&cell, 0, "scale shop db=1 -d");
    let written = until_written(&cell, "/data", written + 10);
    must_do(&cell, 0, "delete shop -y -d");
    apply(&cell, &file("db"));
    let written = until_written(&cell, "/data", written + 10);
    apply(&cell, &file("database"));
    until_written(&cell, "/data", written + 10);
    let (replica, _) = running(&cell, 0).unwrap();
    let twice = cell.run(0, &format!("exec {replica} -- cat /data/twice"));
    assert_ne!(twice.code(), 0, "{}", twice.text());
}
