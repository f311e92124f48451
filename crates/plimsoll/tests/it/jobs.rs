//! Jobs on nodes with the process runtime: what they wrote to a file says how often they really ran.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use plimsoll_lab::NAMES;
use serde_json::Value;

use crate::harness::{Cell, Site};

/// How soon after its end a job is to be reported.
const SOON_MS: u64 = 1_000;

fn node() -> Cell {
    let mut cell = Cell::idle(Site::Loopback);
    cell.up(0, None);
    cell
}

/// A deployment of one service, whose command has the file `ran` as `$0`.
fn write(cell: &Cell, script: &str, keys: &str) {
    let ran = ran(cell).display().to_string();
    let text = format!(
        "name: shop\nservices:\n  mail:\n    image: any\n    command: [sh, -c, '{script}', '{ran}']\n    {keys}\n"
    );
    fs::write(cell.dir.path().join("compose.yaml"), text).unwrap();
}

fn ran(cell: &Cell) -> PathBuf {
    cell.dir.path().join("ran")
}

fn lines(cell: &Cell) -> Vec<String> {
    let text = fs::read_to_string(ran(cell)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// What the only replica is now.
fn replica(cell: &Cell, at: usize) -> Value {
    let ran = cell.run(at, "get replicas -o json");
    let replicas: Value = serde_json::from_str(&ran.stdout()).unwrap_or_default();
    replicas[0]["now"].clone()
}

fn until_state(cell: &Cell, at: usize, state: &str) -> Value {
    cell.until(state, |cell| replica(cell, at)["state"] == state);
    replica(cell, at)
}

#[test]
fn a_job_is_reported_within_a_second_of_its_end_and_apply_succeeds_with_it() {
    let cell = node();
    write(&cell, "sleep 1; echo sent; date +%s%3N > $0", "restart: 'no'");
    let applied = cell.run(0, "apply -f compose.yaml");
    assert_eq!(applied.code(), 0, "{}", applied.text());
    let ended: u64 = lines(&cell)[0].parse().unwrap();
    let now = until_state(&cell, 0, "completed");
    let audit = cell.json(0, "audit --type job_completed -o json");
    let told = told_at(&audit[0]);
    let took = told.saturating_sub(ended);
    println!("reported {took} ms after its end");
    assert!(took <= SOON_MS, "{took} ms: {now}");
    assert_eq!((now["exit_code"].as_i64(), now["attempts"].as_u64()), (Some(0), Some(1)));
    let status = cell.run(0, "status shop");
    assert!(status.stdout().contains("completed"), "{}", status.text());
    let logs = cell.run(0, "logs shop-mail-1");
    assert!(logs.stdout().contains("sent"), "{}", logs.text());
    let explained = cell.run(0, "explain shop-mail-1");
    assert!(explained.stdout().contains("completed on ash"), "{}", explained.text());
}

/// When an event was written, in milliseconds.
fn told_at(event: &Value) -> u64 {
    let at = event["at"].as_str().unwrap_or_else(|| panic!("no time in {event}"));
    let at: jiff::Timestamp = at.parse().unwrap();
    u64::try_from(at.as_millisecond()).unwrap()
}

#[test]
fn a_mailing_goes_out_once_through_three_restarts_of_the_daemon() {
    let mut cell = node();
    write(&cell, "echo sent >> $0; sleep 3", "restart: 'no'");
    assert_eq!(cell.run(0, "apply -f compose.yaml -d").code(), 0);
    cell.until("it runs", |cell| lines(cell).len() == 1);
    // While it runs; and so that it ends while nobody watches.
    cell.kill(0);
    cell.up(0, None);
    cell.until("it is known again", |cell| cell.said(0).contains("adopted"));
    cell.kill(0);
    sleep(Duration::from_secs(4));
    cell.up(0, None);
    until_state(&cell, 0, "completed");
    cell.kill(0);
    cell.up(0, None);
    let applied = cell.run(0, "apply -f compose.yaml");
    assert_eq!(applied.code(), 0, "{}", applied.text());
    until_state(&cell, 0, "completed");
    assert_eq!(lines(&cell), ["sent"]);
    assert_eq!(cell.run(0, "restart shop").code(), 0);
    cell.until("it runs again when it is asked to", |cell| lines(cell).len() == 2);
}

#[test]
fn a_job_that_fails_is_retried_as_its_file_says_and_fails_the_apply() {
    for (keys, attempts) in [("restart: 'no'", 1), ("restart: on-failure:1", 2)] {
        let cell = node();
        write(&cell, "echo ran >> $0; exit 3", keys);
        let applied = cell.run(0, "apply -f compose.yaml");
        assert_eq!(applied.code(), 1, "{}", applied.text());
        let now = replica(&cell, 0);
        assert_eq!(now["reason"]["word"], "job_failed", "{now}");
        assert_eq!(
            (now["exit_code"].as_i64(), now["attempts"].as_u64()),
            (Some(3), Some(attempts))
        );
        assert_eq!(lines(&cell).len() as u64, attempts, "{keys}");
    }
}

#[test]
fn a_job_whose_node_is_lost_runs_again_elsewhere_and_the_audit_says_so() {
    let mut cell = Cell::of_three(Site::Loopback);
    write(&cell, "echo ran >> $0; test $(wc -l < $0) -gt 1 || exec sleep 1000", "restart: 'no'");
    assert_eq!(cell.run(0, "apply -f compose.yaml -d").code(), 0);
    let before = until_state(&cell, 0, "running");
    let lost = cell.nodes().find(|at| before["node"] == NAMES[*at]).unwrap();
    cell.kill(lost);
    let left = cell.others(lost);
    let asked = left[0];
    cell.until_led(&left);
    let after = until_state(&cell, asked, "completed");
    assert_ne!(after["node"], before["node"]);
    let audit = cell.json(asked, "audit --type job_rerun -o json");
    assert_eq!(audit.as_array().map(Vec::len), Some(1), "{audit}");
    cell.up(lost, None);
    cell.until("the old copy is stopped", |cell| cell.found_on(lost).is_empty());
    assert_eq!(
        (lines(&cell).len(), replica(&cell, asked)["state"].as_str()),
        (2, Some("completed"))
    );
}

#[test]
fn a_job_on_a_schedule_runs_at_its_minute_and_when_it_is_asked_to() {
    let cell = node();
    write(&cell, "echo sent; date +%s%3N >> $0", "x-plimsoll: {schedule: \"* * * * *\"}");
    let applied = cell.run(0, "apply -f compose.yaml");
    assert_eq!(applied.code(), 0, "{}", applied.text());
    let asked = cell.run(0, "restart shop/mail");
    assert_eq!(asked.code(), 0, "{}", asked.text());
    assert!(asked.text().contains("running shop/mail"), "{}", asked.text());
    cell.until("the run that was asked for", |cell| !lines(cell).is_empty());
    let schedule = |cell: &Cell| {
        let status = cell.json(0, "status shop -o json");
        status["deployments"][0]["services"][0]["schedule"].clone()
    };
    let is_due = |run: &Value| run["slot"].is_string() && run["state"] == "completed";
    cell.until("a run of its own", |cell| {
        schedule(cell)["runs"].as_array().is_some_and(|runs| runs.iter().any(is_due))
    });
    let runs = schedule(&cell)["runs"].as_array().cloned().unwrap();
    let ended = runs.iter().filter(|run| run["state"] == "completed").count();
    assert!((ended..=runs.len()).contains(&lines(&cell).len()), "each ran once: {runs:?}");
    let first = runs[0]["replicas"][0].as_str().unwrap();
    let logs = cell.run(0, &format!("logs {first}"));
    assert!(logs.stdout().contains("sent"), "the logs of earlier runs are kept: {}", logs.text());
    let history = cell.run(0, "history shop");
    for word in ["mail: * * * * * (UTC), next run at", "by request", "completed"] {
        assert!(history.stdout().contains(word), "{word}: {}", history.text());
    }
    let status = cell.run(0, "status shop");
    assert!(status.stdout().contains("next run in"), "{}", status.text());
    let explained = cell.run(0, "explain shop/mail");
    assert!(explained.stdout().contains("schedule: * * * * * (UTC)"), "{}", explained.text());
}
