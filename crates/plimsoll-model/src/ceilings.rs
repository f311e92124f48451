//! The most a service may ask for where more is a slip, or a way to wear others out: times that the cell waits for,
//! numbers that it counts, bytes that it carries. One place for all who read specs: compose files and the API alike.
//!
//! What a replica may reserve and how many there may be is bounded in [`state`](crate::state), with the sums they enter.

use std::collections::BTreeMap;
use std::fmt;

use crate::spec::{FileContent, Healthcheck, Reschedule, ServiceSpec};
use crate::state::MAX_REPLICAS;
use crate::units::{Bytes, Millis};

/// The longest a container may take to stop: a drain waits for it, and so does whoever deletes it.
pub const MAX_STOP_GRACE: Millis = Millis::minutes(2 * 60);

/// The longest between two probes, and for one of them: beyond it a check says nothing of now.
pub const MAX_PROBE: Millis = Millis::minutes(60);

/// The longest a container may be on its way to healthy: a day, for those who load that much first.
pub const MAX_START_PERIOD: Millis = Millis::minutes(24 * 60);

/// How many probes in a row may fail.
pub const MAX_RETRIES: u32 = 1_000;

/// The longest a rollout may rest between two steps, or watch one.
pub const MAX_UPDATE_PAUSE: Millis = Millis::minutes(24 * 60);

/// What a kernel takes for arguments and environment together is 2 MiB; half of that leaves room for the command.
pub const MAX_ENVIRONMENT: Bytes = Bytes(1 << 20);

/// Labels and annotations travel with every look at a container.
pub const MAX_LABELS: Bytes = Bytes(256 << 10);

/// What Swarm allows a config to be: content travels through the replicated log, which is no file server.
pub const MAX_FILE_BYTES: usize = 1_000 * 1_024;

/// Mounts of one container, and its configs and secrets.
pub const MAX_MOUNTS: usize = 1_000;

/// Ports that one service publishes; ranges make it easy to write many.
pub const MAX_PORTS: usize = 10_000;

/// What a stop costs, at most.
pub const MAX_PENALTY: u8 = 100;

/// The scale of a placement's score.
pub const MAX_SCORE: u16 = 10_000;

/// All of them, in millionths.
pub const MAX_FAILURE_RATIO: u32 = 1_000_000;

/// A number of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Amount {
    Span(Millis),
    Size(Bytes),
    Count(u64),
}

impl Amount {
    /// In milliseconds, bytes or as it is.
    pub fn number(self) -> u64 {
        match self {
            Self::Span(span) => span.0,
            Self::Size(bytes) => bytes.0,
            Self::Count(count) => count,
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Span(span) => span.fmt(f),
            Self::Size(bytes) => bytes.fmt(f),
            Self::Count(count) => count.fmt(f),
        }
    }
}

/// A field above its ceiling, with both numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excess {
    /// As a compose file has it.
    pub field: &'static str,
    pub found: Amount,
    pub max: Amount,
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, at most {} is allowed", self.field, self.found, self.max)
    }
}

impl ServiceSpec {
    /// Every field above its ceiling.
    pub fn excesses(&self) -> Vec<Excess> {
        let (container, update) = (&self.container, &self.update);
        let check = container.healthcheck.as_ref();
        let probe =
            |field: fn(&Healthcheck) -> Option<Millis>| check.and_then(field).unwrap_or(Millis(0));
        let files = || container.configs.iter().chain(&container.secrets);
        let largest = files().map(|file| match &file.content {
            FileContent::Inline(bytes) => bytes.len(),
            FileContent::External(_) | FileContent::Kept { .. } => 0,
        });
        let pairs = |maps: &[&BTreeMap<String, String>]| {
            let pairs = maps.iter().flat_map(|map| map.iter());
            size(pairs.map(|(key, value)| key.len() + value.len() + 2).sum())
        };
        let score = match self.reschedule {
            Reschedule::Above(score) => score,
            Reschedule::Default | Reschedule::Never => 0,
        };
        let replicas = self.placement.mode.replicas().unwrap_or(0);
        let rows = [
            (
                "stop_grace_period",
                Amount::Span(container.effective_stop_grace()),
                Amount::Span(MAX_STOP_GRACE),
            ),
            (
                "healthcheck.interval",
                Amount::Span(probe(|it| it.interval)),
                Amount::Span(MAX_PROBE),
            ),
            ("healthcheck.timeout", Amount::Span(probe(|it| it.timeout)), Amount::Span(MAX_PROBE)),
            (
                "healthcheck.start_interval",
                Amount::Span(probe(|it| it.start_interval)),
                Amount::Span(MAX_PROBE),
            ),
            (
                "healthcheck.start_period",
                Amount::Span(probe(|it| it.start_period)),
                Amount::Span(MAX_START_PERIOD),
            ),
            (
                "healthcheck.retries",
                count(check.and_then(|it| it.retries).unwrap_or(0)),
                count(MAX_RETRIES),
            ),
            ("update_config.delay", Amount::Span(update.delay), Amount::Span(MAX_UPDATE_PAUSE)),
            ("update_config.monitor", Amount::Span(update.monitor), Amount::Span(MAX_UPDATE_PAUSE)),
            (
                "update_config.max_failure_ratio in millionths",
                count(update.max_failure_millionths),
                count(MAX_FAILURE_RATIO),
            ),
            ("replicas", count(replicas), count(MAX_REPLICAS)),
            ("environment", pairs(&[&container.environment]), Amount::Size(MAX_ENVIRONMENT)),
            (
                "labels",
                pairs(&[&container.labels, &container.annotations, &self.labels]),
                Amount::Size(MAX_LABELS),
            ),
            ("the number of ports", number(container.ports.len()), number(MAX_PORTS)),
            ("the number of volumes", number(container.mounts.len()), number(MAX_MOUNTS)),
            ("the number of configs and secrets", number(files().count()), number(MAX_MOUNTS)),
            (
                "the largest config or secret",
                size(largest.max().unwrap_or(0)),
                size(MAX_FILE_BYTES),
            ),
            ("interruption_penalty", count(self.interruption_penalty), count(MAX_PENALTY)),
            ("reschedule", count(score), count(MAX_SCORE)),
        ];
        let above = rows.into_iter().filter(|(_, found, max)| found > max);
        above.map(|(field, found, max)| Excess { field, found, max }).collect()
    }
}

fn count(count: impl Into<u64>) -> Amount {
    Amount::Count(count.into())
}

fn number(count: usize) -> Amount {
    Amount::Count(u64::try_from(count).unwrap_or(u64::MAX))
}

fn size(bytes: usize) -> Amount {
    Amount::Size(Bytes(u64::try_from(bytes).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{HealthTest, Mode};
    use crate::testkit::spread;

    fn said(change: impl FnOnce(&mut ServiceSpec)) -> Vec<String> {
        let mut spec = spread(1);
        change(&mut spec);
        spec.excesses().iter().map(ToString::to_string).collect()
    }

    fn check(change: impl FnOnce(&mut Healthcheck)) -> Vec<String> {
        let mut check = Healthcheck {
            test: HealthTest::Image,
            interval: None,
            timeout: None,
            start_period: None,
            start_interval: None,
            retries: None,
        };
        change(&mut check);
        said(|spec| spec.container.healthcheck = Some(check))
    }

    #[test]
    fn a_number_at_its_ceiling_passes_and_the_next_is_refused_with_both() {
        let above = |span: Millis| Some(Millis(span.0 + 3_600_000));
        for (case, said, expected) in [
            ("nothing said", said(|_| {}), &[][..]),
            (
                "a grace at its ceiling",
                said(|it| it.container.stop_grace = Some(MAX_STOP_GRACE)),
                &[],
            ),
            (
                "a grace",
                said(|it| it.container.stop_grace = above(MAX_STOP_GRACE)),
                &["stop_grace_period is 3h, at most 2h is allowed"],
            ),
            (
                "an interval",
                check(|it| it.interval = above(MAX_PROBE)),
                &["healthcheck.interval is 2h, at most 1h is allowed"],
            ),
            (
                "retries and a start period",
                check(|it| (it.retries, it.start_period) = (Some(1_001), above(MAX_START_PERIOD))),
                &[
                    "healthcheck.start_period is 1d 1h, at most 1d is allowed",
                    "healthcheck.retries is 1001, at most 1000 is allowed",
                ],
            ),
            (
                "replicas",
                said(|it| it.placement.mode = Mode::Pack { replicas: MAX_REPLICAS + 1 }),
                &["replicas is 100001, at most 100000 is allowed"],
            ),
            (
                "an environment",
                said(|it| {
                    drop(it.container.environment.insert("A".to_owned(), "x".repeat(2 << 20)))
                }),
                &["environment is 2.0 MiB, at most 1 MiB is allowed"],
            ),
            (
                "a penalty",
                said(|it| it.interruption_penalty = 101),
                &["interruption_penalty is 101, at most 100 is allowed"],
            ),
        ] {
            assert_eq!(said, expected, "{case}");
        }
    }
}
