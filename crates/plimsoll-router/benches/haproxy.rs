//! The router beside `HAProxy`: the same upstream, the same load, one core each, in turns. Rates differ from machine to
//! machine and from minute to minute; the ratios, taken in the same run, tell what the router costs.
//!
//! `cargo bench -p plimsoll-router`; with `-- --write` the table goes into docs/reference/performance.md as well. Needs `haproxy`, `wrk` and `taskset` (Debian: haproxy, wrk, util-linux) and two cores.

use std::fmt::Write as _;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_router::{
    HttpListenerKind, MemberState, NoTunnel, PoolKey, PoolMember, RouteConfig, RouteTls, Router,
    RouterConfig, RouterLimits, RouterStage, UpstreamTarget,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Where the load and the upstream run, and where what is measured does.
const LOAD_CORE: &str = "0";
const PROXY_CORE: &str = "1";

/// Where all of them listen: on addresses that no other run has.
#[derive(Debug, Clone, Copy)]
struct Places {
    upstream: SocketAddr,
    router: SocketAddr,
    haproxy: SocketAddr,
}

impl Places {
    /// Of the run with this process id.
    fn of(run: u32) -> Self {
        let [_, a, b, c] = run.to_be_bytes();
        let at = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 128 + a, b, c)), port);
        Self { upstream: at(18_080), router: at(18_081), haproxy: at(18_082) }
    }
}

/// How often the two take turns, and for how long each.
const TURNS: usize = 7;
const SECONDS: u64 = 4;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let run = words.get(1).and_then(|run| run.parse().ok()).unwrap_or_else(std::process::id);
    let places = Places::of(run);
    match words.first().map(String::as_str) {
        Some("be-upstream") => alone(upstream(places)),
        Some("be-router") => alone(router(places)),
        _ if words.iter().any(|word| word == "--bench") => {
            measure(places, words.iter().any(|word| word == "--write"));
        }
        // `cargo test --benches` asks benchmarks to show that they run, not how fast: the tests do that.
        _ => {}
    }
}

fn alone(task: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(task);
}

/// Answers whatever is asked with as many bytes as the path says, and with as little work as can be.
async fn upstream(places: Places) {
    let listener = TcpListener::bind(places.upstream).await.expect("the address is free");
    while let Ok((mut stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        tokio::spawn(async move {
            let (mut space, mut length) = (vec![0; 16 << 10], 0);
            let (mut line, mut answer) = (Vec::new(), Vec::new());
            loop {
                match stream.read(&mut space[length..]).await {
                    Ok(0) | Err(_) => return,
                    Ok(count) => length += count,
                }
                if !space[..length].ends_with(b"\r\n\r\n") {
                    continue;
                }
                if line.is_empty() || !space[..length].starts_with(&line) {
                    (line, answer) = answer_to(&space[..length]);
                }
                length = 0;
                if stream.write_all(&answer).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// The request line, and the answer to it.
fn answer_to(head: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let head = String::from_utf8_lossy(head);
    let line = head.lines().next().expect("a request has a line");
    let path = head.split(' ').nth(1).expect("a request has a path");
    let size: usize = path.trim_start_matches('/').parse().expect("the path is a number");
    let mut answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nserver: bench\r\ncontent-length: {size}\r\n\r\n"
    )
    .into_bytes();
    answer.resize(answer.len() + size, b'x');
    (line.as_bytes().to_vec(), answer)
}

async fn router(places: Places) {
    let router = Router::new(RouterLimits::default(), Arc::new(NoTunnel));
    let pool = PoolKey::new("shop/web", 80);
    let member = PoolMember {
        replica: "shop-web-1".into(),
        generation: 1,
        target: UpstreamTarget::Local(places.upstream),
        state: MemberState::Ready,
        proxied: Arc::default(),
    };
    let route = RouteConfig {
        host: None,
        path: "/".to_owned(),
        strip_path: false,
        pool: pool.clone(),
        tls: RouteTls::Off,
    };
    let wanted = RouterConfig {
        pools: [(pool, [member].into())].into(),
        routes: vec![route],
        ..RouterConfig::default()
    };
    router.update(&wanted);
    let listener = plimsoll_router::bind(places.router).expect("the address is free");
    let (_stage, stage) = watch::channel(RouterStage::Open);
    router.serve(listener, HttpListenerKind::Plain { https_port: None }, stage).await;
}

/// A process that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(core: &str, words: &[&str], listens: SocketAddr) -> Self {
        let child = Command::new("taskset").args(["-c", core]).args(words).spawn();
        let child = Self(child.expect("taskset (util-linux) is there"));
        for _ in 0..500 {
            if TcpStream::connect(listens).is_ok() {
                return child;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("nobody listens on {listens}");
    }

    /// Processor time it has used so far, in seconds.
    fn used(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).expect("it runs");
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let ticks: u32 = fields[11..13].iter().filter_map(|ticks| ticks.parse::<u32>().ok()).sum();
        #[expect(clippy::cast_precision_loss, reason = "a hundred ticks a second")]
        let per_second = rustix::param::clock_ticks_per_second() as f64;
        f64::from(ticks) / per_second
    }
}

fn haproxy(places: Places) -> Running {
    let Places { upstream, haproxy, .. } = places;
    let config = format!(
        "global\n  nbthread 1\n  maxconn 4096\ndefaults\n  mode http\n  timeout connect 1s\n  timeout client 60s\n  \
         timeout server 60s\n  timeout http-request 10s\n  http-reuse always\n  option forwardfor\nfrontend f\n  bind {haproxy}\n  \
         http-request set-header X-Forwarded-Proto http\n  http-request set-header X-Forwarded-Host %[req.hdr(host)]\n  \
         default_backend b\nbackend b\n  balance leastconn\n  server s {upstream}\n"
    );
    let path = std::env::temp_dir().join(format!("plimsoll-haproxy-{}.cfg", std::process::id()));
    std::fs::write(&path, config).expect("a temporary file");
    let running = Running::start(
        PROXY_CORE,
        &["haproxy", "-db", "-q", "-f", path.to_str().expect("a plain path")],
        haproxy,
    );
    let _ = std::fs::remove_file(path);
    running
}

/// What one run of `wrk` saw.
#[derive(Debug, Clone, Copy)]
struct Seen {
    rate: f64,
    p50_us: f64,
    p99_us: f64,
    /// Processor time of the proxy for one request, in microseconds.
    cost_us: f64,
}

fn load(to: SocketAddr, case: &Case, proxy: Option<&Running>) -> Seen {
    let before = proxy.map_or(0.0, Running::used);
    let (connections, duration) = (case.connections.to_string(), format!("{SECONDS}s"));
    let address = format!("http://{to}/{}", case.size);
    let mut words = vec!["-c", LOAD_CORE, "wrk", "--latency", "-t", "1", "-c", &connections];
    words.extend(["-d", &duration]);
    if case.closes {
        words.extend(["-H", "Connection: close"]);
    }
    words.push(&address);
    let mut wrk = Command::new("taskset").args(words).stdout(Stdio::piped()).spawn().expect("wrk");
    let mut text = String::new();
    wrk.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
    wrk.wait().expect("it ends");
    assert!(!text.contains("Non-2xx"), "{text}");
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} in {text}")).trim().to_owned()
    };
    let rate: f64 = number("Requests/sec:").parse().expect("a number");
    let used = proxy.map_or(0.0, Running::used) - before;
    #[expect(clippy::cast_precision_loss, reason = "seconds")]
    let cost_us = used * 1e6 / (rate * SECONDS as f64);
    Seen { rate, p50_us: micros(&number("50%")), p99_us: micros(&number("99%")), cost_us }
}

/// `1.25ms` in microseconds.
fn micros(text: &str) -> f64 {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_alphabetic()).expect("a unit"));
    let factor = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        unit => panic!("{unit} is no unit of time"),
    };
    number.parse::<f64>().expect("a number") * factor
}

/// A load, and what is promised of it: the ratio of the rates, and of the 99th percentiles.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    connections: u32,
    size: usize,
    closes: bool,
    promises: (&'static str, &'static str),
}

const PROMISED: (&str, &str) = ("≥ 0.8", "≤ 1.5");

const CASES: [Case; 4] = [
    Case {
        name: "1 KiB on 64 connections",
        connections: 64,
        size: 1 << 10,
        closes: false,
        promises: PROMISED,
    },
    Case {
        name: "1 KiB on 512 connections",
        connections: 512,
        size: 1 << 10,
        closes: false,
        promises: PROMISED,
    },
    Case {
        name: "64 KiB on 64 connections",
        connections: 64,
        size: 64 << 10,
        closes: false,
        promises: PROMISED,
    },
    Case {
        name: "1 KiB, each on a connection of its own",
        connections: 64,
        size: 1 << 10,
        closes: true,
        promises: ("", ""),
    },
];

fn measure(places: Places, writes: bool) {
    for tool in ["haproxy", "wrk", "taskset"] {
        if Command::new(tool)
            .arg("-v")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_err()
        {
            println!("left out: there is no {tool} here");
            return;
        }
    }
    let this = std::env::current_exe().expect("a path");
    let this = this.to_str().expect("a plain path");
    let run = std::process::id().to_string();
    let _upstream = Running::start(LOAD_CORE, &[this, "be-upstream", &run], places.upstream);
    let router = Running::start(PROXY_CORE, &[this, "be-router", &run], places.router);
    let haproxy = haproxy(places);
    let mut table = Table::default();
    for case in &CASES {
        let turns: Vec<(Seen, Seen)> = (0..TURNS)
            .map(|_| {
                let ours = load(places.router, case, Some(&router));
                (ours, load(places.haproxy, case, Some(&haproxy)))
            })
            .collect();
        table.compare(case.name, "requests/s", case.promises.0, &turns, |seen| seen.rate);
        table.compare(case.name, "p50, µs", "", &turns, |seen| seen.p50_us);
        table.compare(case.name, "p99, µs", case.promises.1, &turns, |seen| seen.p99_us);
        table.compare(case.name, "processor, µs a request", "", &turns, |seen| seen.cost_us);
    }
    let one = Case { connections: 1, ..CASES[0] };
    let added: Vec<(f64, f64)> = (0..TURNS)
        .map(|_| {
            let alone = load(places.upstream, &one, None).p50_us;
            let added = |to| load(to, &one, None).p50_us - alone;
            (added(places.router), added(places.haproxy))
        })
        .collect();
    table.added("≤ 200 µs", &added);
    println!("{}", table.0);
    if writes {
        table.write();
    }
}

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/performance.md");
const BEGIN: &str = "<!-- measured router: begin -->";
const END: &str = "<!-- measured router: end -->";

/// What was measured, a row for each number.
struct Table(String);

impl Default for Table {
    fn default() -> Self {
        let head = "| what | promised | router | HAProxy | ratio |\n|---|---|---|---|---|\n";
        Self(head.to_owned())
    }
}

impl Table {
    /// Both medians, and the median of the ratios turn by turn.
    fn compare(
        &mut self,
        case: &str,
        what: &str,
        promise: &str,
        turns: &[(Seen, Seen)],
        of: fn(&Seen) -> f64,
    ) {
        let ours = median(turns.iter().map(|(ours, _)| of(ours)));
        let theirs = median(turns.iter().map(|(_, theirs)| of(theirs)));
        let ratio = median(turns.iter().map(|(ours, theirs)| of(ours) / of(theirs)));
        let (ours, theirs) = (number(ours), number(theirs));
        self.row(&format!("{case}: {what}"), promise, &ours, &theirs, &format!("{ratio:.2}"));
    }

    fn added(&mut self, promise: &str, turns: &[(f64, f64)]) {
        let ours = number(median(turns.iter().map(|(ours, _)| *ours)));
        let theirs = number(median(turns.iter().map(|(_, theirs)| *theirs)));
        self.row("one at a time: added to the upstream's p50, µs", promise, &ours, &theirs, "");
    }

    fn row(&mut self, what: &str, promise: &str, ours: &str, theirs: &str, ratio: &str) {
        writeln!(self.0, "| {what} | {promise} | {ours} | {theirs} | {ratio} |").expect("a string");
    }

    fn write(&self) {
        let page = std::fs::read_to_string(PAGE).expect("the page exists");
        let (head, rest) = page.split_once(BEGIN).expect("the page has a begin mark");
        let (_, tail) = rest.split_once(END).expect("the page has an end mark");
        let text = format!("{head}{BEGIN}\n{}{END}{tail}", self.0);
        std::fs::write(PAGE, text).expect("the page can be written");
        eprintln!("written to docs/reference/performance.md");
    }
}

/// Small numbers with a digit behind the point, large ones without.
fn number(value: f64) -> String {
    if value < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
