//! How well a node suits a replica: one score from 0 to 10 000, the sum of four named parts.
//!
//! The parts are sized so that each outweighs all those below it together: one replica fewer in the zone beats
//! anything about the node, one fewer on the node beats any headroom. Placement takes the best score; whoever
//! compares two nodes later compares these same scores, so a difference has one meaning everywhere.

use plimsoll_model::Mode;
pub use plimsoll_model::Score;

/// Beyond this many replicas more than the least, a zone or node is as uneven as it gets.
const MAX_EXCESS: u32 = 3;
pub(crate) const ZONE_STEP: u16 = 2_515;
pub(crate) const NODE_STEP: u16 = 615;
pub(crate) const HEADROOM_STEP: u16 = 205;
const PREFERRED: u16 = 200;

/// What headroom and preferences come to together: a difference above this is one of evenness.
pub(crate) const MOST_BESIDE_EVENNESS: u16 = 2 * HEADROOM_STEP + PREFERRED;

/// What is counted about a node before it is scored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RankFacts {
    /// Replicas of the service in the node's zone, above those in the zone with the fewest.
    pub(crate) zone_excess: u32,
    /// Replicas of the service on the node, above those on the emptiest node of the zones equally crowded.
    pub(crate) node_excess: u32,
    /// Which headroom line it stays below with the replica: 0, 1, or 2 for neither.
    pub(crate) band: u16,
    /// The weight of the preferences met, of the weight of all.
    pub(crate) preferred: (u32, u32),
}

pub(crate) fn score(mode: &Mode, facts: &RankFacts) -> Score {
    let even = |excess: u32, step: u16| {
        let missing = u16::try_from(excess.min(MAX_EXCESS)).unwrap_or(u16::MAX);
        3 * step - missing * step
    };
    // Who does not ask for evenness finds every node as even as the next; and `binpack` is to fill nodes, so that what is left
    // of them is no point against them.
    let (zone_excess, node_excess) =
        if mode.is_even() { (facts.zone_excess, facts.node_excess) } else { (0, 0) };
    let band = if matches!(mode, Mode::Binpack { .. }) { 0 } else { facts.band };
    Score {
        zone: even(zone_excess, ZONE_STEP),
        node: even(node_excess, NODE_STEP),
        headroom: 2 * HEADROOM_STEP - band * HEADROOM_STEP,
        preferred: preferred(facts.preferred),
    }
}

/// A service without preferences is content anywhere.
pub(crate) fn preferred((met, all): (u32, u32)) -> u16 {
    if all == 0 {
        return PREFERRED;
    }
    let share = u64::from(PREFERRED) * u64::from(met) / u64::from(all);
    u16::try_from(share).unwrap_or(PREFERRED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(zone_excess: u32, node_excess: u32, band: u16, met: u32) -> u16 {
        let facts = RankFacts { zone_excess, node_excess, band, preferred: (met, 1) };
        score(&Mode::Spread { replicas: 1 }, &facts).total()
    }

    #[test]
    fn each_part_outweighs_all_those_below_it() {
        assert_eq!(total(0, 0, 0, 1), 10_000);
        assert_eq!(total(9, 9, 2, 0), 0);
        for (case, better, worse) in [
            ("one fewer in the zone", total(1, 9, 2, 0), total(2, 0, 0, 1)),
            ("one fewer on the node", total(0, 1, 2, 0), total(0, 2, 0, 1)),
            ("one band less full", total(0, 0, 1, 0), total(0, 0, 2, 1)),
        ] {
            assert!(better > worse, "{case}: {better} {worse}");
        }
    }
}
