//! What a command costs the daemon while it waits: it asks for the stack it waits for, however many others there are.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::run::{Ran, binary, run_in};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

const OTHERS: usize = 30;

const SHOP: &str = "
name: shop
services:
  web:
    image: any
    command: [sleep, '1000']
    deploy: {replicas: 2}
";

/// Nothing of it runs, and all of it is told.
fn other(number: usize) -> String {
    let service = "{image: any, command: [sleep, '1'], deploy: {placement: {constraints: [node.labels.at==nowhere]}}}";
    format!("name: other{number}\nservices:\n  web: {service}\n  db: {service}\n  job: {service}\n")
}

/// A question that passed by, and how many bytes its answer has so far.
type Asked = (String, Arc<Mutex<usize>>);

/// A socket in front of the daemon's that counts what passes.
struct Tap {
    socket: PathBuf,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Tap {
    fn before(daemon: PathBuf, socket: PathBuf) -> Self {
        let listener = UnixListener::bind(&socket).unwrap();
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let all = Arc::clone(&asked);
        // It ends with the test's process.
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (daemon, all) = (daemon.clone(), Arc::clone(&all));
                thread::spawn(move || pass(client, &daemon, &all));
            }
        });
        Self { socket, asked }
    }

    /// The questions since the last time, each with the bytes of its answer.
    fn asked(&self) -> Vec<(String, usize)> {
        let asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.into_iter().map(|(line, bytes)| (line, *bytes.lock().unwrap())).collect()
    }
}

/// Every request of the client has a connection of its own.
fn pass(mut client: UnixStream, daemon: &Path, all: &Mutex<Vec<Asked>>) {
    let Ok(mut daemon) = UnixStream::connect(daemon) else { return };
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n") {
        let mut byte = [0];
        if client.read_exact(&mut byte).is_err() {
            return;
        }
        head.extend(byte);
    }
    let line = String::from_utf8_lossy(&head).trim().to_owned();
    let bytes = Arc::new(Mutex::new(0));
    all.lock().unwrap().push((line, Arc::clone(&bytes)));
    let (mut from, mut to) = (client.try_clone().unwrap(), daemon.try_clone().unwrap());
    let up = thread::spawn(move || {
        let _ = to.write_all(&head).and_then(|()| std::io::copy(&mut from, &mut to));
        let _ = to.shutdown(Shutdown::Write);
    });
    let mut buffer = [0; 16 << 10];
    while let Ok(read @ 1..) = daemon.read(&mut buffer) {
        *bytes.lock().unwrap() += read;
        if client.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = (client.shutdown(Shutdown::Both), daemon.shutdown(Shutdown::Both));
    let _ = up.join();
}

struct Node {
    dir: TempDir,
    daemon: Child,
    tap: Tap,
}

impl Node {
    fn up() -> Self {
        // Not below the target directory: the path of a socket must be short.
        let dir = tempfile::tempdir().unwrap();
        let log = fs::File::create(dir.path().join("up.log")).unwrap();
        let daemon = binary()
            .args(["up", "--data-dir", "node", "--runtime", "process"])
            .args(["--name", "ash", "--cell", "demo", "--log-level", "error"])
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while !fs::read_to_string(dir.path().join("up.log")).unwrap().contains("Next: ") {
            assert!(begun.elapsed() < PATIENCE, "the node does not start");
            thread::sleep(Duration::from_millis(20));
        }
        let socket = dir.path().join("node/plimsoll.sock");
        let tap = Tap::before(socket, dir.path().join("tap.sock"));
        Self { dir, daemon, tap }
    }

    fn run(&self, args: &str) -> Ran {
        let host = self.tap.socket.to_str().unwrap();
        run_in(self.dir.path(), args, "", &[("PLIMSOLL_HOST", host)])
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.path().join(name), text).unwrap();
    }

    /// Waits for the stack to come and to go. Returns the bytes of the largest answer to each kind of question.
    fn wait_for_shop(&self) -> (usize, usize) {
        self.tap.asked();
        let applied = self.run("apply");
        assert_eq!(applied.code(), 0, "{}", applied.text());
        let asked = self.tap.asked();
        let largest = |what: &str| {
            let those = asked.iter().filter(|(line, _)| line.starts_with(what));
            those.map(|(_, bytes)| *bytes).max().unwrap_or_else(|| panic!("{what}: {asked:?}"))
        };
        for (line, _) in asked.iter().filter(|(line, _)| line.starts_with("GET ")) {
            assert!(line.contains("deployment=shop"), "it asks for more than the stack: {line}");
        }
        let sizes = (largest("GET /v1/status?"), largest("GET /v1/watch?"));
        let deleted = self.run("delete shop");
        assert_eq!(deleted.code(), 0, "{}", deleted.text());
        let whole =
            self.tap.asked().into_iter().filter(|(line, _)| line.starts_with("GET /v1/status "));
        assert!(whole.count() <= 1, "once, to know that it is there");
        sizes
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.run("delete shop --timeout 20s");
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

#[test]
fn what_a_wait_costs_follows_the_stack_and_not_the_cell() {
    let node = Node::up();
    node.write("compose.yaml", SHOP);
    let (look, watch) = node.wait_for_shop();
    for number in 0..OTHERS {
        node.write("other.yaml", &other(number));
        let applied = node.run("apply -d -f other.yaml");
        assert_eq!(applied.code(), 0, "{}", applied.text());
    }
    let (crowded_look, crowded_watch) = node.wait_for_shop();
    // What is under way at a look differs from run to run; others would make it many times as much.
    assert!(crowded_look < 2 * look, "{look} bytes alone, {crowded_look} in a crowd");
    assert!(crowded_watch < 2 * watch, "{watch} bytes alone, {crowded_watch} in a crowd");
    node.tap.asked();
    node.run("status");
    let whole = node.tap.asked()[0].1;
    assert!(whole > 5 * crowded_look, "the crowd is one: {whole} bytes");
}
