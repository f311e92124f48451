//! Why a replica went where it did: the pass that sent it is decided once more, on the state it saw.

use plimsoll_kernel::place::{Score, Verdict};
use plimsoll_kernel::{Signals, explain};
use plimsoll_model::{NodeId, ReplicaId, State};
use plimsoll_sim::world::World;

use crate::case::Cell;
use crate::decided::{Decided, Moments};

/// The reason in a few words, with the scores that decided.
pub(super) fn chosen(
    world: &World<'_>,
    before: &State,
    replica: &ReplicaId,
    dst: &NodeId,
) -> String {
    reason(world, before, replica, dst).unwrap_or_else(|| "it can take it".to_owned())
}

fn reason(world: &World<'_>, before: &State, replica: &ReplicaId, dst: &NodeId) -> Option<String> {
    let mut signals = Signals::default();
    for (node, pressure) in world.pressures() {
        signals.set(&node, pressure);
    }
    let (state, policy) = (before.clone(), world.scenario.policy);
    let decided = Decided::new(Cell { state, signals, policy, now: world.now() }).ok()?;
    let outcome = decided.outcome(replica)?;
    let mut moments = Moments::new(&decided);
    let moment = moments.of(outcome);
    let roster = &mut moment.roster;
    let explanation = explain::replica(&moment.state, roster, &policy, replica, world.now())?;
    let verdicts = &explanation.verdicts;
    let here = verdicts.iter().find(|verdict| verdict.node == *dst)?;
    let rival = verdicts.iter().find(|verdict| verdict.node != *dst && verdict.score.is_some());
    let Some(rival) = rival else { return Some("the only node that can take it".to_owned()) };
    compare(&moment.state, replica, here, rival)
}

/// The first part of the score in which the two differ.
fn compare(state: &State, replica: &ReplicaId, here: &Verdict, rival: &Verdict) -> Option<String> {
    let (ours, theirs) = (here.score?, rival.score?);
    let service = &replica.service.service;
    let reason = if ours.zone > theirs.zone {
        let zone = state.node(&here.node)?.facts.zone.as_ref()?;
        format!("zone {zone} has the fewest {service}")
    } else if ours.node > theirs.node && here.here == 0 {
        format!("it has no {service} yet")
    } else if ours.node > theirs.node {
        format!("it has the fewest {service}")
    } else if ours.headroom > theirs.headroom {
        "it keeps the most headroom".to_owned()
    } else if ours.preferred > theirs.preferred {
        "it meets the most preferences".to_owned()
    } else {
        return Some(format!("as good as {}, and first in its order", rival.node));
    };
    let (ours, theirs) = (ours.total(), Score::total(theirs));
    Some(format!("{reason} (score {ours}, next is {} with {theirs})", rival.node))
}
