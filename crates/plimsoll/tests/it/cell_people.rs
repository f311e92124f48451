//! What people ask of a cell of three, whichever node they ask: logs and commands of all its replicas, the end of data,
//! and what becomes of those who may ask no longer.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{Cell, Site};
use crate::run::{Ran, UNSET, run_in};

const NAMES: [&str; 3] = ["ash", "birch", "cedar"];

/// Each says hello, then counts.
const SHOP: &str = r#"
name: shop
services:
  web:
    image: any
    command: [sh, -c, 'echo hello; n=0; while :; do n=$$((n+1)); echo tick $$n; sleep 0.2; done']
    deploy: {replicas: 3}
"#;

/// A command that goes on, and what it has printed so far.
pub(crate) struct Going {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Going {
    fn start(cell: &Cell, at: usize, args: &str) -> Self {
        let socket = cell.path(at).join("plimsoll.sock");
        Self::asking(cell, args, &[("PLIMSOLL_HOST", socket.to_str().unwrap())])
    }

    pub(crate) fn asking(cell: &Cell, args: &str, env: &[(&str, &str)]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let nth = COUNT.fetch_add(1, Ordering::Relaxed);
        let file = |name: &str| cell.dir.path().join(format!("going{nth}.{name}"));
        let (stdout, stderr) = (file("out"), file("err"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(args.split_whitespace());
        for name in UNSET {
            command.env_remove(name);
        }
        command.envs(env.iter().copied());
        let (out, err) = (File::create(&stdout).unwrap(), File::create(&stderr).unwrap());
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().unwrap();
        Self { child, stdout, stderr }
    }

    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.stdout).unwrap()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        self.child.try_wait().unwrap().map(|status| status.code().unwrap_or(-1))
    }

    pub(crate) fn complained(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap()
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn with_shop(compose: &str) -> Cell {
    let cell = Cell::of_three(Site::Loopback);
    fs::write(cell.dir.path().join("compose.yaml"), compose).unwrap();
    let applied = cell.run(0, "apply -f compose.yaml");
    assert!(applied.code() == 0, "{}", applied.text());
    let mut places = cell.running_on(0);
    places.sort();
    assert_eq!(places, NAMES, "one on each node");
    cell
}

/// The replica that runs on the node.
fn replica_on(cell: &Cell, node: &str) -> String {
    let shop = cell.json(0, "get deployments -o json");
    let replicas = shop[0]["services"][0]["replicas"].as_array().unwrap().clone();
    let on = replicas.iter().find(|replica| replica["now"]["node"] == node).unwrap();
    on["id"].as_str().unwrap().to_owned()
}

#[test]
fn logs_and_commands_reach_every_replica_from_every_node() {
    let mut cell = with_shop(SHOP);
    let replicas = NAMES.map(|node| replica_on(&cell, node));
    for (at, node) in NAMES.into_iter().enumerate() {
        let logs = cell.run(at, "logs shop");
        assert_eq!(logs.code(), 0, "{}", logs.text());
        for replica in &replicas {
            let hello = format!("{replica}  | hello\n");
            assert!(logs.stdout().contains(&hello), "{node} lacks {hello}{}", logs.text());
            let said = cell.run(at, &format!("exec {replica} -- echo hi from there"));
            assert_eq!((said.code(), said.stdout().as_str()), (0, "hi from there\n"));
        }
    }
    let by_time = cell.run(1, "logs shop -t --tail 50").stdout();
    let times: Vec<&str> = by_time.lines().map(|line| line.split(' ').nth(3).unwrap()).collect();
    assert!(times.is_sorted(), "{by_time}");
    // Longer than one node waits for another's answer to anything else.
    let long = cell.run(2, &format!("exec {} -- sleep 11", replicas[0]));
    assert_eq!(long.code(), 0, "{}", long.text());

    let following = Going::start(&cell, 1, "logs shop/web -f --tail 1");
    let ticks = |replica: &str| {
        let said = following.said();
        said.lines().filter(|line| line.starts_with(replica) && line.contains("tick")).count()
    };
    cell.until("lines of all come", |_| replicas.iter().all(|replica| ticks(replica) > 3));
    cell.kill(2);
    cell.until("the lost node is named", |_| {
        following.complained().contains("cedar cannot be reached")
    });
    let before = ticks(&replicas[0]);
    cell.until("the others go on", |_| ticks(&replicas[0]) > before + 3);
    let named = following.complained().matches("cedar cannot be reached").count();
    assert_eq!(named, 1, "once is enough: {}", following.complained());

    let partly = cell.run(0, "logs shop --tail 5");
    assert_eq!(partly.code(), 2, "{}", partly.text());
    assert!(partly.stdout().contains(&replicas[1]), "the rest is shown: {}", partly.text());
    assert!(!partly.stdout().contains(&replicas[2]), "{}", partly.text());
    let why = partly.stderr();
    assert!(why.contains("cedar cannot be reached") && why.contains(&replicas[2]), "{why}");
    let refused = cell.run(0, &format!("exec {} -- true", replicas[2]));
    assert!(refused.stderr().contains("cedar cannot be reached"), "{}", refused.text());

    cell.up(2, None);
    let back = following.said().len();
    cell.until("its lines come again", |_| following.said()[back..].contains(&replicas[2]));
}

const DATA: &str = r#"
name: shop
services:
  web:
    image: any
    command: [sh, -c, 'exec sleep 1000']
    volumes: ['data:/data']
    deploy: {replicas: 3}
volumes: {data: {}}
"#;

#[test]
fn volumes_go_from_every_node_also_from_one_that_was_away() {
    let mut cell = with_shop(DATA);
    let cell_id = cell.json(0, "cell status -o json")["name"].as_str().unwrap().to_owned();
    let data = |cell: &Cell, at: usize| {
        cell.path(at).join("process").join(&cell_id).join("volumes/shop/data")
    };
    for at in 0..3 {
        assert!(data(&cell, at).is_dir(), "{}", data(&cell, at).display());
    }
    cell.kill(2);
    cell.until("the loss is noticed", |cell| {
        let nodes = cell.json(0, "node list -o json");
        nodes.as_array().unwrap().iter().any(|node| node["status"] == "down")
    });
    let deleted = cell.run(1, "delete shop --volumes -y -d");
    assert_eq!(deleted.code(), 0, "{}", deleted.text());
    assert!(deleted.stderr().contains("cedar cannot be reached now"), "{}", deleted.text());
    cell.until("those who are there removed theirs", |cell| {
        (0..2).all(|at| !data(cell, at).exists())
    });
    assert!(data(&cell, 2).is_dir(), "nobody reaches it");
    // Whoever leads when it comes back knows of it.
    cell.kill(0);
    cell.up(0, None);
    cell.up(2, None);
    cell.until("the one who was away removed its own", |cell| !data(cell, 2).exists());
    cell.until("the cell was told", |cell| {
        let removed = cell.json(1, "audit --type volumes_removed -o json");
        removed.as_array().is_some_and(|removed| removed.len() == 3)
    });
}

/// Asks a node over the network, with a token.
fn asks(cell: &Cell, at: usize, token: &str, args: &str) -> Ran {
    let host = format!("https://{}", cell.api(at).unwrap());
    let env = [("PLIMSOLL_HOST", host.as_str()), ("PLIMSOLL_TOKEN", token)];
    run_in(cell.dir.path(), args, "", &env)
}

fn token(cell: &Cell, name: &str, role: &str) -> String {
    let made = cell.run(0, &format!("token create {name} --role {role}"));
    assert_eq!(made.code(), 0, "{}", made.text());
    made.stdout().trim().to_owned()
}

#[test]
fn a_token_that_is_revoked_is_refused_on_every_node_within_five_seconds_and_its_streams_end() {
    let cell = with_shop(SHOP);
    let ann = token(&cell, "ann", "deploy");
    let follows = ["status -w -o json", "logs shop -f", "audit -f"];
    let mut streams = Vec::new();
    for (at, node) in NAMES.into_iter().enumerate() {
        cell.until("the token is good everywhere", |cell| {
            asks(cell, at, &ann, "get deployments").code() == 0
        });
        let host = format!("https://{}", cell.api(at).unwrap());
        let env = [("PLIMSOLL_HOST", host.as_str()), ("PLIMSOLL_TOKEN", ann.as_str())];
        for args in follows {
            streams.push((node, args, Going::asking(&cell, args, &env)));
        }
    }
    cell.until("all streams tell something", |_| {
        streams.iter().all(|(_, _, going)| !going.said().is_empty())
    });

    let revoked = cell.run(2, "token revoke ann");
    assert_eq!(revoked.code(), 0, "{}", revoked.text());
    let begun = Instant::now();
    let mut refused = [false; 3];
    while !refused.iter().all(|refused| *refused)
        || streams.iter_mut().any(|(_, _, going)| going.ended().is_none())
    {
        for (at, refused) in refused.iter_mut().enumerate() {
            let asked = asks(&cell, at, &ann, "get deployments");
            let is_known = asked.stderr().contains("this is not a token of this cell");
            *refused = *refused || (asked.code() == 1 && is_known);
        }
        let open = streams.iter_mut().filter_map(|(node, args, going)| {
            going.ended().is_none().then(|| format!("{args} on {node}"))
        });
        let open: Vec<String> = open.collect();
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}: refused {refused:?}, open {open:?}");
    }
    println!("refused everywhere, and all streams ended, after {:?}", begun.elapsed());
    for (node, args, going) in &mut streams {
        let said = going.complained();
        assert_eq!(going.ended(), Some(1), "{args} on {node}: {said}");
        assert!(said.contains("revoked"), "{args} on {node}: {said}");
    }
}

#[test]
fn what_reaches_beyond_its_container_is_for_admins_whichever_node_is_asked() {
    let cell = with_shop(SHOP);
    let (ann, bob) = (token(&cell, "ann", "deploy"), token(&cell, "bob", "admin"));
    let file = "name: probe\nservices:\n  eye: {image: any, command: [sleep, '1000'], pid: host, cap_add: [SYS_ADMIN]}\n";
    fs::write(cell.dir.path().join("probe.yaml"), file).unwrap();
    for (at, node) in NAMES.into_iter().enumerate() {
        cell.until("the token is good everywhere", |cell| {
            asks(cell, at, &bob, "get deployments").code() == 0
        });
        let refused = asks(&cell, at, &ann, "apply -f probe.yaml -d");
        assert_eq!(refused.code(), 1, "{node}: {}", refused.text());
        let said = refused.stderr();
        assert!(
            said.contains("eye: pid: host") && said.contains("eye: cap_add: SYS_ADMIN"),
            "{said}"
        );
        assert!(said.contains("this token has role deploy"), "{said}");
        // What is nothing special goes on as before.
        let scaled = asks(&cell, at, &ann, "scale shop web=3 -d");
        assert_eq!(scaled.code(), 0, "{}", scaled.text());
    }
    let applied = asks(&cell, 2, &bob, "apply -f probe.yaml -d");
    // The process runtime may refuse what it cannot do; that it is not for bob's role is all that matters here.
    assert!(!applied.stderr().contains("takes the role"), "{}", applied.text());
    cell.run(0, "delete probe --timeout 60s");
    // Where daemons are root, so are services that name no user, and only an admin gets into those.
    let exec = asks(&cell, 1, &ann, "exec shop/web -- true");
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(exec.code(), i32::from(is_root), "{}", exec.text());
    let exec = asks(&cell, 1, &bob, "exec shop/web -- true");
    assert_eq!(exec.code(), 0, "{}", exec.text());
    let events = cell.json(0, "audit --type command_run,operator_added -o json");
    let by: Vec<&str> =
        events.as_array().unwrap().iter().map(|e| e["by"].as_str().unwrap()).collect();
    assert!(by.iter().any(|by| *by == "token:bob@birch" || *by == "token:bob"), "{by:?}");
    assert!(by.iter().all(|by| !by.is_empty()));
    let unknown = cell.run(1, "audit --type deployed,deplyed");
    assert_eq!(unknown.code(), 1);
    assert!(unknown.stderr().contains("deplyed") && unknown.stderr().contains("undeployed"));
}
