//! The gates a move must pass, in their order, each with its number and its limit. Blocked at the first that says no.

use plimsoll_model::{Millis, Pressure};

/// The limits, which nobody sets: they are one value so that tests can scale time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub window: Millis,
    pub trigger: Pressure,
    /// So many cycles in a row: one is a spike.
    pub trigger_cycles: u32,
    pub imbalance: Pressure,
    pub cooldown_replica: Millis,
    pub cooldown_node: Millis,
    /// What a destination must stay below.
    pub dst_cap: Pressure,
    pub relief_floor: Pressure,
    /// What every move costs, whatever it brings.
    pub move_cost: Pressure,
    /// A sample older than this is silence.
    pub stale_after: Millis,
    /// What a replica is taken to use of which nothing is known: of cpu and of memory.
    pub unknown: [Pressure; 2],
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            window: Millis::minutes(5),
            trigger: Pressure::percent(85),
            trigger_cycles: 2,
            imbalance: Pressure::percent(25),
            cooldown_replica: Millis::minutes(10),
            cooldown_node: Millis::minutes(2),
            dst_cap: Pressure::percent(75),
            relief_floor: Pressure::percent(10),
            move_cost: Pressure::percent(1),
            stale_after: Millis::seconds(90),
            unknown: [Pressure::percent(12), Pressure::percent(6)],
        }
    }
}

/// Why nothing moves, where something is hot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Skip {
    CooldownReplica,
    CooldownNode,
    ResourceLimits,
    AntiAffinity,
    DstCap,
    ReliefFloor,
    /// Every destination is blocked, not all for one reason.
    NoEligibleDst,
    /// Nothing on the node may move at all.
    NoCandidate,
}

impl Skip {
    pub fn word(self) -> &'static str {
        match self {
            Self::CooldownReplica => "cooldown_replica",
            Self::CooldownNode => "cooldown_node",
            Self::ResourceLimits => "resource_limits",
            Self::AntiAffinity => "anti_affinity",
            Self::DstCap => "dst_cap",
            Self::ReliefFloor => "relief_floor",
            Self::NoEligibleDst => "no_eligible_dst",
            Self::NoCandidate => "no_candidate",
        }
    }
}

/// One replica, one destination, and what would come of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offer {
    /// Since it was moved or placed.
    pub(super) rested: Millis,
    /// Since the destination was given something; none: never.
    pub(super) dst_rested: Option<Millis>,
    /// Of the destination afterwards, cpu and memory.
    pub(super) post_dst: [Pressure; 2],
    /// Reservations and ports have room there.
    pub(super) fits: bool,
    pub(super) collides: bool,
    /// Of the source in its dominant dimension.
    pub(super) pre_src: Pressure,
    pub(super) post_src: Pressure,
}

impl Offer {
    pub(super) fn relief(&self) -> Pressure {
        let relief = self.pre_src.millionths().saturating_sub(self.post_src.millionths());
        Pressure::from_millionths(relief)
    }

    /// The first gate that says no.
    pub(super) fn blocked(&self, limits: &Limits) -> Option<Skip> {
        let hottest = self.post_dst[0].max(self.post_dst[1]);
        if self.rested < limits.cooldown_replica {
            return Some(Skip::CooldownReplica);
        }
        if self.dst_rested.is_some_and(|rested| rested < limits.cooldown_node) {
            return Some(Skip::CooldownNode);
        }
        if hottest > Pressure::FULL || !self.fits {
            return Some(Skip::ResourceLimits);
        }
        if self.collides {
            return Some(Skip::AntiAffinity);
        }
        if hottest >= limits.dst_cap {
            return Some(Skip::DstCap);
        }
        (self.relief() < limits.relief_floor).then_some(Skip::ReliefFloor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer() -> Offer {
        Offer {
            rested: Millis::minutes(20),
            dst_rested: None,
            post_dst: [Pressure::percent(50), Pressure::percent(30)],
            fits: true,
            collides: false,
            pre_src: Pressure::percent(90),
            post_src: Pressure::percent(70),
        }
    }

    fn share(millionths: u32) -> Pressure {
        Pressure::from_millionths(millionths)
    }

    #[test]
    fn each_gate_is_exact_at_its_edge() {
        let fine = offer();
        let at = |post: u32| Offer { post_dst: [share(post), Pressure::ZERO], ..fine };
        let to = |post_src: u32| Offer { post_src: share(post_src), ..fine };
        for (case, offer, blocked) in [
            ("nothing is in the way", fine, None),
            ("relief of exactly 0.10", to(800_000), None),
            ("relief of 0.0999", to(800_100), Some(Skip::ReliefFloor)),
            ("a destination at exactly 0.75", at(750_000), Some(Skip::DstCap)),
            ("a destination at 0.7499", at(749_900), None),
            ("above all it has", at(1_000_001), Some(Skip::ResourceLimits)),
            ("at all it has, which is not too much but too hot", at(1_000_000), Some(Skip::DstCap)),
            (
                "it does not fit and collides",
                Offer { fits: false, collides: true, ..fine },
                Some(Skip::ResourceLimits),
            ),
            ("it collides", Offer { collides: true, ..fine }, Some(Skip::AntiAffinity)),
            (
                "placed a minute ago",
                Offer { rested: Millis::minutes(1), fits: false, ..fine },
                Some(Skip::CooldownReplica),
            ),
            (
                "the destination was just given one",
                Offer { dst_rested: Some(Millis::seconds(119)), ..fine },
                Some(Skip::CooldownNode),
            ),
            (
                "two minutes ago is long enough",
                Offer { dst_rested: Some(Millis::minutes(2)), ..fine },
                None,
            ),
        ] {
            assert_eq!(offer.blocked(&Limits::default()), blocked, "{case}");
        }
    }
}
