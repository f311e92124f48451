//! What the API says, as it says it: the words the server writes and the command line reads. Nothing
//! here decides anything.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

mod authority;
mod backup;
mod cell;
mod certificates;
mod files;
mod fleet;
pub mod freshness;
pub mod leadership;
mod nodes;
mod optimize;
pub mod page;
mod plan;
mod pressure;
mod registries;
mod relief;
mod reschedule;
mod routes;
mod schedule;
mod snapshot;
pub mod spec;
mod time;
mod volumes;
mod what_if;

pub use crate::problem::{Problem, ProblemCode};
pub use crate::reason::{Reason, ReasonCode};
pub use authority::{
    AUTHORITIES, Authority, AuthorityNotice, AwaitedNode, RotateAuthority, Rotation,
};
pub use backup::BackupKey;
pub use cell::{
    Cell, CellAuthority, JoinToken, JoinTokenStatus, NewJoinToken, NewOperator, Operator,
    OperatorToken, Server, WhoAmI,
};
pub use certificates::Certificate;
pub use files::{CellFile, ConfigFile, NewContent, NewFile, RotatedFile};
pub use fleet::{
    FleetGate, FleetMachine, FleetPlace, FleetQuota, FleetRole, FleetShard, FleetShortfall,
    FleetStatus, FleetToken, FleetTransfer, JoinFleet, NewFleetToken, SetFleet, SetFleetQuota,
};
pub use freshness::Freshness;
pub use leadership::LeadershipInfo;
pub use nodes::{
    ChangeRollout, Drain, DrainPlan, DrainState, Move, NodeChanged, RolloutAction, RolloutChanged,
};
pub use optimize::{
    ApplyOptimize, DEFAULT_MOVES, LayoutFigures, MAX_TIME_MS, Optimize, OptimizeMove, OptimizePlan,
    OptimizeStarted, refused as plan_refused,
};
pub use page::Page;
pub use plan::{
    Plan, PlannedMove, PlannedPlacement, PlannedRetirement, PlannedRolloutStop, PlannedStay,
    ScoreParts, Shortfall, UnplacedReplicas,
};
pub use pressure::{CellPressure, LevelSample, NodeLevels, PressureQuery};
pub use registries::{NewRegistryLogin, RegistryLogin};
pub use relief::{Gate, NodeAccount, Relief, WeighedMove};
pub use reschedule::{
    FillStatus, LoopStatus, MoveReview, RescheduleAction, RescheduleCycle, RescheduleMove,
    RescheduleStatus, RescheduleVerdict, SetRescheduling,
};
pub use routes::{Route, RouteContainer, RouteExplanation, RouteQuery};
pub use schedule::{MissedRuns, ScheduledRun, ServiceSchedule};
pub use snapshot::Snapshot;
pub use time::Time;
pub use volumes::{
    DataPin, HoldPurpose, HoldVolume, MoveVolume, PlannedVolumeMove, Volume, VolumeChanged,
    VolumeCopy, VolumeHold, VolumeMoving, VolumeSize, VolumeUser,
};
pub use what_if::{Forecast, NodeForecast, NodeShares, NodeUsage, WhatIf};

/// Everything: what `plimsoll status` shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    pub cell: CellSummary,
    pub nodes: Vec<Node>,
    pub deployments: Vec<Deployment>,
}

/// The cell as the answering node sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CellSummary {
    pub name: String,
    /// The node that answers.
    pub node: String,
    pub version: String,
    pub leader: Option<String>,
    pub term: u64,
    /// The last entry of the log that is in this answer.
    pub applied: u64,
    /// How many entries are committed and not in it.
    #[serde(default)]
    pub lag: u64,
    /// Milliseconds since the node last heard a leader or, leading, most of the servers. None: not since it started.
    #[serde(default)]
    pub heard_ms: Option<u64>,
    /// What keeps the cell from taking writes, as the answering node knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Problem>,
}

impl CellSummary {
    pub fn freshness(&self) -> Freshness {
        let Self { node, leader, term, applied, lag, heard_ms, .. } = self.clone();
        Freshness { node, leader, term, applied, lag, heard_ms }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    pub name: String,
    /// `ready`, `down`, or `runtime_unavailable`: it is heard, and its container runtime does not answer.
    pub status: String,
    pub since: Time,
    /// `active`, `cordoned` or `draining`.
    pub availability: String,
    /// `leader`, `server` or `agent`.
    pub role: String,
    pub zone: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub os: String,
    pub arch: String,
    pub capacity: Resources,
    /// What replicas on it have set aside.
    pub reserved: Resources,
    pub replicas: u32,
    /// None while there is no fresh sample.
    pub pressure: Option<Pressure>,
    pub runtime: Option<Runtime>,
    pub version: Option<String>,
    pub last_heard: Option<Time>,
    /// How its drain goes on, or how the last one ended.
    #[serde(default)]
    pub drain: Option<DrainState>,
    /// How far it is filled; only in lists of all nodes.
    #[serde(default)]
    pub fill: Option<FillStatus>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Resources {
    pub cpu_millis: u64,
    pub memory_bytes: u64,
    pub gpus: u32,
}

/// Shares of the node in millionths; stalls over ten seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pressure {
    pub cpu: Option<u32>,
    pub memory: Option<u32>,
    pub cpu_stall: Option<u32>,
    pub memory_stall: Option<u32>,
    pub io_stall: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Runtime {
    pub name: String,
    pub version: Option<String>,
    /// What it said instead of answering; none while it answers.
    pub trouble: Option<String>,
    /// What it does not isolate, a sentence each.
    pub limits: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Deployment {
    pub name: String,
    pub revision: u64,
    pub applied_at: Time,
    pub applied_by: String,
    /// It was deleted, and only its last containers still stop.
    #[serde(default)]
    pub is_deleted: bool,
    pub progress: Progress,
    pub services: Vec<Service>,
}

/// Whether a deployment is as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Progress {
    /// Every replica runs its spec, and nothing else of the deployment is left.
    Steady,
    /// It changes; what is under way.
    Working { doing: Vec<Reason> },
    /// Nothing more will happen by itself, or nothing happens while this lasts.
    Stuck { why: Vec<Reason> },
}

impl Progress {
    pub fn is_steady(&self) -> bool {
        *self == Self::Steady
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Service {
    pub name: String,
    pub image: String,
    /// What its tag stood for when it was applied: nodes use this and no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// `spread`, `pack`, `hosts` or `global`.
    pub mode: String,
    pub wanted: u32,
    /// Running at their current assignment, whatever its spec, on a node that is heard.
    pub running: u32,
    /// Of those, on the spec that should run.
    pub current: u32,
    pub spec: String,
    pub ports: Vec<String>,
    /// `off` if an unanswered request at a TCP port is not replayed on another replica; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<String>,
    /// Where its image declares volumes that the file does not mount, once a node has pulled it. Each replica keeps its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_volumes: Vec<String>,
    /// Its labels, and those of its containers where it has none of that name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Why some replica has no place.
    pub unplaced: Option<Reason>,
    /// The latest change of its spec; none while there has been only one.
    pub rollout: Option<Rollout>,
    /// When it runs, and how it ended the last times, where it is on a schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ServiceSchedule>,
    pub replicas: Vec<Replica>,
}

impl Service {
    /// Its ports in one line, with what is special about them: `8080→80/tcp, replay: off`.
    pub fn ports_line(&self) -> String {
        let replay = self.replay.as_ref().map(|replay| format!("replay: {replay}"));
        self.ports.iter().cloned().chain(replay).collect::<Vec<_>>().join(", ")
    }
}

/// How a change of spec reaches the replicas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rollout {
    /// `rolling`, `paused`, `undoing`, `done` or `undone`.
    pub phase: String,
    /// The revision it brings.
    pub revision: u64,
    /// The revision that it goes back to when it fails.
    pub from: Option<u64>,
    pub since: Time,
    /// Why it was paused or taken back.
    pub why: Option<String>,
    /// Replicas that run what should run now.
    pub updated: u32,
    /// What each replica that failed said.
    pub failed: Vec<Reason>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Replica {
    pub id: String,
    /// Where it is and how; none once it is retired and only stops.
    pub now: Option<Assignment>,
    /// Where its move takes it.
    pub next: Option<Assignment>,
    /// What made the move necessary.
    pub cause: Option<ReasonCode>,
    /// Old containers of it that still stop.
    pub leaving: Vec<Assignment>,
    /// Why a move it needs has not begun.
    pub waiting: Option<Reason>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Assignment {
    pub node: String,
    pub generation: u64,
    pub revision: u64,
    pub spec: String,
    pub image: String,
    /// What its tag stood for when it was applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// `assigned` until its node has said anything; then `pending`, `pulling`, `starting`, `running`, `degraded`, `failed`,
    /// `completed` or `stopped`; `lost` while its node is down, `unknown` while the container runtime of its node does not answer.
    pub state: String,
    pub since: Time,
    /// Why it is in that state.
    pub reason: Option<Reason>,
    /// Failures in a row.
    pub failures: u32,
    pub next_try: Option<Time>,
    pub cpu_millis: Option<u64>,
    pub memory_bytes: Option<u64>,
    /// How it ended; none where it runs, or nobody saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// How often it was run until it completed or failed for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
}

/// What `plimsoll apply` sends: a compose file as its client read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Apply {
    /// By name, as `GET /v1/deployments/{name}/revisions/{revision}` shows them. The hash is computed by the server.
    #[schema(value_type = BTreeMap<String, spec::ServiceSpec>)]
    pub services: BTreeMap<plimsoll_model::ServiceName, plimsoll_model::ServiceSpec>,
    /// Which HTTP requests go to which of them: `host` (none for every host), `path`, `strip_path`, `service`, `port`, `tls`
    /// (`off`, `internal` or `files`).
    #[serde(default)]
    #[schema(value_type = Vec<spec::RouteSpec>)]
    pub routes: Vec<plimsoll_model::spec::RouteSpec>,
    /// Refuse unless the deployment is at this revision; 0: does not exist. Left out: whatever it is at.
    pub expect: Option<u64>,
}

/// What an apply did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Applied {
    pub deployment: String,
    pub revision: u64,
    /// The log index it was written at; none for a dry run.
    pub index: Option<u64>,
    pub changes: Vec<ServiceChange>,
    /// Routes that came (`+`), went (`-`) or lead elsewhere (`~`), a line each.
    #[serde(default)]
    pub routes: Vec<String>,
    /// What would become of its replicas, to the end. Only a dry run has it.
    pub plan: Option<Plan>,
    /// What data keeps on a node, and on which. Only a dry run has it.
    #[serde(default)]
    pub pinned: Vec<DataPin>,
    /// What this node's runtime cannot do for these services, or does with less isolation than asked for.
    pub warnings: Vec<Reason>,
}

/// How one service differs from what was applied before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceChange {
    pub service: String,
    /// `added`, `removed`, `changed` or `unchanged`.
    pub what: String,
    /// Whether its containers are made anew.
    pub recreates: bool,
    pub fields: Vec<FieldChange>,
}

/// `image: nginx:1.27 → nginx:1.28`. Values of the environment, configs and secrets are never shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldChange {
    pub field: String,
    pub before: Option<String>,
    pub after: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Scale {
    pub services: BTreeMap<String, u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Rollback {
    /// Left out: the revision before the current one.
    pub to: Option<u64>,
}

/// Which replicas to start anew; both left out: all of the deployment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Restart {
    pub service: Option<String>,
    pub replica: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Restarted {
    pub replicas: Vec<String>,
    /// Services on a schedule that run once more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<String>,
    /// The log index it was written at; none where there was nothing to write.
    pub index: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Deleted {
    pub deployment: String,
    pub replicas: u32,
    /// Named volumes that are kept.
    pub volumes_kept: Vec<String>,
    /// Named volumes that go with it, because that was asked for.
    pub volumes_removed: Vec<String>,
    /// The nodes that have some of them. One that is down removes them when it is back.
    pub volumes_on: Vec<String>,
    /// The log index it was written at.
    pub index: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Revision {
    pub revision: u64,
    pub at: Time,
    pub by: String,
    pub is_current: bool,
    /// What it changed in the revision before it that is still kept.
    pub changes: Vec<ServiceChange>,
    /// Routes that came, went or changed, a line each.
    #[serde(default)]
    pub routes: Vec<String>,
}

/// What a revision asked for. It can be applied as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RevisionSpecs {
    pub revision: u64,
    pub at: Time,
    pub by: String,
    pub is_current: bool,
    /// By name. Values of the environment, contents of configs and secrets and options of drivers are left out:
    /// `null` stands for each.
    #[schema(value_type = BTreeMap<String, spec::ServiceSpec>)]
    pub services: BTreeMap<String, serde_json::Value>,
    #[serde(default)]
    #[schema(value_type = Vec<spec::RouteSpec>)]
    pub routes: Vec<plimsoll_model::spec::RouteSpec>,
}

/// Why a replica is where it is: what every node has to say, as if it were nowhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    pub replica: String,
    /// `shop/web`
    pub service: String,
    /// `spread`, `pack`, `hosts` or `global`.
    pub mode: String,
    /// Where it is, or where its move takes it; none once it is retired.
    pub node: Option<String>,
    /// As a sentence.
    pub why: String,
    /// Its move, where one is under way.
    #[serde(default)]
    pub moving: Option<Move>,
    /// Why the rescheduler leaves it there, or where it takes it; none where nobody leads.
    #[serde(default)]
    pub rescheduling: Option<RescheduleVerdict>,
    /// Moves of it that were looked at again, the newest first, as far as the audit goes back.
    #[serde(default)]
    pub reviews: Vec<MoveReview>,
    /// What else is to be known of it.
    #[serde(default)]
    pub notes: Vec<Reason>,
    /// Of a replica that finds no room, whom it could preempt on each node, or why nobody there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preemption: Vec<PreemptionVerdict>,
    /// Best first.
    pub nodes: Vec<NodeVerdict>,
}

/// Who would make way for a replica on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PreemptionVerdict {
    pub node: String,
    /// The fewest and cheapest make way there, of all nodes.
    pub is_best: bool,
    /// Who would make way; none where nobody may, or it would not be enough.
    pub victims: Vec<String>,
    /// Why nobody, with the numbers that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// What one node has to say to a replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeVerdict {
    pub node: String,
    /// Whether the replica is on it or on its way to it.
    pub is_here: bool,
    /// Other replicas of the service there.
    pub replicas: u32,
    /// From 0 to 10 000; none where a filter turned it away for good.
    pub score: Option<u16>,
    /// What the score is the sum of: `zone`, `node`, `headroom` and `preferred`.
    pub parts: BTreeMap<String, u16>,
    /// Why it cannot take the replica, or is the last choice.
    pub filter: Option<Reason>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEvent {
    pub seq: u64,
    pub at: Time,
    /// The component, and who stood behind it.
    pub writer: String,
    pub by: String,
    /// From a closed list: `placed`, `move_started`, `replica_failed`, …
    pub what: String,
    pub text: String,
    /// The numbers of a `rebalance_moved` or `rebalance_skipped`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relief: Option<Relief>,
    /// The numbers of a `move_reviewed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<MoveReview>,
}

/// One piece of `plimsoll logs`, as a stream of JSON lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum LogPiece {
    Line(LogLine),
    Missing(MissingLogs),
}

/// A node whose lines are not among those shown, or not all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MissingLogs {
    pub node: String,
    /// Whose lines it has.
    pub replicas: Vec<String>,
    pub why: String,
}

/// What a replica printed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    pub replica: String,
    pub at: Time,
    /// `stdout` or `stderr`.
    pub from: String,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Exec {
    pub command: Vec<String>,
    pub timeout_seconds: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Executed {
    /// None: it took too long and was killed.
    pub status: Option<i32>,
    /// Base64: commands print what they like.
    pub stdout: String,
    pub stderr: String,
    pub is_cut: bool,
}

/// Something changed; what a watcher is sent, one server-sent event each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Changed {
    pub index: u64,
    pub nodes: Vec<String>,
    pub deployments: Vec<String>,
    pub replicas: Vec<String>,
    /// Changes were missed; look at everything.
    pub lagged: bool,
}

/// How a node stands in its cell: what `GET /healthz` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    pub node: String,
    pub version: String,
    /// `leader`, `voter`, `learner`, `standby` or `agent`.
    pub role: String,
    /// As far as this node knows.
    pub leader: Option<String>,
    pub term: u64,
    /// The last entry of the log that this node has applied.
    pub applied: u64,
    /// The last one it knows to be committed.
    pub committed: u64,
    /// The last one in its log.
    pub last: u64,
    /// How many are committed and not applied here.
    pub lag: u64,
    /// Milliseconds since it last heard a leader or, leading, most of the servers. None: not since it started.
    pub heard_ms: Option<u64>,
    /// SHA-256 of the state as of `applied`, where it was asked for: equal on all servers that have applied as much.
    pub hash: Option<String>,
    /// What keeps writes from being taken, as the code of a problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<ProblemCode>,
    #[serde(flatten)]
    pub tenure: LeadershipInfo,
}

/// Whether this node can serve: what `GET /readyz` says, with 200 or 503.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ready {
    pub is_ready: bool,
    #[serde(flatten)]
    pub health: Health,
    /// The runtime's name and version; none while it does not answer.
    pub runtime: Option<String>,
    /// What is missing.
    pub why: Vec<Reason>,
}

/// Which lines of a log are asked for.
#[derive(
    Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema, utoipa::IntoParams,
)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// Go on with what is printed from now on.
    #[serde(default, deserialize_with = "flag")]
    pub follow: bool,
    /// Only what was printed at this time or later.
    pub since: Option<Time>,
    /// Only the last so many lines of each replica.
    pub tail: Option<u32>,
    /// Only this service's, where a whole deployment is asked for.
    pub service: Option<String>,
}

/// Which audit events are asked for.
#[derive(
    Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema, utoipa::IntoParams,
)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// Only what happened at this time or later.
    pub since: Option<Time>,
    /// Only these kinds, with commas between them: `placed,retired`.
    #[serde(rename = "type")]
    #[param(rename = "type")]
    pub kinds: Option<String>,
    /// Only the last so many; 1 000 where it is left out.
    pub limit: Option<u32>,
    /// Only what came before the event with this `seq`: the first of one part leads to the part before it.
    pub before: Option<u64>,
    /// Go on with what happens from now on, as server-sent events.
    #[serde(default, deserialize_with = "flag")]
    pub follow: bool,
}

/// Of what the status is asked for.
#[derive(
    Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema, utoipa::IntoParams,
)]
#[into_params(parameter_in = Query)]
pub struct StatusQuery {
    /// Only this deployment, if there is anything of it, and the nodes that hold its replicas.
    pub deployment: Option<String>,
}

/// Which nodes are asked for.
#[derive(
    Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema, utoipa::IntoParams,
)]
#[into_params(parameter_in = Query)]
pub struct NodeQuery {
    /// Only this one, if it is there.
    pub name: Option<String>,
    /// At most so many; 1 000 where it is left out, and never more than 10 000.
    pub limit: Option<u32>,
    /// Without so many of the first. `plimsoll-total` in the answer is how many there are.
    pub offset: Option<u32>,
}

/// Which replicas are asked for.
#[derive(
    Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema, utoipa::IntoParams,
)]
#[into_params(parameter_in = Query)]
pub struct ReplicaQuery {
    /// Only those that this node holds, also while they only come or go.
    pub node: Option<String>,
    /// At most so many; 1 000 where it is left out, and never more than 10 000.
    pub limit: Option<u32>,
    /// Without so many of the first. `plimsoll-total` in the answer is how many there are.
    pub offset: Option<u32>,
}

/// What is asked of a node's health.
#[derive(
    Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema, utoipa::IntoParams,
)]
#[into_params(parameter_in = Query)]
pub struct HealthQuery {
    /// Also the hash of the state, which takes a moment in a large cell.
    #[serde(default, deserialize_with = "flag")]
    pub hash: bool,
}

/// A switch of a query: `?follow` is as good as `?follow=true`.
pub fn flag<'de, D: serde::Deserializer<'de>>(source: D) -> Result<bool, D::Error> {
    match String::deserialize(source)?.as_str() {
        "" | "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        other => Err(serde::de::Error::custom(format!("{other:?} is neither true nor false"))),
    }
}
