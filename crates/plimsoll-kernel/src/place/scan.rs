//! The judgement itself, node by node: filter, score, and take the best. Short enough to be checked by eye; the
//! faster [`search`](super::search) must agree with it on every cell.

use std::cmp::Reverse;

use plimsoll_model::Mode;
use plimsoll_model::reason::{Filter, FilterWord};

use super::filter::{Ask, filter};
use super::rank::{Score, Standing, score};
use super::ring;
use super::roster::{Door, Roster};
use super::{Choice, Tally, Verdict};

/// The best of all nodes, or of those the service lists.
pub(super) fn best(ask: &Ask<'_>, roster: &Roster, tally: &Tally, hash: u64) -> Option<Choice> {
    let places: Vec<usize> = match ask.listed() {
        Some(names) => names.iter().filter_map(|name| roster.place_of(name)).collect(),
        None => (0..roster.len()).collect(),
    };
    best_of(ask, roster, tally, hash, &places)
}

fn best_of(
    ask: &Ask<'_>,
    roster: &Roster,
    tally: &Tally,
    hash: u64,
    places: &[usize],
) -> Option<Choice> {
    let start = start(ask, roster, hash)?;
    let judged = judge(ask, roster, tally, places);
    let scored = places.iter().zip(judged).filter_map(|(at, (_, score))| Some((*at, score?)));
    let best = scored.max_by_key(|(at, score)| {
        let berth = &roster.berths[*at];
        let tie = match ask.spec.placement.mode {
            Mode::Spread { .. } | Mode::Global => (ring::distance(start, *at, roster.len()), None),
            Mode::Pack { .. } => (berth.replicas as usize, Some(&berth.id)),
            Mode::Hosts { .. } => (0, Some(&berth.id)),
        };
        (score.total(), Reverse(tie))
    });
    best.map(|(at, score)| Choice { at, score })
}

/// What is said of every node, best first, then those turned away, by name.
pub(super) fn verdicts(ask: &Ask<'_>, roster: &Roster, tally: &Tally, hash: u64) -> Vec<Verdict> {
    let places: Vec<usize> = (0..roster.len()).collect();
    let start = start(ask, roster, hash).unwrap_or(0);
    let mut judged: Vec<(usize, Verdict)> = judge(ask, roster, tally, &places)
        .into_iter()
        .enumerate()
        .map(|(at, (filter, score))| {
            let node = roster.berths[at].id.clone();
            (at, Verdict { node, filter, score, here: tally.here(at) })
        })
        .collect();
    judged.sort_by_key(|(at, verdict)| {
        let berth = &roster.berths[*at];
        let tie = match (verdict.score, &ask.spec.placement.mode) {
            (None, _) | (_, Mode::Hosts { .. }) => 0,
            (_, Mode::Spread { .. } | Mode::Global) => ring::distance(start, *at, roster.len()),
            (_, Mode::Pack { .. }) => berth.replicas as usize,
        };
        (Reverse(verdict.score.map(Score::total)), tie, berth.id.clone())
    });
    judged.into_iter().map(|(_, verdict)| verdict).collect()
}

/// The score of a node taken alone, for a replica that stays on it.
pub(super) fn score_alone(
    ask: &Ask<'_>,
    roster: &Roster,
    tally: &Tally,
    at: usize,
) -> Option<Score> {
    judge(ask, roster, tally, &[at]).pop()?.1
}

/// Each place's filter, or its score among those that none turned away.
fn judge(
    ask: &Ask<'_>,
    roster: &Roster,
    tally: &Tally,
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
            let standing = Standing {
                zone_excess: tally.by_zone[class.zone as usize] - least_zone,
                node_excess: tally.here(*at) - least_of(class.zone as usize),
                band: roster.band(*at, &need),
                preferred: ask.preferred(class, &roster.berths[*at].id),
            };
            score(&ask.spec.placement.mode, &standing)
        })
    });
    let scores: Vec<Option<Score>> = scores.collect();
    filters.into_iter().zip(scores).collect()
}

/// The place in the ring where the replica starts to look: `eligible[hash mod n]`, the eligible being the open nodes of
/// the classes that suit it.
fn start(ask: &Ask<'_>, roster: &Roster, hash: u64) -> Option<usize> {
    let suits: Vec<bool> = roster.classes.iter().map(|class| ask.suits_class(class)).collect();
    let eligible = |at: &usize| {
        let berth = &roster.berths[*at];
        berth.door == Door::Open && suits[berth.class as usize]
    };
    let count = (0..roster.len()).filter(eligible).count();
    if count == 0 {
        return None;
    }
    let nth = usize::try_from(hash % count as u64).unwrap_or(0);
    (0..roster.len()).filter(eligible).nth(nth)
}
