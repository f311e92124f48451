//! Why nothing moves off a node, or what is about to: every gate with its number and its limit.

use plimsoll_model::{NodeId, Pressure, ReplicaId, State, Timestamp};

use super::gates::{Gate, Limits};
use super::score::Search;
use super::view::{View, top};
use super::{Memory, Readings, hottest};
use crate::place::Roster;
use crate::policy::Policy;

/// What the rebalancer has to say of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Cpu and memory, smoothed, with every move under way counted as done.
    pub pressure: [Pressure; 2],
    /// `trigger`, `imbalance`, and whether its turn has come.
    pub gates: Vec<Gate>,
    /// The move that is nearest to passing, or passes; none where nothing on it may move at all, or nobody can take it.
    pub nearest: Option<Weighed>,
}

/// A move and every gate it must pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weighed {
    pub replica: ReplicaId,
    pub dst: NodeId,
    pub gates: Vec<Gate>,
}

impl Account {
    /// The first gate that says no.
    pub fn blocked(&self) -> Option<&Gate> {
        let weighed = self.nearest.iter().flat_map(|nearest| &nearest.gates);
        self.gates.iter().chain(weighed).find(|gate| !gate.passes)
    }
}

/// Accounts for one node as of the last cycle; none where nothing was measured of it of late.
#[expect(clippy::too_many_arguments, reason = "what a cycle takes, and a node")]
pub fn account(
    state: &State,
    roster: &Roster,
    policy: &Policy,
    limits: &Limits,
    readings: &Readings,
    memory: &Memory,
    now: Timestamp,
    node: &NodeId,
) -> Option<Account> {
    let view = View { state, roster, policy, limits, readings, now };
    let (felt, nodes) = (memory.predicted(), memory.nodes());
    let at = nodes.iter().position(|it| it.node == *node)?;
    let here = top(felt[at].mean);
    let coolest = felt.iter().map(|it| top(it.mean)).min().unwrap_or_default();
    let gap = Pressure::from_millionths(here.millionths() - coolest.millionths());
    let mut gates = vec![
        Gate {
            name: "trigger",
            found: format!("{here} in {} on end", cycles(nodes[at].hot)),
            limit: format!("≥ {} in {} on end", limits.trigger, cycles(limits.trigger_cycles)),
            passes: nodes[at].hot >= limits.trigger_cycles,
        },
        Gate {
            name: "imbalance",
            found: gap.to_string(),
            limit: format!("≥ {}", limits.imbalance),
            passes: gap >= limits.imbalance,
        },
    ];
    if let Some(first) = hottest(&felt, nodes, limits).filter(|first| *first != at) {
        gates.push(Gate {
            name: "turn",
            found: format!("{} is hotter", nodes[first].node),
            limit: "the hottest first".to_owned(),
            passes: false,
        });
    }
    let search = Search::new(&view, nodes, &felt, at);
    let nearest = search.closest().map(|(replica, dst, offer)| Weighed {
        replica: replica.clone(),
        dst: dst.clone(),
        gates: offer.gates(limits).into(),
    });
    Some(Account { pressure: felt[at].mean, gates, nearest })
}

fn cycles(count: u32) -> String {
    if count == 1 { "1 cycle".to_owned() } else { format!("{count} cycles") }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::testkit::{cell, cpus, node_id, spread};

    use super::super::tests::{Bench, hot};
    use super::*;
    use crate::Signals;

    fn told(bench: &Bench, node: &str) -> Option<Account> {
        let policy = Policy::default();
        let (state, now) = (&bench.cell.state, bench.cell.now);
        let roster = Roster::new(state, &Signals::default(), &policy);
        let (limits, readings, memory) = (Limits::default(), &bench.readings, &bench.memory);
        account(state, &roster, &policy, &limits, readings, memory, now, &node_id(node))
    }

    fn lines(account: &Account) -> Vec<String> {
        let nearest = account.nearest.iter().flat_map(|nearest| &nearest.gates);
        let line = |gate: &Gate| {
            let is = if gate.passes { "passes" } else { "blocks" };
            format!("{} {} ({}) {is}", gate.name, gate.found, gate.limit)
        };
        account.gates.iter().chain(nearest).map(line).collect()
    }

    #[test]
    fn every_gate_is_told_with_its_number_and_its_limit() {
        let mut bench = hot();
        bench.cycle(&[("ash", 96), ("birch", 10)]);
        let ash = told(&bench, "ash").unwrap();
        assert_eq!(
            lines(&ash),
            [
                "trigger 0.96 in 1 cycle on end (≥ 0.85 in 2 cycles on end) blocks",
                "imbalance 0.86 (≥ 0.25) passes",
                "cooldown_replica 20m (≥ 10m) passes",
                "cooldown_node never (≥ 2m) passes",
                "resource_limits 0.34 (≤ 1.00) passes",
                "anti_affinity free (free) passes",
                "dst_cap 0.34 (< 0.75) passes",
                "relief_floor 0.24 (≥ 0.10) passes",
            ]
        );
        assert_eq!(ash.blocked().map(|gate| gate.name), Some("trigger"));
        bench.cycle(&[("ash", 96), ("birch", 10)]);
        let ash = told(&bench, "ash").unwrap();
        assert!(ash.nearest.is_some(), "{ash:?}");
    }

    #[test]
    fn what_no_gate_blocks_is_what_the_cycle_moves_and_the_other_way_round() {
        let cell = cell().node("ash", cpus(4)).node("birch", cpus(4));
        let mut bench = Bench::new(cell.deploy("d", [("s", spread(2).reserve(3_000, 64))]));
        let outcome = bench.twice(&[("ash", 96), ("birch", 10)]);
        let super::super::Outcome::Skipped { why, .. } = outcome else { panic!("{outcome:?}") };
        let ash = told(&bench, "ash").unwrap();
        assert_eq!(ash.blocked().map(|gate| gate.name), Some(why.word()));
        let birch = told(&bench, "birch").unwrap();
        assert_eq!(birch.blocked().map(|gate| gate.name), Some("trigger"));
        assert_eq!(
            told(&bench, "cedar"),
            None,
            "of a node that says nothing there is nothing to say"
        );
    }

    #[test]
    fn a_node_that_is_not_the_hottest_waits_for_its_turn() {
        let mut bench = hot();
        bench.cell = bench.cell.node("cedar", cpus(4)).node("dogwood", cpus(4));
        let samples = [("ash", 90), ("birch", 95), ("cedar", 10), ("dogwood", 12)];
        bench.twice(&samples);
        let ash = told(&bench, "ash").unwrap();
        assert_eq!(ash.blocked().map(|gate| gate.name), Some("turn"));
    }
}
