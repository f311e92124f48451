//! When to probe, and what the results amount to. Times are the age of the run; nothing here reads a clock.
//!
//! As Docker does it: the first probe comes one interval after the start and each next one an interval after the last
//! ended. During the start period probes come at the start interval and failures do not count; the first success ends
//! it. After that, `retries` failures in a row make it unhealthy and one success makes it healthy.

use plimsoll_model::Millis;
use plimsoll_model::spec::Healthcheck;

/// How long a service without a check must run to count as healthy.
pub const SETTLED: Millis = Millis::seconds(5);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeTiming {
    pub interval: Millis,
    pub timeout: Millis,
    pub start_period: Millis,
    pub start_interval: Millis,
    pub retries: u32,
}

impl Default for ProbeTiming {
    fn default() -> Self {
        Self {
            interval: Healthcheck::INTERVAL,
            timeout: Healthcheck::TIMEOUT,
            start_period: Millis(0),
            start_interval: Millis::seconds(5),
            retries: Healthcheck::RETRIES,
        }
    }
}

impl ProbeTiming {
    /// What the check says; zero is "not said", as with Docker.
    pub(super) fn of(check: &Healthcheck) -> Partial {
        let said = |value: Option<Millis>| value.filter(|span| span.0 > 0);
        Partial {
            interval: said(check.interval),
            timeout: said(check.timeout),
            start_period: said(check.start_period),
            start_interval: said(check.start_interval),
            retries: check.retries.filter(|retries| *retries > 0),
        }
    }
}

/// Rules with gaps.
pub(super) struct Partial {
    interval: Option<Millis>,
    timeout: Option<Millis>,
    start_period: Option<Millis>,
    start_interval: Option<Millis>,
    retries: Option<u32>,
}

impl Partial {
    pub(super) fn or(self, image: &Healthcheck) -> Self {
        let other = ProbeTiming::of(image);
        Self {
            interval: self.interval.or(other.interval),
            timeout: self.timeout.or(other.timeout),
            start_period: self.start_period.or(other.start_period),
            start_interval: self.start_interval.or(other.start_interval),
            retries: self.retries.or(other.retries),
        }
    }

    pub(super) fn complete(self) -> ProbeTiming {
        let rest = ProbeTiming::default();
        ProbeTiming {
            interval: self.interval.unwrap_or(rest.interval),
            timeout: self.timeout.unwrap_or(rest.timeout),
            start_period: self.start_period.unwrap_or(rest.start_period),
            start_interval: self.start_interval.unwrap_or(rest.start_interval),
            retries: self.retries.unwrap_or(rest.retries),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealthState {
    Starting,
    Healthy,
    /// With what the last probe printed.
    Unhealthy {
        output: String,
    },
}

/// What one probe found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeResult {
    Passed,
    Failed {
        output: String,
    },
    /// It could not be asked, which says nothing of the service.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// None for a service without a check, which is asked once.
    rules: Option<ProbeTiming>,
    health: HealthState,
    failures: u32,
    due: Option<Millis>,
}

impl Probe {
    pub fn new(rules: ProbeTiming) -> Self {
        let mut probe = Self { rules: None, health: HealthState::Starting, failures: 0, due: None };
        probe.due = Some(probe.pause(&rules, Millis(0)));
        probe.rules = Some(rules);
        probe
    }

    /// For a service without a check: it passes once, when it has run long enough.
    pub fn uptime() -> Self {
        Self { rules: None, health: HealthState::Starting, failures: 0, due: Some(SETTLED) }
    }

    pub fn health(&self) -> &HealthState {
        &self.health
    }

    /// At what age of the run the next probe begins; none when there is nothing more to ask.
    pub fn due(&self) -> Option<Millis> {
        self.due
    }

    /// Takes the result of a probe that ran from `began` to `ended`, and tells the new health if it changed.
    pub fn judge(
        &mut self,
        began: Millis,
        ended: Millis,
        verdict: ProbeResult,
    ) -> Option<HealthState> {
        let health = match (verdict, &self.rules) {
            (ProbeResult::Passed, _) => {
                self.failures = 0;
                HealthState::Healthy
            }
            (ProbeResult::Failed { output }, Some(rules)) => {
                let is_excused = self.health == HealthState::Starting && began < rules.start_period;
                self.failures = self.failures.saturating_add(u32::from(!is_excused));
                if self.failures >= rules.retries {
                    HealthState::Unhealthy { output }
                } else {
                    self.health.clone()
                }
            }
            (ProbeResult::Failed { .. } | ProbeResult::Unknown, _) => self.health.clone(),
        };
        // An unhealthy service that fails again in other words has not changed.
        let is_change = std::mem::discriminant(&health) != std::mem::discriminant(&self.health);
        self.health = health;
        self.due = self.rules.as_ref().map(|rules| Millis(ended.0 + self.pause(rules, ended).0));
        is_change.then(|| self.health.clone())
    }

    fn pause(&self, rules: &ProbeTiming, age: Millis) -> Millis {
        if self.health == HealthState::Starting && age < rules.start_period {
            rules.start_interval
        } else {
            rules.interval
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(interval: u64, start_period: u64, retries: u32) -> ProbeTiming {
        ProbeTiming {
            interval: Millis::seconds(interval),
            start_period: Millis::seconds(start_period),
            start_interval: Millis::seconds(2),
            retries,
            ..ProbeTiming::default()
        }
    }

    /// Probes that take no time: the story of `results`, each `+` or `-` or `?`, as `second:health`.
    fn story(rules: ProbeTiming, results: &str) -> String {
        let mut probe = Probe::new(rules);
        let mut said = Vec::new();
        for result in results.chars() {
            let at = probe.due().unwrap();
            let verdict = match result {
                '+' => ProbeResult::Passed,
                '-' => ProbeResult::Failed { output: String::new() },
                _ => ProbeResult::Unknown,
            };
            if let Some(health) = probe.judge(at, at, verdict) {
                let word = if health == HealthState::Healthy { "healthy" } else { "unhealthy" };
                said.push(format!("{}:{word}", at.0 / 1_000));
            }
        }
        said.join(" ")
    }

    #[test]
    fn a_run_of_results_makes_a_service_healthy_or_not() {
        for (case, rules, results, expected) in [
            ("the first probe comes after one interval", rules(10, 0, 3), "+", "10:healthy"),
            ("healthy again is no news", rules(10, 0, 3), "+++", "10:healthy"),
            ("three failures in a row", rules(10, 0, 3), "---", "30:unhealthy"),
            ("two are not enough", rules(10, 0, 3), "--", ""),
            ("a success starts the count again", rules(10, 0, 3), "--+--", "30:healthy"),
            ("one success heals", rules(10, 0, 2), "--+", "20:unhealthy 30:healthy"),
            ("unhealthy again is no news", rules(10, 0, 2), "----", "20:unhealthy"),
            ("failures while it starts do not count", rules(10, 9, 1), "----", ""),
            ("beyond the start period they do", rules(10, 9, 1), "-----", "10:unhealthy"),
            (
                "the first success ends the start period",
                rules(10, 9, 2),
                "-+--",
                "4:healthy 24:unhealthy",
            ),
            (
                "after it the interval is the ordinary one",
                rules(10, 60, 1),
                "+-",
                "2:healthy 12:unhealthy",
            ),
            ("silence counts for nothing", rules(10, 0, 2), "-??-", "40:unhealthy"),
        ] {
            assert_eq!(story(rules, results), expected, "{case}");
        }
    }

    #[test]
    fn the_pause_begins_when_the_probe_ended() {
        let mut probe = Probe::new(rules(10, 0, 3));
        probe.judge(Millis::seconds(10), Millis::seconds(17), ProbeResult::Passed);
        assert_eq!(probe.due(), Some(Millis::seconds(27)));
    }

    #[test]
    fn without_a_check_five_seconds_are_enough() {
        let mut probe = Probe::uptime();
        let due = probe.due().unwrap();
        assert_eq!(due, SETTLED);
        assert_eq!(probe.judge(due, due, ProbeResult::Passed), Some(HealthState::Healthy));
        assert_eq!(probe.due(), None, "and nothing more is asked");
    }
}
