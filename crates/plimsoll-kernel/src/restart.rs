//! When something that failed is tried again: containers that ended or turned unhealthy, and pulls. Given what happened and
//! when, it says when the next try is due, or that there is none. Who tries is the node.

use plimsoll_model::spec::Retries;
use plimsoll_model::{Millis, ObservedCode, Timestamp};

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
    /// It ran to its end and failed, as often as its file allows.
    JobFailed {
        attempts: u32,
    },
}

/// By what a failure is judged.
#[derive(Debug, Clone, Copy)]
pub struct RestartRule<'a> {
    pub policy: &'a Policy,
    /// What the file grants what is to run to its end; none for what is to serve on.
    pub retries: Option<Retries>,
}

impl NextRestart {
    /// What the cell is told of a failure that this follows.
    pub fn told(self, code: ObservedCode) -> ObservedCode {
        let last = Box::new(code);
        match self {
            Self::Exhausted { tries } => ObservedCode::RestartExhausted { tries, last },
            Self::JobFailed { attempts } => ObservedCode::JobFailed { attempts, last },
            Self::Nothing | Self::StartAt(_) => *last,
        }
    }
}

impl RestartHistory {
    /// It runs and is healthy, as of now.
    pub fn runs(&mut self, now: Timestamp) {
        self.running_since.get_or_insert(now);
    }

    /// It failed, as of now. To be told once for each failure, however often it is looked at.
    pub fn fails(&mut self, now: Timestamp, rule: &RestartRule<'_>) {
        // A short run between two failures does not make them two first failures.
        let ran = self.running_since.take().map_or(Millis(0), |since| now.since(since));
        // What is to end has not got over its failures by running long.
        if rule.retries.is_none() && ran >= rule.policy.sustained_run {
            self.failures = 0;
        }
        self.failures += 1;
        self.last_failure = now;
    }

    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// What follows the last failure, which was this.
    pub fn next(&self, code: &ObservedCode, rule: &RestartRule<'_>) -> NextRestart {
        if self.failures == 0 || self.running_since.is_some() {
            return NextRestart::Nothing;
        }
        // Only what is known to have run to its end uses up the retries that its file grants. What could not be started, or
        // nobody saw the end of, is tried as anything else is.
        let retries = rule.retries.filter(|_| is_end(code));
        let limit = retries.and_then(|it| it.limit).map(|limit| limit.saturating_add(1));
        if self.failures >= limit.unwrap_or(rule.policy.restart_limit) {
            return match retries {
                Some(_) => NextRestart::JobFailed { attempts: self.failures },
                None => NextRestart::Exhausted { tries: self.failures },
            };
        }
        let delay = retries.and_then(|it| it.delay);
        let most = rule.policy.max_restart_back_off;
        let pause = delay.unwrap_or_else(|| back_off(self.failures, most));
        NextRestart::StartAt(self.last_failure.plus(pause))
    }
}

/// Whether it ran, and is known to have ended badly.
fn is_end(code: &ObservedCode) -> bool {
    matches!(code, ObservedCode::Exited { status: Some(_) } | ObservedCode::OutOfMemory)
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

    const EXIT: ObservedCode = ObservedCode::Exited { status: Some(1) };

    fn serving(policy: &Policy) -> RestartRule<'_> {
        RestartRule { policy, retries: None }
    }

    fn after(seconds: u64) -> Timestamp {
        START.plus(Millis::seconds(seconds))
    }

    #[test]
    fn three_failures_in_a_row_exhaust_the_tries() {
        let policy = Policy::default();
        let (mut tries, rule) = (RestartHistory::default(), serving(&policy));
        assert_eq!(tries.next(&EXIT, &rule), NextRestart::Nothing);
        tries.fails(START, &rule);
        assert_eq!(tries.next(&EXIT, &rule), NextRestart::StartAt(after(1)));
        tries.fails(after(1), &rule);
        assert_eq!(tries.next(&EXIT, &rule), NextRestart::StartAt(after(3)));
        tries.fails(after(3), &rule);
        assert_eq!(tries.next(&EXIT, &rule), NextRestart::Exhausted { tries: 3 });
    }

    #[test]
    fn only_a_sustained_run_clears_the_count() {
        let policy = Policy::default();
        let sustained = policy.sustained_run.0 / 1_000;
        for (case, ran, failures) in
            [("a short run", sustained - 1, 3), ("a sustained run", sustained, 1)]
        {
            let (mut tries, rule) = (RestartHistory::default(), serving(&policy));
            tries.fails(START, &rule);
            tries.fails(after(1), &rule);
            tries.runs(after(5));
            assert_eq!(tries.next(&EXIT, &rule), NextRestart::Nothing, "{case}: it runs");
            tries.fails(after(5 + ran), &rule);
            assert_eq!(tries.failures(), failures, "{case}");
        }
    }

    #[test]
    fn what_runs_to_its_end_is_retried_as_often_as_its_file_says() {
        use NextRestart::{Exhausted, JobFailed, StartAt};
        let policy = Policy::default();
        let granted = |limit, delay| Some(Retries { limit, delay });
        let ten = Some(Millis::seconds(10));
        let error = "no".to_owned();
        let (unseen, unstarted) =
            (ObservedCode::Exited { status: None }, ObservedCode::StartFailed { error });
        for (case, retries, code, failures, expected) in [
            ("never", Some(Retries::NEVER), &EXIT, 1, JobFailed { attempts: 1 }),
            ("once more", granted(Some(1), None), &EXIT, 1, StartAt(after(1))),
            ("and no more", granted(Some(1), None), &EXIT, 2, JobFailed { attempts: 2 }),
            ("after a delay", granted(Some(5), ten), &EXIT, 2, StartAt(after(10))),
            ("as anything", granted(None, None), &EXIT, 3, JobFailed { attempts: 3 }),
            ("an end unseen is none", Some(Retries::NEVER), &unseen, 1, StartAt(after(1))),
            ("nor is no start", Some(Retries::NEVER), &unstarted, 3, Exhausted { tries: 3 }),
        ] {
            let (mut tries, rule) =
                (RestartHistory::default(), RestartRule { policy: &policy, retries });
            for _ in 0..failures {
                // However long it ran.
                tries.runs(Timestamp(0));
                tries.fails(START, &rule);
            }
            assert_eq!(tries.next(code, &rule), expected, "{case}");
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
