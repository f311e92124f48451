//! What a fake is told to do, and what it was asked.

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_model::DeploymentName;

use crate::error::Reason;
use crate::runtime::{Tag, VolumeRef};

/// How an image behaves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Script {
    pub pull_dwell: Duration,
    /// The next so many pulls fail.
    pub pull_failures: u32,
    pub start_dwell: Duration,
    /// The next so many starts fail.
    pub start_failures: u32,
    /// The next so many starts find no addresses left for a network.
    pub subnet_failures: u32,
    /// How long it takes to stop when asked. Beyond the spec's grace it is killed.
    pub stop_dwell: Duration,
    /// Every run ends by itself after this time, with this status.
    pub exits: Option<(Duration, i32)>,
    pub wellness: Wellness,
    /// The next so many commands beside it fail.
    pub exec_failures: u32,
    pub refuses: Vec<Reason>,
    /// What its registry says of its tag; none where there is no registry to ask.
    pub digest: Option<String>,
    /// Where it declares volumes.
    pub declared: BTreeSet<String>,
    /// The next so many questions to its registry fail.
    pub resolve_failures: u32,
}

/// What commands run beside it find: status 0 or 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wellness {
    #[default]
    Always,
    Never,
    /// From this age of the run on.
    After(Duration),
}

/// A call that was made, in the order they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    Describe,
    Resolve(String),
    Pull(String),
    Start(Tag),
    Stop(Tag),
    Remove(Tag),
    List,
    Usage,
    Logs(Tag),
    Exec(Tag, Vec<String>),
    RemoveVolumes(DeploymentName),
    FindVolume(VolumeRef),
    RemoveVolume(VolumeRef),
}
