//! When a service on a schedule runs, and what became of it the last times.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Time;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceSchedule {
    /// Five fields or a name, as cron has it.
    pub cron: String,
    /// Whose clock it goes by.
    pub timezone: String,
    /// When the next run is due.
    pub next: Option<Time>,
    /// The last runs, oldest first. Their replicas are kept with their logs.
    pub runs: Vec<ScheduledRun>,
    /// The last slots that nothing was started for, oldest first. The audit has all of them.
    pub missed: Vec<MissedRuns>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScheduledRun {
    pub run: u64,
    /// When it was due; none: somebody asked for it.
    pub slot: Option<Time>,
    pub started: Time,
    /// When the last of its replicas ended; none while some have not.
    pub ended: Option<Time>,
    /// `open`, `completed` or `failed`.
    pub state: String,
    pub replicas: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MissedRuns {
    pub first: Time,
    pub last: Time,
    pub count: u32,
    /// `still_running` or `too_late`.
    pub reason: String,
    pub text: String,
}
