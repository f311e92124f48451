//! Fleets, as a daemon has to do with them. On a coordinator's nodes: what shards ask of it, behind a trait, since what it decides is
//! no cell's business and no cell depends on it. On the nodes of a shard: the [link](crate::fleet_link).
//!
//! A shard is known by the key that was enrolled for it, and by nothing that it says.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use plimsoll_api::view::{FleetShortfall, Problem};
use plimsoll_model::Timestamp;
use plimsoll_model::fleet::{CoordinatorAnswer, Pool, ShardId, ShardMessage, Supply};
use plimsoll_runtime::BoxFuture;
use plimsoll_store::Peer;
use serde::{Deserialize, Serialize};

use crate::authorities::CellAuthorities;
use crate::log_writer::LogWriter;

/// Where a cell joins a fleet with a token.
pub const ENROL: &str = "/peer/fleet/enrol";

/// Where a shard reports.
pub const REPORT: &str = "/peer/fleet/report";

/// The version of what is asked and answered when a cell joins.
pub const VERSION: u32 = 1;

/// The most bytes a report may have: a hundred shortfalls that accept some hundred types and zones each.
pub const MAX_REPORT: usize = 4 << 20;

/// How long an answer may wait for instructions: about as long as a shard waits before it reports again.
pub const MAX_WAIT: Duration = Duration::from_secs(10);

/// What a coordinator's nodes have that those of a cell do not.
pub trait Coordinator: fmt::Debug + Send + Sync {
    /// Leads the fleet for as long as this is polled, which is while this node leads its cell.
    fn lead<'a>(&'a self, log: &'a LogWriter) -> BoxFuture<'a, ()>;

    /// What a shard says. The answer has what it is to do, and waits so long for something to do.
    fn hear<'a>(
        &'a self,
        log: &'a LogWriter,
        shard: ShardId,
        message: ShardMessage,
        wait: Duration,
    ) -> BoxFuture<'a, Result<CoordinatorAnswer, Problem>>;

    /// What only the leader knows; none while this node does not lead.
    fn heard(&self) -> Option<FleetMemory>;
}

/// What shards said to this leader, and what it made of it.
#[derive(Debug, Clone, Default)]
pub struct FleetMemory {
    pub next_pass: Timestamp,
    pub shards: BTreeMap<ShardId, HeardShard>,
    pub shortfalls: Vec<FleetShortfall>,
}

#[derive(Debug, Clone)]
pub struct HeardShard {
    pub heard_at: Timestamp,
    pub is_paused: bool,
    pub supply: BTreeMap<Pool, Supply>,
    pub shortfalls: usize,
}

/// How a cell asks to join.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EnrolRequest {
    pub version: u32,
    pub token: String,
    pub csr: Vec<u8>,
}

/// What it is given.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Enrolment {
    /// What it is called: the token says so.
    pub shard: ShardId,
    pub certificate: Vec<u8>,
    pub servers: Vec<Peer>,
    pub authorities: CellAuthorities,
}

/// A report as it is sent, in the postcard format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportRequest {
    pub message: ShardMessage,
    /// Another certificate is due, for the same key.
    pub csr: Option<Vec<u8>>,
    /// How long the answer may wait for instructions.
    pub wait_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportAnswer {
    pub answer: CoordinatorAnswer,
    /// Who coordinates by now, and whom to trust.
    pub servers: Vec<Peer>,
    pub authorities: CellAuthorities,
    pub certificate: Option<Vec<u8>>,
}

/// What a node that does not lead answers, with status 421: who does, if it knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misdirected {
    pub leader: Option<Peer>,
}

/// How the link of this cell to its coordinator is, while this node leads.
#[derive(Debug, Clone, Default)]
pub struct FleetLinkStatus {
    pub answered_at: Option<Timestamp>,
    pub trouble: Option<String>,
}
