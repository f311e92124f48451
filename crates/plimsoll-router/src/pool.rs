//! Chooses an upstream: of two drawn by chance the one with less under way, leaving out those whose connections fail just
//! now, and sparing those that only just came. Chance and time are arguments, so that equal inputs choose alike.

use std::sync::Arc;

use crate::clock::Moment;
use crate::upstream::{FULL_WEIGHT, Target, Upstream};

#[cfg(test)]
mod tests;

/// Of `members`, all of which are in, one that is not among `tried`. If connections to every other one fail just now,
/// that is no reason to send nothing: the last is never left out.
pub fn pick<'a>(
    members: &'a [Arc<Upstream>],
    tried: &[Arc<Upstream>],
    now: Moment,
    roll: u64,
) -> Option<&'a Arc<Upstream>> {
    let mut dice = Dice(roll);
    let is_untried = |one: &Arc<Upstream>| !tried.iter().any(|other| Arc::ptr_eq(one, other));
    let is_open = |one: &Arc<Upstream>| !one.is_ejected(now) && is_untried(one);
    if let Some((a, b)) = dice.two_of(members)
        && is_open(a)
        && is_open(b)
    {
        return Some(better(a, b, now, &mut dice));
    }
    let mut rest: Vec<&Arc<Upstream>> = members.iter().filter(|one| is_open(one)).collect();
    if rest.is_empty() {
        rest = members.iter().filter(|one| is_untried(one)).collect();
    }
    match dice.two_of(&rest) {
        Some((a, b)) => Some(better(a, b, now, &mut dice)),
        None => rest.first().copied(),
    }
}

/// How much more may be under way to the best one on this node than to one elsewhere, before the way there is worth it.
const NEARNESS: u32 = 4;

/// The same, with those on this node before others: bytes that stay here cost no encryption and no network. Only where
/// they have a good deal more to do does somebody else get it.
pub fn pick_near<'a>(
    members: &'a [Arc<Upstream>],
    tried: &[Arc<Upstream>],
    now: Moment,
    roll: u64,
) -> Option<&'a Arc<Upstream>> {
    let chosen = pick(members, tried, now, roll)?;
    let is_near = |one: &Arc<Upstream>| matches!(one.target(), Target::Local(_));
    let is_open = |one: &Arc<Upstream>| {
        !one.is_ejected(now) && !tried.iter().any(|other| Arc::ptr_eq(one, other))
    };
    let near: Vec<_> = members.iter().filter(|one| is_near(one) && is_open(one)).collect();
    let mut dice = Dice(roll);
    let nearest = match dice.two_of(&near) {
        Some((a, b)) => Some(better(a, b, now, &mut dice)),
        None => near.first().copied(),
    };
    let is_worth = |near: &&Arc<Upstream>| near.in_flight() <= chosen.in_flight() + NEARNESS;
    Some(nearest.filter(is_worth).unwrap_or(chosen))
}

/// Upstreams that failed and are to be tried again by now. They are looked for only where [`pick`] would come across one,
/// so that a pool in which all is well costs nothing.
pub(crate) fn due<'a>(
    members: &'a [Arc<Upstream>],
    tried: &[Arc<Upstream>],
    now: Moment,
    roll: u64,
) -> impl Iterator<Item = &'a Arc<Upstream>> {
    let drawn = Dice(roll).two_of(members);
    let meets_one = |(a, b): (&Arc<Upstream>, &Arc<Upstream>)| {
        !tried.is_empty() || a.is_suspect() || b.is_suspect()
    };
    // Of one alone there is no choice, and the request itself is the trial.
    let looked_at = if drawn.is_some_and(meets_one) { members } else { &[] };
    looked_at.iter().filter(move |one| one.is_suspect() && !one.is_ejected(now))
}

/// Whether another than these could be chosen now.
pub(crate) fn has_other(
    members: &[Arc<Upstream>],
    tried: &[Arc<Upstream>],
    this: &Upstream,
    now: Moment,
) -> bool {
    let is_new = |one: &Arc<Upstream>| !tried.iter().any(|other| Arc::ptr_eq(one, other));
    let is_this = |one: &Arc<Upstream>| std::ptr::eq(Arc::as_ptr(one), this);
    members.iter().any(|one| !one.is_ejected(now) && !is_this(one) && is_new(one))
}

/// A newcomer is passed over as often as its share is short of a whole one; otherwise less under way wins.
fn better<'a>(
    a: &'a Arc<Upstream>,
    b: &'a Arc<Upstream>,
    now: Moment,
    dice: &mut Dice,
) -> &'a Arc<Upstream> {
    let mut is_due = |one: &Arc<Upstream>| dice.below(FULL_WEIGHT) < one.weight(now);
    match (is_due(a), is_due(b)) {
        (true, false) => a,
        (false, true) => b,
        _ if b.in_flight() < a.in_flight() => b,
        _ => a,
    }
}

/// Numbers that look like chance, from one that is (splitmix64).
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u32) -> u32 {
        // The upper half of the product is uniform enough for shares of requests, and needs no division.
        let high = (self.roll() >> 32) * u64::from(end);
        u32::try_from(high >> 32).expect("a product of two 32-bit numbers, halved")
    }

    /// Two different ones, if there are two.
    fn two_of<'a, T>(&mut self, from: &'a [T]) -> Option<(&'a T, &'a T)> {
        let count = u32::try_from(from.len()).unwrap_or(u32::MAX);
        if count < 2 {
            return None;
        }
        let first = self.below(count);
        let second = self.below(count - 1);
        let second = if second >= first { second + 1 } else { second };
        Some((&from[first as usize], &from[second as usize]))
    }
}
