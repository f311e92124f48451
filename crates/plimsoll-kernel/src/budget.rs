//! How many replicas of a service may be disturbed at once, whatever the cause. Every loop that moves something asks here
//! and nowhere else, so that a drain and a rollout of one service share what there is.

/// What of a service is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DisruptionBudget {
    /// Replicas that move.
    moving: usize,
    /// Replicas that stay and do not run.
    idle: usize,
}

/// What a move would cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DisruptionCost {
    /// Nothing that serves ends before its successor serves, or nothing served at all.
    Nothing,
    /// It serves and is missed for a while, or whether it is missed shows only afterwards.
    OneServing,
}

impl DisruptionBudget {
    /// From whether each replica moves, and whether it runs.
    pub(crate) fn new(replicas: impl Iterator<Item = (bool, bool)>) -> Self {
        let mut budget = Self { moving: 0, idle: 0 };
        for (moves, runs) in replicas {
            budget.moving += usize::from(moves);
            budget.idle += usize::from(!moves && !runs);
        }
        budget
    }

    /// Whether another may begin where `width` may be under way at once. One that serves is not put at risk while others
    /// are missing already.
    pub(crate) fn allows(self, width: usize, cost: DisruptionCost) -> bool {
        match cost {
            DisruptionCost::Nothing => self.moving < width,
            DisruptionCost::OneServing => self.moving + self.idle < width,
        }
    }

    pub(crate) fn begin(&mut self, did_run: bool) {
        self.moving += 1;
        self.idle -= usize::from(!did_run && self.idle > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_is_one_whatever_it_is_for() {
        let all_well = DisruptionBudget::new([(false, true); 3].into_iter());
        let one_moves = DisruptionBudget::new([(true, true), (false, true)].into_iter());
        let one_is_down = DisruptionBudget::new([(false, false), (false, true)].into_iter());
        for (case, budget, width, cost, expected) in [
            ("all is well", all_well, 1, DisruptionCost::OneServing, true),
            ("one moves", one_moves, 1, DisruptionCost::Nothing, false),
            ("one moves, two may", one_moves, 2, DisruptionCost::OneServing, true),
            (
                "one is down: none that serves is risked",
                one_is_down,
                1,
                DisruptionCost::OneServing,
                false,
            ),
            (
                "one is down: what costs nothing goes on",
                one_is_down,
                1,
                DisruptionCost::Nothing,
                true,
            ),
        ] {
            assert_eq!(budget.allows(width, cost), expected, "{case}");
        }
    }
}
