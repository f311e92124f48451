//! A node that runs processes of this host, from `plimsoll up` to its last word, as a person would use it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use expect_test::expect;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::run::{Ran, UNSET, run_in};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

const SHOP: &str = r#"
name: shop
services:
  web:
    image: any
    command: [sh, -c, 'echo "web is $$COLOUR"; exec sleep 1000']
    environment: {COLOUR: green}
    healthcheck: {test: [CMD, "true"], interval: 100ms}
    deploy: {replicas: 2}
"#;

/// A running daemon with files of its own. What it runs ends with it.
struct Node {
    dir: TempDir,
    daemon: Child,
}

impl Node {
    fn up() -> Self {
        // Not below the target directory: the path of a socket must be short.
        let dir = tempfile::tempdir().unwrap();
        let daemon = start(dir.path());
        Self { dir, daemon }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, args: &str) -> Ran {
        let host = self.path("node/plimsoll.sock");
        run_in(self.dir.path(), args, "", &[("PLIMSOLL_HOST", host.to_str().unwrap())])
    }

    /// What it says, whoever asks and however long it took.
    fn said(&self, args: &str) -> String {
        let text = timeless(&self.run(args).text());
        let words =
            text.split_inclusive([' ', '\n']).map(|word| match word.strip_prefix("unix:") {
                Some(name) => format!("me{}", &name[name.trim_end().len()..]),
                None => word.to_owned(),
            });
        words.collect()
    }

    /// Ends the daemon as a service manager would, and returns all it said.
    fn down(&mut self) -> String {
        let pid = Pid::from_child(&self.daemon);
        kill_process(pid, Signal::TERM).unwrap();
        assert!(self.daemon.wait().unwrap().success());
        fs::read_to_string(self.path("up.log")).unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for name in ["shop", "bad"] {
            self.run(&format!("delete {name} --timeout 20s"));
        }
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

fn start(dir: &Path) -> Child {
    let log = fs::File::create(dir.join("up.log")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command
        .args(["up", "--data-dir", "node", "--runtime", "process"])
        .args(["--name", "ash", "--cell", "demo", "--log-level", "error"])
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    for name in UNSET {
        command.env_remove(name);
    }
    let daemon = command.spawn().unwrap();
    let begun = Instant::now();
    while !fs::read_to_string(dir.join("up.log")).unwrap().contains("Next: ") {
        assert!(begun.elapsed() < PATIENCE, "the node does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    daemon
}

/// Numbers before an `s`, with or without a blank, are lengths of time; here all are `0s`, after one blank.
pub(crate) fn timeless(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(at);
        out.push_str(before);
        let end = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
        let (digits, after) = number.split_at(end);
        let is_word = out.ends_with(|c: char| c.is_ascii_alphanumeric());
        let unit = ["s", " s"].into_iter().find(|unit| {
            let next = after.strip_prefix(unit).map(|after| after.chars().next());
            next.is_some_and(|next| next.is_none_or(|c| !c.is_ascii_alphanumeric()))
        });
        match unit {
            Some(unit) if !is_word => {
                let words = out.trim_end_matches(' ').len();
                out.truncate(out.len().min(words + 1));
                out.push_str("0s");
                rest = &after[unit.len()..];
            }
            _ => {
                out.push_str(digits);
                rest = after;
            }
        }
    }
    out + rest
}

#[test]
fn a_deployment_from_its_first_to_its_last_day() {
    let node = Node::up();
    fs::write(node.path("compose.yaml"), SHOP).unwrap();
    let applied = node.run("apply");
    assert_eq!(timeless(&applied.stdout()), "shop revision 1 is steady: 2 replicas in 0s\n");
    assert_eq!(applied.code(), 0, "{}", applied.text());
    expect![[r#"
        exit 0
        --- stdout
        cell demo: ash leads, 1 node ready

        NAME            STATE      NODE  AGE  FAILS  DETAIL
        shop            steady                       revision 1, applied 0s ago by me
          web           2/2                          any
            shop-web-1  running    ash 0s      0
            shop-web-2  running    ash 0s      0
    "#]]
    .assert_eq(&node.said("status"));
    fs::write(node.path("case.json"), node.run("snapshot export").stdout()).unwrap();
    let decided = node.run("decide place --input case.json");
    assert_eq!(decided.stderr(), "0 placed, 0 moved, 2 stay, 0 unplaced\n", "{}", decided.text());
    let decided = node.run("decide rebalance --input case.json");
    assert_eq!(decided.stderr(), "1 cycle, 0 moves\n", "{}", decided.text());
    let logs = node.run("logs shop").stdout();
    let mut lines: Vec<&str> = logs.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["shop-web-1  | web is green", "shop-web-2  | web is green"]);
    expect![[r#"
        exit 0
        --- stdout
        green
    "#]]
    .assert_eq(&node.said("exec shop/web -- printenv COLOUR"));
    expect![[r#"
        exit 1
        --- stderr
        cat: nothing: No such file or directory
    "#]]
    .assert_eq(&node.said("exec shop-web-2 cat nothing"));

    fs::write(node.path("compose.yaml"), SHOP.replace("green", "blue")).unwrap();
    expect![[r#"
        exit 0
        --- stdout
        shop would become revision 2
        ~ web  (containers will be recreated)
            ~ environment.COLOUR: (hidden) → (hidden, changed)

        MOVED       ROUND  FROM  TO   CAUSE     HOW
        shop-web-1      1  ash   ash  outdated  start-first
        shop-web-2      2  ash   ash  outdated  start-first

        0 placed, 2 moved, 0 stay, 0 unplaced
        every service keeps its full count
        --- stderr
        note: ash isolates less than containers do; `plimsoll get nodes -o yaml` says what
    "#]]
    .assert_eq(&node.said("apply --dry-run"));
    let applied = node.run("apply");
    assert_eq!(timeless(&applied.stdout()), "shop revision 2 is steady: 2 replicas in 0s\n");
    assert!(node.run("logs web-1").stdout().ends_with("web is blue\n"));

    let scaled = node.run("scale shop web=3");
    assert_eq!(timeless(&scaled.stdout()), "shop revision 3 is steady: 3 replicas in 0s\n");
    let back = node.run("rollback shop --to 1");
    assert_eq!(timeless(&back.stdout()), "shop revision 4 is steady: 2 replicas in 0s\n");
    let restarted = node.run("restart shop-web-1");
    assert_eq!(timeless(&restarted.stdout()), "shop revision 4 is steady: 2 replicas in 0s\n");
    expect![[r#"
        exit 0
        --- stdout
        REVISION  AGE  BY         CHANGES
               4 0s  me  web environment.COLOUR: (hidden) → (hidden, changed), replicas: 3 → 2 (current)
               3 0s  me  web replicas: 2 → 3
               2 0s  me  web environment.COLOUR: (hidden) → (hidden, changed)
               1 0s  me  +web
    "#]].assert_eq(&node.said("history shop"));
    assert_eq!(
        timeless(&node.run("delete shop").stdout()),
        "shop deleted: 2 replicas stopped in 0s\n"
    );
    expect![[r#"
        exit 0
        --- stdout
        cell demo: ash leads, 1 node ready

        Nothing is deployed. Begin with: plimsoll apply -f compose.yaml
    "#]]
    .assert_eq(&node.said("status"));
}

#[test]
fn a_second_daemon_is_refused() {
    let node = Node::up();
    let here = node.dir.path().canonicalize().unwrap();
    let said = |args: &str| node.run(args).text().replace(here.to_str().unwrap(), "/here");
    expect![[r#"
        exit 1
        --- stderr
        error: /here/node/store is in use by another plimsoll; stop that one, or choose another data directory
    "#]].assert_eq(&said("up --data-dir node --socket other.sock"));
    expect![[r#"
        exit 1
        --- stderr
        error: /here/node belongs to node ash, not to birch; leave out --name, or choose another --data-dir
    "#]].assert_eq(&said("up --data-dir node --name birch"));
    expect![[r#"
        exit 1
        --- stderr
        error: /here/node belongs to cell demo, not to other; choose another data directory
    "#]]
    .assert_eq(&said("up --data-dir node --cell other"));
    assert_eq!(node.run("status").code(), 0, "the first goes on");
}

#[test]
fn what_does_not_get_there_says_why() {
    let node = Node::up();
    let file =
        "name: bad\nservices: {crash: {image: any, command: [sh, -c, 'echo boom; exit 3']}}\n";
    fs::write(node.path("compose.yaml"), file).unwrap();
    let applied = node.run("apply");
    let reasons = applied.stderr();
    let reasons = &reasons[reasons.find("error:").unwrap()..];
    expect![[r#"
        error: bad revision 1 is stuck: 0 of 1 replicas are ready
          bad-crash-1  restart_exhausted  it failed 3 times in a row; the last time it exited with status 3
        hint: `plimsoll logs bad-crash-1` shows why; applying again, also the same file, retries
    "#]].assert_eq(reasons);
    assert_eq!(applied.code(), 1);
}

#[test]
fn a_daemon_that_stops_leaves_its_replicas_and_takes_them_over_again() {
    let mut node = Node::up();
    fs::write(node.path("compose.yaml"), SHOP).unwrap();
    assert_eq!(node.run("apply").code(), 0);
    let before = node.run("get replicas -o json").stdout();

    let said = node.down();
    assert_eq!(
        said.lines().last().unwrap(),
        "stopping; replicas keep running, the next `plimsoll up` adopts them"
    );
    assert_eq!(node.run("status").code(), 2);
    let saved = node.run("backup cell.backup --data-dir node");
    assert!(
        saved.stdout().starts_with("cell.backup holds cell demo as of entry "),
        "{}",
        saved.text()
    );
    let refused = node.run("restore cell.backup --data-dir again");
    assert_eq!(refused.code(), 1, "{}", refused.text());
    assert!(refused.stderr().contains("and no key is given"), "{}", refused.text());
    assert!(refused.stderr().contains("hint: give the key with --key-file"), "{}", refused.text());
    assert!(!node.path("again").exists(), "nothing is begun");
    let key = node.run("cell backup-key --data-dir node");
    assert_eq!(key.code(), 0, "{}", key.text());
    fs::write(node.path("backup.key"), key.stdout()).unwrap();
    let restored = node.run("restore cell.backup --key-file backup.key --data-dir again");
    assert!(
        restored.stdout().starts_with("again holds cell demo as of entry "),
        "{}",
        restored.text()
    );

    node.daemon = start(node.dir.path());
    let generations = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.contains("\"generation\""));
        lines.map(|line| line.trim().to_owned()).collect()
    };
    let after = node.run("get replicas -o json").stdout();
    assert_eq!(generations(&after), generations(&before), "nothing was started anew");
    assert_eq!(node.run("apply").code(), 0);
    assert_eq!(node.run("logs shop-web-1").stdout(), "web is green\n");
}

#[test]
fn a_node_with_a_store_that_does_not_know_who_it_is_does_not_become_another() {
    let mut node = Node::up();
    node.down();
    let (file, away) = (node.path("node/node.json"), node.path("node.json"));
    fs::rename(&file, &away).unwrap();
    let said = run_in(node.dir.path(), "up --data-dir node --runtime process", "", &[]);
    assert!(said.code() != 0, "{}", said.text());
    assert!(said.stderr().contains("node.json is missing, and"), "{}", said.text());
    assert!(said.stderr().contains("Put it back"), "with the next step: {}", said.text());
    assert!(!file.exists(), "and nothing is made up in its place");
    fs::rename(&away, &file).unwrap();
    node.daemon = start(node.dir.path());
}
