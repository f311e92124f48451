//! How many replicas are missing as time goes by: wanted, but not healthy on a machine that is heard. It follows what
//! each step changed, so that a gap is known to the moment and not only where a sample happens to fall.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use plimsoll_model::{Event, Millis, NodeId, ReplicaId, ServiceKey, Slot};

use crate::machine::Link;
use crate::scenario::{Action, Scenario};
use crate::world::World;

/// The gaps of a run, from the first moment when nothing was missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Missing {
    /// When that was.
    pub complete_at: Millis,
    /// The most replicas missing at once, and when it first came to that.
    pub most: u32,
    pub most_at: Millis,
    /// The longest time on end with any of them missing, and since when.
    pub longest: Millis,
    pub longest_from: Millis,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Presence {
    pub(super) wanted: u32,
    pub(super) running: u32,
    missing: u32,
    /// The most that were missing at once since the last sample.
    peak: u32,
    services: BTreeMap<ServiceKey, Tally>,
    /// Machines that are lost or come back, and when: no command says so.
    links: VecDeque<(Millis, NodeId)>,
    /// None until nothing was missing for the first time: a cell that has just begun lacks everything.
    gaps: Option<Missing>,
    since: Option<Millis>,
}

#[derive(Debug, Clone, Default)]
struct Tally {
    wanted: u32,
    live: BTreeSet<Slot>,
    running: BTreeSet<Slot>,
}

impl Tally {
    fn running(&self) -> u32 {
        count(self.running.len())
    }

    fn missing(&self) -> u32 {
        self.wanted.saturating_sub(self.running())
    }
}

impl Presence {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let link = |(at, action): &(Millis, Action)| match action {
            Action::Crash(node)
            | Action::Cut(node)
            | Action::Wipe(node)
            | Action::Return(node)
            | Action::StopEngine(node) => Some((*at, node.clone())),
            _ => None,
        };
        let mut links: Vec<(Millis, NodeId)> = scenario.script.iter().filter_map(link).collect();
        links.sort();
        Self { links: links.into(), ..Self::default() }
    }

    /// Takes in what the last step changed.
    pub(super) fn follow(&mut self, world: &World<'_>) {
        let now = world.elapsed();
        // At its very time a link may be about to change; the first step after that sees it changed.
        while self.links.front().is_some_and(|(at, _)| *at < now) {
            let Some((at, node)) = self.links.pop_front() else { break };
            let tenants = world.state.load(&node).map(|load| &load.tenants);
            for replica in tenants.into_iter().flatten() {
                self.look(world, replica);
            }
            self.measure(at);
        }
        for event in world.applied.iter().flat_map(|applied| &applied.events) {
            match event {
                Event::Replica(replica) => self.look(world, replica),
                Event::Service(key) => self.tally(world, key, |_| {}),
                _ => {}
            }
        }
        self.measure(now);
    }

    /// The gaps until `end`; none while there was always something missing.
    pub(super) fn missing(&self, end: Millis) -> Option<Missing> {
        let mut gaps = self.gaps?;
        gaps.close(self.since, end);
        Some(gaps)
    }

    /// The most missing at once since this was last asked.
    pub(super) fn take_peak(&mut self) -> u32 {
        std::mem::take(&mut self.peak).max(self.missing)
    }

    fn look(&mut self, world: &World<'_>, replica: &ReplicaId) {
        let row = world.state.replica(replica);
        let assignment = row.and_then(|row| row.assignment.as_ref());
        let runs = assignment.is_some_and(|assignment| {
            let machine = world.machines.get(&assignment.node);
            let machine = machine.filter(|machine| machine.link == Link::Up);
            let container = machine.and_then(|m| m.container(replica, assignment.generation));
            container.is_some_and(|container| container.is_healthy)
        });
        self.tally(world, &replica.service, |tally| {
            put(&mut tally.live, &replica.slot, assignment.is_some());
            put(&mut tally.running, &replica.slot, runs);
        });
    }

    fn tally(&mut self, world: &World<'_>, key: &ServiceKey, change: impl FnOnce(&mut Tally)) {
        let tally = self.services.entry(key.clone()).or_default();
        let (wanted, running, missing) = (tally.wanted, tally.running(), tally.missing());
        change(tally);
        let desired = world.state.service(key).and_then(|service| service.desired());
        let asked = desired.and_then(|spec| spec.placement.mode.replicas());
        tally.wanted = asked.unwrap_or(count(tally.live.len()));
        self.wanted = self.wanted - wanted + tally.wanted;
        self.running = self.running - running + tally.running();
        self.missing = self.missing - missing + tally.missing();
    }

    fn measure(&mut self, now: Millis) {
        if self.missing == 0 {
            let since = self.since.take();
            match &mut self.gaps {
                Some(gaps) => gaps.close(since, now),
                None if self.wanted > 0 => {
                    self.gaps = Some(Missing { complete_at: now, ..Missing::default() });
                }
                None => {}
            }
        } else if let Some(gaps) = &mut self.gaps {
            self.since.get_or_insert(now);
            self.peak = self.peak.max(self.missing);
            if self.missing > gaps.most {
                (gaps.most, gaps.most_at) = (self.missing, now);
            }
        }
    }
}

impl Missing {
    fn close(&mut self, since: Option<Millis>, now: Millis) {
        let Some(since) = since else { return };
        let span = Millis(now.0.saturating_sub(since.0));
        if span > self.longest {
            (self.longest, self.longest_from) = (span, since);
        }
    }
}

fn put(slots: &mut BTreeSet<Slot>, slot: &Slot, is_in: bool) {
    if is_in {
        if !slots.contains(slot) {
            slots.insert(slot.clone());
        }
    } else {
        slots.remove(slot);
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use plimsoll_model::testkit::{cpus, node_id, spread};
    use plimsoll_model::{DeploymentName, ServiceName};

    use super::*;
    use crate::run;

    /// Three replicas on three nodes, one of which is gone from 10 to 20 minutes; with `spare` there is a fourth.
    fn gaps(spare: bool, lose: fn(NodeId) -> Action) -> Missing {
        let mut scenario = Scenario::new("gaps", Millis::minutes(40));
        let names = ["ash", "birch", "cedar", "dogwood"];
        for name in &names[..if spare { 4 } else { 3 }] {
            scenario.nodes.insert(node_id(name), cpus(1));
        }
        let web = (ServiceName::new("web").unwrap(), spread(3).reserve(600, 64).into());
        scenario.deployments.insert(DeploymentName::new("shop").unwrap(), [web].into());
        scenario.script.push((Millis::minutes(10), lose(node_id("ash"))));
        scenario.script.push((Millis::minutes(20), Action::Return(node_id("ash"))));
        let outcome = run(&scenario, 1, &mut |_| {});
        assert_eq!(outcome.failure, None);
        outcome.report.missing(scenario.length).expect("everything ran at first")
    }

    #[test]
    fn a_gap_begins_with_the_loss_and_ends_when_the_replica_runs_again() {
        for (case, spare, lose) in [
            ("nowhere else to go", false, Action::Crash as fn(NodeId) -> Action),
            ("it runs on, but unheard", false, Action::Cut),
            ("another node takes it", true, Action::Crash),
        ] {
            let found = gaps(spare, lose);
            assert_eq!((found.most, found.most_at), (1, Millis::minutes(10)), "{case}");
            assert_eq!(found.longest_from, Millis::minutes(10), "{case}");
            let back = if spare { Millis::seconds(20) } else { Millis::minutes(10) };
            let late = found.longest.0.checked_sub(back.0);
            assert!(late.is_some_and(|late| late < 25_000), "{case}: {}", found.longest);
        }
    }
}
