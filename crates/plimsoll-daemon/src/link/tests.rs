use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_model::testkit::{cpus, node_id, replica_id, spread};
use plimsoll_model::{
    Change, ClusterId, DeploymentName, Generation, MoveCause, NodeId, ObservedState, ReplicaId,
    ServiceName, Writer,
};
use plimsoll_runtime::FakeRuntime;
use plimsoll_store::embedded::{Config, Founding};
use plimsoll_store::{Embedded, ServerId};
use tempfile::TempDir;
use tokio::time::timeout;

use super::frame::{Down, Frames, Report, Seen, Up, VERSION, encode};
use super::*;
use crate::cluster::servers::{Roll, Servers};
use crate::routing::chart::{Chart, Correction};
use crate::soft::{ReplicaFact, Soft};

/// The leader of a cell of two: `ash` leads, and a replica is on `birch`.
struct Bench {
    host: Host,
    _dir: TempDir,
}

const WEB: &str = "shop/web/1";

async fn bench() -> Bench {
    let (dir, cluster) = (TempDir::new().unwrap(), ClusterId::new("test").unwrap());
    let peer = Peer { name: "ash".to_owned(), address: "ash:7117".to_owned() };
    let config = Config { peer, ..Config::alone(dir.path(), cluster.clone()) };
    let engine = Embedded::start(config).await.unwrap();
    let runtime = Arc::new(FakeRuntime::new(cluster));
    let cell = Cell {
        engine,
        runtime,
        node: node_id("ash"),
        soft: Arc::default(),
        servers: Arc::default(),
    };
    let service = (ServiceName::new("web").unwrap(), Arc::new(spread(2)));
    let place = |id: &str, node: &str| Change::Place {
        replica: replica_id(id),
        node: node_id(node),
        spec: spread(2).hash,
    };
    for change in [
        Change::PutNode { node: node_id("ash"), facts: cpus(4) },
        Change::PutNode { node: node_id("birch"), facts: cpus(4) },
        Change::Deploy {
            deployment: DeploymentName::new("shop").unwrap(),
            services: [service].into(),
            routes: Vec::new(),
        },
        place(WEB, "birch"),
        place("shop/web/2", "ash"),
    ] {
        cell.write(Writer::Scheduler, "test", vec![change.free()]).await.unwrap();
    }
    let dispatch = Dispatch::start(Arc::clone(cell.engine.machine()));
    Bench { host: Host { cell, dispatch }, _dir: dir }
}

fn pipes() -> (Pipe, Pipe) {
    let (up, from_node) = mpsc::channel(PIECES_AHEAD);
    let (down, from_leader) = mpsc::channel(PIECES_AHEAD);
    (Pipe { to: up, from: from_leader }, Pipe { to: down, from: from_node })
}

fn seen(replica: &str, generation: u64, state: ObservedState) -> Report {
    let (replica, generation) = (replica_id(replica), Generation(generation));
    Report::Seen(Seen { replica, generation, state, code: None })
}

impl Bench {
    fn state_of(&self, id: &str) -> Option<ObservedState> {
        let id: ReplicaId = replica_id(id);
        self.host.cell.engine.machine().read(|state| {
            let replica = state.replica(&id)?;
            let assignment = replica.assignment.as_ref()?;
            Some(replica.observation(assignment)?.state)
        })
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let mut applied = self.host.cell.engine.machine().applied();
        let wait = async {
            while !is_so(self) {
                let _ = timeout(Duration::from_millis(20), applied.changed()).await;
            }
        };
        timeout(Duration::from_secs(20), wait).await.unwrap_or_else(|_| panic!("never {what}"));
    }

    /// How the leader takes these words.
    async fn greeted(&self, caller: &str, words: &[Up]) -> Result<(), Refused> {
        let (node, leader) = pipes();
        for word in words {
            node.to.send(encode(word)).await.unwrap();
        }
        drop(node.to);
        self.host.serve(&node_id(caller), None, leader).await
    }
}

fn hello(node: &str, seen: u64) -> Up {
    let facts = Box::new(cpus(4));
    Up::Hello { version: VERSION, node: node_id(node), seen: Term(seen), facts }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_elsewhere_gets_its_orders_and_is_heard() {
    let bench = bench().await;
    let (node, leader) = pipes();
    let host = bench.host.clone();
    tokio::spawn(async move { host.serve(&node_id("birch"), None, leader).await });

    let birch =
        Cell { node: node_id("birch"), soft: Arc::new(Soft::default()), ..bench.host.cell.clone() };
    let (orders, mut told) = mpsc::channel(1);
    let (reports, inbox) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let (mut fence, mut outbox) = (Fence::in_memory(), Outbox::new(inbox));
        guest::attend(&birch, &cpus(4), node, &mut fence, &orders, &mut outbox).await
    });
    let Some(Telling::All(all)) = told.recv().await else { panic!("all comes first") };
    assert_eq!(all.keys().cloned().collect::<Vec<_>>(), [replica_id(WEB)], "its own and no more");
    reports.send(seen(WEB, 1, ObservedState::Starting)).unwrap();
    reports.send(seen(WEB, 1, ObservedState::Running)).unwrap();
    bench.until("written", |bench| bench.state_of(WEB) == Some(ObservedState::Running)).await;
    let is_heard = |bench: &Bench| {
        let facts = bench.host.cell.soft.facts();
        facts.nodes.get(&node_id("birch")).is_some_and(|fact| fact.heard_at.is_some())
    };
    bench.until("heard", is_heard).await;
}

fn chart(address: &str) -> Chart {
    Chart { nodes: [(node_id("ash"), address.to_owned())].into(), ..Chart::default() }
}

/// The next word on the chart.
async fn corrected(node: &mut Pipe, frames: &mut Frames) -> Correction {
    loop {
        let word = host::next::<Down>(&mut node.from, frames).await.unwrap();
        if let Down::Chart { correction, .. } = word.expect("the leader goes on") {
            return correction;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_the_log_is_told_what_routers_go_by_and_what_changes_of_it() {
    let bench = bench().await;
    let leader_knows = |chart| bench.host.cell.soft.chart_is(chart);
    leader_knows(chart("one:7117"));
    let (mut node, leader) = pipes();
    node.to.send(encode(&hello("birch", 0))).await.unwrap();
    let host = bench.host.clone();
    tokio::spawn(async move { host.serve(&node_id("birch"), None, leader).await });

    let (mut frames, soft) = (Frames::default(), Soft::default());
    let first = corrected(&mut node, &mut frames).await;
    assert!(first.is_whole);
    soft.correct_chart(first);
    assert_eq!(soft.chart().as_deref(), Some(&chart("one:7117")));
    let begun = std::time::Instant::now();
    leader_knows(Chart::default());
    leader_knows(chart("two:7117"));
    let second = corrected(&mut node, &mut frames).await;
    assert!(!second.is_whole, "{second:?}");
    assert!(begun.elapsed() < HEARTBEAT, "at once, not with a heartbeat");
    soft.correct_chart(second);
    assert_eq!(soft.chart().as_deref(), Some(&chart("two:7117")), "what came between is gathered");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_holds_the_log_draws_its_own_chart() {
    let bench = bench().await;
    bench.host.cell.soft.chart_is(chart("one:7117"));
    let (mut node, leader) = pipes();
    node.to.send(encode(&hello("ash", 0))).await.unwrap();
    let host = bench.host.clone();
    tokio::spawn(async move { host.serve(&node_id("ash"), None, leader).await });
    let mut frames = Frames::default();
    let told = timeout(Duration::from_millis(500), corrected(&mut node, &mut frames)).await;
    assert!(told.is_err(), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_speaks_of_its_own_containers_only() {
    let bench = bench().await;
    let words = [
        hello("birch", 0),
        Up::Reports { seq: 1, reports: vec![seen("shop/web/2", 2, ObservedState::Running)] },
        Up::Reports { seq: 2, reports: vec![seen(WEB, 1, ObservedState::Running)] },
    ];
    bench.greeted("birch", &words).await.unwrap();
    assert_eq!(bench.state_of("shop/web/2"), None);
    assert_eq!(bench.state_of(WEB), Some(ObservedState::Running));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_beat_changes_nothing_of_what_another_node_has() {
    let bench = bench().await;
    let cell = &bench.host.cell;
    let (replica, node, spec) = (replica_id(WEB), node_id("ash"), spread(2).hash);
    let moved = Change::Succeed { replica, node, spec, cause: MoveCause::Misplaced };
    cell.write(Writer::Scheduler, "test", vec![moved.free()]).await.unwrap();
    let (birchs, ours) = ((replica_id(WEB), Generation(1)), (replica_id(WEB), Generation(3)));
    let address = Some("10.0.0.1".parse().unwrap());
    cell.soft.reach(ours.0.clone(), ours.1, address);
    // Birch has led before, and knows of our container from when it was not reached yet.
    let replicas = [&birchs, &ours].map(|key| (key.clone(), ReplicaFact::default())).to_vec();
    let beat = Up::Beat { fact: Box::default(), measured: None, replicas };
    bench.greeted("birch", &[hello("birch", 0), beat]).await.unwrap();
    let facts = cell.soft.facts();
    assert!(facts.replicas.contains_key(&birchs), "of its own it is believed");
    assert_eq!(facts.replicas[&ours].address, address);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_who_it_says_or_knows_better_is_refused() {
    let bench = bench().await;
    let said = |result: Result<(), Refused>| result.unwrap_err().to_string();
    assert_eq!(
        said(bench.greeted("birch", &[hello("ash", 0)]).await),
        "ash speaks for birch's certificate"
    );
    assert_eq!(
        said(bench.greeted("birch", &[hello("birch", 99)]).await),
        "birch has seen term 99, this leader is of term 1"
    );
    let (node, seen, facts) = (node_id("birch"), Term(0), Box::new(cpus(4)));
    let newer = Up::Hello { version: VERSION + 1, node, seen, facts };
    assert!(said(bench.greeted("birch", &[newer]).await).contains("run the same plimsoll on both"));
    assert_eq!(said(bench.greeted("birch", &[]).await), "it did not say who it is");
}

#[tokio::test]
async fn orders_of_a_deposed_leader_are_refused() {
    let bench = bench().await;
    let birch: NodeId = node_id("birch");
    let cell = Cell { node: birch, ..bench.host.cell.clone() };
    let (node, leader) = pipes();
    let (orders, mut told) = mpsc::channel(4);
    let (_reports, inbox) = mpsc::unbounded_channel();
    let attending = tokio::spawn(async move {
        let (mut fence, mut outbox) = (Fence::in_memory(), Outbox::new(inbox));
        guest::attend(&cell, &cpus(4), node, &mut fence, &orders, &mut outbox).await
    });
    for term in [7, 6] {
        let telling = Telling::All(std::collections::BTreeMap::new());
        leader.to.send(encode(&Down::Orders { term: Term(term), telling })).await.unwrap();
    }
    assert!(attending.await.unwrap().is_err(), "it hangs up");
    assert!(told.recv().await.is_some() && told.recv().await.is_none(), "one was heeded");
}

#[tokio::test(start_paused = true)]
async fn what_was_not_acknowledged_goes_to_the_next_leader_and_what_is_newer_stands() {
    let (reports, inbox) = mpsc::unbounded_channel();
    let mut outbox = Outbox::new(inbox);
    reports.send(seen(WEB, 1, ObservedState::Starting)).unwrap();
    reports.send(seen("shop/web/2", 2, ObservedState::Starting)).unwrap();
    let (first, sent) = outbox.next().await;
    assert_eq!(sent.len(), 2);
    reports.send(seen(WEB, 1, ObservedState::Running)).unwrap();
    let early = timeout(Duration::from_secs(9), outbox.next()).await;
    assert!(early.is_err(), "one batch at a time");
    outbox.resend();
    let (second, sent) = outbox.next().await;
    let state = |report: &Report| match report {
        Report::Seen(seen) => seen.state,
        Report::Cleared(cleared) => panic!("nothing was to go: {cleared:?}"),
    };
    let states: Vec<_> = sent.iter().map(state).collect();
    assert_eq!(states, [ObservedState::Running, ObservedState::Starting]);
    outbox.written(first);
    assert!(
        timeout(Duration::from_secs(9), outbox.next()).await.is_err(),
        "a late word is not for it"
    );
    outbox.written(second);
    reports.send(seen(WEB, 1, ObservedState::Failed)).unwrap();
    assert_eq!(outbox.next().await.1.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_ends_the_link_and_nothing_else() {
    let bench = bench().await;
    let (node, leader) = pipes();
    node.to.send(encode(&hello("birch", 0))).await.unwrap();
    node.to.send(vec![255; 64]).await.unwrap();
    let ended = bench.host.serve(&node_id("birch"), None, leader).await;
    assert!(matches!(ended, Err(Refused::Io(_))), "{ended:?}");
    let mut frames = Frames::default();
    frames.push(&encode(&Down::Written { seq: 1 }));
    assert!(frames.take::<Down>().unwrap().is_some());
}

/// A leader that holds this node for too old, until it does not.
#[derive(Debug)]
struct Strict {
    problem: Problem,
    is_upgraded: Arc<AtomicBool>,
    leader: Mutex<Vec<Pipe>>,
}

impl Connect for Strict {
    fn open<'a>(&'a self, _: &'a Peer) -> BoxFuture<'a, Result<Pipe, Unopened>> {
        Box::pin(async {
            if !self.is_upgraded.load(Ordering::Relaxed) {
                return Err(Unopened::Outdated(Box::new(self.problem.clone())));
            }
            let (node, leader) = pipes();
            self.leader.lock().unwrap().push(leader);
            Ok(node)
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_turned_away_as_too_old_knows_why_until_it_has_a_link() {
    let bench = bench().await;
    // A node without the log, which knows a server by its word alone.
    let dir = TempDir::new().unwrap();
    let joining = Config {
        server: ServerId(9),
        founding: Founding::Join,
        ..Config::alone(dir.path(), ClusterId::new("test").unwrap())
    };
    let leader = Peer { name: "ash".to_owned(), address: "127.0.0.1:9".to_owned() };
    let cell = Cell {
        engine: Embedded::start(joining).await.unwrap(),
        node: node_id("birch"),
        soft: Arc::new(Soft::default()),
        servers: Arc::new(Servers::default()),
        ..bench.host.cell.clone()
    };
    cell.servers.begin_with(Roll { since: 1, servers: vec![leader] });
    let problem = Problem::refusal("outdated", "this node is old").hint("install another");
    let is_upgraded = Arc::new(AtomicBool::new(false));
    let strict = Strict {
        problem: problem.clone(),
        is_upgraded: Arc::clone(&is_upgraded),
        leader: Mutex::default(),
    };
    let (orders, _told) = mpsc::channel(1);
    let (_reports, reports) = mpsc::unbounded_channel();
    let (_stop, shutdown) = watch::channel(false);
    let ends = Ends { orders, reports, facts: cpus(4), key: None };
    let dispatch = Arc::clone(&bench.host.dispatch);
    let linked = run(cell.clone(), dispatch, Arc::new(strict), Fence::in_memory(), ends, shutdown);
    tokio::spawn(linked);
    let told = || cell.soft.facts().outdated.clone();
    bench.until("told why", |_| told() == Some(problem.clone())).await;
    is_upgraded.store(true, Ordering::Relaxed);
    bench.until("forgotten", |_| told().is_none()).await;
}
