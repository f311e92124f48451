//! What would happen: the scheduler's own passes over a copy of the state, with nodes that do at once as they are told. It
//! answers before anything is done, and with the very code that will do it.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::reason::Waiting;
use plimsoll_model::{
    Author, Change, Command, Guarded, MoveCause, NodeId, NodeStatus, Observation, ObservedState,
    Rejection, ReplicaId, ServiceKey, State, Timestamp, Writer,
};

use crate::agent::wanted;
use crate::place::Roster;
use crate::policy::Policy;
use crate::{Scope, Signals, reconcile};

/// More passes than any cell takes: each brings at least one replica where it belongs.
const MAX_PASSES: usize = 100_000;

/// What the cell would do about a change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Foresight {
    /// In the order in which they would begin.
    pub moves: Vec<Move>,
    /// Replicas that would end and come back nowhere.
    pub ended: Vec<ReplicaId>,
    /// Replicas that should move and could not, each with why.
    pub stuck: BTreeMap<ReplicaId, Waiting>,
    /// Services that would have fewer replicas running at some moment than they have now, and how few.
    pub short: BTreeMap<ServiceKey, Short>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    pub replica: ReplicaId,
    pub from: NodeId,
    pub to: NodeId,
    pub cause: MoveCause,
    /// It makes way before it starts again: it cannot run twice.
    pub is_stop_first: bool,
    /// Which moves may go on at the same time: those of one round.
    pub round: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Short {
    pub least: u32,
    pub of: u32,
}

/// What would come of the change, by these signals.
pub fn foresee(
    state: State,
    signals: &Signals,
    policy: &Policy,
    change: Change,
    now: Timestamp,
) -> Result<Foresight, Rejection> {
    let waiting = waits(&state);
    let mut world = World { state, now, seen: Foresight::default(), round: 0 };
    let before = world.running();
    world.apply(Writer::Operator, vec![change.free()])?;
    for _ in 0..MAX_PASSES {
        let mut roster = Roster::new(&world.state, signals, policy);
        let decision = reconcile(&world.state, &mut roster, policy, Scope::All, world.now);
        // What only explains is done once; what is left after it is nothing.
        if decision.batch.is_empty() {
            break;
        }
        world.note(&decision.batch);
        world.apply(Writer::Scheduler, decision.batch)?;
        world.compare(&before);
        world.obey()?;
        world.compare(&before);
    }
    let stuck = waits(&world.state).into_iter();
    world.seen.stuck = stuck.filter(|(id, why)| waiting.get(id) != Some(why)).collect();
    Ok(world.seen)
}

fn waits(state: &State) -> BTreeMap<ReplicaId, Waiting> {
    state.replicas().filter_map(|(id, replica)| Some((id, replica.waiting.clone()?))).collect()
}

struct World {
    state: State,
    now: Timestamp,
    seen: Foresight,
    round: usize,
}

impl World {
    fn apply(&mut self, writer: Writer, batch: Vec<Guarded>) -> Result<(), Rejection> {
        let term = plimsoll_model::Term(u64::MAX);
        let command = Command::new(self.now, term, Author::new(writer, "foresee"), batch);
        self.state.apply(&command).map(drop)
    }

    fn note(&mut self, batch: &[Guarded]) {
        let promoted: BTreeSet<&ReplicaId> = batch
            .iter()
            .filter_map(|guarded| match &guarded.change {
                Change::Promote { replica } => Some(replica),
                _ => None,
            })
            .collect();
        let before = self.seen.moves.len();
        for guarded in batch {
            match &guarded.change {
                Change::Succeed { replica, node, cause, .. } => {
                    let row = self.state.replica(replica);
                    let Some(from) = row.and_then(|row| row.assignment.as_ref()) else { continue };
                    self.seen.moves.push(Move {
                        replica: replica.clone(),
                        from: from.node.clone(),
                        to: node.clone(),
                        cause: *cause,
                        is_stop_first: promoted.contains(replica),
                        round: self.round,
                    });
                }
                Change::Retire { replica } => self.seen.ended.push(replica.clone()),
                _ => {}
            }
        }
        self.round += usize::from(self.seen.moves.len() > before);
    }

    fn running(&self) -> BTreeMap<ServiceKey, u32> {
        let mut running = BTreeMap::new();
        for (id, _) in self.state.replicas().filter(|(_, replica)| replica.is_running()) {
            *running.entry(id.service).or_default() += 1;
        }
        running
    }

    fn compare(&mut self, before: &BTreeMap<ServiceKey, u32>) {
        let now = self.running();
        for (key, of) in before {
            let least = now.get(key).copied().unwrap_or(0);
            if least < *of {
                let short = self.seen.short.entry(key.clone()).or_insert(Short { least, of: *of });
                short.least = short.least.min(least);
            }
        }
    }

    /// Every node that is up does at once as it was told.
    fn obey(&mut self) -> Result<(), Rejection> {
        let mut reports = Vec::new();
        for (id, replica) in self.state.replicas() {
            for held in replica.holds() {
                let Some(node) = self.state.node(&held.node) else { continue };
                if node.status == NodeStatus::Down {
                    continue;
                }
                let is_wanted = wanted(&self.state, &held.node, &id).any(|it| it == held);
                let state = if is_wanted {
                    ObservedState::Running
                } else if replica.leaving.contains(held) || node.is_cleared() {
                    ObservedState::Stopped
                } else {
                    // It waits for an older copy to stop elsewhere.
                    continue;
                };
                let observation = Observation { state, code: None, at: self.now };
                let (replica, generation) = (id.clone(), held.generation);
                reports.push(Change::Observe { replica, generation, observation }.free());
            }
        }
        self.apply(Writer::Agent, reports)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::Millis;
    use plimsoll_model::node::DRAIN_TIMEOUT;
    use plimsoll_model::spec::UpdateOrder;
    use plimsoll_model::testkit::{Cell, cell, cpus, global, node_id, spread};

    use super::*;
    use crate::testkit::Passes;

    fn drain(cell: &Cell, node: &str) -> Foresight {
        let change = Change::Drain { node: node_id(node), timeout: DRAIN_TIMEOUT, force: false };
        foresee(cell.state.clone(), &Signals::default(), &Policy::default(), change, cell.now)
            .unwrap()
    }

    fn three() -> Cell {
        cell().node("ash", cpus(4)).node("birch", cpus(4)).node("cedar", cpus(4))
    }

    #[test]
    fn a_drain_is_foretold_as_it_then_happens() {
        let mut single = spread(1).image("once");
        single.update.order = UpdateOrder::StopFirst;
        let services =
            [("web", spread(6)), ("db", spread(3).volume("d")), ("all", global()), ("one", single)];
        let mut cell = three().deploy("shop", services).settle();
        let node = cell.nodes_of("shop/one").into_iter().next().unwrap();
        let foretold = drain(&cell, node.as_str());

        cell = cell.drain(node.as_str());
        let mut happened = Vec::new();
        for _ in 0..20 {
            for guarded in crate::testkit::decide(&cell).batch {
                if let Change::Succeed { replica, node, .. } = guarded.change {
                    happened.push((replica, node));
                }
            }
            cell = cell.pass().obey();
        }
        let told: Vec<_> =
            foretold.moves.iter().map(|it| (it.replica.clone(), it.to.clone())).collect();
        assert_eq!(told, happened);
        assert_eq!(told.len(), 3, "two of web, and the one");
        let stop_first: Vec<_> =
            foretold.moves.iter().filter(|it| it.is_stop_first).map(|it| &it.replica).collect();
        assert_eq!(stop_first.len(), 1, "{stop_first:?}");
        assert_eq!(foretold.stuck.values().map(Waiting::word).collect::<Vec<_>>(), ["stateful"]);
        let ended: Vec<_> = foretold.ended.iter().map(|id| id.service.service.as_str()).collect();
        assert_eq!(ended, ["all"]);
        let short: Vec<_> = foretold
            .short
            .iter()
            .map(|(key, short)| (key.service.as_str(), short.least, short.of))
            .collect();
        assert_eq!(short, [("all", 2, 3), ("one", 0, 1)], "who is missed, and no one else");
    }

    #[test]
    fn what_finds_no_room_is_foretold_with_its_reason() {
        let cell = cell().node("ash", cpus(1)).node("birch", cpus(1));
        let cell = cell.deploy("shop", [("web", spread(2).reserve(900, 64))]).settle();
        let foretold = drain(&cell, "ash");
        assert_eq!(foretold.moves, vec![]);
        let words: Vec<_> = foretold.stuck.values().map(Waiting::word).collect();
        assert_eq!(words, ["no_eligible_node"]);
    }

    #[test]
    fn a_drain_that_nothing_comes_of_is_given_up_and_everything_runs_on() {
        let cell = three().deploy("shop", [("db", spread(3).volume("d"))]).settle().drain("ash");
        let cell = cell.settle().later(Millis(DRAIN_TIMEOUT.0 - 1)).settle();
        assert!(!cell.state.node(&node_id("ash")).unwrap().drain.unwrap().has_timed_out);
        let cell = cell.later(Millis(1)).settle();
        let node = cell.state.node(&node_id("ash")).unwrap();
        assert!(node.drain.unwrap().has_timed_out && !node.is_open());
        assert_eq!(cell.state.replicas().filter(|(_, r)| r.is_running()).count(), 3);
        let word = cell.state.audit().events().map(|event| event.what.word());
        assert_eq!(word.filter(|word| *word == "drain_timeout").count(), 1);
    }

    #[test]
    fn what_is_stopped_by_force_is_foretold_as_missed() {
        let cell = three().deploy("shop", [("db", spread(1).volume("d"))]).settle();
        let node = cell.nodes_of("shop/db").into_iter().next().unwrap();
        let change = Change::Drain { node, timeout: DRAIN_TIMEOUT, force: true };
        let policy = Policy::default();
        let foretold = foresee(cell.state.clone(), &Signals::default(), &policy, change, cell.now);
        let short: Vec<_> = foretold.unwrap().short.into_values().collect();
        assert_eq!(short, [Short { least: 0, of: 1 }]);
    }

    #[test]
    fn by_force_what_cannot_move_is_stopped_and_comes_back_with_its_node() {
        let mut cell = three().deploy("shop", [("db", spread(3).volume("d"))]).settle();
        let places = cell.placed("shop/db");
        let (node, timeout) = (node_id("ash"), DRAIN_TIMEOUT);
        cell.change(Writer::Operator, Change::Drain { node, timeout, force: true });
        let wants = |cell: &Cell| {
            let ids: Vec<_> = cell.state.replicas().map(|(id, _)| id).collect();
            let node = node_id("ash");
            ids.iter().map(|id| wanted(&cell.state, &node, id).count()).sum::<usize>()
        };
        let mut cell = cell.pass();
        assert_eq!(wants(&cell), 0, "nothing is asked of the node");
        let held: Vec<_> = cell
            .state
            .replicas()
            .filter_map(|(id, replica)| {
                let here = replica.assignment.as_ref().filter(|it| it.node == node_id("ash"))?;
                Some((id, here.generation))
            })
            .collect();
        for (id, generation) in &held {
            cell.report(id, *generation, ObservedState::Stopped, None);
        }
        let mut cell = cell.pass().pass();
        for (id, generation) in &held {
            let seen = &cell.state.replica(id).unwrap().observed[generation];
            assert_eq!(seen.state, ObservedState::Stopped, "what was stopped stays so");
        }
        let availability = plimsoll_model::Availability::Active;
        cell.change(
            Writer::Operator,
            Change::SetAvailability { node: node_id("ash"), availability },
        );
        let cell = cell.settle();
        assert_eq!(cell.placed("shop/db"), places, "its data is where it was");
        assert_eq!(cell.state.replicas().filter(|(_, r)| r.is_running()).count(), 3);
    }
}
