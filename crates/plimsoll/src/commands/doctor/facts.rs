//! What the doctor looks at, as it was found. What follows from it is settled in [`judge`](super::judge).

use std::time::Duration;

use plimsoll_api::view::Time;
use plimsoll_model::Timestamp;
use plimsoll_store::embedded::Timing;

/// A node before or after `plimsoll up`.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) now: Timestamp,
    pub(super) daemon: DaemonFact,
    pub(super) engine: EngineFact,
    pub(super) iptables: IptablesFact,
    pub(super) ports: Vec<PortFact>,
    pub(super) disk: Result<Timing, String>,
    pub(super) space: Result<Space, String>,
    pub(super) files: FileLimit,
    /// Other servers, by name.
    pub(super) peers: Vec<PeerFact>,
    /// Nodes that hold no log: they call the leader, and nobody calls them but for containers.
    pub(super) agents: Vec<AgentFact>,
    /// What keeps this node from asking others itself.
    pub(super) no_identity: Option<String>,
    pub(super) certificates: Vec<CertificateFact>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DaemonFact {
    /// Nobody listens at the socket.
    Down {
        socket: String,
    },
    /// It listens, and cannot be asked.
    Unheard {
        why: String,
    },
    Up {
        node: String,
        role: String,
        version: String,
        leader: Option<String>,
        missing: Vec<String>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EngineFact {
    /// The node runs processes.
    Process,
    Answers {
        name: String,
        version: String,
        api: Option<String>,
    },
    Silent {
        socket: String,
        why: String,
    },
    /// There is no socket of one.
    Absent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum IptablesFact {
    /// Only containers have networks of their own.
    Unneeded,
    Absent,
    Works {
        version: String,
    },
    /// It is there, and only root can try it.
    Untried {
        version: String,
    },
    Fails {
        why: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PortFact {
    pub(super) what: &'static str,
    pub(super) address: String,
    pub(super) state: PortState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PortState {
    Free,
    /// The daemon of this node has it.
    Held,
    Refused {
        why: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Space {
    pub(super) path: String,
    pub(super) free: u64,
    pub(super) total: u64,
    pub(super) free_files: u64,
    /// Zero where the file system counts none.
    pub(super) total_files: u64,
}

/// How many files the daemon may have open; none: any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileLimit {
    pub(super) most: Option<u64>,
    /// It is the limit of the running daemon, and not of this command.
    pub(super) is_daemons: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PeerFact {
    pub(super) node: String,
    pub(super) address: String,
    /// How long a request took there and back.
    pub(super) there: Result<Duration, String>,
    /// Whether it reaches this node, by its own word.
    pub(super) back: BackFact,
    pub(super) clock: Option<ClockFact>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BackFact {
    Reaches,
    DoesNot,
    /// It does not say: it cannot be asked, or this node holds no log.
    Unknown {
        why: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClockFact {
    /// How far the other's clock is before ours; negative: behind.
    pub(super) ahead_ms: i64,
    /// By how much that may be wrong.
    pub(super) give_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AgentFact {
    pub(super) node: String,
    pub(super) status: String,
    pub(super) last_heard: Option<Time>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CertificateFact {
    /// `node ash`, `route shop.example`
    pub(super) of: String,
    pub(super) expires_at: Option<Time>,
    /// It should have been renewed by now.
    pub(super) is_overdue: bool,
    pub(super) trouble: Option<String>,
}
