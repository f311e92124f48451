//! A service, its replicas and their assignments as people see them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use plimsoll_kernel::progress::wanted;
use plimsoll_model::spec::{Port, PortMode, ProxyProtocol, Replay};
use plimsoll_model::state::Service as Row;
use plimsoll_model::{
    NodeId, NodeStatus, ObservedCode, ObservedState, ReplicaId, ServiceKey, ServiceSpec, SpecHash,
    State,
};

use super::{Source, schedule};
use plimsoll_api::view::{Assignment, Reason, ReasonCode, Replica, Rollout, Service, Time};

pub(super) fn view(source: &Source<'_>, key: &ServiceKey, row: &Row) -> Service {
    let is_there = |replica: &&plimsoll_model::Replica| {
        let is_here = |given: &plimsoll_model::Assignment| {
            !is_lost(source.state, &given.node) || replica.has_completed(given)
        };
        replica.assignment.as_ref().is_some_and(is_here)
    };
    let running = || row.replicas.values().filter(|replica| replica.is_running()).filter(is_there);
    let desired = row.row.desired;
    let is_current = |replica: &&plimsoll_model::Replica| {
        replica.assignment.as_ref().map(|assignment| assignment.spec) == desired
    };
    // A retired service is shown as it was last: what still stops is a copy of that.
    let spec = row.desired().or_else(|| row.row.specs.values().next());
    Service {
        name: key.service.to_string(),
        image: spec.map_or_else(String::new, |spec| spec.container.image.clone()),
        digest: spec.and_then(|spec| spec.container.digest.clone()),
        mode: spec.map_or("spread", |spec| spec.placement.mode.word()).to_owned(),
        wanted: row.desired().map_or(0, |spec| wanted(source.state, row, spec)),
        running: count(running().count()),
        current: count(running().filter(is_current).count()),
        spec: desired.as_ref().map_or_else(String::new, SpecHash::short),
        ports: spec.map_or_else(Vec::new, |spec| spec.container.ports.iter().map(port).collect()),
        replay: spec.filter(|spec| spec.replay == Replay::Off).map(|_| "off".to_owned()),
        image_volumes: spec
            .map_or_else(Vec::new, |spec| spec.declared.paths.iter().cloned().collect()),
        labels: spec.map_or_else(BTreeMap::new, |spec| labels(spec)),
        unplaced: row.row.unplaced.as_ref().map(|unplaced| {
            let (missing, why) = (unplaced.missing, &unplaced.why);
            let text = match missing {
                0 => why.to_string(),
                1 => format!("1 replica has no place: {why}"),
                _ => format!("{missing} replicas have no place: {why}"),
            };
            Reason::new(key, why, text)
        }),
        rollout: row.row.rollout.as_ref().map(|it| rollout(key, row, it)),
        schedule: schedule::view(key, row),
        replicas: replicas(source, key, row).collect(),
    }
}

/// What is said of the service wins over what is said of its containers.
fn labels(spec: &ServiceSpec) -> BTreeMap<String, String> {
    let (own, containers) = (spec.labels.iter(), spec.container.labels.iter());
    containers.chain(own).map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn rollout(key: &ServiceKey, row: &Row, of: &plimsoll_model::Rollout) -> Rollout {
    let is_updated = |replica: &&plimsoll_model::Replica| {
        let assignment = replica.assignment.as_ref();
        assignment.is_some_and(|it| Some(it.spec) == row.row.desired && replica.runs(it))
    };
    let failed = of.failed.iter().map(|(slot, failure)| {
        let id = ReplicaId::new(key.clone(), slot.clone());
        let word = failure.code.as_ref().map_or(ReasonCode::StepFailed, Into::into);
        Reason::new(&id, word, failure.to_string())
    });
    Rollout {
        phase: of.phase.word().to_owned(),
        revision: of.revision.0.into(),
        from: of.from.as_ref().map(|previous| previous.revision.0.into()),
        since: Time(of.since),
        why: of.why.map(|why| why.to_string()),
        updated: count(row.replicas.values().filter(is_updated).count()),
        failed: failed.collect(),
    }
}

pub(super) fn replicas<'a>(
    source: &'a Source<'a>,
    key: &'a ServiceKey,
    row: &'a Row,
) -> impl Iterator<Item = Replica> + 'a {
    row.replicas.iter().map(move |(slot, held)| {
        replica(source, &ReplicaId::new(key.clone(), slot.clone()), row, held)
    })
}

pub(super) fn replica(
    source: &Source<'_>,
    id: &ReplicaId,
    row: &Row,
    held: &plimsoll_model::Replica,
) -> Replica {
    let view = |given: &plimsoll_model::Assignment| assignment(source, id, row, held, given);
    Replica {
        id: id.to_string(),
        now: held.assignment.as_ref().map(view),
        next: held.successor.as_ref().map(|successor| view(&successor.assignment)),
        cause: held.successor.as_ref().map(|successor| successor.cause.into()),
        leaving: held.leaving.iter().map(view).collect(),
        waiting: held.waiting.as_ref().map(|why| Reason::of(id, why)),
    }
}

fn assignment(
    source: &Source<'_>,
    id: &ReplicaId,
    row: &Row,
    held: &plimsoll_model::Replica,
    given: &plimsoll_model::Assignment,
) -> Assignment {
    let seen = held.observation(given);
    let measured = source.measured.replicas.get(&(id.clone(), given.generation));
    let measured = measured.cloned().unwrap_or_default();
    let code = source.observed_code(id, given.generation, seen);
    // A node counts anew when its daemon starts, and measures it less often than it reports; what it reported last stands.
    let exhausted = match &code {
        Some(ObservedCode::RestartExhausted { tries, .. }) => Some(*tries),
        Some(ObservedCode::JobFailed { attempts, .. }) => Some(*attempts),
        _ => None,
    };
    let (exit_code, attempts) = code.as_ref().map_or((None, None), end);
    let has_completed = held.has_completed(given);
    // What it was when its node was last heard says nothing of what it is.
    let has_outage = source.state.node(&given.node).is_some_and(|node| node.outage.is_some());
    let state = if has_completed {
        ObservedState::Completed.word()
    } else if is_lost(source.state, &given.node) {
        "lost"
    } else if has_outage && seen.is_some_and(|seen| is_up(seen.state)) {
        // Its process may be seen to run; how the service in it is, nobody can ask.
        "unknown"
    } else {
        seen.map_or("assigned", |seen| seen.state.word())
    };
    Assignment {
        node: given.node.to_string(),
        generation: given.generation.0,
        revision: given.revision.0.into(),
        spec: given.spec.short(),
        image: row.spec_of(given).map_or_else(String::new, |spec| spec.container.image.clone()),
        digest: row.spec_of(given).and_then(|spec| spec.container.digest.clone()),
        state: state.to_owned(),
        since: Time(seen.map_or(given.at, |seen| seen.at)),
        reason: code.map(|code| Reason::of(id, &code)).or_else(|| {
            let runs_on = "the container runtime of its node does not answer; its process runs on";
            let reason = || Reason::new(id, ReasonCode::RuntimeUnavailable, runs_on.to_owned());
            (state == "unknown").then(reason)
        }),
        failures: measured.failures.max(exhausted.unwrap_or(0)),
        next_try: measured.next_try.filter(|_| exhausted.is_none()).map(Time),
        cpu_millis: measured.cpu.map(|cpu| cpu.0),
        memory_bytes: measured.memory.map(|memory| memory.0),
        exit_code,
        attempts,
    }
}

/// The status that it ended with, and after how many attempts, where it ended for good.
fn end(code: &ObservedCode) -> (Option<i32>, Option<u32>) {
    let status = |code: &ObservedCode| match code {
        ObservedCode::Exited { status } => *status,
        _ => None,
    };
    match code {
        ObservedCode::Completed => (Some(0), None),
        ObservedCode::JobCompleted { attempts } => (Some(0), Some(*attempts)),
        ObservedCode::JobFailed { attempts, last } => (status(last), Some(*attempts)),
        ObservedCode::RestartExhausted { last, .. } => (status(last), None),
        code => (status(code), None),
    }
}

fn is_up(state: ObservedState) -> bool {
    matches!(state, ObservedState::Starting | ObservedState::Running | ObservedState::Degraded)
}

fn is_lost(state: &State, node: &NodeId) -> bool {
    state.node(node).is_none_or(|node| node.status == NodeStatus::Down)
}

/// `8080→80/tcp`, with `host` before it where only the replica's own node listens.
fn port(port: &Port) -> String {
    let mut text = String::new();
    if port.mode == PortMode::Host {
        text.push_str("host ");
    }
    if let Some(address) = &port.host_ip {
        let _ = write!(text, "{address}:");
    }
    match port.published {
        Some(published) => write!(text, "{published}"),
        None => write!(text, "any"),
    }
    .expect("a string takes any text");
    let _ = write!(text, "→{}/{}", port.target, port.protocol);
    if let Some(ProxyProtocol::V2) = port.proxy_protocol {
        text.push_str(" (proxy_protocol v2)");
    }
    text
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
