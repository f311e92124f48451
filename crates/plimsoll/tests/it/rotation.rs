//! The authority of a running cell is rotated: under requests and writes, with a leader that is killed in the middle of it, and
//! with a node that is away.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

use plimsoll_lab::NAMES;
use plimsoll_peer::pki::Identity;
use serde_json::Value;

use crate::harness::{Cell, Site, loopback};
use crate::http;
use crate::run::Ran;
use crate::steady::{Client, Over, Tally};
use crate::upstream::upstream;

const HOST: &str = "shop.example";

/// The eighth node of a cell: the first that holds no log.
const AGENT: usize = 7;

/// Requests that are answered before and after each rotation.
const AROUND: usize = 200;

/// Between two writes of the one who writes all the time.
const PACE: Duration = Duration::from_millis(50);

/// How long one write may take on a busy machine.
const ANSWER: Duration = Duration::from_secs(20);

impl Cell {
    fn authority_told(&self, at: usize) -> Value {
        self.json(at, "cell rotate-authority --status -o json")
    }

    /// Of the authority that signs, as this node tells it.
    pub(crate) fn fingerprint(&self, at: usize) -> String {
        self.authority_told(at)["fingerprint"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub(crate) fn rotate(&self, at: usize, more: &str) -> Ran {
        let ran = self.run(at, &format!("cell rotate-authority --timeout 2m {more}"));
        assert_eq!(ran.code(), 0, "{}\n{}", ran.text(), self.diagnosis());
        ran
    }

    /// Waits until a rotation is over.
    #[track_caller]
    fn until_rotated(&self, at: usize) {
        self.until("the rotation is over", |cell| {
            let cell = cell.get(at, "/v1/cell").unwrap_or_default();
            cell["authority"].is_object() && cell["authority"]["rotation"].is_null()
        });
    }

    /// Every node has a certificate of this authority on its disk, and trusts no other.
    #[track_caller]
    fn until_all_have(&self, fingerprint: &str, nodes: &[usize]) {
        self.until("all nodes trust the one authority that is left", |cell| {
            nodes.iter().all(|at| {
                let identity = Identity::load(&cell.path(*at)).ok().flatten();
                identity.is_some_and(|it| {
                    it.fingerprint().to_string() == fingerprint && it.anchors().count() == 1
                })
            })
        });
    }

    fn is_down(&self, at: usize, name: &str) -> bool {
        let nodes = self.json(at, "node list -o json");
        let nodes = nodes.as_array().cloned().unwrap_or_default();
        nodes.iter().any(|it| it["name"] == name && it["status"] == "down")
    }
}

/// Whether a rotation is in this phase and waits for this node alone.
fn awaits(cell: &Cell, at: usize, phase: &str, node: usize) -> bool {
    let rotation = &cell.get(at, "/v1/cell").unwrap_or_default()["authority"]["rotation"];
    let awaited = rotation["awaited"].as_array().cloned().unwrap_or_default();
    rotation["phase"] == phase && awaited.len() == 1 && awaited[0]["node"] == NAMES[node]
}

/// One replica on this node, behind a route that every node serves.
fn shop(on: usize, port: u16) -> String {
    format!(
        "name: shop\nservices:\n  web:\n    image: any\n    command: [sleep, '1000']\n    \
         healthcheck: {{test: [CMD, 'true'], interval: 1s, start_interval: 100ms, start_period: 10s}}\n    \
         deploy: {{placement: {{constraints: [node.hostname == {}]}}}}\n\
         x-plimsoll:\n  routes:\n    - {{host: {HOST}, service: web, port: {port}}}\n",
        NAMES[on]
    )
}

fn entrance(at: usize) -> SocketAddr {
    SocketAddr::new(loopback(at).parse::<SocketAddr>().unwrap().ip(), 8_000)
}

/// What came of writing all the time.
#[derive(Debug, Default)]
struct Writes {
    done: AtomicUsize,
    refused: std::sync::Mutex<Vec<String>>,
}

impl Writes {
    fn write(&self, socket: &Path, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            match http::ask(socket, "POST", "/v1/tokens/join", b"", ANSWER) {
                Ok((200, _)) => drop(self.done.fetch_add(1, Ordering::Relaxed)),
                other => {
                    let text = other.map(|(status, body)| {
                        format!("{status} {}", String::from_utf8_lossy(&body))
                    });
                    self.refused.lock().unwrap().push(format!("{text:?}"));
                }
            }
            sleep(PACE);
        }
    }
}

/// Does something under requests and writes. Returns what failed of either.
fn under_load(
    cell: &mut Cell,
    (entrance_at, written_at): (usize, usize),
    meanwhile: impl FnOnce(&mut Cell),
) -> (Vec<String>, Vec<String>) {
    let socket = cell.socket(written_at);
    let (tally, writes, is_over) = (Tally::default(), Writes::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        let over = Over(&is_over);
        for is_kept in [false, true] {
            let (tally, is_over) = (&tally, &is_over);
            let client = Client::new(entrance(entrance_at), HOST, is_kept);
            scope.spawn(move || tally.ask(&format!("kept {is_kept}"), client, is_over));
        }
        scope.spawn(|| writes.write(&socket, &is_over));
        let answered = |cell: &Cell| {
            let enough = tally.answered() + AROUND;
            cell.until("requests are answered", |_| {
                tally.answered() >= enough || tally.has_failed()
            });
        };
        answered(cell);
        meanwhile(cell);
        answered(cell);
        drop(over);
    });
    assert!(writes.done.load(Ordering::Relaxed) > 0, "{writes:?}");
    (tally.failed.into_inner().unwrap(), writes.refused.into_inner().unwrap())
}

#[test]
fn an_authority_is_rotated_under_requests_and_writes_and_a_leader_that_is_killed_costs_nothing() {
    let upstream = upstream();
    let mut cell = Cell::idle(Site::Loopback);
    for at in 0..=AGENT {
        cell.setups[at].args = vec!["--http".to_owned(), entrance(at).to_string()];
    }
    cell.form(AGENT + 1);
    let all: Vec<usize> = cell.nodes().collect();
    let servers = &all[..AGENT];
    let leader = cell.until_led(servers);
    let others: Vec<usize> = servers.iter().copied().filter(|at| *at != leader).collect();
    let (asked, writer) = (others[0], others[1]);
    let apply = |cell: &Cell, on: usize| {
        fs::write(cell.dir.path().join("compose.yaml"), shop(on, upstream.port())).unwrap();
        let applied = cell.run(0, "apply -f compose.yaml");
        assert_eq!(applied.code(), 0, "{}", applied.text());
        let mut client = Client::new(entrance(asked), HOST, false);
        cell.until("the route answers", |_| client.ask().is_ok());
    };

    // The replica is on the node without the log: requests go there over a tunnel.
    apply(&cell, AGENT);
    let first = cell.fingerprint(0);
    let (failed, refused) = under_load(&mut cell, (asked, writer), |cell| {
        let said = cell.rotate(writer, "").stderr();
        assert!(said.contains("step 1 of 2") && said.contains("the cell's authority is"), "{said}");
    });
    assert_eq!((&failed, &refused), (&vec![], &vec![]), "{}", cell.diagnosis());
    let second = cell.fingerprint(0);
    assert_ne!(first, second);
    cell.until_all_have(&second, &all);

    // Once more, with the node without the log away: it waits, and says for whom. The leader is lost meanwhile.
    let on = others[2];
    apply(&cell, on);
    let mut lost = leader;
    let (failed, refused) = under_load(&mut cell, (asked, writer), |cell| {
        cell.kill(AGENT);
        cell.until("it is begun", |cell| cell.run(writer, "cell rotate-authority -d").code() == 0);
        cell.until("it waits for nobody else", |cell| awaits(cell, writer, "trust", AGENT));
        let status = cell.run(writer, "cell status").stdout();
        let waits = format!("7 of 8 done; waiting for {}", NAMES[AGENT]);
        assert!(status.contains("step 1 of 2") && status.contains(&waits), "{status}");
        lost = cell.until_led(&all[..AGENT]);
        cell.kill(lost);
        let left: Vec<usize> = all[..AGENT].iter().copied().filter(|at| *at != lost).collect();
        cell.until_led(&left);
        cell.up(AGENT, None);
        cell.until("it is at the next step, and waits for the lost leader", |cell| {
            awaits(cell, left[0], "renew", lost)
        });
        // It comes back with a certificate of the former authority, and is let in.
        cell.up(lost, None);
        cell.until_rotated(left[0]);
    });
    // Writes wait for another leader, and are told so. Requests wait for nobody, unless their own way led through the lost node.
    let is_passing = |why: &String| why.contains("503") || lost == writer;
    assert!(refused.iter().all(is_passing), "{refused:?}");
    if ![asked, on].contains(&lost) {
        assert_eq!(failed, Vec::<String>::new(), "{}", cell.diagnosis());
    }
    let third = cell.fingerprint(asked);
    assert!(third != first && third != second);
    cell.until_all_have(&third, &all);
    cell.until_heard(asked, all.len());
    cell.must_live();
}

#[test]
fn a_node_that_is_away_is_waited_for_and_one_that_comes_too_late_is_told_to_join_again() {
    let mut cell = Cell::of_three(Site::Loopback);
    let (first, old_token) = (cell.fingerprint(0), cell.token(0));
    cell.kill(2);
    cell.until("the loss is noticed", |cell| cell.is_down(0, NAMES[2]));

    // Nothing has been signed yet: it is taken back at once.
    assert_eq!(cell.run(1, "cell rotate-authority -d").code(), 0);
    let twice = cell.run(0, "cell rotate-authority --timeout 1s");
    assert_eq!(twice.code(), 1, "{}", twice.text());
    let hint = format!("--without {}", NAMES[2]);
    assert!(twice.stderr().contains(&hint), "{}", twice.text());
    cell.rotate(0, "--abort");
    assert_eq!(cell.fingerprint(0), first);

    let wrong = cell.run(0, &format!("cell rotate-authority --without {}", NAMES[1]));
    assert_eq!(wrong.code(), 1, "{}", wrong.text());
    assert!(wrong.stderr().contains("is ready"), "{}", wrong.text());
    cell.rotate(0, &format!("--without {}", NAMES[2]));
    let second = cell.fingerprint(0);
    assert_ne!(first, second);
    cell.until_all_have(&second, &[0, 1]);
    let audit = cell.run(0, "audit --type authority_rotation").stdout();
    assert!(audit.contains(&format!("finished without {}", NAMES[2])), "{audit}");

    // It is back, too late: it says so, and the next step.
    cell.up(2, None);
    cell.until("it says that it comes too late", |cell| {
        cell.said(2).contains("the cell's authority was rotated while this node was away")
    });
    let status = cell.run(2, "cell status").stdout();
    assert!(status.contains("authority_changed: "), "{status}");
    cell.stop(2);
    let token = cell.token(0);
    let said = cell.refused(2, &["--join", &token]);
    assert!(said.contains("whose authority was rotated without it"), "{said}");
    fs::remove_dir_all(cell.path(2)).unwrap();
    let stale = cell.start(2, &["--name", NAMES[2], "--join", &old_token]);
    let said = String::from_utf8(stale.stderr).unwrap();
    assert_ne!(stale.status.code(), Some(0), "{said}");
    assert!(said.contains("fingerprint that is expected"), "{said}");
    fs::remove_dir_all(cell.path(2)).unwrap_or_default();
    cell.up(2, Some(&token));
    cell.until_heard(0, 3);
    cell.until_all_have(&second, &[0, 1, 2]);
    // Its unit file still has the token that it joined with.
    cell.rotate(0, "");
    cell.stop(2);
    cell.up(2, Some(&token));
    cell.until_heard(0, 3);
    cell.must_live();
}
