//! Jobs that run on a schedule: when, what became of the last times, and what was missed. Each run is replicas of its own, so
//! that logs and ends of the last ones are found where those of any replica are. When a run starts is decided elsewhere; that
//! none starts twice, and that two never run at once, is seen to here, where it is written.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::replica::Replica;
use crate::state::Service;
use crate::units::{Millis, Timestamp};

mod cron;
mod slots;

#[cfg(test)]
mod tests;

pub use cron::{Cron, InvalidCron};
pub use slots::{InvalidZone, ZoneName, utc_minute};

/// How many runs are kept with their logs. The oldest goes when the next one starts.
pub const KEPT_RUNS: usize = 5;

/// How many notes of missed slots are kept beside the service; all of them are in the audit.
pub const KEPT_MISSES: usize = 5;

/// How late a slot is still started: as after the loss of a leader, or a night in which nobody led. Later it is missed.
pub const MAX_LATENESS: Millis = Millis::minutes(60);

/// When a service runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    pub cron: Cron,
    /// Whose clock it goes by; none: UTC.
    pub zone: Option<ZoneName>,
    /// How many copies a run has. Written where a spec is applied, whatever it says itself: from there on, the mode of the
    /// service says how many replicas there are of all runs that are kept.
    #[serde(default)]
    pub copies: Option<u32>,
}

impl Schedule {
    pub fn new(cron: Cron, zone: Option<ZoneName>) -> Self {
        Self { cron, zone, copies: None }
    }

    /// Whether it has the same slots.
    pub fn is_same_time(&self, other: &Self) -> bool {
        self.cron == other.cron && self.zone == other.zone
    }
}

/// `0 3 * * * (Europe/Berlin)`
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zone = self.zone.as_ref().map_or("UTC", ZoneName::as_str);
        write!(f, "{} ({zone})", self.cron)
    }
}

/// What is known of the runs of a service.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ScheduleRow {
    /// Every slot up to this time was started or stated missed. A slot is decided once, whoever leads.
    pub decided: Timestamp,
    /// The number of the last run there was.
    pub last_run: u64,
    /// Oldest first, at most [`KEPT_RUNS`].
    pub runs: Vec<JobRun>,
    /// Oldest first, at most [`KEPT_MISSES`].
    pub missed: Vec<MissedSlots>,
}

/// One time that the service ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRun {
    pub number: u64,
    /// The slot it was started for; none: an operator asked for it.
    pub slot: Option<Timestamp>,
    pub at: Timestamp,
    pub copies: u32,
}

/// Slots that nothing was started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissedSlots {
    pub first: Timestamp,
    pub last: Timestamp,
    pub count: u32,
    pub why: MissReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissReason {
    /// The run before it was not over.
    StillRunning { run: u64 },
    /// Nobody led at the time, and then it was too late, or a later one was due.
    TooLate,
}

impl MissReason {
    pub fn word(self) -> &'static str {
        match self {
            Self::StillRunning { .. } => "still_running",
            Self::TooLate => "too_late",
        }
    }
}

impl fmt::Display for MissReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StillRunning { run } => write!(f, "run {run} was not over"),
            Self::TooLate => f.write_str("no leader started it in time"),
        }
    }
}

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    /// Something of it waits or runs.
    Open,
    Completed,
    /// It is over, and some copy of it failed for good.
    Failed,
}

impl RunState {
    pub fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

impl Service {
    /// The replicas of a run.
    pub fn replicas_of(&self, run: u64) -> impl Iterator<Item = &Replica> {
        let live = self.replicas.values().filter(|replica| replica.assignment.is_some());
        live.filter(move |replica| replica.run == Some(run))
    }

    pub fn run_state(&self, run: &JobRun) -> RunState {
        let (mut ended, mut failed) = (0_u32, false);
        for replica in self.replicas_of(run.number) {
            let Some(at) = replica.assignment.as_ref().filter(|at| replica.is_over(at)) else {
                return RunState::Open;
            };
            ended += 1;
            failed |= !replica.has_completed(at);
        }
        match (ended < run.copies, failed) {
            (true, _) => RunState::Open,
            (false, true) => RunState::Failed,
            (false, false) => RunState::Completed,
        }
    }

    /// The run that is not over. Only the last one can be.
    pub fn open_run(&self) -> Option<&JobRun> {
        let last = self.row.schedule.as_ref()?.runs.last()?;
        (self.run_state(last) == RunState::Open).then_some(last)
    }
}
