//! Where a replica goes: given a service, the cell and what each node holds, the one best node, or none.
//!
//! A node is first filtered, then scored; ties fall to the mode's own order. [`scan`] does just that over a list of
//! nodes and is what `explain` prints; [`search`] finds the same node without looking at each. Which replicas need
//! a place is settled in [`reconcile`](crate::reconcile).

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::reason::{Filter, UnplacedReason};
use plimsoll_model::{Mode, NodeId, ReplicaId, Resources};

pub(crate) mod filter;
pub mod rank;
pub(crate) mod ring;
pub mod roster;
mod scan;
mod search;
mod tree;

#[cfg(test)]
pub(crate) mod tests;

use filter::PlacementRequest;
pub use rank::Score;
pub use roster::Roster;
use roster::Schedulability;
use search::NodeSearch;

/// A node found for a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChosenNode {
    pub(crate) at: usize,
    pub(crate) score: Score,
}

/// What a replica that is on a node finds as if it were nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeComparison {
    pub(crate) best: ChosenNode,
    /// Of the node it is on.
    pub(crate) current: Score,
}

/// What is said of one node when a replica looks for a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeVerdict {
    pub node: NodeId,
    pub filter: Option<Filter>,
    /// Only of a node that no filter turned away, or that is the last choice.
    pub score: Option<Score>,
    /// The service's replicas there already.
    pub here: u32,
}

/// Places the replicas of one service, one after another, each counting for the next.
#[derive(Debug)]
pub(crate) struct Placer<'a> {
    roster: &'a mut Roster,
    ask: PlacementRequest<'a>,
    tally: ServiceTally,
    /// Made when the first replica needs it: most services need none.
    search: Option<NodeSearch>,
}

/// The service's replicas by node and by zone.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServiceTally {
    /// By place in the ring; only nodes that hold some.
    pub(crate) by_node: BTreeMap<usize, u32>,
    /// By zone of the roster.
    pub(crate) by_zone: Vec<u32>,
}

impl ServiceTally {
    pub(crate) fn here(&self, at: usize) -> u32 {
        self.by_node.get(&at).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, at: usize, zone: u32) {
        *self.by_node.entry(at).or_default() += 1;
        self.by_zone[zone as usize] += 1;
    }

    pub(crate) fn subtract(&mut self, at: usize, zone: u32) {
        let Some(here) = self.by_node.get_mut(&at) else { return };
        *here -= 1;
        if *here == 0 {
            self.by_node.remove(&at);
        }
        self.by_zone[zone as usize] -= 1;
    }
}

impl<'a> Placer<'a> {
    /// `headings` are the nodes the service's replicas are on or on their way to.
    pub(crate) fn new<'n>(
        roster: &'a mut Roster,
        ask: PlacementRequest<'a>,
        headings: impl Iterator<Item = &'n NodeId>,
    ) -> Self {
        let mut tally =
            ServiceTally { by_zone: vec![0; roster.zones as usize], ..ServiceTally::default() };
        for at in headings.filter_map(|node| roster.place_of(node)) {
            tally.add(at, roster.class_of(at).zone);
        }
        Self { roster, ask, tally, search: None }
    }

    pub(crate) fn roster(&self) -> &Roster {
        self.roster
    }

    /// A replica that is to move counts nowhere while its next node is looked for.
    pub(crate) fn lift(&mut self, node: &NodeId) {
        let Some(at) = self.roster.place_of(node) else { return };
        self.tally.subtract(at, self.roster.class_of(at).zone);
        if let Some(search) = self.search.take() {
            search.close(self.roster);
        }
    }

    /// A replica that ends counts nowhere from now on, though its room is free only once it has stopped.
    pub(crate) fn end(&mut self, node: &NodeId) {
        self.lift(node);
        self.roster.end_one(node);
    }

    /// Puts back what [`lift`](Self::lift) took, when the replica stays after all.
    pub(crate) fn lower(&mut self, node: &NodeId) {
        let Some(at) = self.roster.place_of(node) else { return };
        self.count(at);
    }

    /// As [`lift`](Self::lift), and its room and ports are free as well: the cell as if the replica were nowhere.
    pub(crate) fn lift_whole(&mut self, replica: &ReplicaId, node: &NodeId) {
        self.lift(node);
        if let Some(at) = self.roster.place_of(node) {
            self.roster.give_up(at, self.ask.request, replica);
            self.roster.show(at);
        }
    }

    /// The best node of a replica as if it were nowhere, and what the one it is on scores by the same measure. None where
    /// there is no other, or where every other is more crowded with the service. All is as before afterwards.
    pub(crate) fn compare(&mut self, replica: &ReplicaId, node: &NodeId) -> Option<NodeComparison> {
        let at = self.roster.place_of(node)?;
        self.lift_whole(replica, node);
        let best = self.best(replica);
        let compared = best.filter(|best| best.at != at && !self.is_more_crowded(best.at, at));
        let compared = compared.map(|best| NodeComparison {
            best,
            current: scan::score_beside(&self.ask, self.roster, &self.tally, best.at, at),
        });
        self.put_back(replica, at);
        compared
    }

    /// What the node that a replica is on scores for it, as if it were nowhere; none where it would be turned down. All is as
    /// before afterwards.
    pub(crate) fn score_again(&mut self, replica: &ReplicaId, node: &NodeId) -> Option<Score> {
        let at = self.roster.place_of(node)?;
        self.lift_whole(replica, node);
        let best = self.best(replica);
        let is_free = filter::filter(&self.ask, self.roster, at, self.tally.here(at)).is_none();
        let best = best.filter(|_| is_free);
        let score =
            best.map(|best| scan::score_beside(&self.ask, self.roster, &self.tally, best.at, at));
        self.put_back(replica, at);
        score
    }

    /// Puts back what [`lift_whole`](Self::lift_whole) took.
    fn put_back(&mut self, replica: &ReplicaId, at: usize) {
        if let Some(search) = self.search.take() {
            search.close(self.roster);
        }
        self.roster.take(at, self.ask.request, &self.ask.ports, replica);
        self.count(at);
    }

    /// Whether a node, or its zone, has more of the service than another.
    fn is_more_crowded(&self, at: usize, than: usize) -> bool {
        let crowd = |at: usize| {
            (self.tally.by_zone[self.roster.class_of(at).zone as usize], self.tally.here(at))
        };
        self.ask.spec.placement.mode.is_even() && crowd(at) > crowd(than)
    }

    pub(crate) fn best(&mut self, replica: &ReplicaId) -> Option<ChosenNode> {
        let start = ring::hash(replica);
        if self.ask.listed().is_some() || self.ask.is_particular() {
            return scan::best(&self.ask, self.roster, &self.tally, start);
        }
        if self.search.is_none() {
            self.search = Some(NodeSearch::open(&self.ask, self.roster, &self.tally));
        }
        let search = self.search.as_mut().expect("opened just above");
        search.best(&self.ask, self.roster, &self.tally, start)
    }

    /// The best of the nodes that have a volume for one more replica of the service, and how many such nodes there are.
    pub(crate) fn best_copy(&mut self, replica: &ReplicaId) -> (Option<ChosenNode>, usize) {
        let vacant: Vec<usize> = self.vacant_copies().collect();
        let start = ring::hash(replica);
        (scan::best_of(&self.ask, self.roster, &self.tally, start, &vacant), vacant.len())
    }

    /// The nodes that have a volume of the service, one for each replica, and no replica.
    fn vacant_copies(&self) -> impl Iterator<Item = usize> {
        let has_none =
            |node: &NodeId| self.roster.place_of(node).is_some_and(|at| self.tally.here(at) == 0);
        let vacant = self.ask.binding.iter().flat_map(move |binding| binding.vacant(has_none));
        vacant.filter_map(|node| self.roster.place_of(node))
    }

    /// Why a replica on the node would find a volume of its own empty there.
    pub(crate) fn is_volume_elsewhere(&self, node: &NodeId) -> Option<Filter> {
        self.ask.binding.as_ref()?.is_elsewhere(node)
    }

    /// Gives the replica its place: its room and its ports count from now on.
    pub(crate) fn take(&mut self, at: usize, replica: &ReplicaId) {
        self.roster.take(at, self.ask.request, &self.ask.ports, replica);
        self.count(at);
        if let Some(binding) = &mut self.ask.binding {
            binding.settle(self.roster.id_at(at));
        }
    }

    /// Gives the replica's new copy the place of its old one, which set `freed` aside there; or says why not.
    pub(crate) fn take_in_place(
        &mut self,
        replica: &ReplicaId,
        node: &NodeId,
        freed: Resources,
    ) -> Result<(), Filter> {
        take_in_place(self.roster, &self.ask, replica, node, freed)?;
        if let Some(binding) = &mut self.ask.binding {
            binding.settle(node);
        }
        Ok(())
    }

    fn count(&mut self, at: usize) {
        self.tally.add(at, self.roster.class_of(at).zone);
        match self.search.as_mut() {
            Some(search) => search.placed(self.roster, at),
            None => self.roster.show(at),
        }
    }

    /// What every node has to say to one more replica.
    pub(crate) fn verdicts(&self, replica: &ReplicaId) -> Vec<NodeVerdict> {
        scan::verdicts(&self.ask, self.roster, &self.tally, ring::hash(replica))
    }

    /// The node it is on, if that can hold a second copy beside the first for a while.
    pub(crate) fn stay(&self, node: &NodeId) -> Option<ChosenNode> {
        let at = self.roster.place_of(node)?;
        if filter::filter(&self.ask, self.roster, at, self.tally.here(at)).is_some() {
            return None;
        }
        Some(ChosenNode { at, score: scan::score_alone(&self.ask, self.roster, &self.tally, at)? })
    }

    /// `hosts` schedules nothing until as many of its nodes are ready as it needs.
    pub(crate) fn unmet_hosts(&self) -> Option<UnplacedReason> {
        let Mode::Hosts { replicas, hosts } = &self.ask.spec.placement.mode else { return None };
        // A cordoned host takes nothing new, and keeps what it has.
        let is_ready = |node: &NodeId| {
            let Some(at) = self.roster.place_of(node) else { return false };
            match self.roster.slots[at].schedulability {
                Schedulability::Schedulable => true,
                Schedulability::Cordoned | Schedulability::RuntimeUnavailable => {
                    self.tally.here(at) > 0
                }
                Schedulability::NotReady | Schedulability::Draining => false,
            }
        };
        let needed = (*replicas).min(u32::try_from(hosts.len()).unwrap_or(u32::MAX));
        let missing: BTreeSet<NodeId> =
            hosts.iter().filter(|node| !is_ready(node)).cloned().collect();
        let ready = hosts.len() - missing.len();
        (ready < needed as usize)
            .then_some(UnplacedReason::CannotSatisfyHostPlacement { needed, missing })
    }

    pub(crate) fn close(mut self) -> ServiceTally {
        if let Some(search) = self.search.take() {
            search.close(self.roster);
        }
        self.tally
    }
}

/// Gives a replica's new copy the place of its old one, which set `freed` aside there; or says why not.
pub(crate) fn take_in_place(
    roster: &mut Roster,
    ask: &PlacementRequest<'_>,
    replica: &ReplicaId,
    node: &NodeId,
    freed: Resources,
) -> Result<(), Filter> {
    let Some(at) = roster.place_of(node) else { return Ok(()) };
    if let Some(filter) = filter::in_place(ask, &roster.slots[at], replica, freed) {
        return Err(filter);
    }
    let capacity = roster.slots[at].capacity;
    let raised = ask.request.on(capacity).minus(freed.on(capacity));
    roster.renew(at, raised, &ask.ports, replica);
    Ok(())
}

/// Why no node can take one more replica of the service.
pub(crate) fn no_place(
    ask: &PlacementRequest<'_>,
    roster: &Roster,
    tally: &ServiceTally,
) -> UnplacedReason {
    if roster.is_empty() {
        return UnplacedReason::NoNodes;
    }
    let mut turned_away = BTreeMap::new();
    for at in 0..roster.len() {
        if let Some(filter) = filter::filter(ask, roster, at, tally.here(at)) {
            *turned_away.entry(filter.word()).or_default() += 1;
        }
    }
    let nodes = u32::try_from(roster.len()).unwrap_or(u32::MAX);
    UnplacedReason::NoEligibleNode { nodes, turned_away }
}
