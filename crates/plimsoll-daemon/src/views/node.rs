//! A node as people see it.

use plimsoll_model::{Availability, NodeId, NodeStatus};
use plimsoll_runtime::pressure::{PressureReading, Stall};

use super::Source;
use crate::measurements::NodeMeasurement;
use plimsoll_api::view::{DrainState, Node, Pressure, Resources, Time};

pub(super) fn view(source: &Source<'_>, id: &NodeId, node: &plimsoll_model::Node) -> Node {
    let load = source.state.load(id);
    let measured = source.measured.nodes.get(id);
    let facts = &node.facts;
    // What it measured too long ago is no measurement any more.
    let is_fresh = |it: &&NodeMeasurement| {
        it.measured_at.is_some_and(|at| source.policy.is_fresh(at, source.here.now))
    };
    Node {
        name: id.to_string(),
        status: match (node.status, &node.outage) {
            (NodeStatus::Ready, None) => "ready",
            (NodeStatus::Ready, Some(_)) => "runtime_unavailable",
            (NodeStatus::Down, _) => "down",
        }
        .to_owned(),
        since: Time(match (node.status, &node.outage) {
            (NodeStatus::Ready, Some(outage)) => outage.since,
            (NodeStatus::Ready, None) | (NodeStatus::Down, _) => node.status_since,
        }),
        availability: match node.availability {
            Availability::Active => "active",
            Availability::Cordoned => "cordoned",
            Availability::Draining => "draining",
        }
        .to_owned(),
        role: role(source, id).to_owned(),
        zone: facts.zone.as_ref().map(ToString::to_string),
        labels: facts.labels.clone(),
        os: facts.os.clone(),
        arch: facts.arch.clone(),
        capacity: resources(facts.capacity),
        reserved: resources(load.map(|load| load.reserved).unwrap_or_default().on(facts.capacity)),
        replicas: load.map_or(0, |load| load.replicas),
        pressure: measured.filter(is_fresh).and_then(pressure),
        runtime: measured.and_then(|measured| measured.runtime.clone()),
        version: {
            // What it said last: also of a node that is not heard now.
            let noted = Some(facts.version.clone()).filter(|version| !version.is_empty());
            measured.and_then(|measured| measured.version.clone()).or(noted)
        },
        last_heard: measured.and_then(|measured| measured.heard_at).map(Time),
        drain: node.drain.map(|drain| DrainState {
            since: Time(drain.since),
            is_forced: drain.is_forced,
            has_timed_out: drain.has_timed_out,
        }),
        fill: None,
    }
}

fn role(source: &Source<'_>, id: &NodeId) -> &'static str {
    let here = source.here;
    if here.leader.as_deref() == Some(id.as_str()) {
        "leader"
    } else if here.servers.contains(id.as_str()) || here.node == *id {
        "server"
    } else {
        "agent"
    }
}

fn pressure(measured: &NodeMeasurement) -> Option<Pressure> {
    let PressureReading { cpu, memory, stalls } = measured.reading.as_ref()?;
    let stall = |stall: Option<Stall>| stall.map(|stall| stall.seconds_10.millionths());
    Some(Pressure {
        cpu: cpu.map(|cpu| cpu.pressure.millionths()),
        memory: memory.map(|memory| memory.pressure.millionths()),
        cpu_stall: stall(stalls.cpu),
        memory_stall: stall(stalls.memory),
        io_stall: stall(stalls.io),
    })
}

fn resources(amount: plimsoll_model::Resources) -> Resources {
    Resources { cpu_millis: amount.cpu.0, memory_bytes: amount.memory.0, gpus: amount.gpus }
}
