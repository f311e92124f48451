//! Looks for a better layout: climbs by whatever brings most for each move, and when nothing brings anything more, begins again
//! with other choices, until its caller says that the time is up or many tries in a row found nothing better.
//!
//! There are three kinds of steps: one replica goes to a better place; one goes out of the way of another, which then goes to a
//! better place; and a node that only packed replicas keep in use is emptied, or as far as the moves go. A replica moves once in
//! a plan at most, since afterwards it rests.

use std::cmp::Reverse;

use plimsoll_model::optimize::OptimizeReason;

use super::LEAST_GAIN;
use super::board::Board;

/// So many tries in a row without anything better, and the search is over.
const TRIES: u32 = 32;

/// So many nodes are tried to be emptied for one step; those that are nearly empty come first.
const EVICTIONS: usize = 64;

/// So many ways to make room are looked at for one step.
const CHAINS: u64 = 200_000;

/// Steps between two looks at the clock.
const BLOCK: u64 = 4_096;

type Moves = Vec<(usize, usize, OptimizeReason)>;

pub(super) struct Search<'s, 'l> {
    board: Board<'s>,
    budget: usize,
    random: Random,
    is_late: &'l mut dyn FnMut(u64) -> bool,
    steps: u64,
    looked_at: u64,
    is_over: bool,
    best: FoundPlan,
}

/// A plan, as groups of moves that belong together.
#[derive(Debug, Clone, Default)]
pub(super) struct FoundPlan {
    groups: Vec<MoveGroup>,
    gain: i64,
}

#[derive(Debug, Clone)]
struct MoveGroup {
    moves: Moves,
    gain: i64,
}

impl FoundPlan {
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub(super) fn moves(&self) -> Moves {
        self.groups.iter().flat_map(|group| group.moves.iter().cloned()).collect()
    }

    /// Without its last group.
    pub(super) fn shorten(&mut self) {
        self.gain -= self.groups.pop().map_or(0, |group| group.gain);
    }

    fn len(&self) -> usize {
        self.groups.iter().map(|group| group.moves.len()).sum()
    }
}

impl MoveGroup {
    /// Whether it brings more for each of its moves.
    fn beats(&self, other: &Self) -> bool {
        let count = |group: &Self| i64::try_from(group.moves.len()).unwrap_or(i64::MAX);
        self.gain.saturating_mul(count(other)) > other.gain.saturating_mul(count(self))
    }

    fn is_worth_it(&self) -> bool {
        let count = i64::try_from(self.moves.len()).unwrap_or(i64::MAX);
        count > 0 && self.gain >= LEAST_GAIN.saturating_mul(count)
    }
}

impl<'s, 'l> Search<'s, 'l> {
    pub(super) fn new(
        board: Board<'s>,
        budget: usize,
        seed: u64,
        is_late: &'l mut dyn FnMut(u64) -> bool,
    ) -> Self {
        Self {
            board,
            budget,
            random: Random(seed),
            is_late,
            steps: 0,
            looked_at: 0,
            is_over: false,
            best: FoundPlan::default(),
        }
    }

    /// Whether it ended because nothing better was found, and not because the time was up.
    pub(super) fn run(&mut self) -> bool {
        if self.budget == 0 || self.board.movers() == 0 || self.board.nodes() < 2 {
            return true;
        }
        let mut tries = 0;
        while tries < TRIES && !self.is_over {
            let found = self.climb(tries > 0);
            self.board.reset();
            tries += 1;
            let is_better = found.gain > self.best.gain
                || (found.gain == self.best.gain && found.len() < self.best.len());
            if is_better && found.gain > 0 {
                (self.best, tries) = (found, 1);
            }
            // Where there was nothing to choose from, other choices find nothing either.
            if self.best.is_empty() && tries > 1 {
                break;
            }
        }
        !self.is_over
    }

    pub(super) fn end(self) -> (Board<'s>, FoundPlan, u64) {
        (self.board, self.best, self.steps)
    }

    /// From the layout as it is, step by step. `is_varied` leaves some of the choices out by chance.
    fn climb(&mut self, is_varied: bool) -> FoundPlan {
        let mut plan = FoundPlan::default();
        while plan.len() < self.budget && !self.is_over {
            let left = self.budget - plan.len();
            let single = self.best_single(is_varied);
            let emptied = self.best_eviction(left, is_varied);
            let mut best = [single, emptied].into_iter().flatten().reduce(better);
            if best.is_none() && left >= 2 {
                best = self.best_chain(is_varied);
            }
            let Some(group) = best.filter(MoveGroup::is_worth_it) else { break };
            for (mover, to, _) in &group.moves {
                self.board.shift(*mover, *to);
            }
            plan.gain += group.gain;
            plan.groups.push(group);
        }
        plan
    }

    /// One step is taken. True once the time is up.
    fn step(&mut self) -> bool {
        self.steps += 1;
        if self.steps - self.looked_at >= BLOCK {
            self.looked_at = self.steps;
            self.is_over |= (self.is_late)(self.steps);
        }
        self.is_over
    }

    fn is_left_out(&mut self, is_varied: bool) -> bool {
        is_varied && self.random.below(3) == 0
    }

    /// The replica that gains most by going elsewhere alone.
    fn best_single(&mut self, is_varied: bool) -> Option<MoveGroup> {
        let mut best: Option<(i64, usize, usize)> = None;
        for mover in 0..self.board.movers() {
            if self.board.is_away(mover)
                || !self.board.can_score(mover)
                || self.is_left_out(is_varied)
            {
                continue;
            }
            for to in 0..self.board.nodes() {
                if self.step() {
                    break;
                }
                let gain = self.board.delta(mover, to);
                let least = best.map_or(LEAST_GAIN, |(gain, ..)| gain + 1);
                if to != self.board.at(mover) && gain >= least && self.board.fits(mover, to) {
                    best = Some((gain, mover, to));
                }
            }
        }
        let (gain, mover, to) = best?;
        Some(MoveGroup { moves: vec![(mover, to, OptimizeReason::BetterPlace)], gain })
    }

    /// The replica that gains most by going where another makes room for it.
    fn best_chain(&mut self, is_varied: bool) -> Option<MoveGroup> {
        let until = self.steps + CHAINS;
        let mut best: Option<MoveGroup> = None;
        for mover in 0..self.board.movers() {
            if self.board.is_away(mover)
                || !self.board.can_score(mover)
                || self.is_left_out(is_varied)
            {
                continue;
            }
            for to in 0..self.board.nodes() {
                if self.step() || self.steps > until {
                    return best;
                }
                let hoped = self.board.delta(mover, to);
                let is_hopeless = to == self.board.at(mover) || hoped < 2 * LEAST_GAIN;
                if is_hopeless || self.board.fits(mover, to) {
                    continue;
                }
                if let Some(found) = self.chain(mover, to)
                    && best.as_ref().is_none_or(|best| found.beats(best))
                {
                    best = Some(found);
                }
            }
        }
        best
    }

    /// The cheapest way to have one of those on the node make room.
    fn chain(&mut self, mover: usize, to: usize) -> Option<MoveGroup> {
        let mut best: Option<MoveGroup> = None;
        let there = self.board.on(to).to_vec();
        for blocker in there.into_iter().filter(|it| *it != mover) {
            if self.board.is_away(blocker) {
                continue;
            }
            let mut way: Option<(i64, usize)> = None;
            for aside in (0..self.board.nodes()).filter(|aside| *aside != to) {
                if self.step() {
                    return best;
                }
                let cost = self.board.delta(blocker, aside);
                if way.is_none_or(|(least, _)| cost > least) && self.board.fits(blocker, aside) {
                    way = Some((cost, aside));
                }
            }
            let Some((cost, aside)) = way else { continue };
            self.board.shift(blocker, aside);
            if self.board.fits(mover, to) {
                let gain = cost + self.board.delta(mover, to);
                let of = self.board.id(mover).clone();
                let both = vec![
                    (blocker, aside, OptimizeReason::MakesRoom { of }),
                    (mover, to, OptimizeReason::BetterPlace),
                ];
                let found = MoveGroup { moves: both, gain };
                if best.as_ref().is_none_or(|best| found.beats(best)) {
                    best = Some(found);
                }
            }
            self.board.shift(blocker, to);
        }
        best
    }

    /// The node that is emptied with the fewest moves, as far as they go. One that cannot be emptied whole is left alone.
    fn best_eviction(&mut self, left: usize, is_varied: bool) -> Option<MoveGroup> {
        let nodes = 0..self.board.nodes();
        let mut nodes: Vec<_> = nodes
            .filter_map(|at| Some((self.board.packed_alone(at)?, self.board.reserved(at), at)))
            .collect();
        nodes.sort_unstable_by_key(|(packed, reserved, at)| (*packed, *reserved, Reverse(*at)));
        for (packed, _, at) in nodes.into_iter().take(EVICTIONS) {
            if self.is_over {
                return None;
            }
            if self.is_left_out(is_varied) {
                continue;
            }
            let mut there: Vec<usize> = self.board.on(at).to_vec();
            there.retain(|mover| self.board.is_packed(*mover) && !self.board.is_away(*mover));
            if there.len() < packed as usize {
                continue;
            }
            // The largest first: they are the hardest to place, and what is left is the easier.
            there.sort_by_key(|mover| (Reverse(self.board.size(*mover)), *mover));
            let found = self.emptied(at, &there, left).filter(MoveGroup::is_worth_it);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// All of these go to the fullest nodes with room, as placement would send them; never to one that runs nothing.
    fn emptied(&mut self, from: usize, there: &[usize], left: usize) -> Option<MoveGroup> {
        let mut moves: Moves = Vec::new();
        let mut gain = 0;
        let mut is_whole = true;
        for (nth, mover) in there.iter().enumerate() {
            let mut best: Option<usize> = None;
            for to in 0..self.board.nodes() {
                if to == from || !self.board.is_in_use(to) {
                    continue;
                }
                self.step();
                let is_fuller =
                    best.is_none_or(|best| self.board.fullness(to) < self.board.fullness(best));
                if is_fuller && self.board.fits(*mover, to) {
                    best = Some(to);
                }
            }
            let Some(to) = best else {
                is_whole = false;
                break;
            };
            if nth < left {
                gain += self.board.delta(*mover, to);
            }
            self.board.shift(*mover, to);
            moves.push((*mover, to, OptimizeReason::FreesNode));
        }
        for (mover, ..) in moves.iter().rev() {
            self.board.shift(*mover, from);
        }
        moves.truncate(left);
        is_whole.then_some(MoveGroup { moves, gain })
    }
}

fn better(one: MoveGroup, other: MoveGroup) -> MoveGroup {
    if other.beats(&one) { other } else { one }
}

/// `SplitMix64`: a seed is all of its state.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (bits ^ (bits >> 31)) % bound.max(1)
    }
}
