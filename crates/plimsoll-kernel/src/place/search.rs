//! The same answer as [`scan`](super::scan), found through the tree: cost grows with the logarithm of the cell.
//!
//! Zones are tried from the least crowded up, nodes within them likewise: nodes that hold more of the service than
//! the zone's water line are hidden in the tree, and the line rises only when nothing below it is left.

use std::cmp::Reverse;
use std::ops::Range;

use plimsoll_model::Mode;
use plimsoll_model::reason::FilterWord;

use super::filter::{PlacementRequest, filter};
use super::rank::{RankFacts, preferred, score};
use super::ring;
use super::roster::{NodeSlot, Roster};
use super::tree::{Burden, LINES, Need};
use super::{ChosenNode, ServiceTally};

/// A search kept open while one service's replicas are placed.
#[derive(Debug)]
pub(super) struct NodeSearch {
    need: Need,
    order: SearchOrder,
    zones: Vec<ZoneView>,
    /// The classes that suit the service, for drawing where in the ring to start.
    stretches: Vec<Stretch>,
    eligible: u32,
    hidden: Vec<usize>,
    /// Nodes where the service failed of late: hidden until nothing else is left.
    last_choice: Vec<usize>,
}

/// What nodes of equal score are told apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SearchOrder {
    /// By what they bear, and then along the ring.
    Even,
    /// By how few replicas they run, and then by name: `pack`.
    Fewest,
    /// By how little of them is left, and then by name: `binpack`.
    Fullest,
}

impl SearchOrder {
    fn of(mode: &Mode) -> Self {
        match mode {
            Mode::Pack { .. } => Self::Fewest,
            Mode::Binpack { .. } => Self::Fullest,
            Mode::Spread { .. } | Mode::Hosts { .. } | Mode::Global => Self::Even,
        }
    }

    /// Below which line it looks first. To `binpack` all that fits is alike.
    fn first_line(self) -> usize {
        if self == Self::Fullest { LINES - 1 } else { 0 }
    }

    /// The first of a stretch of nodes that stand by name.
    fn first_of(
        self,
        roster: &Roster,
        range: &Range<usize>,
        need: &Need,
        line: usize,
    ) -> Option<usize> {
        match self {
            Self::Fullest => roster.tree.fullest(range, need, NodeSlot::EMPTY),
            Self::Even | Self::Fewest => roster.tree.emptiest(range.clone(), need, line),
        }
    }

    /// What stretches are compared by before the names of the nodes found in them.
    fn rank(self, slot: &NodeSlot) -> u32 {
        match self {
            Self::Fullest => slot.room_left().into(),
            Self::Even | Self::Fewest => slot.replicas,
        }
    }
}

#[derive(Debug)]
struct Stretch {
    open: u32,
    open_before: u32,
}

#[derive(Debug)]
struct ZoneView {
    zone: u32,
    /// Most preferred first.
    tiers: Vec<Tier>,
    /// Nodes of the zone with more replicas of the service than this are hidden.
    water: u32,
    is_exhausted: bool,
}

/// Ranges of the ring that the service prefers alike.
#[derive(Debug)]
struct Tier {
    points: u16,
    /// The weight of the preferences met, of the weight of all.
    weights: (u32, u32),
    ranges: Vec<Range<usize>>,
    /// Below each line, no node that can be found bears less than this. Placing makes nodes bear more and hides them, so it
    /// only rises, until hidden ones are shown again.
    floors: [Burden; LINES],
}

impl Tier {
    /// The next node along the ring with room that bears no more than `most`.
    fn first(
        &self,
        roster: &Roster,
        need: &Need,
        line: usize,
        most: Burden,
        start: usize,
    ) -> Option<usize> {
        let parts = self.ranges.iter().map(|range| {
            let split = start.clamp(range.start, range.end);
            (split..range.end, range.start..split)
        });
        let first = |part: Range<usize>| roster.tree.first(part, need, line, most);
        let found = parts.filter_map(|(ahead, wrapped)| first(ahead).or_else(|| first(wrapped)));
        found.min_by_key(|at| ring::distance(start, *at, roster.len()))
    }
}

/// The best of one zone, in the order of the rank: least wins. Zones that are equally crowded compete with these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Find {
    /// Replicas of the service there.
    here: u32,
    line: usize,
    points: Reverse<u16>,
    burden: Burden,
    distance: usize,
    at: usize,
}

impl NodeSearch {
    pub(super) fn open(
        ask: &PlacementRequest<'_>,
        roster: &mut Roster,
        tally: &ServiceTally,
    ) -> Self {
        let mut search = Self {
            need: ask.need(),
            order: SearchOrder::of(&ask.spec.placement.mode),
            zones: Vec::new(),
            stretches: Vec::new(),
            eligible: 0,
            hidden: Vec::new(),
            last_choice: Vec::new(),
        };
        for class in &roster.classes {
            if class.open > 0 && ask.suits_class(class) {
                search.admit(ask, roster, class);
            }
        }
        if search.order == SearchOrder::Even {
            for at in tally.by_node.keys() {
                search.hide(roster, *at);
            }
        }
        search
    }

    fn admit(
        &mut self,
        ask: &PlacementRequest<'_>,
        roster: &Roster,
        class: &super::roster::NodeClass,
    ) {
        let open_before = roster.tree.open_before(class.range.start);
        self.stretches.push(Stretch { open: class.open, open_before });
        self.eligible += class.open;
        // Who does not ask for evenness takes all of the cell for one zone.
        let zone = if self.order == SearchOrder::Even { class.zone } else { 0 };
        if self.zones.last().is_none_or(|view| view.zone != zone) {
            self.zones.push(ZoneView { zone, tiers: Vec::new(), water: 0, is_exhausted: false });
        }
        let weights = ask.preferred(class, &roster.slots[class.range.start].id);
        let points = preferred(weights);
        let tiers = &mut self.zones.last_mut().expect("pushed just above").tiers;
        let slot = tiers.partition_point(|tier| tier.points > points);
        if tiers.get(slot).is_none_or(|tier| tier.points != points) {
            let floors = [Burden::LEAST; LINES];
            tiers.insert(slot, Tier { points, weights, ranges: Vec::new(), floors });
        }
        let ranges = &mut tiers[slot].ranges;
        match ranges.last_mut() {
            // Classes side by side are searched as one, except where ties go by name and not by ring.
            Some(last) if last.end == class.range.start && self.order == SearchOrder::Even => {
                last.end = class.range.end;
            }
            _ => ranges.push(class.range.clone()),
        }
    }

    pub(super) fn best(
        &mut self,
        ask: &PlacementRequest<'_>,
        roster: &mut Roster,
        tally: &ServiceTally,
        hash: u64,
    ) -> Option<ChosenNode> {
        let start = self.start(roster, hash)?;
        let found = if self.order == SearchOrder::Even {
            self.evenest(ask, roster, tally, start)
        } else {
            self.first_by_name(ask, roster, tally)
        };
        if found.is_none() && !self.last_choice.is_empty() {
            return super::scan::best(ask, roster, tally, hash);
        }
        let (at, line, weights) = found?;
        let band = u16::try_from(line).unwrap_or(2);
        let facts = RankFacts { zone_excess: 0, node_excess: 0, band, preferred: weights };
        Some(ChosenNode { at, score: score(&ask.spec.placement.mode, &facts) })
    }

    fn start(&self, roster: &Roster, hash: u64) -> Option<usize> {
        if self.eligible == 0 {
            return None;
        }
        let mut nth = u32::try_from(hash % u64::from(self.eligible)).unwrap_or(0);
        for stretch in &self.stretches {
            if nth < stretch.open {
                return roster.tree.nth_open(stretch.open_before + nth);
            }
            nth -= stretch.open;
        }
        None
    }

    /// The best node of the least crowded zones that have any.
    fn evenest(
        &mut self,
        ask: &PlacementRequest<'_>,
        roster: &mut Roster,
        tally: &ServiceTally,
        start: usize,
    ) -> Option<(usize, usize, (u32, u32))> {
        loop {
            let open = self.zones.iter().filter(|view| !view.is_exhausted);
            let least = open.map(|view| tally.by_zone[view.zone as usize]).min()?;
            let mut best: Option<Find> = None;
            for view in 0..self.zones.len() {
                let zone = &self.zones[view];
                if zone.is_exhausted || tally.by_zone[zone.zone as usize] != least {
                    continue;
                }
                let found = loop {
                    let found = self.nearest(ask, roster, tally, view, start);
                    if found.is_some() || !self.raise(roster, tally, view) {
                        break found;
                    }
                };
                self.zones[view].is_exhausted = found.is_none();
                best = [best, found].into_iter().flatten().min();
            }
            if let Some(find) = best {
                let tiers = &self.zones[self.view_of(roster, find.at)?].tiers;
                let weights = tiers.iter().find(|tier| tier.points == find.points.0)?.weights;
                return Some((find.at, find.line, weights));
            }
        }
    }

    fn view_of(&self, roster: &Roster, at: usize) -> Option<usize> {
        let zone = roster.class_of(at).zone;
        self.zones.binary_search_by_key(&zone, |view| view.zone).ok()
    }

    /// Within a zone: the roomiest line, the most preferred tier, what bears least, and then the next along the ring.
    fn nearest(
        &mut self,
        ask: &PlacementRequest<'_>,
        roster: &mut Roster,
        tally: &ServiceTally,
        view: usize,
        start: usize,
    ) -> Option<Find> {
        for line in 0..LINES {
            for tier in 0..self.zones[view].tiers.len() {
                let found = self.lightest_admitted(ask, roster, tally, (view, tier, line), start);
                let Some(at) = found else { continue };
                let points = Reverse(self.zones[view].tiers[tier].points);
                let (here, burden) = (tally.here(at), roster.slots[at].burden());
                let distance = ring::distance(start, at, roster.len());
                return Some(Find { here, line, points, burden, distance, at });
            }
        }
        None
    }

    /// The first along the ring of the nodes with room that bear least and that the other filters admit as well. Those they
    /// turn away are hidden on the way.
    fn lightest_admitted(
        &mut self,
        ask: &PlacementRequest<'_>,
        roster: &mut Roster,
        tally: &ServiceTally,
        (view, tier, line): (usize, usize, usize),
        start: usize,
    ) -> Option<usize> {
        loop {
            let tier = &mut self.zones[view].tiers[tier];
            let floor = tier.floors[line];
            let Some(at) = tier.first(roster, &self.need, line, floor, start) else {
                let ranges = tier.ranges.iter().cloned();
                let least = ranges.filter_map(|it| roster.tree.least(it, &self.need, line));
                // Nothing bears as little as the floor, or it would have been found: so this is higher.
                tier.floors[line] = least.min()?;
                continue;
            };
            if self.admits(ask, roster, tally, at) {
                return Some(at);
            }
        }
    }

    fn admits(
        &mut self,
        ask: &PlacementRequest<'_>,
        roster: &mut Roster,
        tally: &ServiceTally,
        at: usize,
    ) -> bool {
        let Some(filter) = filter(ask, roster, at, tally.here(at)) else { return true };
        if filter.word() == FilterWord::RecentFailures {
            self.last_choice.push(at);
        }
        self.hide(roster, at);
        false
    }

    /// Lets the zone's next fuller nodes be found. False when there are none.
    fn raise(&mut self, roster: &mut Roster, tally: &ServiceTally, view: usize) -> bool {
        let zone = &mut self.zones[view];
        let in_zone = |at: &usize| roster.class_of(*at).zone == zone.zone;
        let fuller = tally.by_node.iter().filter(|(at, here)| **here > zone.water && in_zone(at));
        let Some(level) = fuller.map(|(_, here)| *here).min() else { return false };
        zone.water = level;
        for tier in &mut zone.tiers {
            tier.floors = [Burden::LEAST; LINES];
        }
        let at_level = tally.by_node.iter().filter(|(at, here)| **here == level && in_zone(at));
        let at_level: Vec<usize> = at_level.map(|(at, _)| *at).collect();
        for at in at_level {
            roster.show(at);
        }
        true
    }

    /// `pack`: the roomiest line, the most preferred tier, then the fewest replicas of any service, then the name. `binpack`: the
    /// most preferred tier, then the least room left, then the name.
    fn first_by_name(
        &mut self,
        ask: &PlacementRequest<'_>,
        roster: &mut Roster,
        tally: &ServiceTally,
    ) -> Option<(usize, usize, (u32, u32))> {
        for line in self.order.first_line()..LINES {
            for tier in 0..self.zones.first()?.tiers.len() {
                let mut best: Option<usize> = None;
                for range in 0..self.zones[0].tiers[tier].ranges.len() {
                    let range = self.zones[0].tiers[tier].ranges[range].clone();
                    while let Some(at) = self.order.first_of(roster, &range, &self.need, line) {
                        if self.admits(ask, roster, tally, at) {
                            let key = |at: &usize| {
                                let slot = &roster.slots[*at];
                                (self.order.rank(slot), &slot.id)
                            };
                            best = best.into_iter().chain([at]).min_by_key(key);
                            break;
                        }
                    }
                }
                if let Some(at) = best {
                    return Some((at, line, self.zones[0].tiers[tier].weights));
                }
            }
        }
        None
    }

    /// A replica was put on this node. In `spread` it is now above the water.
    pub(super) fn placed(&mut self, roster: &mut Roster, at: usize) {
        if self.order == SearchOrder::Even {
            self.hide(roster, at);
        } else {
            roster.show(at);
        }
    }

    fn hide(&mut self, roster: &mut Roster, at: usize) {
        roster.hide(at);
        self.hidden.push(at);
    }

    pub(super) fn close(self, roster: &mut Roster) {
        for at in self.hidden {
            roster.show(at);
        }
    }
}
