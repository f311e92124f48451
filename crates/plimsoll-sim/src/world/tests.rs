//! What a leader keeps in mind leads to the same decisions as a fresh look at everything.

use std::collections::BTreeSet;

use plimsoll_kernel::place::Roster;
use plimsoll_kernel::{Scope, reconcile};
use plimsoll_model::ServiceKey;

use super::World;
use crate::chaos::any_scenario;
use crate::world::EPOCH;

#[test]
fn a_full_pass_passes_over_no_service_that_has_something_to_do() {
    for seed in 0..200 {
        let scenario = any_scenario(seed);
        let mut world = World::new(&scenario, seed);
        while world.step(EPOCH.plus(scenario.length)) {
            let Some(leading) = world.leading.as_ref().filter(|_| !world.applied.is_empty()) else {
                continue;
            };
            let leader = &leading.leader;
            let Some(roster) = leader.roster() else { continue };
            let (state, policy, now) = (&world.state, &scenario.policy, world.leader_time());
            let mut kept = roster.clone();
            let full = reconcile(state, &mut kept, policy, Scope::All, now);
            let all: BTreeSet<ServiceKey> = state.services().keys().cloned().collect();
            let mut fresh = Roster::new(state, leader.signals(), policy);
            let by_looking = reconcile(state, &mut fresh, policy, Scope::Services(&all), now);
            assert_eq!(full, by_looking, "seed {seed} after {}", world.elapsed());
        }
    }
}
