//! What is said of replicas that found no place. The reasons are counted when the pass is over: a reason counted
//! half-way would be out of date as soon as the next service is placed, and be written again by the next pass.

use std::collections::BTreeMap;

use plimsoll_model::reason::{FilterWord, NoPlace, Unplaced, Waiting};
use plimsoll_model::state::Service;
use plimsoll_model::{Change, ReplicaId, ServiceKey, ServiceSpec};

use super::Pass;
use crate::place::filter::{Ask, filter};
use crate::place::{Roster, Tally, no_place};

/// A service with replicas that found no place.
pub(super) struct Nowhere<'s> {
    pub(super) key: &'s ServiceKey,
    pub(super) service: &'s Service,
    pub(super) spec: &'s ServiceSpec,
    pub(super) missing: usize,
    /// Replicas that should move and cannot.
    pub(super) waiting: Vec<ReplicaId>,
    pub(super) among: Among,
}

/// Which nodes have to say why.
pub(super) enum Among {
    /// All, knowing how many replicas of the service each has.
    All(Tally),
    /// Only these: a `global` service lacks nothing where it is not meant to be.
    Places(Vec<usize>),
}

impl Pass<'_> {
    pub(super) fn explain_nowhere(&mut self, roster: &Roster) {
        for nowhere in std::mem::take(&mut self.nowhere) {
            let failures = &nowhere.service.row.failures;
            let ask = Ask::new(nowhere.spec, failures, self.policy, self.now);
            let why = match &nowhere.among {
                Among::All(tally) => no_place(&ask, roster, tally),
                Among::Places(places) => turned_away_at(&ask, roster, places),
            };
            for id in &nowhere.waiting {
                self.wait(id, Waiting::NoPlace(why.clone()));
            }
            let why = (nowhere.missing > 0).then_some(why);
            self.explain_missing(nowhere.key, nowhere.service, nowhere.missing, why);
        }
    }

    /// Written once: a reason that has not changed is not written again.
    pub(super) fn explain_missing(
        &mut self,
        key: &ServiceKey,
        service: &Service,
        missing: usize,
        why: Option<NoPlace>,
    ) {
        let old = service.row.unplaced.as_ref();
        let since = old.map_or(self.now, |old| old.since);
        let missing = u32::try_from(missing).unwrap_or(u32::MAX);
        let unplaced = why.map(|why| Unplaced { missing, why, since });
        if unplaced.as_ref() != old {
            self.of_service(key, Change::SetUnplaced { service: key.clone(), unplaced });
        }
    }

    pub(super) fn wait(&mut self, id: &ReplicaId, why: Waiting) {
        let waiting = Some(why);
        if self.state.replica(id).is_some_and(|replica| replica.waiting != waiting) {
            self.about(id, Change::SetWaiting { replica: id.clone(), waiting });
        }
    }
}

fn turned_away_at(ask: &Ask<'_>, roster: &Roster, places: &[usize]) -> NoPlace {
    let mut turned_away = BTreeMap::new();
    for at in places {
        let word = filter(ask, roster, *at, 0).map_or(FilterWord::IdTaken, |filter| filter.word());
        *turned_away.entry(word).or_default() += 1;
    }
    NoPlace::NoEligibleNode { nodes: u32::try_from(roster.len()).unwrap_or(u32::MAX), turned_away }
}
