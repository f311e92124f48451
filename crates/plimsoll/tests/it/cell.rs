//! Three nodes on three addresses of this host: how a cell is formed, and what it survives.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_lab::NAMES;

use crate::cell_people::Going;
use crate::harness::{Cell, PATIENCE, SHOP, Site, loopback};
use crate::http;
use crate::run::run_in;

#[test]
fn three_machines_form_a_cell_and_the_loss_of_its_leader_costs_nothing() {
    let mut cell = Cell::of_three(Site::Loopback);
    cell.write_shop();
    let applied = cell.run(2, "apply -f compose.yaml");
    assert!(applied.code() == 0, "any node takes a write: {}", applied.text());
    let mut places = cell.running_on(1);
    places.sort();
    assert_eq!(places, ["ash", "ash", "birch", "birch", "cedar", "cedar"]);
    let by = cell.json(0, "history shop -o json")[0]["by"].as_str().unwrap().to_owned();
    assert!(by.starts_with("unix:") && by.ends_with("@cedar"), "the caller is kept: {by}");

    cell.kill(0);
    let took =
        cell.until("a write succeeds", |cell| cell.run(1, "scale shop web=7 -d").code() == 0);
    // The promise is 1.5 s on a quiet machine and is measured elsewhere; here it must only not be a matter of luck.
    assert!(took < Duration::from_secs(20), "{took:?}");
    let at = cell.json(2, "get deployments -o json")[0]["revision"].as_u64();
    assert_eq!(at, Some(2), "what was acknowledged is known to all");
    cell.until("all run elsewhere", |cell| {
        let places = cell.running_on(2);
        places.len() == 7 && places.iter().all(|node| node != "ash")
    });

    cell.up(0, None);
    cell.until("it is back", |cell| {
        let nodes = cell.json(1, "node list -o json");
        nodes.as_array().unwrap().iter().all(|node| node["status"] == "ready")
    });
    cell.until("it gave up what it lost", |cell| {
        cell.json(1, "status -o json")["deployments"][0]["progress"]["is"] == "steady"
    });
}

#[test]
fn a_leader_that_is_stopped_hands_over_before_it_closes_its_doors() {
    let mut cell = Cell::of_three(Site::Loopback);
    let leader = cell.until_led(&[0, 1, 2]);
    let others = cell.others(leader);
    let begun = Instant::now();
    cell.stop(leader);
    let took = begun.elapsed();
    cell.until_led(&others);
    let said = cell.said(leader);
    // Links of other nodes end with its leadership. While it has both, it waits for them until its patience ends.
    assert!(!said.contains("does not end"), "{said}");
    assert!(took < Duration::from_secs(5), "nobody can write meanwhile: {took:?}");
}

#[test]
fn no_write_fails_while_leadership_is_handed_over_also_just_after_a_server_came_back() {
    let mut cell = Cell::of_three(Site::Loopback);
    for round in 0..4 {
        // One comes back a moment before: whoever leads next may still hold it for dead, and needs it for every write.
        let killed = cell.until_led(&[0, 1, 2]);
        cell.kill(killed);
        cell.until_led(&cell.others(killed));
        cell.up(killed, None);
        let leader = cell.until_led(&[0, 1, 2]);
        let other = cell.others(leader)[round % 2];
        let is_over = AtomicBool::new(false);
        let (longest, failed) = thread::scope(|scope| {
            let writes =
                scope.spawn(|| write_until(&cell, other, &format!("round-{round}"), &is_over));
            cell.daemon(leader).terminate().unwrap();
            cell.until_led(&cell.others(leader));
            is_over.store(true, Ordering::Relaxed);
            writes.join().unwrap()
        });
        assert_eq!(failed, Vec::<String>::new(), "round {round}");
        eprintln!("round {round}: the longest wait for a write was {longest:?}");
        cell.until_ended(leader);
        cell.up(leader, None);
    }
}

/// Writes one after the other. How long one took at the most, and what those said that failed.
fn write_until(
    cell: &Cell,
    at: usize,
    name: &str,
    is_over: &AtomicBool,
) -> (Duration, Vec<String>) {
    let (mut longest, mut failed) = (Duration::ZERO, Vec::new());
    for nth in 0.. {
        let operator = format!(r#"{{"name": "{name}-{nth}", "role": "read"}}"#);
        let begun = Instant::now();
        match http::ask(&cell.socket(at), "POST", "/v1/operators", operator.as_bytes(), PATIENCE) {
            Ok((200..300, _)) => {}
            Ok((_, told)) => failed.push(String::from_utf8_lossy(&told).into_owned()),
            Err(silence) => failed.push(format!("{silence:?}")),
        }
        longest = longest.max(begun.elapsed());
        if is_over.load(Ordering::Relaxed) {
            break;
        }
    }
    (longest, failed)
}

#[test]
fn a_daemon_opens_as_many_files_as_it_may_and_services_as_many_as_it_was_given() {
    let mut cell = Cell::idle(Site::Loopback);
    cell.setups[0].under = ["prlimit", "--nofile=600:2000"].map(str::to_owned).into();
    cell.up(0, None);
    let limits = fs::read_to_string(format!("/proc/{}/limits", cell.daemon(0).pid())).unwrap();
    assert_eq!(files(&limits), ["2000", "2000"], "a link of a node is a file");
    cell.write_shop();
    assert_eq!(cell.run(0, "apply -f compose.yaml").code(), 0);
    let told = cell.run(0, "exec shop-web-1 -- cat /proc/self/limits");
    assert_eq!(files(&told.stdout()), ["600", "2000"], "{}", told.text());
}

/// At how many open files a process is warned, and at how many it is held.
fn files(limits: &str) -> Vec<String> {
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    files.split_whitespace().skip(3).take(2).map(str::to_owned).collect()
}

#[test]
fn the_eighth_node_holds_no_log_and_is_of_the_cell_all_the_same() {
    let mut cell = Cell::idle(Site::Loopback);
    cell.form(8);
    let larch = 7;
    let votes = |cell: &Cell, at: usize, name: &str| cell.voters(at).iter().any(|it| it == name);
    assert!(!votes(&cell, larch, "larch"), "it has no vote, and knows who has");
    let held = cell.json(0, "cell status -o json")["servers"].as_array().unwrap().len();
    assert_eq!(held, 7);
    fs::write(cell.dir.path().join("compose.yaml"), SHOP.replace('6', "8")).unwrap();
    let made = cell.run(0, "token create boss --role admin");
    let boss = made.stdout().trim().to_owned();
    // Its word for who asks does not count, so that a token has to say it.
    let as_boss = |cell: &Cell, args: &str| {
        let socket = cell.socket(larch);
        let env = [("PLIMSOLL_HOST", socket.to_str().unwrap()), ("PLIMSOLL_TOKEN", &boss)];
        run_in(cell.dir.path(), args, "", &env)
    };
    let applied = as_boss(&cell, "apply -f compose.yaml");
    assert!(applied.code() == 0, "it takes a write: {}", applied.text());
    let refused = cell.run(larch, "scale shop web=9 -d").stderr();
    assert!(refused.contains("token needed here: this node does not hold the log"), "{refused}");
    assert!(refused.contains("pass --token or PLIMSOLL_TOKEN"), "{refused}");
    let places = cell.running_on(larch);
    assert!(places.contains(&"larch".to_owned()), "it runs its share: {places:?}");
    for replica in 1..=8 {
        let exec = format!("exec shop-web-{replica} -- echo here");
        for ran in [cell.run(0, &exec), as_boss(&cell, &exec)] {
            assert!(ran.stdout().contains("here"), "replica {replica}: {}", ran.text());
        }
    }
    let made = as_boss(&cell, "token create ci --role read");
    let (token, host) = (made.stdout().trim().to_owned(), cell.api(larch).unwrap());
    let by_token = |args: &str, token: &str| {
        let (host, authority) = (format!("https://{host}"), cell.authority().to_string());
        let env = [
            ("PLIMSOLL_HOST", host.as_str()),
            ("PLIMSOLL_TOKEN", token),
            ("PLIMSOLL_AUTHORITY", &authority),
        ];
        run_in(cell.dir.path(), args, "", &env)
    };
    let listed = by_token("node list", &token);
    assert!(listed.stdout().contains("larch"), "a token is checked by who can: {}", listed.text());
    let refused = by_token("scale shop web=1 -d", &token).text();
    assert!(refused.contains("token ci has role read; this needs deploy"), "{refused}");
    let refused = by_token("node list", "plo_nonsense").text();
    assert!(refused.contains("not a token of this cell"), "{refused}");
    streams_end_with_their_token(&cell, larch, &token);

    cell.kill(0);
    cell.until("it finds the next leader", |cell| as_boss(cell, "scale shop web=9 -d").code() == 0);
    cell.until("it takes the place of the server that is gone", |cell| votes(cell, 1, "larch"));
    cell.until("all run elsewhere", |cell| {
        let places = cell.running_on(larch);
        places.len() == 9 && places.iter().all(|node| node != "ash")
    });

    cell.up(0, None);
    cell.until("the old leader learns that it has no vote any more", |cell| {
        let told = cell.voters_if_told(0);
        told.is_some_and(|told| told.len() == 7 && !told.contains(&"ash".to_owned()))
    });
    cell.until("it is back", |cell| {
        let nodes = cell.json(0, "node list -o json");
        nodes.as_array().unwrap().iter().all(|node| node["status"] == "ready")
    });
}

/// What is followed through a node that cannot tell whether a token is good ends all the same when it is not.
fn streams_end_with_their_token(cell: &Cell, at: usize, token: &str) {
    let host = format!("https://{}", cell.api(at).unwrap());
    let env = [("PLIMSOLL_HOST", host.as_str()), ("PLIMSOLL_TOKEN", token)];
    let follows = ["status -w -o json", "audit -f"];
    let mut streams = follows.map(|args| (args, Going::asking(cell, args, &env)));
    cell.until("all streams tell something", |_| {
        streams.iter().all(|(_, going)| !going.said().is_empty())
    });
    assert!(streams.iter_mut().all(|(_, going)| going.ended().is_none()));
    // Eight daemons on a busy machine may be electing just now, and then nobody knows whether it was done.
    cell.until("the token is revoked", |cell| {
        cell.run(1, "token revoke ci");
        let known = cell.json(1, "token list -o json");
        known.as_array().is_some_and(|all| all.iter().all(|it| it["name"] != "ci"))
    });
    let took = cell
        .until("all streams end", |_| streams.iter_mut().all(|(_, going)| going.ended().is_some()));
    assert!(took < Duration::from_secs(5), "{took:?}");
    for (args, going) in &mut streams {
        let said = going.complained();
        assert!(going.ended() == Some(1) && said.contains("revoked"), "{args}: {said}");
    }
}

#[test]
fn a_server_that_comes_back_elsewhere_is_found_there_whoever_leads() {
    let mut cell = Cell::of_three(Site::Loopback);
    let first = cell.until_led(&[0, 1, 2]);
    let [moved, other] = cell.others(first)[..] else { panic!("three nodes") };
    cell.stop(moved);
    assert_eq!(cell.run(first, "token create meanwhile").code(), 0);
    let elsewhere = loopback(moved + 8);
    cell.setups[moved].address = Some(elsewhere.clone());
    cell.up(moved, None);
    let address = |cell: &Cell, at: usize| {
        let told = cell.get(at, "/v1/cell")?;
        let server = told["servers"].as_array()?.iter().find(|it| it["node"] == NAMES[moved])?;
        server["address"].as_str().map(str::to_owned)
    };
    for at in cell.nodes() {
        cell.until("it is known where it is", |cell| {
            address(cell, at).as_ref() == Some(&elsewhere)
        });
    }
    assert_eq!(cell.until_led(&[0, 1, 2]), first, "that cost no election");
    cell.until_equal(&[0, 1, 2]);

    // Without it the other could neither lead nor write: the log reaches it where it is now.
    cell.kill(first);
    cell.until_led(&[moved, other]);
    cell.until("a write is taken", |cell| cell.run(other, "token create after").code() == 0);
    cell.until_equal(&[moved, other]);

    // And the one that led comes back elsewhere, to a cell that has another leader.
    cell.setups[first].address = Some(loopback(first + 8));
    cell.up(first, None);
    cell.until("all are heard", |cell| {
        let Some(nodes) = cell.get(other, "/v1/nodes") else { return false };
        nodes.as_array().is_some_and(|all| all.iter().all(|node| node["status"] == "ready"))
    });
    cell.until_equal(&[0, 1, 2]);
    let heir = cell.until_led(&[0, 1, 2]);
    cell.kill(heir);
    let left = cell.others(heir);
    cell.until_led(&left);
    cell.until("a write is taken", |cell| cell.run(left[0], "token create last").code() == 0);
    cell.until_equal(&left);
}

#[test]
fn a_token_lets_one_node_in_and_says_why_it_lets_no_other() {
    let mut cell = Cell::idle(Site::Loopback);
    cell.up(0, None);
    let token = cell.token(0);
    cell.up(1, Some(&token));
    let refused = |name: &str, join: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(["up", "--runtime", "process", "--name", name, "--address", &loopback(2)]);
        command.args(["--join", join, "--data-dir"]).arg(cell.dir.path().join("refused"));
        let ran = command.output().unwrap();
        assert!(!ran.status.success());
        String::from_utf8(ran.stderr).unwrap()
    };
    let said = refused("cedar", &token);
    assert!(said.contains("this join token was used by birch"), "{said}");
    let said = refused("birch", &cell.token(0));
    assert!(said.contains("a node called birch is of the cell and ready"), "{said}");
    let swapped = if token.as_bytes()[8] == b'0' { "1" } else { "0" };
    let mut mistyped = token.clone();
    mistyped.replace_range(8..9, swapped);
    let said = refused("cedar", &mistyped);
    assert!(said.contains("mistyped"), "{said}");
    let (secret, at) = token.split_once('@').unwrap();
    assert!(!fs::read_to_string(cell.dir.path().join("ash.log")).unwrap().contains(secret));
    let nowhere = format!("{secret}@127.0.0.1:1");
    assert!(refused("cedar", &nowhere).contains("cannot join the cell"), "{at}");
}
