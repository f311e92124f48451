//! What is said of replicas that found no place. The reasons are counted when the pass is over: a reason counted
//! half-way would be out of date as soon as the next service is placed, and be written again by the next pass.

use std::collections::BTreeMap;

use plimsoll_model::reason::{FilterWord, Unplaced, UnplacedReason, WaitReason};
use plimsoll_model::state::Service;
use plimsoll_model::{Change, NodeId, ReplicaId, ServiceKey, ServiceSpec};

use super::Pass;
use crate::data::VolumeBinding;
use crate::place::filter::{PlacementRequest, filter};
use crate::place::{Roster, ServiceTally, no_place};

/// A service with replicas that found no place.
pub(super) struct UnplacedService<'s> {
    pub(super) key: &'s ServiceKey,
    pub(super) service: &'s Service,
    pub(super) spec: &'s ServiceSpec,
    pub(super) missing: usize,
    /// Replicas that should move and cannot.
    pub(super) waiting: Vec<ReplicaId>,
    pub(super) among: CandidateNodes,
    /// Who of them may have others make way.
    pub(super) needs: Vec<ReplicaId>,
}

/// Which nodes have to say why.
pub(super) enum CandidateNodes {
    /// All, knowing how many replicas of the service each has.
    All(ServiceTally),
    /// Only these: a `global` service lacks nothing where it is not meant to be.
    Places(Vec<usize>),
}

impl UnplacedService<'_> {
    /// Where each replica has a volume of its own, those that are missing wait for the volumes that nobody uses.
    pub(super) fn wait_for_copies<'b>(
        &self,
        binding: VolumeBinding<'b>,
        roster: &Roster,
    ) -> VolumeBinding<'b> {
        let CandidateNodes::All(tally) = &self.among else { return binding };
        let has_none = |node: &NodeId| roster.place_of(node).is_some_and(|at| tally.here(at) == 0);
        let vacant: Vec<NodeId> = binding.vacant(has_none).into_iter().cloned().collect();
        if self.missing > vacant.len() { binding } else { binding.wait_for(&vacant) }
    }
}

impl Pass<'_> {
    pub(super) fn explain_unplaced(&mut self, roster: &mut Roster) {
        for unplaced in std::mem::take(&mut self.unplaced) {
            self.show_held(roster, unplaced.key, unplaced.spec.priority);
            let failures = &unplaced.service.row.failures;
            let binding = self.binding(unplaced.key, unplaced.spec);
            let binding = binding.map(|it| unplaced.wait_for_copies(it, roster));
            let ask = PlacementRequest::new(unplaced.spec, failures, self.policy, self.now);
            let ask = ask.bound(binding);
            let why = match &unplaced.among {
                CandidateNodes::All(tally) => no_place(&ask, roster, tally),
                CandidateNodes::Places(places) => turned_away_at(&ask, roster, places),
            };
            let why = self.why_unplaced(unplaced.key, unplaced.service, why);
            for id in &unplaced.waiting {
                self.wait(id, WaitReason::NoPlace(why.clone()));
            }
            let why = (unplaced.missing > 0).then_some(why);
            self.explain_missing(unplaced.key, unplaced.service, unplaced.missing, why);
        }
    }

    /// Written once: a reason that has not changed is not written again.
    pub(crate) fn explain_missing(
        &mut self,
        key: &ServiceKey,
        service: &Service,
        missing: usize,
        why: Option<UnplacedReason>,
    ) {
        let old = service.row.unplaced.as_ref();
        let since = old.map_or(self.now, |old| old.since);
        let missing = u32::try_from(missing).unwrap_or(u32::MAX);
        let unplaced = why.map(|why| Unplaced { missing, why, since });
        if unplaced.as_ref() != old {
            self.of_service(key, Change::SetUnplaced { service: key.clone(), unplaced });
        }
    }

    pub(super) fn wait(&mut self, id: &ReplicaId, why: WaitReason) {
        let waiting = Some(why);
        if self.state.replica(id).is_some_and(|replica| replica.waiting != waiting) {
            self.about(id, Change::SetWaiting { replica: id.clone(), waiting });
        }
    }
}

fn turned_away_at(ask: &PlacementRequest<'_>, roster: &Roster, places: &[usize]) -> UnplacedReason {
    let mut turned_away = BTreeMap::new();
    for at in places {
        let word = filter(ask, roster, *at, 0).map_or(FilterWord::IdTaken, |filter| filter.word());
        *turned_away.entry(word).or_default() += 1;
    }
    UnplacedReason::NoEligibleNode {
        nodes: u32::try_from(roster.len()).unwrap_or(u32::MAX),
        turned_away,
    }
}
