//! `plimsoll exec` with input, on a terminal and with signals, from every node of a cell.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::harness::{Cell, PATIENCE, Site};
use crate::run::binary;

const STACK: &str = r#"
name: shop
services:
  web:
    image: any
    command: [sh, -c, 'exec sleep 1000']
    deploy: {replicas: 1}
"#;

fn cell() -> Cell {
    let cell = Cell::of_three(Site::Loopback);
    std::fs::write(cell.dir.path().join("compose.yaml"), STACK).unwrap();
    let applied = cell.run(0, "apply -f compose.yaml");
    assert_eq!(applied.code(), 0, "{}", applied.text());
    cell
}

/// `plimsoll exec` as somebody at that node runs it.
fn exec(cell: &Cell, at: usize, args: &[&str]) -> Command {
    let mut command = binary();
    command.env("PLIMSOLL_HOST", cell.socket(at)).arg("exec").args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn sha256(cell: &Cell, bytes: &[u8]) -> String {
    let path = cell.dir.path().join("sent");
    std::fs::write(&path, bytes).unwrap();
    let sum = Command::new("sha256sum").arg(&path).output().unwrap();
    String::from_utf8_lossy(&sum.stdout).split_whitespace().next().unwrap().to_owned()
}

#[test]
fn ten_megabytes_arrive_whole_from_every_node() {
    let cell = cell();
    let bytes: Vec<u8> =
        (0..10 * 1024 * 1024_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let sum = sha256(&cell, &bytes);
    for at in cell.nodes() {
        let mut child = exec(&cell, at, &["-i", "shop/web", "--", "sha256sum"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                stdin.write_all(&bytes).unwrap();
                drop(stdin);
            });
        });
        let ended = child.wait_with_output().unwrap();
        let (out, err) =
            (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert_eq!(out.split_whitespace().next(), Some(sum.as_str()), "{at}: {err}");
        assert_eq!(ended.status.code(), Some(0), "{at}: {err}");
    }
}

#[test]
fn the_status_and_both_outputs_are_the_commands_own() {
    let cell = cell();
    for at in cell.nodes() {
        let ended =
            exec(&cell, at, &["shop/web", "--", "sh", "-c", "echo out; echo err >&2; exit 42"])
                .output()
                .unwrap();
        assert_eq!(String::from_utf8_lossy(&ended.stdout), "out\n");
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "err\n");
        assert_eq!(ended.status.code(), Some(42));
        let ended = exec(&cell, at, &["shop/web", "--", "cat"]).output().unwrap();
        assert_eq!(ended.status.code(), Some(0), "it finds its input empty");
    }
}

#[test]
fn input_that_nobody_passes_on_is_refused() {
    let cell = cell();
    let dump = cell.dir.path().join("dump.sql");
    std::fs::write(&dump, "select 1;").unwrap();
    let refused = |command: &mut Command, words: &str| {
        let ended = command.output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains(words), "{said}");
    };
    let mut without = exec(&cell, 0, &["shop/web", "--", "cat"]);
    refused(without.stdin(File::open(&dump).unwrap()), "hint: add `-i`");
    let mut terminal = exec(&cell, 0, &["-it", "shop/web", "--", "cat"]);
    refused(terminal.stdin(File::open(&dump).unwrap()), "the input is not a terminal");
    let ended = exec(&cell, 0, &["-i", "shop/web", "--", "cat"])
        .stdin(File::open(&dump).unwrap())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "select 1;");
}

#[test]
fn a_terminal_has_the_size_of_this_one_and_is_as_it_was_afterwards() {
    let cell = cell();
    let program = env!("CARGO_BIN_EXE_plimsoll");
    let line = format!(
        "stty rows 33 cols 99; {program} exec -it shop/web -- sh -c 'stty size; tty'; echo status $?; stty -a"
    );
    for at in cell.nodes() {
        // `script` gives it a terminal.
        let ended = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .env("PLIMSOLL_HOST", cell.socket(at))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert!(said.contains("33 99") && said.contains("status 0"), "{at}: {said}");
        assert!(said.contains("/dev/pts/") && said.contains(" icanon"), "{at}: {said}");
        assert!(!said.contains("-icanon"), "it is as it was: {at}: {said}");
    }
}

#[test]
fn a_signal_is_passed_on_and_the_command_has_the_last_word() {
    let cell = cell();
    for at in cell.nodes() {
        let line = "trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 0.1; done";
        let mut child = exec(&cell, at, &["shop/web", "--", "sh", "-c", line]).spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        let mut said = String::new();
        while !said.contains("ready") {
            let mut piece = [0; 100];
            let read = out.read(&mut piece).unwrap();
            assert!(read > 0, "it ended: {said}");
            said.push_str(&String::from_utf8_lossy(&piece[..read]));
        }
        let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        out.read_to_string(&mut said).unwrap();
        assert!(said.contains("caught"), "{said}");
        assert_eq!(child.wait().unwrap().code(), Some(7), "{at}");
    }
}

#[test]
fn who_leaves_takes_the_command_along() {
    let cell = cell();
    let seconds = (200_000 + std::process::id()).to_string();
    let mut child = exec(&cell, 0, &["shop/web", "--", "sleep", &seconds]).spawn().unwrap();
    let runs = || {
        let look = Command::new("pgrep").args(["-f", &format!("^sleep {seconds}$")]).output();
        look.unwrap().status.success()
    };
    cell.until("it runs", |_| runs());
    child.kill().unwrap();
    child.wait().unwrap();
    let took = cell.until("it is gone", |_| !runs());
    assert!(took < PATIENCE);
}
