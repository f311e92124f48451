//! Load balancing: of two upstreams drawn at random the one with fewer requests in flight, leaving out ejected ones, and with
//! a slow start for new ones. Randomness and time are arguments, so that equal inputs choose alike.

use std::sync::Arc;

use crate::clock::Moment;
use crate::upstream::{FULL_WEIGHT, Upstream, UpstreamTarget};

#[cfg(test)]
mod tests;

/// One of `members`, all of which are ready, that is not among `tried`. If all of them are ejected, an ejected one is
/// chosen rather than none.
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

/// How many more requests may be in flight to the best upstream on this node than to one elsewhere, before that is chosen.
const LOCAL_PREFERENCE: u32 = 4;

/// The same, with a preference for upstreams on this node: they need no encryption and no network. Another is chosen only
/// where they have many more requests in flight.
pub fn pick_local_first<'a>(
    members: &'a [Arc<Upstream>],
    tried: &[Arc<Upstream>],
    now: Moment,
    roll: u64,
) -> Option<&'a Arc<Upstream>> {
    let chosen = pick(members, tried, now, roll)?;
    let is_near = |one: &Arc<Upstream>| matches!(one.target(), UpstreamTarget::Local(_));
    let is_open = |one: &Arc<Upstream>| {
        !one.is_ejected(now) && !tried.iter().any(|other| Arc::ptr_eq(one, other))
    };
    let near: Vec<_> = members.iter().filter(|one| is_near(one) && is_open(one)).collect();
    let mut dice = Dice(roll);
    let nearest = match dice.two_of(&near) {
        Some((a, b)) => Some(better(a, b, now, &mut dice)),
        None => near.first().copied(),
    };
    let is_worth =
        |near: &&Arc<Upstream>| near.in_flight() <= chosen.in_flight() + LOCAL_PREFERENCE;
    Some(nearest.filter(is_worth).unwrap_or(chosen))
}

/// Ejected upstreams whose next probe is due. They are looked for only where [`pick`] would draw one, so that a healthy pool
/// costs nothing.
pub(crate) fn due_for_probe<'a>(
    members: &'a [Arc<Upstream>],
    tried: &[Arc<Upstream>],
    now: Moment,
    roll: u64,
) -> impl Iterator<Item = &'a Arc<Upstream>> {
    let drawn = Dice(roll).two_of(members);
    let meets_one = |(a, b): (&Arc<Upstream>, &Arc<Upstream>)| {
        !tried.is_empty() || a.is_suspect() || b.is_suspect()
    };
    // With a single upstream there is no choice, and the request itself is the probe.
    let looked_at = if drawn.is_some_and(meets_one) { members } else { &[] };
    looked_at.iter().filter(move |one| one.is_suspect() && !one.is_ejected(now))
}

/// Whether there is another upstream to choose.
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

/// A new upstream is passed over as often as its weight is below the full one; otherwise fewer requests in flight win.
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

/// Pseudo-random numbers from a seed (splitmix64).
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
