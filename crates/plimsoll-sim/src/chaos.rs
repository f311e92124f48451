//! A script of faults and changes drawn from a seed. When it ends everything is back: what is left must settle.

use std::sync::Arc;

use plimsoll_model::spec::Mode;
use plimsoll_model::{Millis, NodeId, ServiceSpec};

use crate::chance::Chance;
use crate::scenario::{Action, Scenario, Services};

/// How often things happen, about.
#[derive(Debug, Clone, Copy)]
pub struct Chaos {
    /// Faults and changes happen from the start until then.
    pub until: Millis,
    /// One thing happens about so often.
    pub every: Millis,
    /// How long a node is gone.
    pub outage: (Millis, Millis),
}

impl Chaos {
    /// Adds a script drawn from the seed to the scenario.
    pub fn unleash(self, scenario: &mut Scenario, seed: u64) {
        let mut chance = Chance::new(seed ^ 0x5eed_c0de);
        let nodes: Vec<NodeId> = scenario.nodes.keys().cloned().collect();
        let mut services = scenario.deployments.clone();
        let names: Vec<_> = services.keys().cloned().collect();
        let mut at = Millis(0);
        loop {
            at = Millis(at.0 + 1 + chance.below(2 * self.every.0));
            if at >= self.until {
                break;
            }
            let Some(node) = chance.pick(&nodes).cloned() else { break };
            let back = Millis(at.0 + chance.between(self.outage).0).min(self.until);
            let mut say = |at: Millis, action: Action| scenario.script.push((at, action));
            match chance.below(100) {
                0..20 => {
                    say(at, Action::Crash(node.clone()));
                    say(back, Action::Return(node));
                }
                20..35 => {
                    say(at, Action::Cut(node.clone()));
                    say(back, Action::Return(node));
                }
                35..50 => say(at, Action::NewLeader),
                50..62 => say(at, Action::Kill(node)),
                62..65 => {
                    if let Some(name) = chance.pick(&names) {
                        say(at, Action::Restart(name.clone()));
                    }
                }
                65..70 => {
                    say(at, Action::Drain(node.clone()));
                    say(back, Action::Uncordon(node));
                }
                70..72 => {
                    say(at, Action::Clear(node.clone()));
                    say(back, Action::Uncordon(node));
                }
                72..77 => {
                    say(at, Action::Cordon(node.clone()));
                    say(back, Action::Uncordon(node));
                }
                77..82 => {
                    if let Some(name) = chance.pick(&names) {
                        say(at, Action::Undeploy(name.clone()));
                        say(back, Action::Deploy(name.clone(), services[name].clone()));
                    }
                }
                _ => {
                    if let Some(name) = chance.pick(&names) {
                        let changed = changed(&services[name], &mut chance, at);
                        if chance.percent(20) {
                            let images = changed.values().map(|spec| &spec.container.image);
                            let newest = images.filter(|image| **image == image_of(at)).cloned();
                            newest.for_each(|image| say(Millis(0), Action::Break(image)));
                        }
                        services.insert(name.clone(), changed.clone());
                        say(at, Action::Deploy(name.clone(), changed));
                    }
                }
            }
        }
        for node in nodes {
            scenario.script.push((self.until, Action::Return(node.clone())));
            scenario.script.push((self.until, Action::Uncordon(node)));
        }
        for (name, services) in services {
            scenario.script.push((self.until, Action::Deploy(name, services)));
        }
    }
}

fn image_of(at: Millis) -> String {
    format!("app:{}", at.0)
}

/// One service of the deployment is scaled, or gets another image.
fn changed(services: &Services, chance: &mut Chance, at: Millis) -> Services {
    let mut services = services.clone();
    let names: Vec<_> = services.keys().cloned().collect();
    let Some(name) = chance.pick(&names) else { return services };
    let mut spec = ServiceSpec::clone(&services[name]);
    let scaled = u32::try_from(chance.below(9)).unwrap_or(0);
    match &mut spec.placement.mode {
        Mode::Spread { replicas } | Mode::Pack { replicas } | Mode::Hosts { replicas, .. }
            if chance.percent(50) =>
        {
            *replicas = scaled;
        }
        _ => {
            spec.container.image = image_of(at);
            // Any other value will do for a hash here: nothing is looked up by it but the spec itself.
            let mut digits = Chance::new(at.0);
            for chunk in spec.hash.0.chunks_mut(8) {
                chunk.copy_from_slice(&digits.draw().to_be_bytes());
            }
        }
    }
    services.insert(name.clone(), Arc::new(spec));
    services
}
