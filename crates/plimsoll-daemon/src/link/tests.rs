use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_kernel::Policy;
use plimsoll_model::testkit::{cpus, node_id, replica_id, spread};
use plimsoll_model::{
    CellId, Change, DeploymentName, Generation, MoveCause, NodeId, ObservedCode, ObservedState,
    ReplicaId, ServiceName, Writer,
};
use plimsoll_runtime::FakeRuntime;
use plimsoll_store::embedded::{EmbeddedConfig, Founding};
use plimsoll_store::{Embedded, ServerId};
use tempfile::TempDir;
use tokio::time::timeout;

use super::frame::{Down, Frames, Report, Seen, Up, VERSION, encode};
use super::*;
use crate::dispatcher::{AssignmentReceiver, AssignmentUpdate, slot};
use crate::endpoint_feed::EndpointFeed;
use crate::measurements::{NodeMeasurement, ReplicaMeasurement, SharedMeasurements};
use crate::route_certificates::HttpListeners;
use crate::servers::{ServerList, Servers};
use crate::shared::Shared;
use plimsoll_api::view::ProblemCode;
use plimsoll_kernel::endpoints::{Endpoints, EndpointsUpdate};

mod fuzz;

/// The leader of a cell of two: `ash` leads, and a replica is on `birch`.
struct Bench {
    host: LinkServer,
    _dir: TempDir,
}

const WEB: &str = "shop/web/1";

async fn bench() -> Bench {
    let (dir, cell_id) = (TempDir::new().unwrap(), CellId::new("test").unwrap());
    let peer = Peer { name: "ash".to_owned(), address: "ash:7117".to_owned() };
    let config = EmbeddedConfig { peer, ..EmbeddedConfig::alone(dir.path(), cell_id.clone()) };
    let engine = Embedded::start(config).await.unwrap();
    let runtime = Arc::new(FakeRuntime::new(cell_id));
    let cell = NodeContext::new(engine, runtime, node_id("ash"), Arc::default(), Policy::default());
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
    Bench { host: LinkServer { cell, dispatch }, _dir: dir }
}

fn heartbeat() -> Duration {
    crate::context::span(Policy::default().heartbeat)
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
    let listeners = HttpListeners { http: true, https: true };
    Up::Hello { version: VERSION, node: node_id(node), seen: Term(seen), facts, listeners }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_elsewhere_gets_its_orders_and_is_heard() {
    let bench = bench().await;
    let (node, leader) = pipes();
    let host = bench.host.clone();
    tokio::spawn(async move { host.serve(&node_id("birch"), None, leader).await });

    let birch = NodeContext {
        node: node_id("birch"),
        measurements: SharedMeasurements::default(),
        endpoints: EndpointFeed::default(),
        levels: Shared::default(),
        ..bench.host.cell.clone()
    };
    let (orders, mut told) = slot();
    let (reports, inbox) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let (mut fence, mut outbox) = (Fence::in_memory(), Outbox::new(inbox));
        agent_side::attend(&birch, &cpus(4), node, &mut fence, &orders, &mut outbox).await
    });
    let Some(AssignmentUpdate::All(all)) = told.recv().await else { panic!("all comes first") };
    assert_eq!(all.keys().cloned().collect::<Vec<_>>(), [replica_id(WEB)], "its own and no more");
    reports.send(seen(WEB, 1, ObservedState::Starting)).unwrap();
    reports.send(seen(WEB, 1, ObservedState::Running)).unwrap();
    bench.until("written", |bench| bench.state_of(WEB) == Some(ObservedState::Running)).await;
    let is_heard = |bench: &Bench| {
        let measured = bench.host.cell.measurements.lock();
        measured.nodes.get(&node_id("birch")).is_some_and(|fact| fact.heard_at.is_some())
    };
    bench.until("heard", is_heard).await;
}

fn endpoints(address: &str) -> Endpoints {
    Endpoints { nodes: [(node_id("ash"), address.to_owned())].into(), ..Endpoints::default() }
}

/// The next word on the endpoints.
async fn updated(node: &mut Pipe, frames: &mut Frames) -> EndpointsUpdate {
    loop {
        let word = leader_side::next::<Down>(&mut node.from, frames).await.unwrap();
        if let Down::Endpoints { update, .. } = word.expect("the leader goes on") {
            return update;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_the_log_is_told_what_routers_go_by_and_what_changes_of_it() {
    let bench = bench().await;
    let leader_knows = |endpoints| bench.host.cell.endpoints.set(endpoints);
    leader_knows(endpoints("one:7117"));
    let (mut node, leader) = pipes();
    node.to.send(encode(&hello("birch", 0))).await.unwrap();
    let host = bench.host.clone();
    tokio::spawn(async move { host.serve(&node_id("birch"), None, leader).await });

    let (mut frames, feed) = (Frames::default(), EndpointFeed::default());
    let first = updated(&mut node, &mut frames).await;
    assert!(first.is_whole);
    feed.update(first);
    assert_eq!(feed.latest().as_deref(), Some(&endpoints("one:7117")));
    let begun = std::time::Instant::now();
    leader_knows(Endpoints::default());
    leader_knows(endpoints("two:7117"));
    let second = updated(&mut node, &mut frames).await;
    assert!(!second.is_whole, "{second:?}");
    assert!(begun.elapsed() < heartbeat(), "at once, not with a heartbeat");
    feed.update(second);
    assert_eq!(
        feed.latest().as_deref(),
        Some(&endpoints("two:7117")),
        "what came between is gathered"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_holds_the_log_draws_its_own_chart() {
    let bench = bench().await;
    bench.host.cell.endpoints.set(endpoints("one:7117"));
    let (mut node, leader) = pipes();
    node.to.send(encode(&hello("ash", 0))).await.unwrap();
    let host = bench.host.clone();
    tokio::spawn(async move { host.serve(&node_id("ash"), None, leader).await });
    let mut frames = Frames::default();
    let told = timeout(Duration::from_millis(500), updated(&mut node, &mut frames)).await;
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
async fn what_a_node_says_takes_no_more_of_the_state_than_its_share() {
    let bench = bench().await;
    let text = || "é".repeat(1 << 20);
    let (replica, generation) = (replica_id(WEB), Generation(1));
    let last = Box::new(ObservedCode::Unhealthy { output: text() });
    let code = Some(ObservedCode::RestartExhausted { tries: 3, last });
    let failed = Seen { replica: replica.clone(), generation, state: ObservedState::Failed, code };
    let served = Served { replica, asked_by: text(), through: node_id("ash") };
    let reports = vec![Report::Seen(failed), Report::Served(served)];
    let words = [hello("birch", 0), Up::Reports { seq: 1, reports }];
    bench.greeted("birch", &words).await.unwrap();
    assert_eq!(bench.state_of(WEB), Some(ObservedState::Failed));
    let bytes = bench.host.cell.engine.machine().read(|state| postcard::to_stdvec(state).unwrap());
    assert!(bytes.len() < 64 << 10, "{} bytes", bytes.len());

    let facts = Box::new(cpus(4).label("note", &text()));
    let (node, listeners) = (node_id("birch"), HttpListeners::default());
    let large = Up::Hello { version: VERSION, node, seen: Term(0), facts, listeners };
    let refused = bench.greeted("birch", &[large]).await.unwrap_err();
    assert!(matches!(refused, Refused::Verbose { .. }), "{refused}");
}

/// Two bytes a level: whoever followed them down would have no stack left, and no process.
#[tokio::test(flavor = "multi_thread")]
async fn a_reason_within_a_reason_ends_the_link_and_not_the_leader() {
    let bench = bench().await;
    let last = Box::new(ObservedCode::Vanished);
    let code = Some(ObservedCode::RestartExhausted { tries: 1, last });
    let (replica, generation) = (replica_id(WEB), Generation(1));
    let seen = Seen { replica, generation, state: ObservedState::Failed, code };
    let whole = encode(&Up::Reports { seq: 1, reports: vec![Report::Seen(seen)] });
    let (before, end) = whole.split_at(whole.len() - 1);
    let mut deep = [&before[4..], &[7, 1].repeat(1 << 20), end].concat();
    let length = u32::try_from(deep.len()).unwrap().to_be_bytes();
    deep.splice(..0, length);
    let (node, leader) = pipes();
    node.to.send(encode(&hello("birch", 0))).await.unwrap();
    node.to.send(deep).await.unwrap();
    let ended = bench.host.serve(&node_id("birch"), None, leader).await;
    assert!(matches!(ended, Err(Refused::Io(_))), "{ended:?}");
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
    cell.measurements.reach(ours.0.clone(), ours.1, address);
    // Birch has led before, and knows of our container from when it was not reached yet.
    let replicas =
        [&birchs, &ours].map(|key| (key.clone(), ReplicaMeasurement::default())).to_vec();
    let beat = Up::Beat { node: Box::default(), measured: None, replicas };
    bench.greeted("birch", &[hello("birch", 0), beat]).await.unwrap();
    let measured = cell.measurements.lock();
    assert!(measured.replicas.contains_key(&birchs), "of its own it is believed");
    assert_eq!(measured.replicas[&ours].address, address);
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
    let listeners = HttpListeners::default();
    let newer = Up::Hello { version: VERSION + 1, node, seen, facts, listeners };
    assert!(said(bench.greeted("birch", &[newer]).await).contains("run the same plimsoll on both"));
    assert_eq!(said(bench.greeted("birch", &[]).await), "it did not say who it is");
}

#[tokio::test]
async fn orders_of_a_deposed_leader_are_refused() {
    let bench = bench().await;
    let birch: NodeId = node_id("birch");
    let cell = NodeContext { node: birch, ..bench.host.cell.clone() };
    let (node, leader) = pipes();
    let (orders, mut told) = slot();
    let (_reports, inbox) = mpsc::unbounded_channel();
    let attending = tokio::spawn(async move {
        let (mut fence, mut outbox) = (Fence::in_memory(), Outbox::new(inbox));
        agent_side::attend(&cell, &cpus(4), node, &mut fence, &orders, &mut outbox).await
    });
    for term in [7, 6] {
        let update = AssignmentUpdate::All(std::collections::BTreeMap::new());
        leader.to.send(encode(&Down::Orders { term: Term(term), update })).await.unwrap();
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
        other => panic!("nothing was asked: {other:?}"),
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
    let joining = EmbeddedConfig {
        server: ServerId(9),
        founding: Founding::Join,
        ..EmbeddedConfig::alone(dir.path(), CellId::new("test").unwrap())
    };
    let leader = Peer { name: "ash".to_owned(), address: "127.0.0.1:9".to_owned() };
    let cell = NodeContext {
        engine: Embedded::start(joining).await.unwrap(),
        node: node_id("birch"),
        measurements: SharedMeasurements::default(),
        endpoints: EndpointFeed::default(),
        levels: Shared::default(),
        servers: Arc::new(Servers::default()),
        ..bench.host.cell.clone()
    };
    cell.servers.begin_with(ServerList {
        since: 1,
        servers: vec![leader],
        ..ServerList::default()
    });
    let problem = Problem::new(ProblemCode::Outdated, "this node is old").hint("install another");
    let is_upgraded = Arc::new(AtomicBool::new(false));
    let strict = Strict {
        problem: problem.clone(),
        is_upgraded: Arc::clone(&is_upgraded),
        leader: Mutex::default(),
    };
    let (orders, _told) = slot();
    let (_reports, reports) = mpsc::unbounded_channel();
    let (_stop, shutdown) = watch::channel(false);
    let ends = Ends { orders, reports, facts: cpus(4), key: None };
    let dispatch = Arc::clone(&bench.host.dispatch);
    let linked = run(cell.clone(), dispatch, Arc::new(strict), Fence::in_memory(), ends, shutdown);
    tokio::spawn(linked);
    let told = || cell.levels.lock().outdated.clone();
    bench.until("told why", |_| told() == Some(problem.clone())).await;
    is_upgraded.store(true, Ordering::Relaxed);
    bench.until("forgotten", |_| told().is_none()).await;
}

/// A node's end of a link, whose leader is the test.
struct Attending {
    leader: Pipe,
    frames: Frames,
    told: AssignmentReceiver,
    ended: tokio::task::JoinHandle<io::Result<()>>,
    _reports: mpsc::UnboundedSender<Report>,
}

impl Attending {
    fn start(bench: &Bench, mut fence: Fence) -> Self {
        let cell = NodeContext { node: node_id("birch"), ..bench.host.cell.clone() };
        let (node, leader) = pipes();
        let (orders, told) = slot();
        let (reports, inbox) = mpsc::unbounded_channel();
        let ended = tokio::spawn(async move {
            let mut outbox = Outbox::new(inbox);
            agent_side::attend(&cell, &cpus(4), node, &mut fence, &orders, &mut outbox).await
        });
        Self { leader, frames: Frames::default(), told, ended, _reports: reports }
    }

    async fn order(&self, update: AssignmentUpdate) {
        let orders = Down::Orders { term: Term(7), update };
        self.leader.to.send(encode(&orders)).await.unwrap();
    }

    async fn said(&mut self) -> Up {
        let said = leader_side::next(&mut self.leader.from, &mut self.frames).await;
        said.unwrap().expect("the node goes on")
    }
}

fn nothing() -> AssignmentUpdate {
    AssignmentUpdate::All(std::collections::BTreeMap::new())
}

#[tokio::test]
async fn an_agent_that_takes_no_orders_holds_up_no_heartbeat() {
    let bench = bench().await;
    tokio::time::pause();
    let mut node = Attending::start(&bench, Fence::in_memory());
    assert!(matches!(node.said().await, Up::Hello { .. }));
    let begun = tokio::time::Instant::now();
    for beat in 0..20 {
        node.order(nothing()).await;
        assert!(matches!(node.said().await, Up::Beat { .. }), "beat {beat}");
    }
    assert_eq!(begun.elapsed().as_secs(), (heartbeat() * 19).as_secs(), "each in its time");
    assert_eq!(node.told.recv().await, Some(nothing()), "one order stands for all of them");
}

#[tokio::test]
async fn reports_that_wait_for_the_log_hold_up_no_heartbeat() {
    let bench = bench().await;
    let (node, leader) = pipes();
    let host = bench.host.clone();
    let serving = tokio::spawn(async move { host.serve(&node_id("birch"), None, leader).await });
    node.to.send(encode(&hello("birch", 0))).await.unwrap();
    // More than the log takes at once: it is tried again and again. Of one report no more is taken than this.
    let output = "x".repeat(16 << 10);
    let count = plimsoll_store::embedded::MAX_COMMAND / output.len() + 1;
    let stuck = Report::Seen(Seen {
        replica: replica_id(WEB),
        generation: Generation(1),
        state: ObservedState::Degraded,
        code: Some(ObservedCode::Unhealthy { output }),
    });
    let reports = vec![stuck; count];
    node.to.send(encode(&Up::Reports { seq: 1, reports })).await.unwrap();
    for version in ["1", "2", "3"] {
        let version = Some(version.to_owned());
        let said = NodeMeasurement { version: version.clone(), ..NodeMeasurement::default() };
        let beat = Up::Beat { node: Box::new(said), measured: None, replicas: Vec::new() };
        node.to.send(encode(&beat)).await.unwrap();
        let is_heard = |bench: &Bench| {
            let measured = bench.host.cell.measurements.lock();
            let fact = measured.nodes.get(&node_id("birch"));
            fact.is_some_and(|fact| fact.heard_at.is_some() && fact.version == version)
        };
        bench.until("heard", is_heard).await;
    }
    let more = Up::Reports { seq: 2, reports: Vec::new() };
    for _ in 0..20 {
        let _ = node.to.send(encode(&more)).await;
    }
    let ended = timeout(Duration::from_secs(20), serving).await.unwrap().unwrap();
    assert!(matches!(ended, Err(Refused::Ahead)), "one that does not wait is bounded: {ended:?}");
}

#[tokio::test]
async fn a_leader_that_begins_with_nothing_is_left() {
    let bench = bench().await;
    tokio::time::pause();
    let node = Attending::start(&bench, Fence::in_memory());
    let left = timeout(heartbeat() * 4, node.ended).await.expect("it does not wait for ever");
    assert_eq!(left.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);

    let node = Attending::start(&bench, Fence::in_memory());
    node.order(nothing()).await;
    // Read, but never answered: a leader that has begun may have nothing more to say.
    let mut from = node.leader.from;
    tokio::spawn(async move { while from.recv().await.is_some() {} });
    assert!(timeout(heartbeat() * 20, node.ended).await.is_err());
}
