//! `plimsoll support-bundle`: all that helps, and no secret that a cell keeps, an operator has, or a service is given.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Cell, Site};
use crate::run::run_in;

const SECRET: &str = "s3cr3t-of-the-database";
const CONFIG: &str = "content-of-a-config";
const VALUE: &str = "hunter2-in-a-variable";

const SHOP: &str = "
name: shop
services:
  web:
    image: any
    command: [sh, -c, 'echo said-by-a-service; exec sleep 1000']
    environment: {DB_PASSWORD: hunter2-in-a-variable}
    secrets: [db]
    configs: [site]
secrets:
  db: {external: true}
configs:
  site: {external: true}
";

fn unpacked(file: &Path, into: &Path) -> Vec<(String, String)> {
    fs::create_dir(into).unwrap();
    let said = Command::new("tar").arg("xzf").arg(file).arg("-C").arg(into).output().unwrap();
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    let mut files = Vec::new();
    let mut dirs = vec![into.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                let name = path.strip_prefix(into).unwrap().to_str().unwrap();
                let name = name.split_once('/').expect("all in one directory").1.to_owned();
                files.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    files.sort();
    files
}

#[test]
fn a_bundle_has_what_helps_and_no_secret() {
    let mut cell = Cell::idle(Site::Loopback);
    cell.up(0, None);
    let dir = cell.dir.path();
    for (kind, name, content) in [("secret", "db", SECRET), ("config", "site", CONFIG)] {
        fs::write(dir.join(name), content).unwrap();
        let made = cell.run(0, &format!("{kind} create {name} {name}"));
        assert_eq!(made.code(), 0, "{}", made.text());
    }
    fs::write(dir.join("compose.yaml"), SHOP).unwrap();
    let applied = cell.run(0, "apply -f compose.yaml");
    assert_eq!(applied.code(), 0, "{}", applied.text());
    let login = cell.run(0, "token create ann --role admin").stdout().trim().to_owned();
    let join = cell.token(0);
    // Somebody has put them where logs are.
    let log = dir.join("daemon.log");
    let lines = format!("{}\nplimsoll up --join {join}\nPLIMSOLL_TOKEN={login}\n", cell.said(0));
    fs::write(&log, lines).unwrap();

    let args = format!(
        "support-bundle -f bundle.tar.gz --log daemon.log --data-dir {}",
        cell.path(0).display()
    );
    let ran = run_in(dir, &args, "", &[]);
    assert_eq!(ran.code(), 0, "{}", ran.text());
    assert_eq!(ran.stdout(), "bundle.tar.gz\n");
    let files = unpacked(&dir.join("bundle.tar.gz"), &dir.join("unpacked"));
    let file = |name: &str| {
        let found = files.iter().find(|(is, _)| is == name);
        found.map_or_else(|| panic!("no {name} in {files:?}"), |(_, text)| text.as_str())
    };
    let json = |name: &str| serde_json::from_str::<Value>(file(name)).unwrap();
    assert_eq!(json("state/status.json")["deployments"][0]["name"], "shop");
    assert_eq!(json("versions.json")["nodes"]["ash"], json("versions.json")["plimsoll"]);
    assert!(json("state/audit.json").as_array().unwrap().len() > 3);
    assert_eq!(json("state/deployments/shop.json")["revision"], 1);
    assert!(json("state/snapshot.json")["nodes"].is_array());
    assert!(json("doctor.json")["findings"].as_array().unwrap().len() > 6);
    assert!(file("metrics.txt").contains("plimsoll_is_leader 1"));
    assert!(file("logs/daemon.log").contains("this node leads the cell"));
    assert!(file("logs/daemon.log").contains("plimsoll up --join plj_[blotted]@"));
    assert!(file("README.txt").contains("doctor.json"));

    let token = |text: &str| text.split(['_', '@']).nth(1).unwrap().to_owned();
    let own = fs::read_to_string(cell.path(0).join("api.token")).unwrap().trim().to_owned();
    for (what, secret) in [
        ("a secret of the cell", SECRET.to_owned()),
        ("a config of the cell", CONFIG.to_owned()),
        ("the value of a variable", VALUE.to_owned()),
        ("what a service prints", "said-by-a-service".to_owned()),
        ("a login string", token(&login)),
        ("a join token", token(&join)),
        ("the token of the daemon", own),
        ("a private key", "PRIVATE KEY".to_owned()),
    ] {
        assert!(secret.len() > 8, "{what}: {secret}");
        for (name, text) in &files {
            // What a service is told to run is part of its spec.
            let is_spec = what == "what a service prints" && name.starts_with("state/deployments");
            assert!(is_spec || !text.contains(&secret), "{what} is in {name}");
        }
    }

    let again = run_in(dir, &args, "", &[]);
    assert_eq!(again.code(), 1, "nobody's file is overwritten: {}", again.text());
}

#[test]
fn a_bundle_of_a_node_that_is_down_says_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let args = "support-bundle -f it.tar.gz --host ./none --data-dir ./node";
    let ran = run_in(dir.path(), args, "", &[]);
    assert_eq!(ran.code(), 0, "{}", ran.text());
    let files = unpacked(&dir.path().join("it.tar.gz"), &dir.path().join("unpacked"));
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains(&"doctor.json") && names.contains(&"versions.json"), "{names:?}");
    let missing = &files.iter().find(|(name, _)| name == "missing.txt").unwrap().1;
    assert!(missing.contains("state/status.json: no daemon answers"), "{missing}");
}
