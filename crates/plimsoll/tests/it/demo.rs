//! `plimsoll demo`: real processes, so numbers differ from run to run and are masked.

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use expect_test::expect;
use rustix::process::{Pid, Signal, kill_process};

use crate::run::{Ran, UNSET, run_in};

/// What the demo itself promises.
const LIMIT: Duration = Duration::from_mins(1);

/// A directory that the demo makes its own in, so that whatever it leaves is found.
fn place() -> tempfile::TempDir {
    // Not below the target directory: the path of a socket must be short.
    tempfile::tempdir().unwrap()
}

fn demo(place: &Path) -> Ran {
    run_in(place, "demo", "", &[("TMPDIR", place.to_str().unwrap())])
}

/// Every process that works below the directory or was told of it, with its words.
fn processes_below(dir: &Path) -> Vec<(i32, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        let place = fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        if place.starts_with(dir) || words.contains(dir.to_str().unwrap()) {
            found.push((pid, words));
        }
    }
    found
}

fn assert_nothing_is_left(place: &Path) {
    let here = place.canonicalize().unwrap();
    assert_eq!(processes_below(&here), []);
    let files: Vec<_> = fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files, Vec::<PathBuf>::new());
}

/// Numbers that are measured: times, process ids and how often was looked.
fn masked(text: &str) -> String {
    let mask = |line: &str| {
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        for at in 1..words.len() {
            let is_before = |after: &str| words[at].trim_end_matches([',', ':', ';']) == after;
            let is_time = is_before("s") && words[at - 1].contains('.');
            if is_time || is_before("looks") {
                "N".clone_into(&mut words[at - 1]);
            }
        }
        for at in 1..words.len() {
            let is_pid = words[at - 1] == "as" || (words[at - 1] == "-9");
            let number = words[at].trim_end_matches([',', ';']).len();
            if is_pid && words[at][..number].bytes().all(|byte| byte.is_ascii_digit()) {
                words[at].replace_range(..number, "N");
            }
        }
        let line = words.join(" ");
        // Times stand at the right of their column, however long they are.
        match line.trim_start().strip_prefix("N s") {
            Some(rest) => format!("   N s{rest}"),
            None => line,
        }
    };
    text.lines().map(|line| mask(line) + "\n").collect()
}

#[test]
fn the_demo_shows_all_that_it_claims() {
    let place = place();
    let begun = Instant::now();
    let ran = demo(place.path());
    assert!(begun.elapsed() < LIMIT);
    expect![[r#"
        exit 0
        --- stdout
        A node of its own on this machine, with a small stack: store, api and web, as plain processes.
        No image and no network is needed, and nothing is left afterwards.

        1. A stack comes up: api waits for a healthy store, and web for a healthy api
           N s  applied as revision 1
           N s  store is healthy: 1 replica
           N s  api is healthy: 2 replicas
           N s  web is healthy: 3 replicas
           N s  steady after N s: 6 replicas, a process each

        2. A process is killed
           N s  kill -9 N, which is web-2
           N s  web-2 is healthy again as N; the other 5 were not touched

        3. A bad revision: its web ends as soon as it starts
           N s  applied as revision 2
           N s  given up after its first replica: web-1 failed on here: it exited with status 3
                  the 6 processes of before are the same ones, and serve on

        4. A good revision: web is replaced one replica at a time
           N s  applied as revision 3
           N s  web-1 is new, as N
           N s  web-2 is new, as N
           N s  web-3 is new, as N
           N s  steady; N looks on the way, and at none fewer than 3 web ran

        5. The daemon is stopped and started again
           N s  the daemon is down, and the 6 processes run on
           N s  it is up again after N s and has taken over all 6; nothing was restarted

        6. The stack is deleted
           N s  all 6 processes are gone, and their supervisors with them

        What was shown, in N s:
          - a stack came up in the order of its depends_on, and was steady after N s
          - a killed process was healed after N s, and counted as one failure
          - a bad revision was given up after N s at its first replica; no old process ended
          - a good revision replaced 3 replicas in N s, one at a time, never fewer than 3 running
          - 6 processes outlived the daemon, and the next one took them over
          - deleting it ended every process within N s
          - nothing is left: no process, no file

        Try next:
          plimsoll up                                        run a node that stays
          plimsoll apply -f compose.yaml                     a stack of yours on it
          plimsoll sim run scenarios/lost-node.yaml --story  a cell that loses a node, simulated
    "#]].assert_eq(&masked(&ran.text()));
    assert_nothing_is_left(place.path());
}

/// A demo that is under way, in that directory.
fn begun(place: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    for name in UNSET {
        command.env_remove(name);
    }
    command.arg("demo").env("TMPDIR", place).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Reads what it prints up to a line with this in it.
fn read_to(child: &mut Child, text: &str) -> Lines<BufReader<ChildStdout>> {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let found = lines.any(|line| line.unwrap().contains(text));
    assert!(found, "it ends without {text:?}");
    lines
}

#[test]
fn a_demo_that_is_interrupted_leaves_nothing() {
    let place = place();
    let mut child = begun(place.path());
    let rest = read_to(&mut child, "store is healthy");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    for line in rest {
        let line = line.unwrap();
        assert!(!line.contains("What was shown"), "it goes on to its end");
    }
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130));
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(said, "\nstopped; what the demo had started is gone\n");
    assert_nothing_is_left(place.path());
}

#[test]
fn a_claim_that_does_not_hold_fails_and_leaves_nothing() {
    let place = place();
    let mut child = begun(place.path());
    let rest = read_to(&mut child, "kill -9");
    // Someone else kills a service at the same time.
    let here = place.path().canonicalize().unwrap();
    let services = processes_below(&here).into_iter().filter(|(_, words)| words.starts_with("sh "));
    let (store, _) = services.min().expect("services run");
    kill_process(Pid::from_raw(store).unwrap(), Signal::KILL).unwrap();
    rest.for_each(drop);
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(2));
    expect![[r#"
        error: the demo cannot show what it claims: the kill counts as one failure, not 2
    "#]]
    .assert_eq(&String::from_utf8(ended.stderr).unwrap());
    assert_nothing_is_left(place.path());
}
