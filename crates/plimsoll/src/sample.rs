//! Views as a daemon would send them, for tests: `deployment("shop").service("web", 3)` reads aloud.

use std::collections::BTreeMap;

use plimsoll_api::view::{
    Assignment, CellSummary, Deployment, Node, Pressure, Progress, Reason, ReasonCode, Replica,
    Resources, Runtime, Service, Status, Time,
};
use plimsoll_model::Timestamp;

/// The moment every sample is seen at.
pub(crate) const NOW: Timestamp = Timestamp(1_800_000_000_000);

/// So many seconds before [`NOW`].
pub(crate) fn ago(seconds: u64) -> Time {
    Time(Timestamp(NOW.0 - seconds * 1_000))
}

pub(crate) fn reason(subject: &str, word: ReasonCode, text: &str) -> Reason {
    Reason::new(subject, word, text)
}

pub(crate) fn status(deployments: Vec<Deployment>) -> Status {
    let cell = CellSummary {
        name: "demo".into(),
        node: "ash".into(),
        version: "0.1.0".into(),
        leader: Some("ash".into()),
        term: 4,
        applied: 120,
        lag: 0,
        heard_ms: Some(0),
        trouble: None,
    };
    Status { cell, nodes: vec![node("ash")], deployments }
}

pub(crate) fn node(name: &str) -> Node {
    let share = Resources { cpu_millis: 1_500, memory_bytes: 1 << 30, gpus: 0 };
    Node {
        name: name.into(),
        status: "ready".into(),
        since: ago(86_400),
        availability: "active".into(),
        role: if name == "ash" { "leader" } else { "agent" }.into(),
        zone: None,
        labels: BTreeMap::new(),
        os: "linux".into(),
        arch: "x86_64".into(),
        capacity: Resources { cpu_millis: 4_000, memory_bytes: 8 << 30, gpus: 0 },
        reserved: share,
        replicas: 5,
        pressure: Some(Pressure {
            cpu: Some(230_000),
            memory: Some(410_000),
            cpu_stall: Some(0),
            memory_stall: None,
            io_stall: None,
        }),
        runtime: Some(Runtime {
            name: "docker".into(),
            version: Some("27.1".into()),
            trouble: None,
            limits: Vec::new(),
        }),
        version: Some("0.1.0".into()),
        drain: None,
        fill: None,
        last_heard: Some(ago(1)),
    }
}

/// At revision 3, steady and without services.
pub(crate) fn deployment(name: &str) -> Deployment {
    Deployment {
        name: name.into(),
        revision: 3,
        is_deleted: false,
        applied_at: ago(250),
        applied_by: "ada".into(),
        progress: Progress::Steady,
        services: Vec::new(),
    }
}

pub(crate) fn with_progress(deployment: Deployment, progress: Progress) -> Deployment {
    Deployment { progress, ..deployment }
}

pub(crate) trait With: Sized {
    /// A service with so many replicas, all running on ash.
    fn service(self, name: &str, replicas: u32) -> Self;
    /// The replica of this id, changed.
    fn replica(self, id: &str, change: impl FnOnce(&mut Replica)) -> Self;
}

impl With for Deployment {
    fn service(mut self, name: &str, replicas: u32) -> Self {
        let replica = |index| Replica {
            id: format!("{}-{name}-{index}", self.name),
            now: Some(running("ash", 3)),
            next: None,
            cause: None,
            leaving: Vec::new(),
            waiting: None,
        };
        let service = Service {
            name: name.into(),
            image: format!("{name}:1.27"),
            digest: None,
            mode: "spread".into(),
            wanted: replicas,
            running: replicas,
            current: replicas,
            spec: "spec-3".into(),
            ports: Vec::new(),
            replay: None,
            image_volumes: Vec::new(),
            labels: BTreeMap::new(),
            rollout: None,
            schedule: None,
            unplaced: None,
            replicas: (1..=replicas).map(replica).collect(),
        };
        self.services.push(service);
        self
    }

    fn replica(mut self, id: &str, change: impl FnOnce(&mut Replica)) -> Self {
        let mut all = self.services.iter_mut().flat_map(|service| &mut service.replicas);
        change(all.find(|replica| replica.id == id).expect("the sample has this replica"));
        for service in &mut self.services {
            let is_running =
                |replica: &&Replica| replica.now.as_ref().is_some_and(|now| now.state == "running");
            let running = service.replicas.iter().filter(is_running);
            let current = running
                .clone()
                .filter(|replica| replica.now.as_ref().is_some_and(|now| now.spec == service.spec));
            service.current = u32::try_from(current.count()).unwrap_or(0);
            service.running = u32::try_from(running.count()).unwrap_or(0);
        }
        self
    }
}

pub(crate) fn running(node: &str, revision: u64) -> Assignment {
    Assignment {
        node: node.into(),
        generation: 7,
        revision,
        spec: format!("spec-{revision}"),
        image: format!("web:1.2{revision}"),
        digest: None,
        state: "running".into(),
        since: ago(240),
        reason: None,
        failures: 0,
        next_try: None,
        cpu_millis: Some(120),
        exit_code: None,
        attempts: None,
        memory_bytes: Some(48 << 20),
    }
}

pub(crate) fn in_state(node: &str, revision: u64, state: &str) -> Assignment {
    Assignment { state: state.into(), since: ago(3), ..running(node, revision) }
}

/// A pull that failed and is tried again in eight seconds.
pub(crate) fn unpulled(node: &str) -> Assignment {
    Assignment {
        reason: Some(reason(
            "shop-web-3",
            ReasonCode::ImagePullFailed,
            "web:1.99: manifest unknown",
        )),
        failures: 3,
        next_try: Some(Time(Timestamp(NOW.0 + 8_000))),
        ..in_state(node, 3, "pending")
    }
}
