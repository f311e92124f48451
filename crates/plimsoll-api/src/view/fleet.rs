//! Fleets, as people read and change them: on the coordinator who is in the fleet, what moves and why the rest does not; on a cell
//! whether it is a shard, and whether its coordinator answers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Time;

/// What a cell is to a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FleetRole {
    /// It is in no fleet.
    None,
    Coordinator,
    Shard,
}

/// A fleet, as its coordinator knows it; or this cell's place in one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetStatus {
    pub role: FleetRole,
    /// Of a shard: its place.
    pub membership: Option<FleetPlace>,
    /// Nothing is begun; what is under way is finished.
    pub is_paused: bool,
    /// When it is next decided who gives machines to whom.
    pub next_pass: Option<Time>,
    pub shards: Vec<FleetShard>,
    /// Machines that have changed hands.
    pub machines: Vec<FleetMachine>,
    pub shortfalls: Vec<FleetShortfall>,
    pub quota: Vec<FleetQuota>,
    pub transfers: Vec<FleetTransfer>,
}

/// A cell's place in a fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetPlace {
    /// The cell that coordinates.
    pub coordinator: String,
    /// What this cell is called there.
    pub shard: String,
    pub joined_at: Time,
    /// When the coordinator answered last, since this node leads.
    pub answered_at: Option<Time>,
    /// Why it does not.
    pub trouble: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetShard {
    pub name: String,
    pub joined_at: Option<Time>,
    /// When it last reported to this leader; none: not since this leader began.
    pub heard_at: Option<Time>,
    /// Its operator has paused it.
    pub is_paused: bool,
    pub idle: u32,
    pub configured: u32,
    /// How many shortfalls it reports.
    pub shortfalls: usize,
    /// Instructions that it has not carried out yet.
    pub pending: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetMachine {
    pub name: String,
    pub owner: String,
    /// It grows with each owner.
    pub epoch: u64,
    pub since: Time,
}

/// Something that a shard lacks, and why it is not served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetShortfall {
    /// `SHARD/PROFILE`
    pub name: String,
    pub cpu_millis: u64,
    pub memory_bytes: u64,
    pub gpus: u32,
    pub priority: i32,
    /// In cycles, as far as this leader can tell.
    pub age: u64,
    /// What keeps it from being served; none: it was served, or no pass has looked at it yet.
    pub reason: Option<String>,
    /// The same, gate by gate.
    pub gates: Vec<FleetGate>,
}

/// What one way of serving a shortfall waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetGate {
    /// `idle`, `quota`, `preempt`; empty for what keeps it from all of them.
    pub tier: String,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetQuota {
    pub machine_type: String,
    pub zone: String,
    pub shard: String,
    /// How many machines of this kind may exist in the shard beyond those it was given.
    pub slice: u32,
    /// How many of them do, as it last reported.
    pub used: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetTransfer {
    /// The number that both sides have in their audit: `t7`.
    pub id: String,
    /// `idle`, `quota` or `preempt`
    pub kind: String,
    pub donor: String,
    pub recipient: String,
    pub machine_type: String,
    pub zone: String,
    pub count: u32,
    /// The shortfall that it serves.
    pub profile: String,
    /// `asked`, `moved`, `shrinking` or `growing`
    pub step: String,
    pub since: Time,
    /// The shards that have yet to do something.
    pub waits_for: Vec<String>,
}

/// How the fleet is to be set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetFleet {
    /// Begin nothing; what is under way is finished.
    pub paused: bool,
}

/// A slice of the quota for machines that do not exist yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetFleetQuota {
    pub machine_type: String,
    pub zone: String,
    pub shard: String,
    pub slice: u32,
}

/// For whom a token is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewFleetToken {
    /// What the cell will be called in the fleet.
    pub shard: String,
}

/// What one cell can join a fleet with, once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetToken {
    pub shard: String,
    /// `TOKEN@ADDRESS`, for `plimsoll fleet join`.
    pub join: String,
    pub expires_at: Time,
}

/// The token stays out of logs.
impl std::fmt::Debug for FleetToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FleetToken").field("shard", &self.shard).finish_non_exhaustive()
    }
}

/// The fleet to join.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JoinFleet {
    /// What `plimsoll fleet token create` printed.
    pub join: String,
}

impl std::fmt::Debug for JoinFleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JoinFleet")
    }
}
