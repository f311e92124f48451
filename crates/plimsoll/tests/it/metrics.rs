//! What `/metrics` says, as Prometheus reads it: valid by its own tool, and every name in the reference.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use expect_test::expect_file;
use serde_json::Value;

use crate::harness::{Cell, Site};

const SHOP: &str = "
name: shop
services:
  web: {image: any, command: [sleep, '1000'], deploy: {replicas: 3}}
  big: {image: any, command: [sleep, '1000'], deploy: {resources: {reservations: {cpus: '900'}}}}
";

/// The page of the server that leads a cell in which a few things have happened.
fn page(cell: &Cell) -> String {
    let url = "http://node/metrics";
    let leader = cell.until_led(&[0, 1, 2]);
    let mut curl = Command::new("curl");
    let asked =
        curl.args(["-s", "--unix-socket"]).arg(cell.socket(leader)).arg(url).output().unwrap();
    String::from_utf8(asked.stdout).unwrap()
}

fn busy_cell() -> Cell {
    let cell = Cell::of_three(Site::Loopback);
    page(&cell);
    fs::write(cell.dir.path().join("compose.yaml"), SHOP).unwrap();
    cell.run(0, "apply -f compose.yaml --detach");
    cell.until("replicas run", |cell| {
        page(cell).contains("plimsoll_replicas{state=\"running\"} 3")
    });
    cell.run(0, "node drain birch");
    cell
}

#[test]
fn prometheus_finds_nothing_wrong_with_the_page_and_every_name_is_in_the_reference() {
    let cell = busy_cell();
    let page = page(&cell);
    for (what, line) in [
        ("placements", "plimsoll_events_total{kind=\"placed\"} "),
        ("moves by cause", "plimsoll_moves_total{cause=\"misplaced\",step=\"finished\"} "),
        ("refusals by reason", "plimsoll_replicas_unplaced{reason=\"no_eligible_node\"} 1"),
        ("latency", "plimsoll_log_write_seconds_count "),
        ("nodes", "plimsoll_node_replicas{node=\"ash\"} "),
    ] {
        assert!(page.contains(line), "{what}: {page}");
    }
    let mut names = BTreeMap::new();
    for line in page.lines().filter_map(|line| line.strip_prefix("# ")) {
        let mut words = line.splitn(3, ' ');
        let (kind, name, rest) =
            (words.next().unwrap(), words.next().unwrap(), words.next().unwrap_or_default());
        let entry: &mut (String, String) = names.entry(name.to_owned()).or_default();
        match kind {
            "HELP" => rest.clone_into(&mut entry.0),
            _ => rest.clone_into(&mut entry.1),
        }
    }
    let rows = names.iter().map(|(name, (what, kind))| format!("| `{name}` | {kind} | {what} |\n"));
    let head = "# Metrics\n\n`GET /metrics` of every node, as Prometheus reads it, without a token. Servers tell what is of the whole cell, the leader how \
                busy\nnodes are; certificates, routes and service names have more where there are any. This page is written by a test \
                from what a leader says:\n`UPDATE_EXPECT=1 cargo test -p plimsoll metrics`.\n\nAlert rules for Prometheus and a dashboard for Grafana are in `packaging/prometheus` and `packaging/grafana`.\n\n| name | kind | what it counts |\n|---|---|---|\n";
    let written = format!("{head}{}", rows.collect::<String>());
    expect_file!["../../../../docs/reference/metrics.md"].assert_eq(&written);

    let Ok(promtool) = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
    else {
        println!("not checked: there is no promtool");
        return;
    };
    promtool.stdin.as_ref().unwrap().write_all(page.as_bytes()).unwrap();
    let said = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
    assert_eq!(said, "", "{page}");
}

#[test]
fn the_alerts_are_rules_and_speak_of_metrics_that_there_are() {
    let root = crate::run::root();
    let rules = root.join("packaging/prometheus/alerts.yaml");
    let written = fs::read_to_string(&rules).unwrap();
    let reference = fs::read_to_string(root.join("docs/reference/metrics.md")).unwrap();
    let others =
        fs::read_to_string(root.join("crates/plimsoll-daemon/src/api/metrics.rs")).unwrap();
    let is_name = |it: &char| it.is_ascii_lowercase() || *it == '_';
    for line in written.lines().filter(|line| line.trim_start().starts_with("expr:")) {
        for at in line.match_indices("plimsoll_").map(|(at, _)| at) {
            let name: String = line[at..].chars().take_while(is_name).collect();
            let name = name.trim_end_matches("_bucket");
            assert!(reference.contains(name) || others.contains(name), "there is no {name}");
        }
    }
    match Command::new("promtool").args(["check", "rules"]).arg(&rules).output() {
        Ok(said) => assert!(said.status.success(), "{said:?}"),
        Err(_) => println!("not checked: there is no promtool"),
    }
}

/// Every `expr` of a dashboard, wherever it stands.
fn expressions(within: &Value, found: &mut Vec<String>) {
    match within {
        Value::Object(fields) => {
            found.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| expressions(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

#[test]
fn the_grafana_dashboard_asks_for_metrics_and_labels_that_there_are() {
    let root = crate::run::root();
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    let reference = read("docs/reference/metrics.md");
    let files = ["metrics.rs", "event_metrics.rs", "router_metrics.rs"];
    let sources: String =
        files.map(|file| read(&format!("crates/plimsoll-daemon/src/api/{file}"))).concat();
    let dashboard: Value = serde_json::from_str(&read("packaging/grafana/plimsoll.json")).unwrap();
    let mut asked = Vec::new();
    expressions(&dashboard, &mut asked);
    assert!(asked.len() > 20, "{asked:?}");
    // Added by whoever scrapes, and by a histogram.
    let others = ["instance", "le"];
    let is_name = |it: &char| it.is_ascii_lowercase() || *it == '_';
    for expression in &asked {
        for (at, _) in expression.match_indices("plimsoll_") {
            let name: String = expression[at..].chars().take_while(is_name).collect();
            let name = name.trim_end_matches("_bucket");
            assert!(reference.contains(&format!("`{name}`")), "there is no {name}: {expression}");
        }
        let grouped = expression.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
        let chosen = expression.split('{').skip(1).filter_map(|rest| rest.split(['=', '!']).next());
        for label in grouped.flat_map(|labels| labels.split(", ")).chain(chosen) {
            let is_there = [format!("{label}=\\\""), format!("\"{label}\"")];
            let is_there = is_there.iter().any(|text| sources.contains(text.as_str()));
            assert!(others.contains(&label) || is_there, "no label {label}: {expression}");
        }
    }
    // As rules, their language is checked by Prometheus itself.
    let rules = asked.iter().enumerate().map(|(at, expression)| {
        let expression = expression.replace("$instance", ".*");
        format!("      - {{record: 'panel:{at}', expr: '{expression}'}}")
    });
    let rules = rules.collect::<Vec<_>>().join("\n");
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, format!("groups:\n  - name: panels\n    rules:\n{rules}\n")).unwrap();
    match Command::new("promtool").args(["check", "rules"]).arg(file.path()).output() {
        Ok(said) => assert!(said.status.success(), "{said:?}"),
        Err(_) => println!("not checked: there is no promtool"),
    }
}
