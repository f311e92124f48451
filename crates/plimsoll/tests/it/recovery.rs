//! A cell that lost its servers: it goes on from one of them, or from a backup, and those who come back are told so.

use std::fs;
use std::process::Command;
use std::time::Duration;

use plimsoll_lab::NAMES;
use serde_json::Value;

use crate::harness::{Cell, SHOP, Site};
use crate::quorum::ready;
use crate::run::{Ran, run_in};

/// All of it on the node that survives.
const PINNED: &str = r#"
name: shop
services:
  web:
    image: any
    command: [sh, -c, 'exec sleep 1000']
    healthcheck: {test: [CMD, "true"], interval: 100ms}
    deploy: {replicas: 2}
    x-plimsoll: {placement: hosts, hosts: [cedar]}
"#;

impl Cell {
    /// A command that needs no daemon, beside the data directories.
    fn offline(&self, args: &str) -> Ran {
        run_in(self.dir.path(), args, "", &[])
    }

    fn apply(&self, file: &str) {
        fs::write(self.dir.path().join("compose.yaml"), file).unwrap();
        let applied = self.run(2, "apply -f compose.yaml");
        assert_eq!(applied.code(), 0, "{}", applied.text());
    }

    fn names(&self, at: usize) -> Vec<String> {
        let nodes = self.json(at, "node list -o json");
        let nodes = nodes.as_array().cloned().unwrap_or_default();
        nodes.iter().map(|node| node["name"].as_str().unwrap().to_owned()).collect()
    }

    fn servers_vote(&self, at: usize, count: usize) -> bool {
        // While the votes change, the old set of them counts too: a cell must not lose a server of it just then.
        let status = self.json(at, "cell status -o json");
        let servers = status["servers"].as_array().cloned().unwrap_or_default();
        let all_vote = servers.iter().all(|server| server["votes"] == true);
        status["is_changing"] == false && servers.len() == count && all_vote
    }

    fn servers(&self, at: usize) -> usize {
        let servers = &self.json(at, "cell status -o json")["servers"];
        servers.as_array().map_or(0, Vec::len)
    }

    /// Replica and generation: what has not moved or been started anew has kept both.
    fn generations(&self, at: usize) -> Vec<(String, u64)> {
        let replicas = self.json(at, "get replicas -o json").as_array().cloned().unwrap();
        let one = |it: &Value| {
            (it["id"].as_str().unwrap().to_owned(), it["now"]["generation"].as_u64().unwrap())
        };
        replicas.iter().map(one).collect()
    }

    fn is_steady(&self, at: usize) -> bool {
        self.json(at, "status -o json")["deployments"][0]["progress"]["is"] == "steady"
    }
}

#[test]
fn one_survivor_of_three_goes_on_with_its_replicas_and_new_nodes_join_it() {
    let mut cell = Cell::of_three(Site::Loopback);
    cell.apply(PINNED);
    let before = cell.generations(2);
    let void = cell.token(0);
    assert_eq!(cell.run(0, "token create ann --role deploy").code(), 0);
    let running = cell.offline("cell recover --data-dir cedar -y");
    assert_eq!(running.code(), 1, "{}", running.text());
    assert!(running.stderr().contains("a daemon runs on"), "{}", running.text());
    // What never reached the survivor would be lost, as it says.
    cell.until_equal(&[0, 1, 2]);
    for at in 0..3 {
        cell.kill(at);
    }
    for at in 0..2 {
        fs::remove_dir_all(cell.path(at)).unwrap();
    }

    let unasked = cell.offline("cell recover --data-dir cedar");
    assert_eq!(unasked.code(), 1, "{}", unasked.text());
    for said in ["on cedar", "server 1 on ash", "server 2 on birch", "LOST", "say `-y`"] {
        assert!(unasked.stderr().contains(said), "{said}: {}", unasked.text());
    }
    let recovered = cell.offline("cell recover --data-dir cedar -y");
    assert_eq!(recovered.code(), 0, "{}", recovered.text());
    assert!(recovered.stdout().contains("cedar is the only server of cell"));

    cell.up(2, None);
    cell.until("it leads", |cell| ready(cell, 2).is_some_and(|it| it.is_ready));
    assert_eq!(cell.names(2), ["cedar"]);
    assert_eq!(cell.generations(2), before, "its replicas run on, untouched");
    assert!(cell.run(2, "token list").stdout().contains("ann"), "operators keep their tokens");
    let audit = cell.run(2, "audit --type survived").stdout();
    assert!(audit.contains("the cell was recovered with cedar as its only server"), "{audit}");
    assert_eq!(cell.run(2, "scale shop web=3").code(), 0, "and it takes writes");
    let again = cell.offline("cell recover --data-dir cedar -y");
    assert_eq!(again.code(), 1, "{}", again.text());

    let refused = refused(&cell, &void);
    assert!(refused.contains("cell knows no such join token"), "{refused}");
    for at in 0..2 {
        let token = cell.run(2, "token create-join").stdout().trim().to_owned();
        cell.up(at, Some(&token));
    }
    cell.until("three servers vote", |cell| cell.servers_vote(0, 3));
    cell.until("all have one state", |cell| {
        let said: Vec<_> = (0..3).filter_map(|at| ready(cell, at)).collect();
        let hashes: Vec<_> =
            said.iter().map(|it| (it.health.applied, it.health.hash.clone())).collect();
        hashes.len() == 3 && hashes.iter().all(|it| *it == hashes[0])
    });
    cell.kill(2);
    cell.until("the new cell bears a loss", |cell| cell.run(0, "scale shop web=2 -d").code() == 0);
}

/// What a newcomer is told that brings this token.
fn refused(cell: &Cell, join: &str) -> String {
    let address = cell.address(2);
    let (secret, _) = join.split_once('@').unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(["up", "--runtime", "process", "--name", "stranger"]);
    command.args(["--address", &cell.address(1)]);
    command.args(["--join", &format!("{secret}@{address}"), "--data-dir"]);
    let ran = command.arg(cell.dir.path().join("stranger")).output().unwrap();
    assert!(!ran.status.success());
    String::from_utf8(ran.stderr).unwrap()
}

#[test]
fn an_old_majority_that_comes_back_gives_up_and_can_join_again() {
    let mut cell = Cell::of_three(Site::Loopback);
    cell.apply(SHOP);
    for at in 0..3 {
        cell.kill(at);
    }
    assert_eq!(cell.offline("cell recover --data-dir cedar -y").code(), 0);
    cell.up(2, None);
    cell.until("all run on the survivor", |cell| {
        let places = cell.running_on(2);
        places.len() == 6 && places.iter().all(|node| node == "cedar")
    });
    assert_eq!(cell.run(2, "scale shop web=7").code(), 0);

    // Two of three, with their disks as they were: enough to elect a leader of the cell that was.
    for at in 0..2 {
        cell.up(at, None);
    }
    for at in 0..2 {
        cell.until("it gave up", |cell| {
            let write = cell.run(at, "scale shop web=9 -d");
            write.code() != 0 && write.stderr().contains("superseded: the cell was recovered")
        });
        assert!(!ready(&cell, at).unwrap().is_ready);
        cell.until("it says so in its log", |cell| cell.said(at).contains("up --join"));
    }
    assert_eq!(cell.names(2), ["cedar"]);
    let wanted = cell.json(2, "get services -o json")[0]["wanted"].as_u64();
    assert_eq!(wanted, Some(7), "what was decided without them stands");
    assert!(cell.servers_vote(2, 1));

    for at in 0..2 {
        cell.kill(at);
        let token = cell.run(2, "token create-join").stdout().trim().to_owned();
        cell.up(at, Some(&token));
        assert!(cell.path(at).join("store.superseded.1").is_dir(), "the old log is kept");
    }
    cell.until("three servers vote", |cell| cell.servers_vote(0, 3));
    cell.until("all is as it was asked for", |cell| cell.is_steady(0));
    cell.until("the newcomers gave up what they ran", |cell| {
        supervised(&cell.path(0)) + supervised(&cell.path(1)) == 0
    });
    assert_eq!(cell.run(1, "scale shop web=8 --timeout 60s").code(), 0);
}

#[test]
fn a_server_that_was_given_up_returns_where_it_is_told_to_and_the_recovered_cell_gives_up_for_it() {
    let mut cell = Cell::of_three(Site::Loopback);
    cell.apply(SHOP);
    for at in 0..3 {
        cell.kill(at);
    }
    // The wrong one is recovered, and birch joins it.
    assert_eq!(cell.offline("cell recover --data-dir cedar -y").code(), 0);
    cell.up(2, None);
    cell.until("it leads", |cell| ready(cell, 2).is_some_and(|it| it.is_ready));
    fs::remove_dir_all(cell.path(1)).unwrap();
    let token = cell.token(2);
    cell.up(1, Some(&token));
    cell.until("birch is a server of it", |cell| cell.servers(2) == 2);
    cell.up(0, None);
    cell.until("ash gave up", |cell| {
        cell.run(0, "scale shop web=9 -d").stderr().contains("superseded: the cell was recovered")
    });
    cell.kill(0);

    let unforced = cell.offline("cell recover --data-dir ash -y");
    assert_eq!(unforced.code(), 1, "{}", unforced.text());
    assert!(unforced.stderr().contains("say `--force`"), "{}", unforced.text());
    let forced = cell.offline("cell recover --data-dir ash --force -y");
    assert_eq!(forced.code(), 0, "{}", forced.text());
    assert!(forced.stderr().contains("returns     from incarnation"), "{}", forced.text());
    cell.up(0, None);
    cell.until("it leads again", |cell| ready(cell, 0).is_some_and(|it| it.is_ready));
    assert_eq!(cell.names(0), ["ash"]);
    assert_eq!(cell.run(0, "scale shop web=4 -d").code(), 0, "and it takes writes");

    // Birch comes over, and cedar hears from it that its cell is over.
    cell.kill(1);
    fs::remove_dir_all(cell.path(1)).unwrap();
    let token = cell.token(0);
    cell.up(1, Some(&token));
    cell.until("cedar gives up", |cell| {
        cell.run(2, "scale shop web=9 -d").stderr().contains("superseded: the cell was recovered")
    });
    cell.until("birch is a server of the cell that returned", |cell| cell.servers(0) == 2);
    assert_eq!(cell.run(1, "scale shop web=5 -d").code(), 0);
}

/// How many replicas the process runtime of a data directory has running.
fn supervised(dir: &std::path::Path) -> usize {
    let marker = dir.join("process");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let commands = processes.filter_map(|it| fs::read(it.path().join("cmdline")).ok());
    let of_dir = |line: &Vec<u8>| {
        let line = String::from_utf8_lossy(line).into_owned();
        line.contains("supervise") && line.contains(marker.to_str().unwrap())
    };
    commands.filter(of_dir).count()
}

#[test]
fn a_restored_cell_waits_for_no_node_of_the_old_one_and_hears_none() {
    let mut cell = Cell::of_three(Site::Loopback);
    cell.apply(SHOP);
    let void = cell.token(0);
    assert_eq!(cell.run(0, "token create ann --role deploy").code(), 0);
    assert_eq!(cell.run(0, "backup cell.backup").code(), 0);
    fs::write(cell.dir.path().join("backup.key"), cell.backup_key(0).to_string()).unwrap();
    assert_eq!(cell.run(0, "delete shop").code(), 0);
    cell.kill(2);
    fs::rename(cell.path(2), cell.dir.path().join("lost")).unwrap();
    let restored =
        cell.offline("restore cell.backup --key-file backup.key --data-dir cedar --name cedar");
    assert_eq!(restored.code(), 0, "{}", restored.text());
    assert!(restored.stderr().contains("given up: ash, birch"), "{}", restored.text());

    // Ash and birch go on meanwhile, as the cell that was; cedar's name and address are now another's.
    cell.up(2, None);
    let took = cell.until("all replicas are placed and run", |cell| {
        let places = cell.running_on(2);
        places.len() == 6 && places.iter().all(|node| node == "cedar")
    });
    // No node has to be silent for its 15 s first, and there is no grace to wait for.
    assert!(took < Duration::from_secs(15), "{took:?}");
    assert_eq!(cell.names(2), ["cedar"]);
    assert!(cell.servers_vote(2, 1));
    assert!(cell.run(2, "token list").stdout().contains("ann"), "operators keep their tokens");
    assert!(refused(&cell, &void).contains("cell knows no such join token"));

    let cell_id = cell.json(0, "cell status -o json");
    assert!(cell_id["leader"] == "ash" || cell_id["leader"] == "birch", "{cell_id}");
    cell.until("the old cell misses its third node", |cell| {
        let nodes = cell.json(0, "node list -o json");
        nodes.as_array().unwrap().iter().any(|it| it["name"] == "cedar" && it["status"] == "down")
    });
    assert_eq!(cell.names(2), ["cedar"], "and the new one has not heard of it");
    assert!(ready(&cell, 2).unwrap().is_ready);
    assert_eq!(cell.running_on(2).len(), 6);

    // One of the old nodes comes over, emptied.
    cell.kill(0);
    fs::remove_dir_all(cell.path(0)).unwrap();
    let token = cell.run(2, "token create-join").stdout().trim().to_owned();
    cell.up(0, Some(&token));
    cell.until("it is known where the leader is", |cell| {
        cell.json(0, "cell status -o json")["servers"].as_array().unwrap().len() == 2
            && cell.run(0, "scale shop web=7 -d").code() == 0
    });
    assert_eq!(cell.run(2, "delete shop --timeout 60s").code(), 0);
}

#[test]
fn a_restored_cell_begins_no_empty_volume_while_a_node_it_gave_up_has_the_data() {
    let stack = SHOP.replace("deploy: {replicas: 6}", "volumes: ['data:/data']");
    let stack = stack + "volumes: {data: {}}\n";
    let mut cell = Cell::of_three(Site::Loopback);
    cell.apply(&stack);
    let home = cell.running_on(2).remove(0);
    let heir = (0..3).find(|at| NAMES[*at] != home).unwrap();
    assert_eq!(cell.run(2, "backup cell.backup").code(), 0);
    fs::write(cell.dir.path().join("backup.key"), cell.backup_key(2).to_string()).unwrap();
    (0..3).for_each(|at| cell.kill(at));
    fs::rename(cell.path(heir), cell.dir.path().join("lost")).unwrap();
    let name = NAMES[heir];
    let restored = cell.offline(&format!(
        "restore cell.backup --key-file backup.key --data-dir {name} --name {name}"
    ));
    assert_eq!(restored.code(), 0, "{}", restored.text());
    cell.up(heir, None);
    cell.until("what ran waits for its data", |cell| {
        cell.run(heir, "status shop").text().contains("its data lives on its node")
    });
    assert_eq!(cell.run(heir, "delete shop --timeout 60s").code(), 0);
    assert_eq!(cell.run(heir, "apply -f compose.yaml -d").code(), 0);
    cell.until("so does what is new", |cell| {
        cell.run(heir, "status shop").text().contains("volume_elsewhere")
    });

    let refused = cell.run(heir, &format!("volume rm shop_data --node {home}"));
    assert_ne!(refused.code(), 0, "{}", refused.text());
    assert!(refused.stderr().contains(&format!("node {home} is down")), "{}", refused.text());
    let forgotten = cell.run(heir, &format!("volume rm shop_data --node {home} --force"));
    assert_eq!(forgotten.code(), 0, "{}", forgotten.text());
    cell.until("it begins anew", |cell| cell.running_on(heir) == [name]);
}
