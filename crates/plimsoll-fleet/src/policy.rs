//! The numbers of the fleet, each in one place.

use plimsoll_model::Millis;

/// How patient, how careful and how quick the coordinator is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetPolicy {
    /// How often a shard looks at its machines and reports.
    pub cycle: Millis,
    /// How often the coordinator decides, in cycles.
    pub pass_cycles: u64,
    /// A shortfall must be older than this, in cycles: what is younger the shard may still meet by itself.
    pub eligible_age: u64,
    /// Something is drained for a shortfall only when it is older than this, in cycles.
    pub preempt_age: u64,
    /// How long the same pair of shards exchanges no machines of a type and zone again, either way, and how long a machine stays
    /// where it was moved to, in cycles.
    pub cooldown_cycles: u64,
    /// A donor keeps this share of its idle machines, in percent, and one at least.
    pub keep_percent: u32,
    /// A move closes at least this share of what is missing, in percent, or all of it.
    pub benefit_percent: u32,
    /// At most this share of a donor's machines is drained for one shortfall, in percent, and one at least.
    pub drain_percent: u32,
    /// A shard that has not reported for this long, in cycles, gives nothing and gets nothing: silence is not data.
    pub stale_cycles: u64,
    /// How often an instruction that a shard reports as failed is tried before it is given up.
    pub max_failures: u32,
}

impl Default for FleetPolicy {
    fn default() -> Self {
        Self {
            cycle: Millis::seconds(10),
            pass_cycles: 5,
            eligible_age: 5,
            preempt_age: 12,
            cooldown_cycles: 8,
            keep_percent: 10,
            benefit_percent: 25,
            drain_percent: 5,
            stale_cycles: 3,
            max_failures: 5,
        }
    }
}

impl FleetPolicy {
    pub fn cycles(&self, count: u64) -> Millis {
        Millis(self.cycle.0.saturating_mul(count))
    }

    /// How long a donor keeps what it reserved before it asks what became of it: longer than a drain may take, two reports and
    /// a pass, so that whoever is to get the machine has had the time.
    pub fn reservation(&self, grace: Millis) -> Millis {
        Millis(
            grace
                .0
                .saturating_add(self.cycles(2 + self.pass_cycles).0)
                .saturating_add(self.cycle.0),
        )
    }

    /// How many of so many idle machines a donor keeps.
    pub fn kept(&self, idle: u32) -> u32 {
        percent(idle, self.keep_percent).max(1)
    }

    /// Whether so many of the machines that are missing are worth a move.
    pub fn is_worth(&self, given: u32, missing: u32) -> bool {
        let (given, missing) = (u64::from(given), u64::from(missing));
        given > 0 && (given >= missing || given * 100 >= missing * u64::from(self.benefit_percent))
    }

    /// How many machines of a donor with so many in use may be drained for one shortfall.
    pub fn drained(&self, configured: u32) -> u32 {
        (u64::from(configured) * u64::from(self.drain_percent) / 100)
            .try_into()
            .unwrap_or(u32::MAX)
            .max(1)
    }
}

/// So many percent of it, rounded up.
fn percent(of: u32, percent: u32) -> u32 {
    (u64::from(of) * u64::from(percent)).div_ceil(100).try_into().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_donor_keeps_a_tenth_and_one_at_least() {
        let policy = FleetPolicy::default();
        for (idle, kept) in [(0, 1), (1, 1), (3, 1), (10, 1), (11, 2), (100, 10)] {
            assert_eq!(policy.kept(idle), kept, "{idle} idle");
        }
    }

    #[test]
    fn a_move_closes_a_quarter_or_all() {
        let policy = FleetPolicy::default();
        for (given, missing, is_worth) in
            [(0, 0, false), (5, 100, false), (24, 100, false), (25, 100, true), (1, 1, true)]
        {
            assert_eq!(policy.is_worth(given, missing), is_worth, "{given} of {missing}");
        }
    }

    #[test]
    fn a_reservation_outlives_a_drain_two_reports_and_a_pass() {
        let policy = FleetPolicy::default();
        let grace = Millis::minutes(10);
        let needed = grace.0 + policy.cycles(2).0 + policy.cycles(policy.pass_cycles).0;
        assert!(policy.reservation(grace).0 > needed);
    }
}
