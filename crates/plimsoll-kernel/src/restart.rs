//! When something that failed is tried again: containers that ended or turned unhealthy, and pulls. Given what happened and
//! when, it says when the next try is due, or that there is none. Who tries is the node.

use plimsoll_model::{Millis, Timestamp};

use crate::policy::Policy;

/// The failures in a row of one assignment. A new assignment begins with none, and so does an apply, even of the same file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RestartHistory {
    failures: u32,
    last_failure: Timestamp,
    running_since: Option<Timestamp>,
}

/// What follows a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextRestart {
    /// Nothing failed.
    Nothing,
    StartAt(Timestamp),
    /// It failed too often in a row; only an operator can change that.
    Exhausted {
        tries: u32,
    },
}

impl RestartHistory {
    /// It runs and is healthy, as of now.
    pub fn runs(&mut self, now: Timestamp) {
        self.running_since.get_or_insert(now);
    }

    /// It failed, as of now. To be told once for each failure, however often it is looked at.
    pub fn fails(&mut self, now: Timestamp, policy: &Policy) {
        // A short run between two failures does not make them two first failures.
        let ran = self.running_since.take().map_or(Millis(0), |since| now.since(since));
        if ran >= policy.sustained_run {
            self.failures = 0;
        }
        self.failures += 1;
        self.last_failure = now;
    }

    pub fn failures(&self) -> u32 {
        self.failures
    }

    pub fn next(&self, policy: &Policy) -> NextRestart {
        if self.failures == 0 || self.running_since.is_some() {
            return NextRestart::Nothing;
        }
        if self.failures >= policy.restart_limit {
            return NextRestart::Exhausted { tries: self.failures };
        }
        NextRestart::StartAt(
            self.last_failure.plus(back_off(self.failures, policy.max_restart_back_off)),
        )
    }
}

/// One second after the first failure, then two, four and so on, up to the most.
pub fn back_off(failures: u32, most: Millis) -> Millis {
    let doublings = failures.saturating_sub(1).min(32);
    Millis((1_000_u64 << doublings).min(most.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp(1_000_000);

    fn after(seconds: u64) -> Timestamp {
        START.plus(Millis::seconds(seconds))
    }

    #[test]
    fn three_failures_in_a_row_exhaust_the_tries() {
        let policy = Policy::default();
        let mut tries = RestartHistory::default();
        assert_eq!(tries.next(&policy), NextRestart::Nothing);
        tries.fails(START, &policy);
        assert_eq!(tries.next(&policy), NextRestart::StartAt(after(1)));
        tries.fails(after(1), &policy);
        assert_eq!(tries.next(&policy), NextRestart::StartAt(after(3)));
        tries.fails(after(3), &policy);
        assert_eq!(tries.next(&policy), NextRestart::Exhausted { tries: 3 });
    }

    #[test]
    fn only_a_sustained_run_clears_the_count() {
        let policy = Policy::default();
        let sustained = policy.sustained_run.0 / 1_000;
        for (case, ran, failures) in
            [("a short run", sustained - 1, 3), ("a sustained run", sustained, 1)]
        {
            let mut tries = RestartHistory::default();
            tries.fails(START, &policy);
            tries.fails(after(1), &policy);
            tries.runs(after(5));
            assert_eq!(tries.next(&policy), NextRestart::Nothing, "{case}: it runs");
            tries.fails(after(5 + ran), &policy);
            assert_eq!(tries.failures(), failures, "{case}");
        }
    }

    #[test]
    fn the_back_off_doubles_from_a_second_up_to_the_most() {
        let hour = Millis::minutes(60);
        let seconds: Vec<u64> =
            (1..=14).map(|failures| back_off(failures, hour).0 / 1_000).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 3_600, 3_600]);
        assert_eq!(back_off(u32::MAX, hour), hour);
    }
}
