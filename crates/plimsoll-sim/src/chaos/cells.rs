//! Whole scenarios drawn from a seed: a cell of any kind, and everything that can happen to it.

use std::sync::Arc;

use plimsoll_model::{
    Bytes, Capability, DeploymentName, MilliCpus, Millis, Mode, NodeFacts, NodeId, Resources,
    ServiceName, Zone,
};

use super::specs::{self, Choices};
use super::{Chaos, first_port};
use crate::rng::SimRng;
use crate::scenario::{Scenario, Services};

/// Faults end here, and what is left of a run is for the cell to settle in. Long after the last fault certificates are asked
/// for once more, and a run is judged some time after that.
const UNTIL: Millis = Millis::minutes(45);
const LENGTH: Millis = Millis::minutes(96);

const NAMES: [&str; 9] =
    ["ash", "birch", "cedar", "dogwood", "elm", "fir", "gum", "hazel", "iroko"];

/// A cell and what happens to it, drawn from the seed.
pub fn any_scenario(seed: u64) -> Scenario {
    let mut scenario = any_cell(seed);
    // In every third cell long batches are cut into short entries, with anything in between.
    if seed.is_multiple_of(3) {
        scenario.policy.max_changes = 1 + usize::try_from(seed / 3 % 7).unwrap_or(0);
    }
    let chaos = Chaos {
        until: UNTIL,
        every: Millis::seconds(20 + seed % 90),
        outage: (Millis::seconds(1), Millis::minutes(1 + seed % 12)),
    };
    chaos.unleash(&mut scenario, seed);
    scenario
}

/// One to nine nodes of any size in up to three zones, and a few services of any kind, some of which do not fit.
fn any_cell(seed: u64) -> Scenario {
    let mut chance = SimRng::new(seed.wrapping_mul(31));
    let mut scenario = Scenario::new(&format!("chaos-{seed}"), LENGTH);
    let count = 1 + usize::try_from(chance.below(NAMES.len() as u64)).unwrap_or(0);
    for name in &NAMES[..count] {
        scenario.nodes.insert(node(name), any_node(&mut chance));
    }
    let nodes = NAMES.map(node);
    for (nth, name) in ["one", "two", "three"].into_iter().enumerate() {
        let choices = Choices { nodes: &nodes, first_port: first_port(nth) };
        let mut services = Services::new();
        for name in ["a", "b", "c"] {
            let mut spec = specs::any(&mut chance, &choices);
            // A cell begins with something to do.
            if spec.placement.mode.replicas() == Some(0) {
                spec.placement.mode = Mode::Spread { replicas: 2 };
            }
            services.insert(ServiceName::new(name).expect("a valid name"), Arc::new(spec));
        }
        without_clashes(&mut services);
        specs::order::draw(&mut services, &mut chance);
        let name = DeploymentName::new(name).expect("a valid name");
        scenario.deployments.insert(name, services);
    }
    scenario
}

/// A routed port is one service's: a file that gives it to two is refused.
fn without_clashes(services: &mut Services) {
    let mut taken = Vec::new();
    for spec in services.values_mut() {
        let mut fresh = plimsoll_model::ServiceSpec::clone(spec);
        fresh.container.ports.retain(|port| {
            !taken.contains(&port.published) || port.mode == plimsoll_model::spec::PortMode::Host
        });
        taken.extend(fresh.container.ports.iter().map(|port| port.published));
        *spec = Arc::new(specs::hashed(fresh));
    }
}

fn node(name: &str) -> NodeId {
    NodeId::new(name).expect("a valid name")
}

/// A node of any size, with or without GPUs, a zone and a label; not every runtime can do everything.
pub(super) fn any_node(chance: &mut SimRng) -> NodeFacts {
    let cpus = 1 + chance.below(8);
    let memory = Bytes(cpus * (4 << 30));
    let gpus = if chance.percent(30) { u32::try_from(chance.below(4)).unwrap_or(0) } else { 0 };
    let capacity = Resources { cpu: MilliCpus(cpus * 1_000), memory, gpus, all_gpus: 0 };
    let mut facts = NodeFacts::new(capacity);
    if chance.percent(20) {
        facts.runtime.lacks.insert(Capability::Sysctls);
    }
    if chance.percent(70) {
        facts.zone = chance.pick(&["a", "b", "c"]).and_then(|zone| Zone::new(*zone).ok());
    }
    if chance.percent(40) {
        facts.labels.insert("disk".to_owned(), "ssd".to_owned());
    }
    facts
}
