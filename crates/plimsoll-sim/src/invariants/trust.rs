//! Any two nodes of the cell accept each other's certificate at every moment, also while its authority is rotated; but for
//! those that it goes on without, until they have joined again.

use std::collections::BTreeSet;

use plimsoll_model::{Event, NodeId};

use super::Invariant;
use crate::machine::Machine;
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct MutualTrust {
    /// Those that it goes on without, as far as they are behind.
    left_out: BTreeSet<NodeId>,
}

impl Invariant for MutualTrust {
    fn name(&self) -> &'static str {
        "trust"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        let events = world.applied.iter().flat_map(|applied| &applied.events);
        let touches = |event: &Event| matches!(event, Event::Access | Event::Node(_));
        if !world.has_trust_changed && !events.into_iter().any(touches) {
            return Ok(());
        }
        let state = &world.state;
        if let Some(rotation) = &state.access().rotation {
            self.left_out.extend(rotation.without.difference(&rotation.done).cloned());
        }
        let members: Vec<(&NodeId, &Machine)> = world
            .machines
            .iter()
            .filter(|(id, machine)| {
                let enrolled = state.node(id).and_then(|node| node.key);
                enrolled.is_some() && enrolled == machine.key
            })
            .collect();
        self.left_out.retain(|id| {
            // One that is gone and comes again, or is back in time, has what all others have.
            members.iter().any(|(member, _)| *member == id) && is_behind(world, id)
        });
        let live = || members.iter().filter(|(id, _)| !self.left_out.contains(*id));
        for (a, one) in live() {
            for (b, other) in live() {
                let shown = other.trust.signed_by.as_ref();
                if !shown.is_some_and(|shown| one.trust.anchors.contains(shown)) {
                    return Err(format!("{a} does not trust the certificate of {b}"));
                }
            }
        }
        Ok(())
    }
}

fn is_behind(world: &World<'_>, id: &NodeId) -> bool {
    let access = world.state.access();
    let signs = access.authority.as_ref().map(|it| &it.certificate);
    world.machines.get(id).is_some_and(|machine| {
        let trust = &machine.trust;
        trust.epoch != access.authority_epoch || trust.signed_by.as_ref() != signs
    })
}

#[cfg(test)]
mod tests {
    use plimsoll_model::Millis;
    use plimsoll_model::testkit::{cpus, node_id};

    use super::*;
    use crate::scenario::{Action, Scenario};
    use crate::world::EPOCH;

    #[test]
    fn a_node_that_does_not_trust_another_is_noticed_and_a_rotation_makes_none() {
        let mut scenario = Scenario::new("three", Millis::minutes(2));
        for name in ["ash", "birch", "cedar"] {
            scenario.nodes.insert(node_id(name), cpus(4));
        }
        scenario.script.push((Millis::seconds(10), Action::RotateAuthority));
        let mut world = World::new(&scenario, 7);
        let mut trust = MutualTrust::default();
        while world.step(EPOCH.plus(scenario.length)) {
            trust.check(&world).unwrap();
        }
        assert_eq!(world.state.access().authority_epoch, 3, "it has come to its end");
        let cedar = world.machines.get_mut(&node_id("cedar")).unwrap();
        cedar.trust.anchors.clear();
        world.has_trust_changed = true;
        let broken = trust.check(&world).unwrap_err();
        assert_eq!(broken, "cedar does not trust the certificate of ash");
    }
}
