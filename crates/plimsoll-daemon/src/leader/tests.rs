//! The loops together, over a real log and a fake runtime, in real time.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_kernel::Policy;
use plimsoll_model::rollout::RolloutPhase;
use plimsoll_model::spec::{HealthTest, Healthcheck};
use plimsoll_model::testkit::{cpus, node_id, service_key, spread};
use plimsoll_model::{
    CellId, Change, DeploymentName, Millis, ObservedCode, ReplicaId, ServiceName, ServiceSpec,
    SpecHash, State, Writer,
};
use plimsoll_runtime::fake::Script;
use plimsoll_runtime::{FakeRuntime, Runtime};
use plimsoll_store::Embedded;
use plimsoll_store::embedded::EmbeddedConfig;
use tempfile::TempDir;
use tokio::sync::mpsc;

use super::*;
use crate::agent::Agent;
use crate::heartbeat::Pulse;
use crate::{dispatcher, link};

/// A cell of one.
struct Node {
    cell: NodeContext,
    runtime: Arc<FakeRuntime>,
    shutdown: watch::Sender<bool>,
    dir: TempDir,
}

fn cell_id() -> CellId {
    CellId::new("test").unwrap()
}

/// Healthy within a tenth of a second.
fn spec(image: &str, replicas: u32) -> ServiceSpec {
    let mut spec = spread(replicas);
    image.clone_into(&mut spec.container.image);
    spec.container.healthcheck = Some(Healthcheck {
        test: HealthTest::Shell("check".to_owned()),
        interval: Some(Millis(100)),
        timeout: None,
        retries: Some(1),
        start_period: None,
        start_interval: None,
    });
    let mut hash = [0; 32];
    for (at, byte) in image.bytes().enumerate() {
        hash[at % 32] ^= byte;
    }
    spec.hash = SpecHash(hash);
    spec
}

impl Node {
    async fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let runtime = Arc::new(FakeRuntime::new(cell_id()));
        Self::over(dir, runtime).await
    }

    async fn over(dir: TempDir, runtime: Arc<FakeRuntime>) -> Self {
        let engine = Embedded::start(EmbeddedConfig::alone(dir.path(), cell_id())).await.unwrap();
        let (over, policy) = (Arc::clone(&runtime) as _, Policy::default());
        let cell = NodeContext::new(engine, over, node_id("ash"), Arc::default(), policy);
        let join = Change::PutNode { node: node_id("ash"), facts: cpus(8) };
        cell.write(Writer::Agent, "ash", vec![join.free()]).await.unwrap();
        let (shutdown, stop) = watch::channel(false);
        let dispatch = dispatcher::Dispatch::start(Arc::clone(cell.engine.machine()));
        let (reports, inbox) = mpsc::unbounded_channel();
        let (orders, told) = dispatcher::slot();
        tokio::spawn(Agent::new(&cell, reports).run(told, stop.clone()));
        let (nobody, fence) = (Arc::new(link::Nobody), link::Fence::in_memory());
        let ends = link::Ends { orders, reports: inbox, facts: cpus(8), key: None };
        tokio::spawn(link::run(cell.clone(), dispatch, nobody, fence, ends, stop.clone()));
        tokio::spawn(run(cell.clone(), stop.clone()));
        tokio::spawn(crate::heartbeat::run(cell.clone(), None, Pulse::default(), stop.clone()));
        tokio::spawn(crate::sampler::run(cell.clone(), "/".into(), stop));
        Self { cell, runtime, shutdown, dir }
    }

    async fn restart(self) -> Self {
        self.shutdown.send(true).unwrap();
        self.cell.engine.shutdown().await.unwrap();
        Self::over(self.dir, self.runtime).await
    }

    async fn deploy<const N: usize>(&self, services: [(&str, ServiceSpec); N]) {
        let services: BTreeMap<_, _> = services
            .into_iter()
            .map(|(name, spec)| (ServiceName::new(name).unwrap(), Arc::new(spec)))
            .collect();
        let deployment = DeploymentName::new("shop").unwrap();
        let change = Change::Deploy { deployment, services, routes: Vec::new() };
        self.cell.write(Writer::Operator, "test", vec![change.free()]).await.unwrap();
    }

    async fn until(&self, what: &str, is_so: impl Fn(&State) -> bool) {
        let machine = self.cell.engine.machine();
        let mut applied = machine.applied();
        let wait = async {
            while !machine.read(&is_so) {
                applied.changed().await.unwrap();
            }
        };
        let is_reached = timeout(Duration::from_mins(1), wait).await.is_ok();
        assert!(is_reached, "never {what}: {:#?}", machine.read(|state| state.services().clone()));
    }

    async fn images(&self) -> Vec<String> {
        let tags = self.runtime.list().await.unwrap().into_iter().map(|found| found.tag);
        let machine = self.cell.engine.machine();
        let image = |tag: plimsoll_runtime::Tag| {
            machine.read(|state| {
                let service = state.service(&tag.replica.service)?;
                let replica = state.replica(&tag.replica)?;
                let held = replica.holds().find(|held| held.generation == tag.generation)?;
                Some(service.spec_of(held)?.container.image.clone())
            })
        };
        tags.filter_map(image).collect()
    }
}

/// All of a service's replicas run this image, and nothing else of it is left.
fn runs(service: &'static str, image: &'static str, count: usize) -> impl Fn(&State) -> bool {
    move |state| {
        let Some(service) = state.service(&service_key(service)) else { return count == 0 };
        let is_so = |replica: &plimsoll_model::Replica| {
            let current = replica.assignment.as_ref().and_then(|held| service.spec_of(held));
            replica.is_running()
                && replica.successor.is_none()
                && replica.leaving.is_empty()
                && current.is_some_and(|spec| spec.container.image == image)
        };
        service.replicas.len() == count && service.replicas.values().all(is_so)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_comes_up_rolls_scales_and_goes() {
    let node = Node::start().await;
    node.deploy([("web", spec("one", 3))]).await;
    node.until("up", runs("shop/web", "one", 3)).await;
    node.deploy([("web", spec("two", 3))]).await;
    node.until("rolled", runs("shop/web", "two", 3)).await;
    assert_eq!(node.images().await, ["two"; 3]);
    node.deploy([("web", spec("two", 1))]).await;
    node.until("scaled", runs("shop/web", "two", 1)).await;
    let node = node.restart().await;
    node.until("still up", runs("shop/web", "two", 1)).await;
    let deployment = DeploymentName::new("shop").unwrap();
    let change = Change::Undeploy { deployment };
    node.cell.write(Writer::Operator, "test", vec![change.free()]).await.unwrap();
    node.until("gone", runs("shop/web", "two", 0)).await;
    while !node.runtime.list().await.unwrap().is_empty() {
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_does_not_exist_leaves_the_old_one_serving_and_a_fixed_one_heals_it() {
    let node = Node::start().await;
    node.deploy([("web", spec("good", 2))]).await;
    node.until("up", runs("shop/web", "good", 2)).await;
    node.runtime.on("missing", Script { pull_failures: 1_000, ..Script::default() });
    node.deploy([("web", spec("missing", 2))]).await;
    let says_why = |state: &State| {
        let mut codes = state.replicas().filter_map(|(_, replica)| {
            let next = replica.successor.as_ref()?;
            replica.observation(&next.assignment)?.code.clone()
        });
        codes.any(|code| matches!(code, ObservedCode::ImagePullFailed { .. }))
    };
    node.until("told why", says_why).await;
    let running = |state: &State| state.replicas().filter(|(_, r)| r.is_running()).count();
    assert_eq!(node.cell.engine.machine().read(running), 2, "the old ones serve on");
    node.deploy([("web", spec("fixed", 2))]).await;
    node.until("healed", runs("shop/web", "fixed", 2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_revision_is_taken_back_at_its_first_replica_and_the_old_ones_run_on() {
    let node = Node::start().await;
    node.deploy([("web", spec("good", 3))]).await;
    node.until("up", runs("shop/web", "good", 3)).await;
    let exits = Some((Duration::from_millis(30), 1));
    node.runtime.on("bad", Script { exits, ..Script::default() });
    node.deploy([("web", spec("bad", 3))]).await;
    let is_undone = |state: &State| {
        let mut rollouts = state.services().values().filter_map(|it| it.row.rollout.as_ref());
        rollouts.any(|rollout| rollout.phase == RolloutPhase::Undone)
    };
    node.until("taken back", is_undone).await;
    node.until("clear of it", |state: &State| {
        state.replicas().all(|(_, replica)| replica.leaving.is_empty() && replica.is_running())
    })
    .await;
    assert_eq!(node.images().await, ["good"; 3]);
    node.deploy([("web", spec("good", 3))]).await;
    node.until("as before", runs("shop/web", "good", 3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn services_start_in_the_order_they_depend_on_each_other() {
    use plimsoll_model::spec::Dependency;
    let node = Node::start().await;
    let on = |mut spec: ServiceSpec, name: &str, until| {
        spec.depends_on = BTreeMap::from([(ServiceName::new(name).unwrap(), until)]);
        spec
    };
    node.runtime
        .on("migrate", Script { exits: Some((Duration::from_millis(50), 0)), ..Script::default() });
    node.deploy([
        ("a-web", on(spec("web", 2), "b-migrate", Dependency::Completed)),
        ("b-migrate", on(spec("migrate", 1), "c-db", Dependency::Healthy)),
        ("c-db", spec("db", 1)),
    ])
    .await;
    node.until("up", runs("shop/a-web", "web", 2)).await;
    let starts: Vec<String> = node
        .runtime
        .calls()
        .into_iter()
        .filter_map(|call| match call {
            plimsoll_runtime::fake::Call::Start(tag) => {
                Some(tag.replica.service.service.to_string())
            }
            _ => None,
        })
        .collect();
    assert_eq!(starts, ["c-db", "b-migrate", "a-web", "a-web"]);
}

/// A loop of its own over a real log, with decisions of the test's making.
#[tokio::test(flavor = "multi_thread")]
async fn a_decision_that_is_refused_twice_is_counted_and_its_service_says_so() {
    let dir = TempDir::new().unwrap();
    let engine = Embedded::start(EmbeddedConfig::alone(dir.path(), cell_id())).await.unwrap();
    let runtime = Arc::new(FakeRuntime::new(cell_id()));
    let cell = NodeContext::new(engine, runtime, node_id("ash"), Arc::default(), Policy::default());
    let services = ["bad", "good"].map(|name| (ServiceName::new(name).unwrap(), spread(1).into()));
    let (deployment, services) = (DeploymentName::new("shop").unwrap(), services.into());
    let begin = vec![
        Change::PutNode { node: node_id("ash"), facts: cpus(8) }.free(),
        Change::Deploy { deployment, services, routes: Vec::new() }.free(),
    ];
    cell.write(Writer::Operator, "test", begin).await.unwrap();
    let mut leading = LeaderLoop::new(&cell);
    let schedule = LeaderStep::Schedule;
    let (bad, good) = (service_key("shop/bad"), service_key("shop/good"));
    for _ in 0..2 {
        let nobody = ReplicaId::indexed(&bad, 99);
        let refused = leading.commit(schedule, vec![Change::Retire { replica: nobody }.free()]);
        assert_eq!(refused.await, Committed::Refused);
    }
    assert_eq!(cell.refused_batches.load(Ordering::Relaxed), 2);
    let batch = leading.decide(schedule);
    assert_eq!(leading.commit(schedule, batch).await, Committed::Taken);
    cell.engine.machine().read(|state| {
        let said = state.service(&bad).unwrap().row.unplaced.as_ref().unwrap();
        assert_eq!((said.missing, said.why.word()), (0, "decision_refused"));
        let audit: Vec<String> = state.audit().events().map(|it| it.what.to_string()).collect();
        assert!(audit.iter().any(|it| it.contains("the state refused")), "{audit:?}");
        assert_eq!(state.service(&good).unwrap().replicas.len(), 1, "the other is placed");
    });
    assert_eq!(cell.refused_batches.load(Ordering::Relaxed), 2);
    cell.engine.shutdown().await.unwrap();
}

/// What an entry costs is in proportion to its changes, and while it is applied nobody else gets to the state: a thousand at
/// once cost a leader its lead.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_decision_is_written_in_short_entries() {
    let node = Node::start().await;
    let machine = Arc::clone(node.cell.engine.machine());
    let mut watcher = machine.watch(*machine.applied().borrow() + 1);
    let mut longest = || {
        let applied = watcher.look(|_, changes| changes).expect("it looks often enough");
        let replicas = |events: &[Event]| {
            let ids = events.iter().filter_map(|event| match event {
                Event::Replica(id) => Some(id),
                _ => None,
            });
            ids.collect::<std::collections::BTreeSet<_>>().len()
        };
        applied.iter().map(|it| replicas(&it.events)).max().unwrap_or(0)
    };
    let many = 2 * batch::MAX_CHANGES;
    node.deploy([("web", spec("web", u32::try_from(many).unwrap()))]).await;
    node.until("all placed", |state: &State| state.replicas().count() == many).await;
    assert_eq!(longest(), batch::MAX_CHANGES, "placed");
    let delete = Change::Undeploy { deployment: DeploymentName::new("shop").unwrap() };
    node.cell.write(Writer::Operator, "test", vec![delete.free()]).await.unwrap();
    node.until("all gone", |state: &State| state.replicas().count() == 0).await;
    let deleted = longest();
    assert!((2..=batch::MAX_CHANGES).contains(&deleted), "{deleted} at once");
}
