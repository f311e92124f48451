//! Who finds whom is read off one table, which follows the state step by step and says the same as the state as a whole: a
//! service is found on the networks that its file gives it, and on no other. A node without addresses for a network counts
//! against nobody.

use std::collections::BTreeSet;

use plimsoll_kernel::endpoints::Endpoints;
use plimsoll_model::state::Service;
use plimsoll_model::{Event, ObservedCode, ServiceKey};

use super::Invariant;
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct Networks {
    table: Endpoints,
}

impl Invariant for Networks {
    fn name(&self) -> &'static str {
        "networks"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        let mut services: BTreeSet<&ServiceKey> = BTreeSet::new();
        for applied in &world.applied {
            self.table = self.table.after(&world.state, &applied.events);
            for event in &applied.events {
                match event {
                    Event::Replica(id) => drop(services.insert(&id.service)),
                    Event::Service(key) => drop(services.insert(key)),
                    _ => {}
                }
            }
        }
        for key in services {
            let Some(service) = world.state.service(key) else { continue };
            self.check_isolation(key, service)?;
            check_failures(key, service)?;
        }
        if world.is_cycle && self.table != Endpoints::of(&world.state, Some(&self.table)) {
            return Err("the table of endpoints has missed a change".to_owned());
        }
        Ok(())
    }
}

impl Networks {
    fn check_isolation(&self, key: &ServiceKey, service: &Service) -> Result<(), String> {
        let Some(spec) = service.desired() else { return Ok(()) };
        let all = spec.container.networks.iter().filter(|(_, how)| !how.external);
        let asked: BTreeSet<String> = all
            .map(|(name, how)| {
                how.name.clone().unwrap_or_else(|| format!("{}_{name}", key.deployment))
            })
            .collect();
        // What a file that says nothing of networks has.
        let own = [format!("{}_default", key.deployment)].into();
        let asked = if spec.container.networks.is_empty() { own } else { asked };
        let entry = self.table.services.get(key);
        let found: BTreeSet<String> =
            entry.into_iter().flat_map(|entry| entry.networks.keys().cloned()).collect();
        if asked != found {
            return Err(format!("{key} asks for the networks {asked:?} and is found on {found:?}"));
        }
        Ok(())
    }
}

fn check_failures(key: &ServiceKey, service: &Service) -> Result<(), String> {
    let lacks = |code: &ObservedCode| matches!(code, ObservedCode::SubnetPoolExhausted { .. });
    let seen = service.replicas.values().flat_map(|replica| replica.observed.values());
    let mut codes = seen.filter_map(|seen| seen.code.as_ref());
    let uses_up = |code: &ObservedCode| match code {
        ObservedCode::RestartExhausted { last, .. } => lacks(last),
        _ => false,
    };
    if codes.any(uses_up) {
        return Err(format!("a replica of {key} is given up for want of addresses"));
    }
    let failed = service.row.rollout.iter().flat_map(|rollout| rollout.failed.values());
    let mut failed = failed.filter(|failed| !failed.is_late);
    match failed.find(|failed| failed.code.as_ref().is_some_and(lacks)) {
        Some(failed) => Err(format!("{key} failed for want of addresses on {}", failed.node)),
        None => Ok(()),
    }
}
