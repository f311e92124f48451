//! `--log-format json`: every line that a daemon says is one JSON object, from its start to its end.

use serde_json::Value;

use crate::harness::{Cell, Site};
use crate::run::run_in;

#[test]
fn a_daemon_can_say_everything_as_json() {
    let mut cell = Cell::idle(Site::Loopback);
    cell.setups[0].args = vec!["--log-format".to_owned(), "json".to_owned()];
    cell.up(0, None);
    cell.write_shop();
    assert_eq!(cell.run(0, "apply -f compose.yaml").code(), 0);
    cell.stop(0);
    let said = cell.said(0);
    let lines: Vec<Value> = said
        .lines()
        .map(|line| {
            serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}\n{said}"))
        })
        .collect();
    for line in &lines {
        let is_level = ["ERROR", "WARN", "INFO"].contains(&line["level"].as_str().unwrap());
        let is_whole = line["timestamp"].is_string() && line["target"].is_string();
        assert!(is_level && is_whole && line["message"].is_string(), "{line}");
    }
    let says = |text: &str| lines.iter().any(|it| it["message"].as_str().unwrap().contains(text));
    assert!(says("node ash is up"), "{said}");
    assert!(says("this node leads the cell"), "{said}");
    assert!(says("stopping; replicas keep running"), "{said}");
}

#[test]
fn also_why_it_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let args = "up --runtime process --log-format json --data-dir ./node --join-file ./none";
    let ran = run_in(dir.path(), args, "", &[]);
    assert_eq!(ran.code(), 1, "{}", ran.text());
    let line: Value = serde_json::from_str(ran.stderr().trim()).unwrap();
    assert_eq!(line["level"], "ERROR");
    assert!(line["message"].as_str().unwrap().contains("cannot read ./none"), "{line}");
}
