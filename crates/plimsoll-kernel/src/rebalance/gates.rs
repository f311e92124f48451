//! The gates a move must pass, in their order, each with its number and its limit. Blocked at the first that says no.

use plimsoll_model::rebalance::Skip;
use plimsoll_model::{Millis, Pressure};

/// The limits, which nobody sets: they are one value so that tests can scale time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub window: Millis,
    /// A destination is judged by how hot it has been: what it reached fades over this. A node that is cool for a moment is
    /// not cool.
    pub crest_window: Millis,
    /// What replicas use is smoothed over this.
    pub habit_window: Millis,
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

impl Limits {
    /// The same with every span of time but one divided: how old a sample may be goes by how often there is one.
    #[must_use]
    pub fn hurried(self, haste: u32) -> Self {
        let in_haste = |span: Millis| Millis(span.0 / u64::from(haste.max(1)));
        Self {
            window: in_haste(self.window),
            crest_window: in_haste(self.crest_window),
            habit_window: in_haste(self.habit_window),
            cooldown_replica: in_haste(self.cooldown_replica),
            cooldown_node: in_haste(self.cooldown_node),
            ..self
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            window: Millis::minutes(5),
            crest_window: Millis::minutes(60),
            habit_window: Millis::minutes(5),
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

/// What one gate found, what it asks for, and whether it lets pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    pub name: &'static str,
    pub found: String,
    pub limit: String,
    pub passes: bool,
}

impl Gate {
    /// In whole minutes where it is some, else in seconds.
    fn span(span: Millis) -> String {
        let seconds = span.0 / 1_000;
        if seconds >= 60 { format!("{}m", seconds / 60) } else { format!("{seconds}s") }
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

    /// Every gate with its number and its limit, in their order.
    pub(super) fn gates(&self, limits: &Limits) -> [Gate; 6] {
        let hottest = self.post_dst[0].max(self.post_dst[1]);
        let found = |what: Pressure| what.to_string();
        let rested = self.dst_rested.map_or_else(|| "never".to_owned(), Gate::span);
        let is_rested = self.dst_rested.is_none_or(|rested| rested >= limits.cooldown_node);
        let room = if self.fits { found(hottest) } else { "reserved or its port taken".to_owned() };
        let free = if self.collides { "taken" } else { "free" };
        [
            Gate {
                name: Skip::CooldownReplica.word(),
                found: Gate::span(self.rested),
                limit: format!("≥ {}", Gate::span(limits.cooldown_replica)),
                passes: self.rested >= limits.cooldown_replica,
            },
            Gate {
                name: Skip::CooldownNode.word(),
                found: rested,
                limit: format!("≥ {}", Gate::span(limits.cooldown_node)),
                passes: is_rested,
            },
            Gate {
                name: Skip::ResourceLimits.word(),
                found: room,
                limit: format!("≤ {}", Pressure::FULL),
                passes: hottest <= Pressure::FULL && self.fits,
            },
            Gate {
                name: Skip::AntiAffinity.word(),
                found: free.to_owned(),
                limit: "free".to_owned(),
                passes: !self.collides,
            },
            Gate {
                name: Skip::DstCap.word(),
                found: found(hottest),
                limit: format!("< {}", limits.dst_cap),
                passes: hottest < limits.dst_cap,
            },
            Gate {
                name: Skip::ReliefFloor.word(),
                found: found(self.relief()),
                limit: format!("≥ {}", limits.relief_floor),
                passes: self.relief() >= limits.relief_floor,
            },
        ]
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
            let limits = Limits::default();
            assert_eq!(offer.blocked(&limits), blocked, "{case}");
            let gates = offer.gates(&limits);
            let first = gates.iter().find(|gate| !gate.passes).map(|gate| gate.name);
            assert_eq!(first, blocked.map(Skip::word), "{case}: what is told is what decides");
        }
    }
}
