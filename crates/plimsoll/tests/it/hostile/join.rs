//! The one thing a stranger may ask for, and how much the state takes of those who are none.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use plimsoll_daemon::cell::join::{JoinRequest, PATH, VERSION};
use plimsoll_model::{Level, NodeFacts, NodeId, Resources};
use plimsoll_peer::pki::{Identity, JoinAddress, JoinToken};
use serde_json::Value;

use super::{ANSWER, say_unix};
use crate::harness::{Cell, Site};
use crate::run::binary;

/// Asks to join with this token, and gets the status and what was said.
fn ask(cell: &Cell, token: &JoinToken, name: &str) -> (u16, Value) {
    let (_, csr) = Identity::new_key().unwrap();
    let request = JoinRequest {
        version: VERSION,
        level: Level::BUILD,
        token: token.to_string(),
        node: NodeId::new(name).unwrap(),
        facts: NodeFacts { address: Some(cell.address(1)), ..NodeFacts::new(Resources::default()) },
        csr: csr.as_der().to_vec(),
    };
    let body = Bytes::from(serde_json::to_vec(&request).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (print, address) = (token.fingerprint(), cell.address(0));
    let met = runtime.block_on(plimsoll_peer::ask(print, &address, PATH, body, ANSWER)).unwrap();
    let told = serde_json::from_slice(&met.response.body).unwrap_or_default();
    (met.response.status.as_u16(), told)
}

/// Sends this in place of a request to join, and gets the status.
fn send(cell: &Cell, token: &JoinToken, body: Vec<u8>) -> u16 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (print, address) = (token.fingerprint(), cell.address(0));
    let asked = plimsoll_peer::ask(print, &address, PATH, Bytes::from(body), ANSWER);
    runtime.block_on(asked).unwrap().response.status.as_u16()
}

fn applied(cell: &Cell) -> u64 {
    cell.get(0, "/healthz").unwrap()["applied"].as_u64().unwrap()
}

#[test]
fn a_stranger_who_guesses_join_tokens_writes_nothing_and_is_soon_told_to_wait() {
    let mut cell = Cell::idle(Site::Loopback);
    cell.up(0, None);
    let good: JoinAddress = cell.token(0).parse().unwrap();
    let before = applied(&cell);
    let (mut unknown, mut limited) = (0, 0);
    for nth in 0..60 {
        let guessed = JoinToken::new(good.token.fingerprint()).unwrap();
        let (status, told) = ask(&cell, &guessed, &format!("guess-{nth}"));
        match told["code"].as_str() {
            Some("token_unknown") => unknown += 1,
            Some("join_limited") => {
                assert_eq!(status, 429);
                limited += 1;
            }
            _ => panic!("{status} {told}"),
        }
    }
    assert!(unknown <= 20 && limited >= 40, "{unknown} looked at, {limited} sent away");
    let written = applied(&cell) - before;
    assert!(written < 10, "{written} entries for nobody");
    // It is the source that waits, not the token.
    assert_eq!(ask(&cell, &good.token, "birch").1["code"], "join_limited");
}

#[test]
fn a_join_token_that_is_void_writes_nothing_either() {
    let mut cell = Cell::idle(Site::Loopback);
    cell.up(0, None);
    let void: JoinAddress = cell.run(0, "token create-join elm").stdout().trim().parse().unwrap();
    assert_eq!(cell.run(0, "token revoke elm --join").code(), 0);
    let before = applied(&cell);
    for nth in 0..19 {
        let (status, told) = ask(&cell, &void.token, &format!("again-{nth}"));
        assert_eq!((status, told["code"].as_str()), (403, Some("token_revoked")), "{told}");
    }
    let written = applied(&cell) - before;
    assert!(written < 10, "{written} entries for nobody");
}

struct KilledAtEnd(Child);

impl Drop for KilledAtEnd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The ports that a process listens on for other hosts, as the kernel lists them.
fn listened_on(process: u32) -> Vec<u16> {
    let tables = ["tcp", "tcp6"].map(|it| format!("/proc/{process}/net/{it}"));
    let text: String = tables.iter().map(|it| fs::read_to_string(it).unwrap()).collect();
    let listens = text.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_listening = fields.get(3) == Some(&"0A");
        is_listening.then(|| u16::from_str_radix(fields[1].rsplit(':').next()?, 16).ok())?
    });
    listens.collect()
}

#[test]
fn a_node_that_nobody_was_asked_to_join_listens_for_nobody() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("node/plimsoll.sock");
    // In a network of its own, since by default the port is the same for all.
    let mut up = Command::new("unshare");
    up.args(["--net", "--", env!("CARGO_BIN_EXE_plimsoll"), "up", "--runtime", "process"]);
    up.arg("--data-dir").arg(dir.path().join("node")).stdout(Stdio::null()).stderr(Stdio::null());
    let daemon = KilledAtEnd(up.spawn().unwrap());
    let said = |args: &[&str]| {
        let mut command = binary();
        command.args(args).env("PLIMSOLL_HOST", &socket);
        let ended = command.output().unwrap();
        (ended.status.success(), String::from_utf8_lossy(&ended.stdout).into_owned())
    };
    let begun = Instant::now();
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        while !is_so() {
            assert!(begun.elapsed() < ANSWER * 3, "{what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    until("it answers", &|| said(&["get", "nodes"]).0);
    assert_eq!(listened_on(daemon.0.id()), [] as [u16; 0]);
    let (is_made, token) = said(&["token", "create-join", "birch"]);
    assert!(is_made, "{token}");
    let port = token.trim().parse::<JoinAddress>().unwrap().address;
    let port: u16 = port.rsplit(':').next().unwrap().parse().unwrap();
    until("it listens for whom it has invited", &|| listened_on(daemon.0.id()) == [port]);
}

#[test]
fn what_a_stranger_sends_to_join_is_read_as_far_as_a_request_can_be_long() {
    let mut cell = Cell::idle(Site::Loopback);
    cell.up(0, None);
    let good: JoinAddress = cell.token(0).parse().unwrap();
    for (case, length, status) in
        [("as long as one may be", 64 << 10, 400), ("one byte more", (64 << 10) + 1, 413)]
    {
        assert_eq!(send(&cell, &good.token, vec![b' '; length]), status, "{case}");
    }
    assert_eq!(ask(&cell, &good.token, "birch").0, 200, "and the token is as good as before");
}

#[test]
fn what_a_deployment_keeps_is_bounded_and_the_refusal_says_by_how_much() {
    let mut cell = Cell::idle(Site::Loopback);
    cell.up(0, None);
    let dir = cell.dir.path();
    // Each as large as a file may be.
    let names: Vec<String> = (0..3).map(|nth| format!("big-{nth}")).collect();
    let files: Vec<String> =
        names.iter().map(|name| format!("  {name}: {{file: ./big.txt}}\n")).collect();
    let compose = format!(
        "name: big\nservices:\n  web:\n    image: any\n    command: [sleep, '1000']\n    configs: [{}]\nconfigs:\n{}",
        names.join(", "),
        files.concat()
    );
    fs::write(dir.join("compose.yaml"), compose).unwrap();
    fs::write(dir.join("big.txt"), "x".repeat(1_000_000)).unwrap();
    let refused = cell.run(0, "apply -f compose.yaml -d");
    assert_eq!(refused.code(), 1, "{}", refused.text());
    let said = refused.stderr();
    assert!(said.contains("revision of big") && said.contains("at most 8388608"), "{said}");
    let (_, listed) = say_unix(&cell, 0, "GET /v1/deployments", &[], b"").unwrap();
    assert_eq!(listed.trim(), "[]");
}
