//! The judgement itself, node by node: filter, score, and take the best. Short enough to be checked by eye; the
//! faster [`search`](super::search) must agree with it on every cell.

use std::cmp::Reverse;

use plimsoll_model::reason::{Filter, FilterWord};
use plimsoll_model::{Mode, NodeId};

use super::filter::{PlacementRequest, filter};
use super::rank::{RankFacts, Score, score};
use super::ring;
use super::roster::{Roster, Schedulability};
use super::tree::Burden;
use super::{ChosenNode, NodeVerdict, ServiceTally};

/// The best of all nodes, or of those the service lists.
pub(super) fn best(
    ask: &PlacementRequest<'_>,
    roster: &Roster,
    tally: &ServiceTally,
    hash: u64,
) -> Option<ChosenNode> {
    let places: Vec<usize> = match ask.listed() {
        Some(names) => names.iter().filter_map(|name| roster.place_of(name)).collect(),
        None => (0..roster.len()).collect(),
    };
    best_of(ask, roster, tally, hash, &places)
}

pub(super) fn best_of(
    ask: &PlacementRequest<'_>,
    roster: &Roster,
    tally: &ServiceTally,
    hash: u64,
    places: &[usize],
) -> Option<ChosenNode> {
    let start = start(ask, roster, hash)?;
    let judged = judge(ask, roster, tally, places);
    let scored = places.iter().zip(judged).filter_map(|(at, (_, score))| Some((*at, score?)));
    let best =
        scored.max_by_key(|(at, score)| (score.total(), Reverse(tie(ask, roster, start, *at))));
    best.map(|(at, score)| ChosenNode { at, score })
}

/// What decides between nodes of equal score; the least wins. `pack` and `binpack` have their
/// own order, which is not to be shaken by noise.
fn tie<'a>(
    ask: &PlacementRequest<'_>,
    roster: &'a Roster,
    start: usize,
    at: usize,
) -> (u8, Burden, usize, Option<&'a NodeId>) {
    let slot = &roster.slots[at];
    let burden = slot.burden();
    match ask.spec.placement.mode {
        Mode::Spread { .. } | Mode::Global => {
            (0, burden, ring::distance(start, at, roster.len()), None)
        }
        Mode::Pack { .. } => (0, Burden { pressure: 0, ..burden }, 0, Some(&slot.id)),
        Mode::Hosts { .. } => (0, burden, 0, Some(&slot.id)),
        Mode::Binpack { .. } => (slot.room_left(), Burden::LEAST, 0, Some(&slot.id)),
    }
}

/// What is said of every node, best first, then those turned away, by name.
pub(super) fn verdicts(
    ask: &PlacementRequest<'_>,
    roster: &Roster,
    tally: &ServiceTally,
    hash: u64,
) -> Vec<NodeVerdict> {
    let places: Vec<usize> = (0..roster.len()).collect();
    let start = start(ask, roster, hash).unwrap_or(0);
    let mut judged: Vec<(usize, NodeVerdict)> = judge(ask, roster, tally, &places)
        .into_iter()
        .enumerate()
        .map(|(at, (filter, score))| {
            let node = roster.slots[at].id.clone();
            (at, NodeVerdict { node, filter, score, here: tally.here(at) })
        })
        .collect();
    judged.sort_by_cached_key(|(at, verdict)| {
        let tie = verdict.score.map(|_| tie(ask, roster, start, *at));
        (Reverse(verdict.score.map(Score::total)), tie, roster.slots[*at].id.clone())
    });
    judged.into_iter().map(|(_, verdict)| verdict).collect()
}

/// The score of a node taken alone, for a replica that stays on it.
pub(super) fn score_alone(
    ask: &PlacementRequest<'_>,
    roster: &Roster,
    tally: &ServiceTally,
    at: usize,
) -> Option<Score> {
    judge(ask, roster, tally, &[at]).pop()?.1
}

/// The score of a node beside the best one, for a replica that counts nowhere. The best node is one of the least crowded
/// in one of the least crowded zones, so only a node of another zone needs a look at its neighbours.
pub(super) fn score_beside(
    ask: &PlacementRequest<'_>,
    roster: &Roster,
    tally: &ServiceTally,
    best: usize,
    at: usize,
) -> Score {
    let zone_of = |at: usize| roster.class_of(at).zone as usize;
    let zone_excess = tally.by_zone[zone_of(at)].saturating_sub(tally.by_zone[zone_of(best)]);
    let least = if zone_excess == 0 {
        tally.here(best)
    } else {
        let neighbours = (0..roster.len()).filter(|other| zone_of(*other) == zone_of(at));
        let open = neighbours.filter(|it| filter(ask, roster, *it, tally.here(*it)).is_none());
        open.map(|it| tally.here(it)).min().unwrap_or(0)
    };
    let facts = RankFacts {
        zone_excess,
        node_excess: tally.here(at).saturating_sub(least),
        band: roster.band(at, &ask.need()),
        preferred: ask.preferred(roster.class_of(at), &roster.slots[at].id),
    };
    score(&ask.spec.placement.mode, &facts)
}

/// Each place's filter, or its score among those that none turned away.
fn judge(
    ask: &PlacementRequest<'_>,
    roster: &Roster,
    tally: &ServiceTally,
    places: &[usize],
) -> Vec<(Option<Filter>, Option<Score>)> {
    let filters: Vec<Option<Filter>> =
        places.iter().map(|at| filter(ask, roster, *at, tally.here(*at))).collect();
    let passes = |filter: &Option<Filter>| filter.is_none();
    let last_choice = |filter: &Option<Filter>| {
        filter.as_ref().is_some_and(|f| f.word() == FilterWord::RecentFailures)
    };
    // Where it failed of late it goes only when nothing else is left.
    let none_passes = !filters.iter().any(passes);
    let admitted: Vec<bool> =
        filters.iter().map(|f| passes(f) || (none_passes && last_choice(f))).collect();

    // The least crowded zone, and the least crowded node of each zone, among the nodes that are left.
    let mut least_in_zone = vec![u32::MAX; roster.zones as usize];
    for (at, _) in places.iter().zip(&admitted).filter(|(_, admitted)| **admitted) {
        let least = &mut least_in_zone[roster.class_of(*at).zone as usize];
        *least = tally.here(*at).min(*least);
    }
    let zones = || tally.by_zone.iter().zip(&least_in_zone).filter(|(_, least)| **least < u32::MAX);
    let least_zone = zones().map(|(count, _)| *count).min().unwrap_or(0);
    // Zones that are equally crowded compete as one: the emptiest node of any of them is the measure for all.
    let least_node =
        zones().filter(|(count, _)| **count == least_zone).map(|(_, least)| *least).min();
    let least_of = |zone: usize| match least_node {
        Some(least) if tally.by_zone[zone] == least_zone => least,
        _ => least_in_zone[zone],
    };

    let need = ask.need();
    let scores = places.iter().zip(&admitted).map(|(at, admitted)| {
        let class = roster.class_of(*at);
        admitted.then(|| {
            let facts = RankFacts {
                zone_excess: tally.by_zone[class.zone as usize] - least_zone,
                node_excess: tally.here(*at) - least_of(class.zone as usize),
                band: roster.band(*at, &need),
                preferred: ask.preferred(class, &roster.slots[*at].id),
            };
            score(&ask.spec.placement.mode, &facts)
        })
    });
    let scores: Vec<Option<Score>> = scores.collect();
    filters.into_iter().zip(scores).collect()
}

/// The place in the ring where the replica starts to look: `eligible[hash mod n]`, the eligible being the open nodes of
/// the classes that suit it.
fn start(ask: &PlacementRequest<'_>, roster: &Roster, hash: u64) -> Option<usize> {
    let suits: Vec<bool> = roster.classes.iter().map(|class| ask.suits_class(class)).collect();
    let eligible = |at: &usize| {
        let slot = &roster.slots[*at];
        slot.schedulability == Schedulability::Schedulable && suits[slot.class as usize]
    };
    let count = (0..roster.len()).filter(eligible).count();
    if count == 0 {
        return None;
    }
    let nth = usize::try_from(hash % count as u64).unwrap_or(0);
    (0..roster.len()).filter(eligible).nth(nth)
}
