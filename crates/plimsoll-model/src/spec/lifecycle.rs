//! What the end of a replica means: a failure of what should serve on, or the end of what it was started for.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Dependency, ServiceSpec};
use crate::ids::ServiceName;
use crate::units::Millis;

/// What the end of a replica means. It steers plimsoll alone, so a change of it starts nothing anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifecycle {
    /// It runs until it is stopped: any other end is a failure.
    #[default]
    Service,
    /// It serves, and is moved and updated as such; if it ends with status 0, it is completed.
    Finite(Retries),
    /// It runs to its end, once a revision of its spec, one copy at a time, and is not moved while it runs.
    Job(Retries),
}

impl Lifecycle {
    pub fn word(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Finite(_) => "finite",
            Self::Job(_) => "job",
        }
    }
}

/// How often what ended with a status other than 0 is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Retries {
    /// None: as often as any container that fails.
    pub limit: Option<u32>,
    /// How long after a failure; none: a wait that doubles.
    pub delay: Option<Millis>,
}

impl Retries {
    /// It is run once, however it ends.
    pub const NEVER: Self = Self { limit: Some(0), delay: None };
}

impl ServiceSpec {
    pub fn is_job(&self) -> bool {
        matches!(self.lifecycle, Lifecycle::Job(_))
    }

    /// How many copies run side by side; none for `global`. Of a service on a schedule, how many a run has.
    pub fn copies(&self) -> Option<u32> {
        let of_run = self.schedule.as_ref().and_then(|schedule| schedule.copies);
        of_run.or(self.placement.mode.replicas())
    }

    /// The same as a job.
    pub fn become_job(&mut self) {
        self.lifecycle = Lifecycle::Job(self.retries().unwrap_or_default());
    }

    /// How often it is retried, where an end with status 0 completes it.
    pub fn retries(&self) -> Option<Retries> {
        match self.lifecycle {
            Lifecycle::Service => None,
            Lifecycle::Finite(retries) | Lifecycle::Job(retries) => Some(retries),
        }
    }
}

/// The services that others wait for to complete. They are jobs, whatever else is said of them.
pub fn awaited_jobs<'s>(services: impl Iterator<Item = &'s ServiceSpec>) -> BTreeSet<ServiceName> {
    let edges = services.flat_map(|spec| &spec.depends_on);
    let awaited = edges.filter(|(_, until)| **until == Dependency::Completed);
    awaited.map(|(on, _)| on.clone()).collect()
}
