//! Somebody with everything but a server's key or a node's memory: its disks, its backups, the answers and logs of every
//! node, a worker's certificate. None of it gives a secret of the cell away.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use plimsoll_lab::NAMES;

use super::AGENT;
use crate::harness::{Cell, Site};
use crate::run::{Ran, run_in};

/// What nobody may find; the first is of the agent's replica, the second of a server's.
const DB: &str = "correct-horse-battery-staple-1";
const BANK: &str = "correct-horse-battery-staple-2";
const ROTATED: &str = "correct-horse-battery-staple-3";

/// `web` runs on the agent, `api` and `bank` on a server; each tells of its secret what gives nothing away.
const SHOP: &str = r#"
name: shop
services:
  web:
    image: any
    command: [sh, -c, 'sha256sum run/secrets/db > digest; exec sleep 1000']
    secrets: [db]
    x-plimsoll: {placement: hosts, hosts: [AGENT]}
  bank:
    image: any
    command: [sh, -c, 'sha256sum keys/bank > digest; exec sleep 1000']
    secrets: [{source: vault, target: /keys/bank}]
    x-plimsoll: {placement: hosts, hosts: [SERVER]}
  api:
    image: any
    command: [sh, -c, 'exec sleep 1000']
    x-plimsoll: {placement: hosts, hosts: [SERVER]}
secrets:
  db: {external: true}
  vault: {external: true, name: bank-key}
"#;

fn write_compose(cell: &Cell) {
    let text = SHOP.replace("AGENT", NAMES[AGENT]).replace("SERVER", NAMES[0]);
    fs::write(cell.dir.path().join("compose.yaml"), text).unwrap();
}

/// Runs a command with this on its standard input.
pub(crate) fn fed(cell: &Cell, args: &str, input: &str) -> Ran {
    let socket = cell.socket(0);
    run_in(cell.dir.path(), args, input, &[("PLIMSOLL_HOST", socket.to_str().unwrap())])
}

fn done(ran: &Ran) {
    assert_eq!(ran.code(), 0, "{}", ran.text());
}

/// As it is, or as the numbers that JSON has for its bytes.
pub(crate) fn has(haystack: &[u8], secret: &str) -> bool {
    let numbers: Vec<String> = secret.bytes().map(|byte| byte.to_string()).collect();
    // What is no text does not matter: a secret of these tests is.
    let text = String::from_utf8_lossy(haystack);
    text.contains(secret) || text.contains(&numbers.join(","))
}

/// The files below a directory that have it in them, links not followed.
pub(crate) fn files_with(dir: &Path, secret: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(path) = left.pop() {
        let Ok(kind) = fs::symlink_metadata(&path) else { continue };
        if kind.is_dir() {
            left.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|it| it.path()));
        } else if kind.is_file() && has(&fs::read(&path).unwrap_or_default(), secret) {
            found.push(path);
        }
    }
    found
}

/// Whether the memory of a process has it. Only root may look.
fn is_in_memory_of(pid: i32, secret: &str) -> bool {
    const PIECE: usize = 1 << 20;
    // Enough that what lies across two pieces is whole in one of them.
    const OVERLAP: u64 = 1 << 10;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let (mut piece, zeros) = (vec![0; PIECE], vec![0; PIECE]);
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let (from, to) = range.expect("a line of it begins with a range");
        let parse = |text| u64::from_str_radix(text, 16).unwrap();
        let (mut at, to) = (parse(from), parse(to));
        while at < to {
            let length = PIECE.min(usize::try_from(to - at).unwrap());
            let piece = &mut piece[..length];
            // A piece that is gone meanwhile, or of a device, has no secret.
            let is_read = memory.read_exact_at(piece, at).is_ok();
            if is_read && *piece != zeros[..length] && has(piece, secret) {
                return true;
            }
            let step = length as u64;
            at += if at + step < to { step - OVERLAP } else { step };
        }
    }
    false
}

/// What a service wrote into its working directory, by the node it runs on.
fn digest(cell: &Cell, at: usize) -> Option<String> {
    let replicas = cell.path(at).join("process");
    let mut left = vec![replicas];
    let mut newest = None;
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|it| it.path()));
        } else if path.ends_with("work/digest") {
            let at = path.metadata().and_then(|it| it.modified()).ok();
            newest = newest.max(Some((at, path)));
        }
    }
    let text = fs::read_to_string(newest?.1).ok()?;
    text.split(' ').next().filter(|it| !it.is_empty()).map(str::to_owned)
}

fn sha256(text: &str) -> String {
    let path = tempfile::NamedTempFile::new().unwrap();
    fs::write(path.path(), text).unwrap();
    let summed = std::process::Command::new("sha256sum").arg(path.path()).output().unwrap();
    String::from_utf8(summed.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

/// The generation of each replica.
fn generations(cell: &Cell) -> BTreeMap<String, u64> {
    let replicas = cell.json(0, "get replicas -o json");
    let replicas = replicas.as_array().unwrap().iter();
    let told = |it: &serde_json::Value| {
        let id = it["id"].as_str().unwrap().to_owned();
        (id, it["now"]["generation"].as_u64().unwrap_or_default())
    };
    replicas.map(told).collect()
}

#[test]
fn a_secret_is_in_the_memory_of_servers_and_of_the_node_that_runs_with_it_and_nowhere_else() {
    let mut cell = Cell::idle(Site::Loopback);
    cell.form(8);
    write_compose(&cell);
    let refused = cell.run(0, "apply -f compose.yaml");
    assert_eq!(refused.code(), 1, "{}", refused.text());
    for said in ["secret db", "plimsoll secret create bank-key FILE"] {
        assert!(refused.stderr().contains(said), "{}", refused.text());
    }
    done(&fed(&cell, "secret create db", DB));
    done(&fed(&cell, "secret create bank-key -", BANK));
    done(&cell.run(0, "apply -f compose.yaml"));
    cell.until("both have their secrets", |cell| {
        digest(cell, AGENT) == Some(sha256(DB)) && digest(cell, 0) == Some(sha256(BANK))
    });

    let nowhere = |cell: &Cell, secret: &str| {
        assert_eq!(files_with(cell.dir.path(), secret), [] as [PathBuf; 0]);
        for at in [0, AGENT] {
            for path in [
                "/v1/secrets",
                "/v1/secrets/db",
                "/v1/secrets/bank-key",
                "/v1/deployments/shop",
                "/v1/deployments/shop/history",
                "/v1/deployments/shop/revisions/1",
                "/v1/replicas",
                "/v1/audit",
                "/v1/status",
                "/v1/snapshot",
                "/metrics",
            ] {
                let answer = cell.get(at, path).unwrap_or_default().to_string();
                assert!(!has(answer.as_bytes(), secret), "{path}: {answer}");
            }
        }
    };
    nowhere(&cell, DB);
    nowhere(&cell, BANK);
    if rustix::process::geteuid().is_root() {
        let agent = cell.pid(AGENT);
        assert!(is_in_memory_of(agent, DB), "it runs with this one");
        assert!(!is_in_memory_of(agent, BANK), "a worker has no secret of what it does not run");
    }

    let before = generations(&cell);
    let rotated = fed(&cell, "secret rotate db", ROTATED);
    done(&rotated);
    assert_eq!(rotated.stdout(), "secret db rotated to version 2; rolling shop/web\n");
    cell.until("the new value is there", |cell| digest(cell, AGENT) == Some(sha256(ROTATED)));
    cell.until("the rollout is over", |cell| {
        cell.json(0, "status -o json")["deployments"][0]["progress"]["is"] == "steady"
    });
    let after = generations(&cell);
    assert!(after["shop-web-1"] > before["shop-web-1"], "{before:?} {after:?}");
    for other in ["shop-api-1", "shop-bank-1"] {
        assert_eq!(after[other], before[other], "it does not use it");
    }
    nowhere(&cell, ROTATED);
    let history = cell.run(0, "history shop").stdout();
    assert!(history.contains("external db, version 2"), "{history}");
    let audit = cell.run(0, "audit --type secret_rotated").stdout();
    assert!(audit.contains("secret db rotated to version 2"), "{audit}");

    let refused = cell.run(0, "secret rm db");
    assert_eq!(refused.code(), 1, "{}", refused.text());
    assert!(refused.stderr().contains("secret db is used by shop/web"), "{}", refused.text());
    done(&cell.run(0, "delete shop --yes"));
    cell.until("nothing uses it", |cell| cell.run(0, "secret rm db").code() == 0);
}

/// A tenant, and the secrets of others.
#[test]
fn whoever_is_bound_to_deployments_is_bound_to_secrets_named_like_them() {
    let mut cell = Cell::idle(Site::Loopback);
    cell.up(0, None);
    done(&fed(&cell, "secret create bank-key", BANK));
    done(&fed(&cell, "config create bank-conf", "rate: 7"));
    let login = |args: &str| {
        let made = cell.run(0, &format!("token create {args}"));
        done(&made);
        made.stdout().trim().to_owned()
    };
    let ci = login("ci --role deploy --deployments shop-*");
    let viewer = login("viewer --role read");

    let compose = |name: &str, secret: &str| {
        let text = format!(
            "name: {name}\nservices:\n  web:\n    image: any\n    user: '12345'\n    command: [sleep, '1000']\n    \
             secrets: [key]\nsecrets: {{key: {{external: true, name: {secret}}}}}\n"
        );
        fs::write(cell.dir.path().join("compose.yaml"), text).unwrap();
    };
    compose("shop-eu", "bank-key");
    let refused = run_with_tcp(&cell, &ci, "apply -f compose.yaml");
    assert_eq!(refused.code(), 1, "{}", refused.text());
    assert!(refused.stderr().contains("web: secret bank-key"), "{}", refused.text());
    for args in [
        "secret inspect bank-key",
        "secret rm bank-key",
        "secret rotate bank-key compose.yaml",
        "secret create bank-other compose.yaml",
        "config inspect bank-conf",
    ] {
        let refused = run_with_tcp(&cell, &ci, args);
        assert_eq!(refused.code(), 1, "{args}: {}", refused.text());
        assert!(refused.stderr().contains("bound to deployments shop-*"), "{}", refused.text());
    }
    assert!(!run_with_tcp(&cell, &ci, "secret list").stdout().contains("bank-key"));
    done(&run_with_tcp(&cell, &ci, "secret create shop-key compose.yaml"));
    compose("shop-eu", "shop-key");
    done(&run_with_tcp(&cell, &ci, "apply -f compose.yaml -d"));
    let refused = run_with_tcp(&cell, &viewer, "config inspect bank-conf");
    assert_eq!(refused.code(), 1, "what is in a config takes deploy: {}", refused.text());
    let shown = cell.run(0, "config inspect bank-conf");
    assert_eq!(shown.stdout(), "rate: 7");
}

/// The command line over TCP, as an operator with this login string.
fn run_with_tcp(cell: &Cell, login: &str, args: &str) -> Ran {
    run_in(cell.dir.path(), args, "", &[("PLIMSOLL_TOKEN", login)])
}
