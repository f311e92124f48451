//! The numbers plimsoll promises, measured: `cargo bench`. With `-- --write` the tables go into
//! docs/reference/performance.md as well; with names, only those parts run: `cargo bench -- dirty simulating`. The names
//! `decisions`, `node`, `cell`, `moves` and `requests` stand for all parts of a table.
//!
//! Times are the best and the median of several runs in one process; the best is what the code costs, the median
//! what this machine made of it. Parts that need a Docker engine are left out where `PLIMSOLL_TEST_DOCKER` names none;
//! `lab/engine with cargo bench` has one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_kernel::place::Roster;
use plimsoll_kernel::{Policy, Scope, Signals, reconcile};
use plimsoll_model::testkit::{Cell, cell, cpus, node_id, service_key, spread};
use plimsoll_model::{
    Bytes, Change, DeploymentName, Guarded, Millis, Observation, ObservedState, ServiceName,
    ServiceSpec, Writer,
};
use plimsoll_sim::usage::{Shape, Usage};
use plimsoll_sim::{Action, Scenario};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/performance.md");

mod cell;
mod fleet;
mod foretelling;
mod machines;
mod moves;
mod node;
mod relief;
mod requests;
mod rescheduling;

/// One part of a table.
type Part = (&'static str, fn(&mut Table));

const DECISIONS: [Part; 9] = [
    ("placing", placing),
    ("dirty", dirty),
    ("applying", applying),
    ("relieving", relief::relieving),
    ("foretelling", foretelling::foretelling),
    ("rescheduling", rescheduling::rescheduling),
    ("machines", machines::machines),
    ("coordinating", fleet::coordinating),
    ("simulating", simulating),
];

const NODE: [Part; 3] =
    [("status", node::status), ("idle", node::idle), ("starting", node::starting)];

const CELL: [Part; 6] = [
    ("failover", cell::failover),
    ("loss", cell::loss),
    ("commits", cell::commits),
    ("wire", cell::wire),
    ("agents", cell::agents),
    ("deleting", cell::deleting),
];

const MOVES: [Part; 2] = [("update", moves::update), ("drain", moves::drain)];

const REQUESTS: [Part; 4] = [
    ("served", requests::served),
    ("relieved", requests::relieved),
    ("unwell", requests::unwell),
    ("charting", requests::charting),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some((word, words)) = args.split_first()
        && let Some(be) = cell::other(word)
    {
        return be(words);
    }
    let write = args.iter().any(|arg| arg == "--write");
    let named: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let groups: [(&str, &[Part]); 5] = [
        ("decisions", &DECISIONS),
        ("node", &NODE),
        ("cell", &CELL),
        ("moves", &MOVES),
        ("requests", &REQUESTS),
    ];
    for (group, parts) in groups {
        let mut table = Table::default();
        let is_meant = |name: &str| named.iter().any(|asked| *asked == name);
        for (name, part) in parts {
            if named.is_empty() || is_meant(group) || is_meant(name) {
                part(&mut table);
            }
        }
        if table.0.is_empty() {
            continue;
        }
        println!("{}", table.text());
        if write {
            table.write(group);
        }
    }
}

/// From empty: 1 000 services of 100 replicas each on 10 000 nodes in three zones.
fn placing(table: &mut Table) {
    let cell = unplaced(10_000, 1_000, 100);
    let policy = Policy::default();
    let mut roster = Roster::new(&cell.state, &Signals::default(), &policy);
    let mut placed = 0;
    let times = sample(9, || {
        let decision = reconcile(&cell.state, &mut roster, &policy, Scope::All, cell.now);
        placed = decision.batch.len();
        black_box(decision);
    });
    assert_eq!(placed, 100_000);
    let rate = |time: Duration| format!("{:.0} placements/s", 100_000.0 / time.as_secs_f64());
    table.row(
        "from empty, 10k nodes, 100k replicas",
        "≥ 500 000 placements/s",
        rate(times[0]),
        rate(median(&times)),
    );

    let times =
        sample(9, || drop(black_box(Roster::new(&cell.state, &Signals::default(), &policy))));
    table.time("the roster of 10k nodes made anew (a node joined)", "", &times);

    let cell = settled(cell);
    let mut roster = Roster::new(&cell.state, &Signals::default(), &policy);
    let times = sample(15, || {
        let decision = reconcile(&cell.state, &mut roster, &policy, Scope::All, cell.now);
        assert!(decision.batch.is_empty());
    });
    table.time("full pass with nothing to do, 10k nodes, 100k replicas", "≤ 50 ms", &times);
}

/// One service is scaled up by one, in cells of growing size with ten replicas a node.
fn dirty(table: &mut Table) {
    for (nodes, services) in [(1_000, 100), (10_000, 1_000), (100_000, 10_000)] {
        let cell = settled(unplaced(nodes, services, 100));
        let policy = Policy::default();
        let cell = cell.deploy("d0", [("s", spec(101))]);
        let mut roster = Roster::new(&cell.state, &Signals::default(), &policy);
        let only = BTreeSet::from([service_key("d0/s")]);
        let times = sample(2_001, || {
            let scope = Scope::Services(&only);
            let decision = reconcile(&cell.state, &mut roster, &policy, scope, cell.now);
            assert_eq!(decision.batch.len(), 1);
        });
        let promise = if nodes == 10_000 { "≤ 100 µs" } else { "" };
        table.time(
            &format!("one dirty service of 100 replicas, {}k nodes", nodes / 1_000),
            promise,
            &times,
        );
    }
}

fn applying(table: &mut Table) {
    let cell = unplaced(10_000, 1_000, 100);
    let policy = Policy::default();
    let mut roster = Roster::new(&cell.state, &Signals::default(), &policy);
    let batch = reconcile(&cell.state, &mut roster, &policy, Scope::All, cell.now).batch;
    let changes = batch.len();
    let times = sample_with(
        5,
        || (cell.clone(), batch.clone()),
        |(mut cell, batch)| {
            cell.apply(Writer::Scheduler, batch).expect("a decision can be applied");
        },
    );
    let rate = |time: Duration| format!("{:.0} changes/s", 100_000.0 / time.as_secs_f64());
    assert_eq!(changes, 100_000);
    table.row("apply one batch of 100k placements", "", rate(times[0]), rate(median(&times)));

    let mut placed = cell.clone();
    placed.apply(Writer::Scheduler, batch).expect("a decision can be applied");
    let reports: Vec<Guarded> = reports(&placed, ObservedState::Running);
    let times = sample_with(
        5,
        || (placed.clone(), reports.clone()),
        |(mut cell, reports)| {
            cell.apply(Writer::Agent, reports).expect("reports can be applied");
        },
    );
    table.row("apply one batch of 100k reports", "", rate(times[0]), rate(median(&times)));
}

/// A day of 1 000 nodes and 10 000 replicas in 30 s cycles, with a node lost and returned every hour.
fn simulating(table: &mut Table) {
    let mut scenario = Scenario::new("a day", Millis::minutes(24 * 60));
    for n in 0..1_000 {
        scenario.nodes.insert(node_id(&format!("n{n:05}")), cpus(16).zone(["a", "b", "c"][n % 3]));
    }
    for n in 0..100_u64 {
        let name = DeploymentName::new(format!("d{n}")).expect("a valid name");
        let services =
            BTreeMap::from([(ServiceName::new("s").expect("a valid name"), Arc::new(spec(100)))]);
        scenario.deployments.insert(name, services);
        let cpu = Shape::Wave { low: 50, high: 700, period: Millis::minutes(360 + 10 * n) };
        let usage = Usage { cpu, memory: Shape::Constant(64 << 20) };
        scenario.usage.insert(service_key(&format!("d{n}/s")), usage);
    }
    for hour in 1..23_u64 {
        let node = node_id(&format!("n{:05}", hour * 41));
        scenario.script.push((Millis::minutes(hour * 60), Action::Crash(node.clone())));
        scenario.script.push((Millis::minutes(hour * 60 + 20), Action::Return(node)));
    }
    let times = sample(3, || {
        let outcome = plimsoll_sim::run(&scenario, 1, &mut |_| {});
        assert_eq!(outcome.failure, None);
    });
    table.time(
        "simulate 1k nodes, 10k replicas for 24 h in 30 s cycles, all invariants on",
        "≤ 10 s",
        &times,
    );
}

fn spec(replicas: u32) -> ServiceSpec {
    spread(replicas).reserve(100, 128)
}

/// A cell with everything asked for and nothing placed.
fn unplaced(nodes: usize, services: usize, replicas: u32) -> Cell {
    let mut cell = cell();
    let zones = ["a", "b", "c"];
    let mut batch: Vec<Guarded> = (0..nodes)
        .map(|n| {
            let (node, facts) = (node_id(&format!("n{n:06}")), cpus(16).zone(zones[n % 3]));
            Change::PutNode { node, facts }.free()
        })
        .collect();
    for n in 0..services {
        let deployment = DeploymentName::new(format!("d{n}")).expect("a valid name");
        let services = BTreeMap::from([(
            ServiceName::new("s").expect("a valid name"),
            Arc::new(spec(replicas)),
        )]);
        batch.push(Change::Deploy { deployment, services, routes: Vec::new() }.free());
    }
    cell.apply(Writer::Operator, batch).expect("a cell can be described");
    cell
}

/// The same cell once everything is placed and runs.
fn settled(mut cell: Cell) -> Cell {
    let policy = Policy::default();
    let mut roster = Roster::new(&cell.state, &Signals::default(), &policy);
    let decision = reconcile(&cell.state, &mut roster, &policy, Scope::All, cell.now);
    cell.apply(Writer::Scheduler, decision.batch).expect("a decision can be applied");
    let reports = reports(&cell, ObservedState::Running);
    cell.apply(Writer::Agent, reports).expect("reports can be applied");
    cell
}

fn reports(cell: &Cell, state: ObservedState) -> Vec<Guarded> {
    let observation = Observation { state, code: None, at: cell.now };
    let of = |(replica, row): (_, &plimsoll_model::Replica)| {
        let generation = row.assignment.as_ref()?.generation;
        Some(Change::Observe { replica, generation, observation: observation.clone() }.free())
    };
    cell.state.replicas().filter_map(of).collect()
}

/// Sorted times of several runs, after one that does not count.
fn sample(runs: usize, mut work: impl FnMut()) -> Vec<Duration> {
    sample_with(runs, || (), |()| work())
}

fn sample_with<T>(runs: usize, prepare: impl Fn() -> T, mut work: impl FnMut(T)) -> Vec<Duration> {
    let mut times: Vec<Duration> = (0..=runs)
        .map(|_| {
            let input = prepare();
            let begun = Instant::now();
            work(input);
            begun.elapsed()
        })
        .skip(1)
        .collect();
    times.sort_unstable();
    times
}

fn median(times: &[Duration]) -> Duration {
    times[times.len() / 2]
}

fn shown(time: Duration) -> String {
    match time.as_secs_f64() {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        s => format!("{:.1} µs", s * 1e6),
    }
}

#[derive(Default)]
struct Table(Vec<[String; 4]>);

impl Table {
    fn time(&mut self, what: &str, promise: &str, times: &[Duration]) {
        self.row(what, promise, shown(times[0]), shown(median(times)));
    }

    fn row(&mut self, what: &str, promise: &str, best: String, median: String) {
        eprintln!("{what}: best {best}, median {median}");
        self.0.push([what.to_owned(), promise.to_owned(), best, median]);
    }

    fn text(&self) -> String {
        let mut text = String::from("| what | promised | best | median |\n|---|---|---|---|\n");
        for [what, promise, best, median] in &self.0 {
            let _ = writeln!(text, "| {what} | {promise} | {best} | {median} |");
        }
        text
    }

    /// Between the marks of its group.
    fn write(&self, group: &str) {
        let page = std::fs::read_to_string(PAGE).expect("the page exists");
        let (begin, end) = (mark(group, "begin"), mark(group, "end"));
        let (head, rest) = page.split_once(&begin).expect("the page has a begin mark");
        let (_, tail) = rest.split_once(&end).expect("the page has an end mark");
        let machine = machine();
        let text = format!("{head}{begin}\n{machine}\n\n{}{end}{tail}", self.text());
        std::fs::write(PAGE, text).expect("the page can be written");
        eprintln!("written to docs/reference/performance.md");
    }
}

fn mark(group: &str, which: &str) -> String {
    format!("<!-- measured {group}: {which} -->")
}

/// What this was measured on.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
        line.split_once([':', '='])
            .map(|(_, v)| v.trim().trim_matches('"').to_owned())
            .unwrap_or_default()
    };
    let cpu = field(&read("/proc/cpuinfo"), "model name");
    let memory = field(&read("/proc/meminfo"), "MemTotal");
    let memory = memory.trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1_024;
    let system = field(&read("/etc/os-release"), "PRETTY_NAME");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("Measured on {cores} cores of {cpu}, {}, {system}.", Bytes(memory))
}
