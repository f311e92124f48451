//! Real hosts and a real wire: what passes, what does not, and that nothing is left behind.

// Helpers of tests may unwrap as tests do.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use plimsoll_lab::{Lab, address, missing};

const PORT: u16 = 7_000;

/// Only a test that fails waits for so long.
const PATIENCE: Duration = Duration::from_secs(30);

/// A lab, where there can be one.
fn lab(count: usize) -> Option<Lab> {
    if let Some(missing) = missing() {
        println!("not tested: {missing}");
        return None;
    }
    Some(Lab::new(count, 1).unwrap())
}

/// One socket on each host.
fn sockets(lab: &Lab) -> Vec<UdpSocket> {
    let bind = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
    let sockets: Vec<_> = lab.hosts().iter().map(|host| host.within(bind).unwrap()).collect();
    for socket in &sockets {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    sockets
}

fn send(socket: &UdpSocket, to: usize, word: &str) {
    socket.send_to(word.as_bytes(), (address(to), PORT)).unwrap();
}

fn receive(socket: &UdpSocket) -> (String, SocketAddr) {
    let mut room = [0; 64];
    let (length, from) = socket.recv_from(&mut room).unwrap();
    (String::from_utf8(room[..length].to_vec()).unwrap(), from)
}

/// Once a third host has this word, the wire has judged all that the sender sent before.
fn flush(sockets: &[UdpSocket], from: usize, by_way_of: usize) {
    send(&sockets[from], by_way_of, "flush");
    while receive(&sockets[by_way_of]).0 != "flush" {}
}

#[test]
fn hosts_hear_each_other_until_the_wire_between_them_is_cut() {
    let Some(lab) = lab(3) else { return };
    let sockets = sockets(&lab);
    send(&sockets[0], 1, "hello");
    let (word, from) = receive(&sockets[1]);
    assert_eq!((word.as_str(), from.ip()), ("hello", address(0).into()));

    lab.cut(0, 1);
    send(&sockets[0], 1, "lost");
    send(&sockets[1], 0, "lost");
    flush(&sockets, 0, 2);
    flush(&sockets, 1, 2);
    lab.heal(0, 1);
    for (from, to) in [(0, 1), (1, 0)] {
        send(&sockets[from], to, "healed");
        assert_eq!(receive(&sockets[to]).0, "healed", "nothing of the time before comes");
    }
}

#[test]
fn a_cut_of_one_way_leaves_the_other() {
    let Some(lab) = lab(3) else { return };
    let sockets = sockets(&lab);
    lab.cut_one_way(0, 1);
    send(&sockets[0], 1, "lost");
    send(&sockets[1], 0, "there");
    assert_eq!(receive(&sockets[0]).0, "there");
    flush(&sockets, 0, 2);
    lab.heal_all();
    send(&sockets[0], 1, "healed");
    assert_eq!(receive(&sockets[1]).0, "healed");
}

#[test]
fn a_host_that_is_cut_off_leaves_the_others_together() {
    let Some(lab) = lab(4) else { return };
    let sockets = sockets(&lab);
    lab.isolate(0);
    for other in [1, 2, 3] {
        send(&sockets[other], 0, "lost");
        send(&sockets[other], 1 + other % 3, "together");
    }
    for other in [1, 2, 3] {
        assert_eq!(receive(&sockets[other]).0, "together");
    }
    lab.heal_all();
    send(&sockets[1], 0, "healed");
    assert_eq!(receive(&sockets[0]).0, "healed");
}

#[test]
fn a_slow_wire_brings_everything_late() {
    let Some(lab) = lab(2) else { return };
    let sockets = sockets(&lab);
    let delay = Duration::from_millis(60);
    lab.delay(0, 1, delay);
    let begun = Instant::now();
    send(&sockets[0], 1, "ping");
    assert_eq!(receive(&sockets[1]).0, "ping");
    assert!(begun.elapsed() >= delay);
    send(&sockets[1], 0, "pong");
    assert_eq!(receive(&sockets[0]).0, "pong");
    assert!(begun.elapsed() >= 2 * delay, "each way");
}

#[test]
fn a_bad_wire_loses_about_as_much_as_was_asked_for() {
    let Some(lab) = lab(3) else { return };
    let sockets = sockets(&lab);
    lab.lose(0, 1, 30);
    for _ in 0..200 {
        send(&sockets[0], 1, "some");
    }
    flush(&sockets, 0, 2);
    lab.heal_all();
    send(&sockets[0], 1, "end");
    let came = std::iter::from_fn(|| Some(receive(&sockets[1]).0)).take_while(|word| word != "end");
    let came = came.count();
    assert!((100..180).contains(&came), "{came} of 200 came");
}

#[test]
fn a_connection_outlives_a_cut() {
    let Some(lab) = lab(2) else { return };
    let bind = || TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
    let listener = lab.host(1).within(bind).unwrap();
    let connect = || TcpStream::connect((address(1), PORT)).unwrap();
    let mut here = lab.host(0).within(connect).unwrap();
    let (mut there, _) = listener.accept().unwrap();
    there.set_read_timeout(Some(PATIENCE)).unwrap();
    lab.cut(0, 1);
    // More than a packet, and lost at first.
    let words = vec![7; 100_000];
    let writing = std::thread::spawn(move || {
        here.write_all(&words).unwrap();
        here
    });
    lab.heal(0, 1);
    let mut came = vec![0; 100_000];
    there.read_exact(&mut came).unwrap();
    assert!(came.iter().all(|byte| *byte == 7));
    writing.join().unwrap();
}

/// How many processes have this word in their environment.
fn marked(mark: &str) -> usize {
    let pids = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let environments = pids.filter_map(|path| fs::read(path.join("environ")).ok());
    environments
        .filter(|bytes| bytes.windows(mark.len()).any(|part| part == mark.as_bytes()))
        .count()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A shell, what it started, and what that left behind.
fn family(mark: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "(setsid sleep 1000 &); sleep 1000"]).env("LAB_TEST", mark);
    command
}

#[test]
fn a_host_that_is_switched_off_has_no_process_left_and_can_be_switched_on() {
    let Some(lab) = lab(1) else { return };
    let mark = format!("off-{}", std::process::id());
    let shell = lab.host(0).spawn(family(&mark)).unwrap();
    until("all three run", || marked(&mark) == 3);
    lab.host(0).switch_off();
    assert_eq!(marked(&mark), 0);
    assert!(shell.ended().unwrap().is_some());
    assert!(lab.host(0).spawn(family(&mark)).is_err(), "it is off");
    lab.host(0).switch_on().unwrap();
    let alone = lab.host(0).spawn({
        let mut command = Command::new("sh");
        // Its own processes, and no other's: the init, the shell, and those it lists with.
        command.args(["-c", "test $(ls -d /proc/[0-9]* | wc -l) -le 6"]);
        command
    });
    assert!(alone.unwrap().wait().unwrap().success());
}

#[test]
fn nothing_is_left_when_a_lab_is_gone() {
    let Some(lab) = lab(2) else { return };
    let mark = format!("gone-{}", std::process::id());
    let _processes = [0, 1].map(|at| lab.host(at).spawn(family(&mark)).unwrap());
    until("all six run", || marked(&mark) == 6);
    drop(lab);
    assert_eq!(marked(&mark), 0);
}

/// The program for people, with its socket in a directory of its own.
fn program(dir: &Path, args: &str) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab-hosts"));
    command.arg("--dir").arg(dir).args(args.split_whitespace()).env_remove("PLIMSOLL_LAB");
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

/// Ends the hosts also where a test fails.
struct Down<'d>(&'d Path);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        program(self.0, "down");
    }
}

#[test]
fn people_have_the_same_hosts_from_a_shell() {
    if let Some(missing) = missing() {
        println!("not tested: {missing}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let _down = Down(dir.path());
    let done = |args: &str| {
        let (is_good, text) = program(dir.path(), args);
        assert!(is_good, "{args}: {text}");
        text
    };
    let refused = |args: &str| {
        let (is_good, text) = program(dir.path(), args);
        assert!(!is_good, "{args}: {text}");
        text
    };
    assert_eq!(refused("list"), "lab: no hosts are up; create some with `lab/hosts up 3`\n");
    assert_eq!(done("up 2"), "ash        10.77.0.1\nbirch      10.77.0.2\n");
    assert!(refused("up 2").contains("up already"));
    assert!(done("exec birch -- ip -4 addr show wire").contains("10.77.0.2/24"));
    done("cut ash birch --one-way");
    done("delay ash birch 50ms");
    done("loss ash birch 20%");
    let list = done("list");
    let wires = "ash to birch: cut, 50ms late, loses 20%\nbirch to ash: 50ms late, loses 20%\n";
    assert!(list.ends_with(wires), "{list}");
    done("heal ash birch");
    done("cut ash");
    assert!(done("list").ends_with("\nash to birch: cut\nbirch to ash: cut\n"));
    done("heal");
    assert!(refused("cut ash oak").contains("there is no host oak; there are ash, birch"));
    assert!(refused("cut ash ash").contains("a host has no link to itself"));
    done("kill ash");
    assert!(refused("exec ash -- true").contains("ash is switched off"));
    done("start ash");
    done("exec ash -- true");
    done("down");
    until("it is gone", || !dir.path().join("hosts.sock").exists());
    assert!(refused("list").contains("no hosts are up"));
}

#[test]
fn every_host_can_have_an_engine_of_its_own() {
    if missing().is_some() || std::env::var_os("PLIMSOLL_TEST_DOCKER").is_none() {
        println!("not tested: it takes root, and PLIMSOLL_TEST_DOCKER is set by lab/engine");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let _down = Down(dir.path());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/engine");
    let done = |args: &str| {
        let (is_good, text) = program(dir.path(), &format!("--engine {} {args}", script.display()));
        assert!(is_good, "{args}: {text}");
        text
    };
    done("up 2 --docker");
    let root = |host: &str| done(&format!("exec {host} -- docker info -f {{{{.DockerRootDir}}}}"));
    for host in ["ash", "birch"] {
        assert!(root(host).ends_with(&format!("/host-{host}/data\n")), "{}", root(host));
    }
    let bridge = done("exec ash -- ip -4 -o addr show docker0");
    assert!(bridge.contains("10.201."), "it is in the host's network: {bridge}");
    done("kill ash");
    done("start ash");
    assert!(root("ash").contains("/host-ash/"), "it is there again");
    done("down");
    assert!(!dir.path().join("host-ash").exists() && !dir.path().join("host-birch").exists());
}

#[test]
fn nothing_is_left_when_the_one_who_holds_the_hosts_is_killed() {
    if let Some(missing) = missing() {
        println!("not tested: {missing}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut serving = Command::new(env!("CARGO_BIN_EXE_lab-hosts"));
    let serving = serving.arg("--dir").arg(dir.path()).args(["serve", "1"]).env("LAB_TEST", "");
    let mut serving = serving.spawn().unwrap();
    until("it answers", || program(dir.path(), "list").0);
    let mark = format!("killed-{}", std::process::id());
    let mut shell = Command::new(env!("CARGO_BIN_EXE_lab-hosts"));
    let shell = shell.arg("--dir").arg(dir.path()).args(["exec", "ash", "--"]);
    let inside = shell.args(["sh", "-c", "(setsid sleep 1000 &); sleep 1000"]);
    let mut inside = inside.env("LAB_TEST", &mark).spawn().unwrap();
    // The one that entered and waits for it is no process of the host.
    until("all run", || marked(&mark) == 4);
    serving.kill().unwrap();
    serving.wait().unwrap();
    inside.wait().unwrap();
    until("all are gone", || marked(&mark) == 0);
}
