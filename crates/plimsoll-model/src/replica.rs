//! One copy of a service: where it was told to run, where it is going, and what its nodes saw of it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

mod plain_code;

use crate::ids::{NodeId, ServiceName};
use crate::reason::WaitReason;
use crate::spec::{Dependency, SpecHash};
use crate::transition::{Edge, Writer};
use crate::units::{Generation, Revision, Term, Timestamp};

/// How many assignments of one replica may be on their way out at once. Beyond it the oldest is forgotten: its node
/// removes the container all the same, since nothing asks for it, only its room counts as free a little early.
pub const MAX_LEAVING: usize = 8;

/// An order to one node to run one replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    pub node: NodeId,
    pub spec: SpecHash,
    pub revision: Revision,
    pub generation: Generation,
    /// The leader's term when it was given. A node refuses one older than it has seen.
    pub term: Term,
    pub at: Timestamp,
}

/// The assignment a move is taking the replica to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Successor {
    pub assignment: Assignment,
    pub cause: MoveCause,
    /// It failed at least once. The move is over, even if its node has started it again by the time anyone looks.
    pub has_failed: bool,
}

/// What made a move necessary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveCause {
    /// Its node is down beyond the grace, or gone from the cell.
    NodeLost,
    /// The container runtime of its node does not answer beyond the grace, and nothing of it runs there.
    RuntimeLost,
    /// Its node may not hold it any more: hosts or constraints changed, or the node is draining.
    Misplaced,
    /// The service has a newer spec.
    Outdated,
    /// Its node stays hot while another is cool.
    Pressure,
    /// Another node suits it clearly better, or a node that joined or came back gets its share.
    Reschedule,
    /// A replica of higher priority needs its room.
    Preempted,
    /// An operator asked for a fresh start, or applied the file again after it had failed.
    Restart,
    /// An operator asked for a better layout.
    Optimize,
}

impl MoveCause {
    pub fn word(self) -> &'static str {
        match self {
            Self::NodeLost => "node_lost",
            Self::RuntimeLost => "runtime_lost",
            Self::Misplaced => "misplaced",
            Self::Outdated => "outdated",
            Self::Pressure => "pressure",
            Self::Reschedule => "reschedule",
            Self::Preempted => "preempted",
            Self::Restart => "restart",
            Self::Optimize => "optimize",
        }
    }

    /// Whether the replica could as well have stayed: somebody chose another place for it.
    pub fn is_chosen(self) -> bool {
        match self {
            Self::Pressure | Self::Reschedule | Self::Optimize => true,
            Self::NodeLost
            | Self::RuntimeLost
            | Self::Misplaced
            | Self::Outdated
            | Self::Restart
            | Self::Preempted => false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Replica {
    /// None once the replica is retired and only waits for its containers to stop.
    pub assignment: Option<Assignment>,
    pub successor: Option<Successor>,
    /// Still stopping, oldest first: they hold their room until their node says that they stopped.
    pub leaving: Vec<Assignment>,
    /// The latest report of each assignment above. A report of one generation says nothing of another.
    pub observed: BTreeMap<Generation, Observation>,
    /// Why the move it needs has not begun.
    pub waiting: Option<WaitReason>,
    /// Assignments older than this are to be started anew, whatever their spec.
    pub fresh_from: Generation,
    /// Its number among the replicas of its service that have volumes which their image declares; none while it has none.
    pub data: Option<u32>,
    /// It is where it is because a hot node was relieved of it: nobody but the rebalancer moves it for something better.
    #[serde(default)]
    pub is_relieved: bool,
    /// Which run of its service it is of, where that is on a schedule.
    #[serde(default)]
    pub run: Option<u64>,
}

impl Replica {
    /// Where the replica is, or will be once its move ends. Spreading counts this one.
    pub fn heading(&self) -> Option<&Assignment> {
        self.successor.as_ref().map(|successor| &successor.assignment).or(self.assignment.as_ref())
    }

    /// Every assignment that holds room on some node.
    pub fn holds(&self) -> impl Iterator<Item = &Assignment> {
        let successor = self.successor.as_ref().map(|successor| &successor.assignment);
        self.assignment.iter().chain(successor).chain(&self.leaving)
    }

    /// Whether the assignment is older than the last fresh start that was asked for.
    pub fn is_stale(&self, assignment: &Assignment) -> bool {
        assignment.generation < self.fresh_from
    }

    /// Whether something of it was given up, or fails on and on, so that only another apply helps or hastens it.
    pub fn has_given_up(&self) -> bool {
        let next = self.successor.as_ref().map(|successor| &successor.assignment);
        self.assignment.as_ref().is_some_and(|at| !self.is_record(at))
            && (matches!(self.waiting, Some(WaitReason::Stalled { .. }))
                || self.assignment.iter().chain(next).any(|assigned| self.fails(assigned)))
    }

    /// Whether what is the matter with the assignment lasts until something is changed.
    pub(crate) fn fails(&self, assignment: &Assignment) -> bool {
        let code = self.observation(assignment).and_then(|seen| seen.code.as_ref());
        code.is_some_and(ObservedCode::is_lasting)
    }

    pub fn is_empty(&self) -> bool {
        self.assignment.is_none() && self.leaving.is_empty()
    }

    pub fn observation(&self, assignment: &Assignment) -> Option<&Observation> {
        self.observed.get(&assignment.generation)
    }

    /// Whether the current assignment, and not an older or newer one, is reported as running.
    pub fn is_running(&self) -> bool {
        self.assignment.as_ref().is_some_and(|assignment| self.runs(assignment))
    }

    /// Whether its node was told to stop it where it is, and has.
    pub fn is_stopped(&self, assignment: &Assignment) -> bool {
        self.observation(assignment).is_some_and(|seen| seen.state == ObservedState::Stopped)
    }

    /// Whether it has come to the end it was started for: it counts as running, and nothing runs.
    pub fn has_completed(&self, assignment: &Assignment) -> bool {
        self.observation(assignment).is_some_and(Observation::is_completed)
    }

    /// Whether it has ended for good there: it completed, or failed and is not retried. Only an operator starts it again.
    pub fn is_over(&self, assignment: &Assignment) -> bool {
        let seen = self.observation(assignment);
        // Nobody tries a run again that could not be started: the next one is soon enough.
        let is_exhausted = |seen: &Observation| {
            self.run.is_some() && matches!(seen.code, Some(ObservedCode::RestartExhausted { .. }))
        };
        seen.is_some_and(|seen| seen.is_over() || is_exhausted(seen))
    }

    /// Whether it is what is left of a run that is over: kept for its logs, and never started again, whatever is asked for.
    pub fn is_record(&self, assignment: &Assignment) -> bool {
        self.run.is_some() && self.is_over(assignment)
    }

    /// Whether it has given back its room and its ports: nothing of it runs, or ever will.
    pub fn has_vacated(&self, assignment: &Assignment) -> bool {
        self.has_completed(assignment) || self.is_record(assignment)
    }

    /// Whether it may have been started there, as far as its node has said, and was not stopped since.
    pub fn has_started(&self, assignment: &Assignment) -> bool {
        use ObservedState::{Pending, Pulling, Stopped};
        let seen = self.observation(assignment).map(|seen| seen.state);
        !matches!(seen, None | Some(Pending | Pulling | Stopped))
    }

    /// Whether it is up and healthy there, or has completed.
    pub fn runs(&self, assignment: &Assignment) -> bool {
        let seen = self.observation(assignment).map(|seen| seen.state);
        matches!(seen, Some(ObservedState::Running | ObservedState::Completed))
    }
}

/// What a node reports of one assignment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    pub state: ObservedState,
    pub code: Option<ObservedCode>,
    /// Since when, by the leader's clock: a node's own may be wrong.
    pub at: Timestamp,
}

impl Observation {
    /// Whether it ended with status 0, as it was meant to. Of old, that was said of what counts as running.
    pub fn is_completed(&self) -> bool {
        self.state == ObservedState::Completed || self.code == Some(ObservedCode::Completed)
    }

    pub fn is_over(&self) -> bool {
        self.is_completed() || matches!(self.code, Some(ObservedCode::JobFailed { .. }))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObservedState {
    /// Accepted, or waiting to try again.
    Pending,
    Pulling,
    Starting,
    /// Up, and healthy where it has a check.
    Running,
    Degraded,
    Failed,
    Stopped,
    /// The container runtime does not answer, and its process is gone or cannot be seen.
    Unknown,
    /// It ended with status 0, which is what it was started for.
    Completed,
}

impl ObservedState {
    const LIVE: &[Self] = &[
        Self::Pending,
        Self::Pulling,
        Self::Starting,
        Self::Running,
        Self::Degraded,
        Self::Failed,
        Self::Stopped,
        Self::Unknown,
        Self::Completed,
    ];

    /// A report says how things are now. What lay between two reports may have gone with a leader or a boot, so any
    /// live state can follow any other. Stopped is the end of a generation: what comes after is a new assignment. What has
    /// completed never runs again; its container is removed in the end.
    pub const EDGES: &[Edge<Self>] = &[
        Edge { from: Self::Pending, to: Self::LIVE, by: Writer::Agent },
        Edge { from: Self::Pulling, to: Self::LIVE, by: Writer::Agent },
        Edge { from: Self::Starting, to: Self::LIVE, by: Writer::Agent },
        Edge { from: Self::Running, to: Self::LIVE, by: Writer::Agent },
        Edge { from: Self::Degraded, to: Self::LIVE, by: Writer::Agent },
        Edge { from: Self::Failed, to: Self::LIVE, by: Writer::Agent },
        Edge { from: Self::Unknown, to: Self::LIVE, by: Writer::Agent },
        Edge { from: Self::Completed, to: &[Self::Stopped], by: Writer::Agent },
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Pulling => "pulling",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
            Self::Unknown => "unknown",
            Self::Completed => "completed",
        }
    }
}

/// Why an assignment is in the state it is in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObservedCode {
    ImagePullFailed {
        image: String,
        error: String,
    },
    /// A service it depends on has not come that far.
    AwaitsService {
        service: ServiceName,
        until: Dependency,
    },
    StartFailed {
        error: String,
    },
    Unhealthy {
        output: String,
    },
    /// None: nobody was left to see it, as after a loss of power.
    Exited {
        status: Option<i32>,
    },
    OutOfMemory,
    /// Its container was removed, and not by us.
    Vanished,
    RestartExhausted {
        tries: u32,
        #[serde(deserialize_with = "plain_code::last")]
        last: Box<ObservedCode>,
    },
    /// It had one job, and ended well. Said of old of what counts as running; by now by the state of its own.
    Completed,
    /// Its node has no addresses left for its network. It says nothing of the replica, and is not counted against it.
    SubnetPoolExhausted {
        error: String,
    },
    /// The container runtime of its node does not answer. Whether it failed nobody knows, so it is not counted.
    RuntimeUnavailable,
    /// It ended with status 0, after so many attempts on its node.
    JobCompleted {
        attempts: u32,
    },
    /// It ended with another status, and is not retried any more.
    JobFailed {
        attempts: u32,
        #[serde(deserialize_with = "plain_code::last")]
        last: Box<ObservedCode>,
    },
}

impl ObservedCode {
    pub fn word(&self) -> &'static str {
        match self {
            Self::ImagePullFailed { .. } => "image_pull_failed",
            Self::AwaitsService { .. } => "awaits_service",
            Self::StartFailed { .. } => "start_failed",
            Self::Unhealthy { .. } => "unhealthy",
            Self::Exited { .. } => "exited",
            Self::OutOfMemory => "out_of_memory",
            Self::Vanished => "vanished",
            Self::RestartExhausted { .. } => "restart_exhausted",
            Self::Completed | Self::JobCompleted { .. } => "completed",
            Self::SubnetPoolExhausted { .. } => "subnet_pool_exhausted",
            Self::RuntimeUnavailable => "runtime_unavailable",
            Self::JobFailed { .. } => "job_failed",
        }
    }

    /// With no more of each text than this many bytes.
    pub fn shorten(&mut self, most: usize) {
        let cut = |text: &mut String| text.truncate(text.floor_char_boundary(most));
        match self {
            Self::ImagePullFailed { image, error } => {
                cut(image);
                cut(error);
            }
            Self::StartFailed { error: text }
            | Self::SubnetPoolExhausted { error: text }
            | Self::Unhealthy { output: text } => cut(text),
            Self::RestartExhausted { last, .. } | Self::JobFailed { last, .. } => {
                last.shorten(most);
            }
            Self::AwaitsService { .. }
            | Self::Exited { .. }
            | Self::OutOfMemory
            | Self::Vanished
            | Self::RuntimeUnavailable
            | Self::JobCompleted { .. }
            | Self::Completed => {}
        }
    }

    /// Whether it lasts until something is changed, as far as anyone can tell.
    fn is_lasting(&self) -> bool {
        match self {
            Self::ImagePullFailed { .. }
            | Self::StartFailed { .. }
            | Self::SubnetPoolExhausted { .. }
            | Self::RestartExhausted { .. }
            | Self::JobFailed { .. } => true,
            Self::AwaitsService { .. }
            | Self::Unhealthy { .. }
            | Self::Exited { .. }
            | Self::OutOfMemory
            | Self::Vanished
            | Self::RuntimeUnavailable
            | Self::JobCompleted { .. }
            | Self::Completed => false,
        }
    }
}

impl fmt::Display for ObservedCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ImagePullFailed { error, .. }
            | Self::StartFailed { error }
            | Self::SubnetPoolExhausted { error } => f.write_str(error),
            Self::AwaitsService { service, until } => write!(f, "waits until {service} {until}"),
            Self::Unhealthy { output } => write!(f, "health check failed: {output}"),
            Self::Exited { status: Some(status) } => write!(f, "it exited with status {status}"),
            Self::Exited { status: None } => f.write_str("it exited with an unknown status"),
            Self::OutOfMemory => f.write_str("it ran out of memory and was killed"),
            Self::Vanished => f.write_str("its container was removed by someone else"),
            Self::RestartExhausted { tries, last } => {
                write!(f, "it failed {tries} times in a row; the last time {last}")
            }
            Self::Completed | Self::JobCompleted { attempts: 0 | 1 } => {
                f.write_str("it ended with status 0")
            }
            Self::JobCompleted { attempts } => {
                write!(f, "it ended with status 0 at attempt {attempts}")
            }
            Self::JobFailed { attempts: 1, last } => write!(f, "{last}, and is not retried"),
            Self::JobFailed { attempts, last } => {
                write!(f, "it failed in all {attempts} attempts; the last time {last}")
            }
            Self::RuntimeUnavailable => {
                f.write_str("the container runtime of its node does not answer")
            }
        }
    }
}
