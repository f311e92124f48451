//! A daemon that hands over to another process: ports stay open, connections too, and whoever cannot take over does not.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use super::compose::{compose, sh};
use super::harness::{Lab, Runtime};
use super::published::free_port;
use crate::heirs;
use crate::run::binary;
use crate::steady::{Client, Over, Tally};

const HOST: &str = "shop.example";

/// Enough to meet every moment of a hand-over.
const BETWEEN: usize = 300;

fn local(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

/// A web server on one port and a route, and one that says everything twice on another.
fn shop(port: u16, echo: u16) -> String {
    let web = [
        sh("echo afloat > /tmp/index.html; httpd -f -p 80 -h /tmp"),
        format!("ports: ['{port}:80']"),
        "networks: [default]".to_owned(),
        "healthcheck: {test: [CMD, wget, -q, -O, /dev/null, 'http://127.0.0.1/'], interval: 1s, start_period: 30s, start_interval: 100ms}".to_owned(),
        "deploy: {replicas: 2}".to_owned(),
    ];
    let echoing = [
        sh("exec nc -ll -p 7 -e cat"),
        format!("ports: ['{echo}:7']"),
        "networks: [default]".to_owned(),
    ];
    let services = compose(&[
        ("web", &web.each_ref().map(String::as_str)),
        ("echo", &echoing.each_ref().map(String::as_str)),
    ]);
    format!("{services}x-plimsoll:\n  routes:\n    - {{host: {HOST}, service: web, port: 80}}\n")
}

fn echoes(stream: &mut TcpStream, word: &str) -> std::io::Result<bool> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(word.as_bytes())?;
    let mut heard = vec![0; word.len()];
    stream.read_exact(&mut heard)?;
    Ok(heard == word.as_bytes())
}

#[test]
fn two_hand_overs_in_a_row_lose_no_request_and_no_connection() {
    let Some(mut lab) = Lab::docker_idle() else { return };
    let (port, echo, http) = (free_port(), free_port(), free_port());
    lab.options = vec!["--http".to_owned(), format!("127.0.0.1:{http}")];
    lab.start();
    let shop_name = lab.name.clone();
    lab.settle(&shop_name, &shop(port, echo));
    for at in [port, http] {
        lab.wait_for("it answers", || Client::new(local(at), HOST, false).ask().is_ok());
    }
    lab.wait_for("it echoes", || {
        TcpStream::connect(local(echo)).is_ok_and(|mut it| echoes(&mut it, "hail").unwrap_or(false))
    });
    let mut long = TcpStream::connect(local(echo)).unwrap();
    assert!(echoes(&mut long, "before").unwrap());
    let before = lab.runs(3);

    let (tally, is_over) = (Tally::default(), AtomicBool::new(false));
    let mut pids = vec![lab.pid()];
    thread::scope(|scope| {
        for (name, at, is_kept) in [
            ("the port", port, false),
            ("the port, kept", port, true),
            ("the route", http, false),
            ("the route, kept", http, true),
        ] {
            let (tally, is_over) = (&tally, &is_over);
            scope.spawn(move || tally.ask(name, Client::new(local(at), HOST, is_kept), is_over));
        }
        let over = Over(&is_over);
        for word in ["first", "second"] {
            let enough = tally.answered() + BETWEEN;
            lab.wait_for("requests are answered", || {
                tally.answered() >= enough || tally.has_failed()
            });
            pids.push(lab.hand_over());
            assert!(echoes(&mut long, word).unwrap(), "the {word} hand-over");
            assert!(lab.status().is_some(), "the API answers");
        }
        let enough = tally.answered() + BETWEEN;
        lab.wait_for("requests are answered", || tally.answered() >= enough || tally.has_failed());
        drop(over);
    });
    let failed = tally.failed.lock().unwrap();
    assert!(failed.is_empty(), "{failed:?} of {}\n{}", tally.answered(), lab.diagnosis());
    pids.dedup();
    assert_eq!(pids.len(), 3, "each was another process: {pids:?}");
    lab.still_has(&before, "replicas run on as they were");
    lab.settle(&shop_name, &shop(port, echo).replace("afloat", "awash"));
    drop(long);
    lab.wait_for("who handed over has ended", || lab.predecessors() == 0);
    println!("{} requests, none failed", tally.answered());
}

/// Copies of the program that can be put in each other's place.
struct Program(PathBuf);

impl Program {
    fn at(lab: &Lab) -> Self {
        let program = Self(lab.path("plimsoll"));
        program.is_good();
        program
    }

    fn put(&self, put: impl FnOnce(&PathBuf)) {
        let new = self.0.with_extension("new");
        put(&new);
        fs::rename(new, &self.0).unwrap();
    }

    fn is_good(&self) {
        self.put(|new| assert!(fs::copy(binary().get_program(), new).is_ok()));
    }

    fn is_script(&self, mode: u32, script: &str) {
        self.put(|new| {
            fs::write(new, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(new, Permissions::from_mode(mode)).unwrap();
        });
    }
}

/// As many as that, that need nothing.
fn sleepers(count: usize) -> String {
    format!(
        "services:\n  web: {{image: any, command: [sleep, '600'], healthcheck: {{test: [CMD, 'true'], interval: 100ms}}, deploy: {{replicas: {count}}}}}\n"
    )
}

/// A daemon that runs one service, started from a copy of the program.
fn running_copy() -> (Lab, Program) {
    let mut lab = Lab::idle(Runtime::Process);
    let program = Program::at(&lab);
    lab.program = Some(program.0.clone());
    lab.start();
    lab.settle("shop", &sleepers(1));
    (lab, program)
}

#[test]
fn a_program_that_cannot_start_takes_nothing_over_and_changes_nothing() {
    let (mut lab, program) = running_copy();
    let (pid, before) = (lab.pid(), lab.runs(1));
    let real = binary().get_program().to_str().unwrap().to_owned();
    for (mode, script, why) in [
        (0o644, "exit 0", "Permission denied"),
        (0o755, "exit 3", "it ended with code 3"),
        (0o755, "exit 0", "it ended with code 0"),
        (0o755, &format!("exec {real} \"$@\" --no-such-option"), "it ended with code 1"),
        (0o755, &format!("exec {real} \"$@\" --name birch"), "it ended with code 1"),
    ] {
        program.is_script(mode, script);
        let said = lab.said().len();
        lab.hang_up();
        lab.wait_for(why, || {
            let news = lab.said().split_off(said);
            news.contains("not handed over: ") && news.contains(why)
        });
        assert!(lab.status().is_some_and(|status| !status.deployments.is_empty()));
    }
    fs::remove_file(&program.0).unwrap();
    let said = lab.said().len();
    lab.hang_up();
    lab.wait_for("it is missing", || lab.said().split_off(said).contains("No such file"));
    assert_eq!(lab.pid(), pid);
    lab.settle("shop", &sleepers(2));
    program.is_good();
    assert_ne!(lab.hand_over(), pid, "one that can start does");
    let found = lab.runs(2);
    assert!(found.contains(&before[0]), "{found:?}");
    lab.stop();
}

#[test]
fn what_a_process_cannot_take_over_after_all_is_taken_back() {
    let (lab, program) = running_copy();
    let before = lab.runs(1);
    let real = binary().get_program().to_str().unwrap().to_owned();
    // It reads its arguments, and finds later that it cannot have this address.
    program.is_script(0o755, &format!("exec {real} \"$@\" --https 192.0.2.1:443"));
    for _ in 0..2 {
        let said = lab.said().len();
        lab.hang_up();
        lab.wait_for("it is taken back", || {
            let news = lab.said().split_off(said);
            news.contains("did not take over: it ended with code 2") && news.contains("Next: ")
        });
        lab.still_has(&before, "replicas run on as they were");
    }
    lab.settle("shop", &sleepers(2));
}

#[test]
fn a_service_manager_is_told_who_it_looks_after() {
    let mut lab = Lab::idle(Runtime::Process);
    let path = lab.path("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(super::harness::PATIENCE)).unwrap();
    let heard = || {
        let mut space = [0; 200];
        let length = manager.recv(&mut space).unwrap();
        String::from_utf8_lossy(&space[..length]).into_owned()
    };
    lab.environment = vec![("NOTIFY_SOCKET".to_owned(), path.to_str().unwrap().to_owned())];
    lab.start();
    assert_eq!(heard(), "READY=1");
    let pid = lab.hand_over();
    assert_eq!(heard(), "RELOADING=1");
    assert_eq!(heard(), format!("MAINPID={pid}\nREADY=1"));
    lab.stop();
    assert_eq!(heard(), "STOPPING=1");
}

#[test]
fn connections_that_outlived_a_hand_over_end_when_the_node_is_stopped() {
    let Some(mut lab) = Lab::docker() else { return };
    let (name, echo) = (lab.name.clone(), free_port());
    lab.settle(&name, &shop(free_port(), echo));
    lab.wait_for("it echoes", || {
        TcpStream::connect(local(echo)).is_ok_and(|mut it| echoes(&mut it, "hail").unwrap_or(false))
    });
    let mut long = TcpStream::connect(local(echo)).unwrap();
    assert!(echoes(&mut long, "before").unwrap());
    lab.hand_over();
    lab.hand_over();
    assert!(echoes(&mut long, "after").unwrap());
    lab.wait_for("only the one that has it is left", || lab.predecessors() == 1);
    lab.stop();
    lab.wait_for("all have ended", || lab.predecessors() == 0);
    assert!(!echoes(&mut long, "too late").unwrap_or(false));
}

/// A daemon on a terminal of its own, and the process that is the other end of that.
fn on_a_terminal(lab: &Lab, under: &str) -> (Child, i32) {
    let up = lab.up();
    let words = std::iter::once(up.get_program()).chain(up.get_args());
    let words: Vec<&str> = words.map(|word| word.to_str().unwrap()).collect();
    let (pid, log) = (lab.path("pid"), lab.path("daemon.log"));
    let (pid_file, log) = (pid.display(), log.display());
    let line = format!("echo $$ > {pid_file}; exec {under} {} 2>> {log}", words.join(" "));
    let mut terminal = Command::new("script");
    terminal.args(["-q", "-c", &line, "/dev/null"]).env("SHELL", "/bin/sh");
    let terminal = terminal.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    lab.wait_for("the daemon answers", || lab.ask("GET", "/v1/status", b"").is_some());
    (terminal, fs::read_to_string(pid).unwrap().trim().parse().unwrap())
}

#[test]
fn a_terminal_that_closes_is_no_reason_to_hand_over() {
    for (under, goes_on) in [("", false), ("nohup", true)] {
        let lab = Lab::idle(Runtime::Process);
        let (mut terminal, pid) = on_a_terminal(&lab, under);
        let heir = heirs::hand_over(pid, &lab.data(), || lab.said());
        heirs::signal(heir, Signal::TERM);
        lab.wait_for("all have ended", || !heirs::is_alive(heir) && !heirs::is_alive(pid));
        let _ = terminal.wait();

        let (mut terminal, pid) = on_a_terminal(&lab, under);
        let said = lab.said().len();
        terminal.kill().unwrap();
        terminal.wait().unwrap();
        if goes_on {
            lab.wait_for("it goes on", || lab.said().split_off(said).contains("going on"));
            assert!(lab.status().is_some(), "{under}: {}", lab.said());
            heirs::signal(pid, Signal::TERM);
        }
        lab.wait_for("it has ended", || !heirs::is_alive(pid));
        let news = lab.said().split_off(said);
        assert!(news.contains("stopping; replicas keep running"), "{under}: {news}");
        assert!(!news.contains("handing over"), "{under}: {news}");
    }
}

#[test]
fn the_first_process_of_a_container_does_not_hand_over() {
    if !rustix::process::geteuid().is_root() {
        println!("not tested: only root can make process namespaces");
        return;
    }
    let mut lab = Lab::idle(Runtime::Process);
    let program = Program(lab.path("first"));
    let real = binary().get_program().to_str().unwrap().to_owned();
    program.is_script(0o755, &format!("exec unshare --pid --fork --kill-child {real} \"$@\""));
    lab.program = Some(program.0);
    lab.start();
    heirs::signal(heirs::find(1, &lab.data()).expect("it runs"), Signal::HUP);
    lab.wait_for("it is refused", || lab.said().contains("not handed over: this is the first"));
    assert!(lab.status().is_some());
}
