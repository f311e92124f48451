//! The gates a move must pass, in their order, each with its number and its limit. Blocked at the first that says no.

use std::fmt;

use plimsoll_model::rebalance::Skip;
use plimsoll_model::{Millis, NodePressure, Pressure};
use serde::Serialize;

/// The limits, which nobody sets: they are one value so that tests can scale time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RebalanceLimits {
    pub window: Millis,
    /// A destination is judged by how hot it has been: what it reached fades over this. A node that is cool for a moment is
    /// not cool.
    pub peak_window: Millis,
    /// What replicas use is smoothed over this.
    pub usage_window: Millis,
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
    /// What a replica is taken to use of which nothing is known: of cpu and of memory.
    pub unknown: NodePressure,
}

impl RebalanceLimits {
    /// The same with every span of time divided.
    #[must_use]
    pub fn hurried(self, haste: u32) -> Self {
        let in_haste = |span: Millis| Millis(span.0 / u64::from(haste.max(1)));
        Self {
            window: in_haste(self.window),
            peak_window: in_haste(self.peak_window),
            usage_window: in_haste(self.usage_window),
            cooldown_replica: in_haste(self.cooldown_replica),
            cooldown_node: in_haste(self.cooldown_node),
            ..self
        }
    }
}

impl Default for RebalanceLimits {
    fn default() -> Self {
        Self {
            window: Millis::minutes(5),
            peak_window: Millis::minutes(60),
            usage_window: Millis::minutes(5),
            trigger: Pressure::percent(85),
            trigger_cycles: 2,
            imbalance: Pressure::percent(25),
            cooldown_replica: Millis::minutes(10),
            cooldown_node: Millis::minutes(2),
            dst_cap: Pressure::percent(75),
            relief_floor: Pressure::percent(10),
            move_cost: Pressure::percent(1),
            unknown: NodePressure::new(Pressure::percent(12), Pressure::percent(6)),
        }
    }
}

/// What one gate says, with the number it looked at and the limit it has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct GateResult {
    pub gate: &'static str,
    pub found: GateValue,
    pub limit: GateValue,
    pub passes: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GateValue {
    Share(Pressure),
    Span(Millis),
    Count(u32),
    /// It was never given anything.
    Never,
    /// Whether it would be beside another of its service, or where it may not be.
    Collides(bool),
    /// What nodes offer to those who set something aside, ports among it.
    NoRoom,
}

impl fmt::Display for GateValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(share) => write!(f, "{share}"),
            Self::Span(span) => write!(f, "{span}"),
            Self::Count(count) => write!(f, "{count}"),
            Self::Never => f.write_str("never"),
            Self::Collides(true) => f.write_str("may not be there"),
            Self::Collides(false) => f.write_str("may be there"),
            Self::NoRoom => f.write_str("no room"),
        }
    }
}

/// One replica, one destination, and what would come of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CandidateMove {
    /// Since it was moved or placed.
    pub(super) rested: Millis,
    /// Since the destination was given something; none: never.
    pub(super) dst_rested: Option<Millis>,
    /// Of the destination afterwards, cpu and memory.
    pub(super) post_dst: NodePressure,
    /// Reservations and ports have room there.
    pub(super) fits: bool,
    pub(super) collides: bool,
    /// Of the source, by the hotter of its dimensions.
    pub(super) pre_src: Pressure,
    pub(super) post_src: Pressure,
}

impl CandidateMove {
    pub(super) fn relief(&self) -> Pressure {
        let relief = self.pre_src.millionths().saturating_sub(self.post_src.millionths());
        Pressure::from_millionths(relief)
    }

    /// The gates, in their order: the number that was found, the limit, and whether it passes.
    fn each(&self, limits: &RebalanceLimits) -> [(Skip, GateValue, GateValue, bool); 6] {
        let hottest = self.post_dst.top();
        let (share, span) = (GateValue::Share, GateValue::Span);
        let (rested, given) = (self.rested, self.dst_rested);
        let is_within = hottest <= Pressure::FULL;
        let room = if self.fits || !is_within { share(hottest) } else { GateValue::NoRoom };
        [
            (
                Skip::CooldownReplica,
                span(rested),
                span(limits.cooldown_replica),
                rested >= limits.cooldown_replica,
            ),
            (
                Skip::CooldownNode,
                given.map_or(GateValue::Never, GateValue::Span),
                span(limits.cooldown_node),
                given.is_none_or(|given| given >= limits.cooldown_node),
            ),
            (Skip::ResourceLimits, room, share(Pressure::FULL), is_within && self.fits),
            (
                Skip::AntiAffinity,
                GateValue::Collides(self.collides),
                GateValue::Collides(false),
                !self.collides,
            ),
            (Skip::DstCap, share(hottest), share(limits.dst_cap), hottest < limits.dst_cap),
            (
                Skip::ReliefFloor,
                share(self.relief()),
                share(limits.relief_floor),
                self.relief() >= limits.relief_floor,
            ),
        ]
    }

    /// What each gate says.
    pub(super) fn gates(&self, limits: &RebalanceLimits) -> Vec<GateResult> {
        let result = |(gate, found, limit, passes): (Skip, GateValue, GateValue, bool)| {
            GateResult { gate: gate.word(), found, limit, passes }
        };
        self.each(limits).map(result).into()
    }

    /// The first gate that says no.
    pub(super) fn blocked(&self, limits: &RebalanceLimits) -> Option<Skip> {
        self.each(limits).into_iter().find(|(.., passes)| !passes).map(|(gate, ..)| gate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer() -> CandidateMove {
        CandidateMove {
            rested: Millis::minutes(20),
            dst_rested: None,
            post_dst: NodePressure::new(Pressure::percent(50), Pressure::percent(30)),
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
        let at = |post: u32| CandidateMove {
            post_dst: NodePressure::new(share(post), Pressure::ZERO),
            ..fine
        };
        let to = |post_src: u32| CandidateMove { post_src: share(post_src), ..fine };
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
                CandidateMove { fits: false, collides: true, ..fine },
                Some(Skip::ResourceLimits),
            ),
            ("it collides", CandidateMove { collides: true, ..fine }, Some(Skip::AntiAffinity)),
            (
                "placed a minute ago",
                CandidateMove { rested: Millis::minutes(1), fits: false, ..fine },
                Some(Skip::CooldownReplica),
            ),
            (
                "the destination was just given one",
                CandidateMove { dst_rested: Some(Millis::seconds(119)), ..fine },
                Some(Skip::CooldownNode),
            ),
            (
                "two minutes ago is long enough",
                CandidateMove { dst_rested: Some(Millis::minutes(2)), ..fine },
                None,
            ),
        ] {
            assert_eq!(offer.blocked(&RebalanceLimits::default()), blocked, "{case}");
            let gates = offer.gates(&RebalanceLimits::default());
            let said = gates.iter().find(|gate| !gate.passes).map(|gate| gate.gate);
            assert_eq!(said, blocked.map(Skip::word), "{case}: what is shown is what is decided");
        }
    }
}
