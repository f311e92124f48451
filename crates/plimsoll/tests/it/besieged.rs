//! Clients that mean harm, or only have much to send, at a daemon's door: its memory stays bounded, and whoever else asks
//! is served as before. The replica is a process that only sleeps; whoever listens at its port is this test.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use plimsoll_lab::load::{Aim, LoadClient, LoadProgress, LoadReport, Manner, asked_while};

use tokio::net::TcpSocket;
use tokio::runtime::Runtime;

use crate::harness::{Cell, PATIENCE, Site, loopback};

const HOST: &str = "shop.example";

/// Where those come from who mean harm.
const HARM: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 66, 6, 6)), 0);

/// Who ask all the while as they always do.
const BYSTANDERS: usize = 2;

/// How many of their requests are looked at before anything happens.
const BEFORE: usize = 200;

/// The longest that one of them waits, on a busy machine.
const NOTICED: Duration = Duration::from_secs(2);

/// What the daemon may grow by, whatever is sent to it.
const GROWTH_KIB: u64 = 32 << 10;

const GET: &str = "GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n";

/// A daemon that serves a route.
struct BesiegedNode {
    cell: Cell,
    at: SocketAddr,
    runtime: Runtime,
}

impl BesiegedNode {
    /// Started with so many files, if that is said.
    fn open(files: Option<u32>) -> Self {
        let upstream = upstream();
        let mut cell = Cell::idle(Site::Loopback);
        let at = SocketAddr::new(loopback(0).parse::<SocketAddr>().unwrap().ip(), 8_000);
        cell.setups[0].args = vec!["--http".to_owned(), at.to_string()];
        if let Some(files) = files {
            cell.setups[0].under = vec!["prlimit".to_owned(), format!("--nofile={files}:{files}")];
        }
        cell.up(0, None);
        let file = format!(
            "name: shop\nservices:\n  web:\n    image: any\n    command: [sleep, '1000']\n    \
             healthcheck: {{test: [CMD, 'true'], interval: 1s, start_interval: 100ms, start_period: 10s}}\n\
             x-plimsoll:\n  routes:\n    - {{host: {HOST}, service: web, port: {}}}\n",
            upstream.port()
        );
        std::fs::write(cell.dir.path().join("compose.yaml"), file).unwrap();
        let applied = cell.run(0, "apply -f compose.yaml");
        assert_eq!(applied.code(), 0, "{}", applied.text());
        let door = Self { cell, at, runtime: Runtime::new().unwrap() };
        door.cell.until("the route answers", |_| {
            let mut client = door.connect();
            client.write_all(GET.as_bytes()).unwrap();
            let mut heard = [0; 12];
            client.read_exact(&mut heard).is_ok() && heard == *b"HTTP/1.1 200"
        });
        door
    }

    /// A connection of somebody who means harm: from another address than whoever else asks, as one source has a share of the
    /// connections and can use up no more than that.
    fn connect(&self) -> TcpStream {
        let connected = self.runtime.block_on(async {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(HARM).unwrap();
            socket.connect(self.at).await
        });
        let stream = connected.unwrap().into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// What the daemon has in memory, in KiB.
    fn resident(&self) -> u64 {
        let path = format!("/proc/{}/status", self.cell.daemon(0).pid());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Has something done while others ask, and says how they fared and by how much the daemon grew at most.
    fn besieged(&self, act: impl FnOnce(&LoadProgress)) -> (LoadReport, u64) {
        let aim = Aim { at: self.at, host: HOST.to_owned(), manner: Manner::OneShot };
        let clients = vec![LoadClient { from: None, aim }; BYSTANDERS];
        let is_over = AtomicBool::new(false);
        let (calm, before) = asked_while(&clients, BEFORE, |_| self.resident()).unwrap();
        let (most, during) = thread::scope(|scope| {
            let watching = scope.spawn(|| {
                let mut most = 0;
                while !is_over.load(Relaxed) {
                    most = most.max(self.resident());
                    sleep(Duration::from_millis(5));
                }
                most
            });
            let ended = Ended(&is_over);
            let ((), during) = asked_while(&clients, BEFORE, act).unwrap();
            drop(ended);
            (watching.join().unwrap(), during)
        });
        let grown = most.saturating_sub(calm);
        println!("before: {before}\nduring: {during}\ngrown by {grown} KiB from {calm} KiB");
        (during, grown)
    }

    fn holds(&self, act: impl FnOnce(&LoadProgress)) {
        let (during, grown) = self.besieged(act);
        assert_eq!(during.failed, 0, "{during}\n{}", self.cell.diagnosis());
        assert!(during.worst() < NOTICED, "others wait: {during}");
        assert!(grown < GROWTH_KIB, "grown by {grown} KiB");
    }
}

struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A server on a port of this host that reads what it is sent and says how much that was. It ends with the test.
fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || while answer(&stream).is_some() {});
        }
    });
    at
}

/// One request of a connection; none at its end.
fn answer(mut stream: &TcpStream) -> Option<()> {
    let mut head = Vec::new();
    let mut space = vec![0; 64 << 10];
    let end = loop {
        let count = stream.read(&mut space).ok().filter(|count| *count > 0)?;
        head.extend_from_slice(&space[..count]);
        if let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let text = String::from_utf8_lossy(&head[..end]).to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: u64 = length.map_or(0, |length| length.trim().parse().unwrap());
    let mut received = (head.len() - end) as u64;
    while received < length {
        received += stream.read(&mut space).ok().filter(|count| *count > 0)? as u64;
    }
    let body = format!("{received} bytes");
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(answer.as_bytes()).ok()
}

/// How large a body is; `PLIMSOLL_TEST_BODY_MIB` says otherwise.
fn mebibytes() -> u64 {
    let asked = std::env::var("PLIMSOLL_TEST_BODY_MIB").ok();
    asked.map_or(512, |count| count.parse().unwrap())
}

#[test]
fn a_huge_body_passes_a_daemon_in_bounded_memory_and_nobody_waits_for_it() {
    let door = BesiegedNode::open(None);
    let length = mebibytes() << 20;
    door.holds(|_| {
        let mut client = door.connect();
        let words = format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {length}\r\n\r\n");
        client.write_all(words.as_bytes()).unwrap();
        let chunk = vec![b'x'; 1 << 20];
        for _ in 0..mebibytes() {
            client.write_all(&chunk).unwrap();
        }
        let (mut heard, mut space) = (Vec::new(), [0; 1_024]);
        while !heard.ends_with(b" bytes") {
            let count = client.read(&mut space).unwrap();
            assert!(count > 0, "{}", String::from_utf8_lossy(&heard));
            heard.extend_from_slice(&space[..count]);
        }
        let heard = String::from_utf8(heard).unwrap();
        assert!(heard.ends_with(&format!("{length} bytes")), "{heard}");
    });
}

#[test]
fn heads_that_trickle_in_are_cut_off_and_nobody_waits_for_them() {
    const LORISES: usize = 500;
    let door = BesiegedNode::open(None);
    door.holds(|_| {
        let mut lorises: Vec<TcpStream> = (0..LORISES).map(|_| door.connect()).collect();
        for client in &mut lorises {
            client.write_all(b"GET / HTTP/1.1\r\nHost: shop.example\r\nX-").unwrap();
        }
        let begun = Instant::now();
        while !lorises.is_empty() {
            lorises.retain_mut(|client| client.write_all(b"x").is_ok());
            assert!(begun.elapsed() < PATIENCE, "{} are still there", lorises.len());
            sleep(Duration::from_millis(100));
        }
    });
}

#[test]
fn heads_without_end_are_refused_in_bounded_memory_and_nobody_waits_for_them() {
    const AT_ONCE: usize = 32;
    let door = BesiegedNode::open(None);
    door.holds(|_| {
        for field in ["X-Bomb: ".to_owned() + &"x".repeat(8 << 20), "X: y\r\n".repeat(1 << 20)] {
            thread::scope(|scope| {
                for _ in 0..AT_ONCE {
                    scope.spawn(|| {
                        let mut client = door.connect();
                        client.write_all(b"GET / HTTP/1.1\r\nHost: shop.example\r\n").unwrap();
                        let sent = client.write_all(field.as_bytes());
                        let mut heard = [0; 12];
                        // A reset overtakes the answer if more was on its way.
                        let is_answered = client.read_exact(&mut heard).is_ok();
                        let is_refused = is_answered && heard == *b"HTTP/1.1 431";
                        assert!(is_refused || !is_answered && sent.is_err(), "{heard:?}, {sent:?}");
                    });
                }
            });
        }
    });
}

#[test]
fn more_idle_connections_than_a_daemon_has_files_for_shut_nobody_out() {
    /// What a test may have open itself.
    const HELD: usize = 10_000;
    // More come than there are files for, also where a test may open few itself.
    let asked = std::env::var("PLIMSOLL_TEST_IDLE").ok().map(|count| count.parse().unwrap());
    let (files, count) = asked.map_or((Some(1_500), 3_000), |count: usize| (None, count));
    let door = BesiegedNode::open(files);
    door.holds(|progress| {
        let mut idle = VecDeque::new();
        for _ in 0..count {
            idle.push_front(door.connect());
            idle.truncate(HELD);
        }
        let so_far = progress.answered();
        let begun = Instant::now();
        while progress.answered() < so_far + BEFORE && progress.failed() == 0 {
            assert!(begun.elapsed() < PATIENCE, "{progress:?}");
            sleep(Duration::from_millis(5));
        }
        drop(idle);
    });
}
