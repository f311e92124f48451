//! What can be written: batches of changes, each with the fact it was decided on, and how they are refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::access::{Authority, Digest, KeyBytes, Role, Scope};
use crate::acme::AcmeChange;
use crate::audit::Author;
use crate::cell_files::{CellFileKind, FileBytes};
use crate::fleet::{FleetChange, FleetRefusal, MembershipChange};
use crate::ids::{DeploymentName, FileName, NodeId, ReplicaId, ServiceKey, ServiceName};
use crate::level::Level;
use crate::machines::{MachineChange, MachineRefusal};
use crate::node::{Availability, NodeFacts, NodeStatus};
use crate::optimize::OptimizeStep;
use crate::preemption::{Preemption, WithdrawReason};
use crate::reason::{AbandonReason, Unplaced, WaitReason};
use crate::rebalance::{Relief, Skipped};
use crate::registries::{RegistryHost, RegistryPassword};
use crate::replica::{MoveCause, Observation};
use crate::reschedule::{RescheduleSettings, RescheduledMove};
use crate::review::MoveReview;
use crate::rollout::RolloutHalt;
use crate::schedule::{MissedSlots, utc_minute};
use crate::spec::{HostPort, RouteSpec, ServiceSpec, SpecHash};
use crate::units::{Generation, Millis, Revision, Term, Timestamp};
use crate::volume_holds::HoldPurpose;
use crate::volumes::VolumeChange;

/// The most changes one command may carry: a pass that places a full cell from empty fits ten times over.
pub const MAX_BATCH: usize = 1_000_000;

/// One entry of the log. It commits whole, or is refused naming the change that could not be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// What a reader must be able to read. It comes first, so that also one that cannot read the rest can tell.
    pub level: Level,
    /// The leader's clock when it proposed this; applying reads no other.
    pub at: Timestamp,
    pub term: Term,
    pub by: Author,
    pub batch: Vec<Guarded>,
}

impl Command {
    pub fn new(at: Timestamp, term: Term, by: Author, batch: Vec<Guarded>) -> Self {
        let level = batch.iter().map(|guarded| guarded.change.level()).max();
        Self { level: level.unwrap_or_default(), at, term, by, batch }
    }
}

/// A change, and what must still be true of its subject for it to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarded {
    pub require: Require,
    pub change: Change,
}

/// The fact a change was decided on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Require {
    Nothing,
    /// The replica's assignment has this generation; none: there is no such replica, or it is retired.
    Generation(Option<Generation>),
    /// The deployment is at this revision; none: there is no such deployment.
    Revision(Option<Revision>),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A node joins, or says something new of itself.
    PutNode {
        node: NodeId,
        facts: NodeFacts,
    },
    SetStatus {
        node: NodeId,
        status: NodeStatus,
    },
    /// The container runtime of the node does not answer, and why; none: it answers again.
    SetRuntime {
        node: NodeId,
        outage: Option<String>,
    },
    SetAvailability {
        node: NodeId,
        availability: Availability,
    },
    /// The node gives away what it runs, each replica within the time-out. With force, what cannot move is stopped.
    Drain {
        node: NodeId,
        timeout: Millis,
        force: bool,
    },
    /// Nothing has left the node for too long: what is still there stays.
    GiveUpDrain {
        node: NodeId,
    },
    /// Only a node that holds nothing, or one that is down.
    RemoveNode {
        node: NodeId,
    },

    /// The cell gets an authority, and the node that founds it a certificate.
    Found {
        authority: Authority,
        node: NodeId,
        key: Digest,
    },
    CreateJoinToken {
        name: String,
        token: Digest,
        expires_at: Timestamp,
    },
    /// A join token that nobody has used yet is void from now on.
    RevokeJoinToken {
        name: String,
    },
    /// A node uses a token up and is of the cell.
    Join {
        token: Digest,
        node: NodeId,
        facts: NodeFacts,
        key: Digest,
    },
    PutOperator {
        name: String,
        token: Digest,
        role: Role,
        scope: Scope,
        /// None: it is good until it is revoked.
        expires_at: Option<Timestamp>,
    },
    RevokeOperator {
        name: String,
    },

    /// The whole of a deployment: services it no longer names are retired, routes it no longer names are gone.
    Deploy {
        deployment: DeploymentName,
        services: BTreeMap<ServiceName, Arc<ServiceSpec>>,
        routes: Vec<RouteSpec>,
    },
    Undeploy {
        deployment: DeploymentName,
    },

    /// A new replica gets its first assignment.
    Place {
        replica: ReplicaId,
        node: NodeId,
        spec: SpecHash,
    },
    /// A move begins: the replica gets a successor, whose room counts from now.
    Succeed {
        replica: ReplicaId,
        node: NodeId,
        spec: SpecHash,
        cause: MoveCause,
    },
    /// A move ends: the successor is the assignment, and the old one leaves.
    Promote {
        replica: ReplicaId,
    },
    /// A move is given up: the successor leaves.
    Abandon {
        replica: ReplicaId,
        why: AbandonReason,
    },
    /// The replica is to start anew, the same careful way as with a new spec.
    Renew {
        replica: ReplicaId,
    },
    /// The replica ends.
    Retire {
        replica: ReplicaId,
    },
    /// Replicas of lower priority make way on the node for one that finds no room.
    Preempt {
        node: NodeId,
        preemption: Box<Preemption>,
    },
    /// A replica that makes way is stopped: its time to move elsewhere is over.
    Evict {
        replica: ReplicaId,
    },
    /// Nobody makes way on the node any more.
    WithdrawPreemption {
        node: NodeId,
        why: WithdrawReason,
    },
    /// A node's report. A stale one changes nothing.
    Observe {
        replica: ReplicaId,
        generation: Generation,
        observation: Observation,
    },

    SetUnplaced {
        service: ServiceKey,
        unplaced: Option<Unplaced>,
    },
    SetWaiting {
        replica: ReplicaId,
        waiting: Option<WaitReason>,
    },

    /// No further step of the service's rollout begins until it is resumed.
    PauseRollout {
        service: ServiceKey,
        why: RolloutHalt,
    },
    ResumeRollout {
        service: ServiceKey,
    },
    /// The service returns to what it ran before the rollout.
    AbortRollout {
        service: ServiceKey,
        why: RolloutHalt,
    },
    /// Every step of the rollout is taken, or taken back.
    EndRollout {
        service: ServiceKey,
    },
    /// The replica did not get healthy with the new spec in time.
    StepLate {
        replica: ReplicaId,
    },

    /// The named volumes of a deployment that has ended go, on every node that has some.
    RemoveVolumes {
        deployment: DeploymentName,
    },
    /// A node has removed its own, as was asked when the deployment ended at this revision.
    VolumesRemoved {
        deployment: DeploymentName,
        node: NodeId,
        revision: Revision,
    },
    /// A step of removing, moving, backing up or restoring single volumes.
    Volume {
        change: VolumeChange,
    },
    /// The cell goes on with this node as its only server, and without the lost ones: it was recovered or restored here.
    /// Tokens that nodes could join with are void; operators keep theirs.
    Survive {
        node: NodeId,
        server: u64,
        lost: Vec<NodeId>,
    },
    /// Somebody did what changes nothing here and is remembered all the same.
    Record {
        entry: AuditEntry,
    },
    /// Every server reads this level: from here on it may be written.
    Raise {
        level: Level,
    },
    /// A node that could sign its own certificate is of the cell, without a token.
    Enrol {
        node: NodeId,
        facts: NodeFacts,
        key: Digest,
    },
    /// The cell gets another authority, step by step. These nodes are down, and not waited for.
    RotateAuthority {
        next: Authority,
        without: Vec<NodeId>,
    },
    /// These nodes are down, and the rotation under way does not wait for them either.
    RotateWithout {
        nodes: Vec<NodeId>,
    },
    /// A node's word that it has done what this epoch of the authority asks of it. A stale one changes nothing.
    ConfirmAuthority {
        node: NodeId,
        epoch: u64,
    },
    /// Every node trusts both authorities: the next one signs.
    SwitchAuthority,
    /// Every node has a certificate of the authority that signs: the other one is dropped.
    RetireAuthority,
    /// The authority that was there before stays, or signs again.
    AbortRotation,

    /// The cell keeps a secret or config under a new name.
    CreateFile {
        kind: CellFileKind,
        name: FileName,
        content: FileBytes,
    },
    /// It has other content from now on, and so have the services that use it.
    RotateFile {
        kind: CellFileKind,
        name: FileName,
        content: FileBytes,
    },
    /// Only one that nothing uses.
    RemoveFile {
        kind: CellFileKind,
        name: FileName,
    },
    /// A step of getting certificates for routes.
    Acme {
        change: AcmeChange,
    },
    /// The cell shows the registry these credentials from now on.
    LoginRegistry {
        registry: RegistryHost,
        user: String,
        password: RegistryPassword,
    },
    LogoutRegistry {
        registry: RegistryHost,
    },
    /// A node's word on where the image of this spec declares volumes that the file does not mount. It is believed of what the
    /// node is told to run, and a stale one changes nothing.
    DeclareVolumes {
        service: ServiceKey,
        spec: SpecHash,
        node: NodeId,
        paths: BTreeSet<String>,
    },
    /// The background rescheduler is paused or resumed, or gets another target.
    SetRescheduling {
        settings: RescheduleSettings,
    },
    /// A move that a loop chose was looked at again. Of one that nobody waits for it changes nothing.
    ReviewMove {
        review: Box<MoveReview>,
    },
    /// The cell gets a key that its backups are encrypted with, unless it has one.
    CreateBackupKey {
        secret: KeyBytes,
    },
    /// Backups are encrypted with this key from now on.
    RotateBackupKey {
        secret: KeyBytes,
    },
    /// A service on a schedule runs: for a slot, or because an operator asked for it.
    StartRun {
        service: ServiceKey,
        slot: Option<Timestamp>,
    },
    /// Nothing is started for these slots of its schedule.
    MissSlots {
        service: ServiceKey,
        missed: MissedSlots,
    },
    /// Something about the machines of the cell.
    Machines {
        change: Box<MachineChange>,
    },
    /// A step of coordinating a fleet. Only a cell that runs nothing has them.
    Fleet {
        change: Box<FleetChange>,
    },
    /// The cell joins a fleet, or leaves it.
    FleetMembership {
        change: MembershipChange,
    },
}

/// What is done with a cell that leaves its state as it was, but for what is remembered of automatic moves until they are
/// reviewed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditEntry {
    /// Ran a command beside a replica. Which one is nobody else's business: it may hold a secret.
    Exec {
        replica: ReplicaId,
    },
    /// Took an encrypted copy of everything, secrets included.
    Backup,
    /// Weighed what to move off a hot node: moved it, or did not.
    Relieve(Box<Relief>),
    Skip(Box<Skipped>),
    /// Found a better node for a replica, and moved it.
    Reschedule(Box<RescheduledMove>),
    /// The node ran a command for another node, which asked for somebody.
    Serve {
        replica: ReplicaId,
        asked_by: String,
        through: NodeId,
    },
    /// Read the key that backups are encrypted with.
    ShowBackupKey,
    /// Went on with a better layout that somebody asked for.
    Optimize(OptimizeStep),
    /// A backup, as a build of the level after this one writes it.
    #[cfg(feature = "next-level")]
    NextBackup,
}

impl AuditEntry {
    /// A backup in the form of this level.
    #[cfg(not(feature = "next-level"))]
    pub fn backup(_: Level) -> Self {
        Self::Backup
    }

    #[cfg(feature = "next-level")]
    pub fn backup(level: Level) -> Self {
        if level < Level::BUILD { Self::Backup } else { Self::NextBackup }
    }
}

impl Change {
    pub fn free(self) -> Guarded {
        Guarded { require: Require::Nothing, change: self }
    }

    pub fn at_generation(self, generation: Option<Generation>) -> Guarded {
        Guarded { require: Require::Generation(generation), change: self }
    }

    pub fn at_revision(self, revision: Option<Revision>) -> Guarded {
        Guarded { require: Require::Revision(revision), change: self }
    }

    /// The level from which on it may be written: what is new in a build is named here.
    pub fn level(&self) -> Level {
        match self {
            #[cfg(feature = "next-level")]
            Self::Record { entry: AuditEntry::NextBackup } => Level::BUILD,
            _ => Level::FIRST,
        }
    }

    /// Which replica it is about, if it is about one.
    pub fn replica(&self) -> Option<&ReplicaId> {
        match self {
            Self::Place { replica, .. }
            | Self::Succeed { replica, .. }
            | Self::Promote { replica }
            | Self::Abandon { replica, .. }
            | Self::Renew { replica }
            | Self::Retire { replica }
            | Self::Evict { replica }
            | Self::Observe { replica, .. }
            | Self::StepLate { replica }
            | Self::SetWaiting { replica, .. } => Some(replica),
            _ => None,
        }
    }

    /// Which deployment it is about, if it is about one.
    pub fn deployment(&self) -> Option<&DeploymentName> {
        match self {
            Self::Deploy { deployment, .. }
            | Self::Undeploy { deployment }
            | Self::RemoveVolumes { deployment }
            | Self::VolumesRemoved { deployment, .. } => Some(deployment),
            Self::Volume { change } => Some(change.deployment()),
            Self::Preempt { preemption, .. } => Some(&preemption.by.service.deployment),
            Self::SetUnplaced { service, .. }
            | Self::DeclareVolumes { service, .. }
            | Self::PauseRollout { service, .. }
            | Self::ResumeRollout { service }
            | Self::AbortRollout { service, .. }
            | Self::StartRun { service, .. }
            | Self::MissSlots { service, .. }
            | Self::EndRollout { service } => Some(&service.deployment),
            _ => self.replica().map(|replica| &replica.service.deployment),
        }
    }
}

/// Why a command was refused. Nothing of it was applied.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("change {position} of the batch was refused: {reason}")]
pub struct Rejection {
    /// Which change of the batch, counted from 0.
    pub position: usize,
    pub reason: Refusal,
}

#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    #[error("it is of {level}, this plimsoll reads up to {}; install a newer one", Level::BUILD)]
    Newer { level: Level },
    #[error("it is of {needed}, the cell is at {cell}; upgrade its other nodes first")]
    Level { needed: Level, cell: Level },
    #[error("it holds {found} {what}, at most {max} are allowed")]
    TooMany { what: String, found: usize, max: usize },
    #[error("{what} is {found}, at most {max} is allowed")]
    TooMuch { what: String, found: u64, max: u64 },
    #[error("{what} takes {found} bytes, at most {max} are kept")]
    Quota { what: String, found: u64, max: u64 },
    #[error("it was decided on {} of {replica}, which is now at {}", shown(*decided), shown(*found))]
    Generation { replica: ReplicaId, decided: Option<Generation>, found: Option<Generation> },
    #[error("it was decided on {} of {deployment}, which is now at {}", shown(*decided), shown(*found))]
    Revision { deployment: DeploymentName, decided: Option<Revision>, found: Option<Revision> },
    #[error("its precondition is about something the change does not name")]
    ForeignPrecondition,
    #[error("there is no node {node}")]
    NoSuchNode { node: NodeId },
    #[error("node {node} still holds {replicas} replicas; drain it first")]
    NodeInUse { node: NodeId, replicas: u32 },
    #[error("the cell has an authority already")]
    Founded,
    #[error("the cell has no authority yet")]
    NoAuthority,
    #[error("the authority is being rotated; see `plimsoll cell rotate-authority --status`")]
    Rotating,
    #[error("no rotation of the authority is under way")]
    NotRotating,
    #[error("the rotation waits for {node}")]
    Awaited { node: NodeId },
    #[error(
        "node {node} is ready; the rotation goes on without nodes that are down, and no others"
    )]
    NodeReady { node: NodeId },
    #[error("the cell knows no such join token; make one with `plimsoll token create-join`")]
    TokenUnknown,
    #[error("this join token was used by {by}; each serves one node, make another")]
    TokenUsed { by: NodeId },
    #[error("this join token ran out {ago} ago; make another")]
    TokenExpired { ago: Millis },
    #[error("this join token was revoked; make another")]
    TokenRevoked,
    #[error(
        "there is a join token {name} that is still good; revoke it first or choose another name"
    )]
    JoinTokenExists { name: String },
    #[error("there is no join token {name} that is still good")]
    NoSuchJoinToken { name: String },
    #[error("a node called {node} is of the cell and ready; choose another name")]
    NameTaken { node: NodeId },
    #[error("there is an operator {name} already; revoke it first or choose another name")]
    OperatorExists { name: String },
    #[error("there is no operator {name}")]
    NoSuchOperator { name: String },
    #[error("there is no deployment {deployment}")]
    NoSuchDeployment { deployment: DeploymentName },
    #[error("there is no service {service}")]
    NoSuchService { service: ServiceKey },
    #[error("there is no replica {replica}")]
    NoSuchReplica { replica: ReplicaId },
    #[error("replica {replica} exists already")]
    ReplicaExists { replica: ReplicaId },
    #[error("a replica of another service already goes by {replica}")]
    IdTaken { replica: ReplicaId },
    #[error("index {index} of {service} was used before; the next is {next}")]
    IndexReused { service: ServiceKey, index: u32, next: u32 },
    #[error("replica {replica} is named after a node other than {node}")]
    SlotMismatch { replica: ReplicaId, node: NodeId },
    #[error("{service} has no spec {spec:?} to run now")]
    StaleSpec { service: ServiceKey, spec: SpecHash },
    #[error("room on {node} is being freed already")]
    AlreadyPreempting { node: NodeId },
    #[error("no room is being freed on {node}")]
    NotPreempting { node: NodeId },
    #[error("replica {replica} makes way for nobody")]
    NotPreempted { replica: ReplicaId },
    #[error("replica {replica} is already moving")]
    AlreadyMoving { replica: ReplicaId },
    #[error("replica {replica} is not moving")]
    NotMoving { replica: ReplicaId },
    #[error("no rollout of {service} is in progress")]
    NoRollout { service: ServiceKey },
    #[error("{service} has nothing to return to; apply a file that works")]
    NothingBefore { service: ServiceKey },
    #[error("{what} cannot go from {from} to {to} by the {writer}")]
    Transition { what: String, from: String, to: String, writer: crate::transition::Writer },
    #[error("{deployment} is deployed; its volumes go only with its end")]
    StillDeployed { deployment: DeploymentName },
    #[error(
        "the key of {node} is of a node that was removed; empty its data directory for another one"
    )]
    KeyRevoked { node: NodeId },
    #[error("service \"{service}\" publishes {}/{}, which {by} has already", port.number, port.protocol)]
    PortTaken { service: ServiceName, port: HostPort, by: ServiceKey },
    #[error("the route {route} leads to \"{service}\", and there is no such service")]
    RouteNowhere { route: String, service: ServiceName },
    #[error("the route {route} is {by}'s already")]
    RouteTaken { route: String, by: DeploymentName },
    #[error("there is no {kind} {name}")]
    NoSuchFile { kind: CellFileKind, name: FileName },
    #[error("there is a {kind} {name} already; rotate it, or choose another name")]
    FileExists { kind: CellFileKind, name: FileName },
    #[error("{kind} {name} was rotated meanwhile")]
    FileRotated { kind: CellFileKind, name: FileName },
    #[error("{kind} {name} is used by {}", list(by))]
    FileInUse { kind: CellFileKind, name: FileName, by: Vec<ServiceKey> },
    #[error("no order for a certificate of {host} is open")]
    NotOrdered { host: String },
    #[error("an order for a certificate of {host} is open already")]
    OrderOpen { host: String },
    #[error("the challenge for {host} has a token that is none")]
    BadChallenge { host: String },
    #[error("the cell does not ask {directory} for certificates")]
    OtherDirectory { directory: String },
    #[error("the cell has an account with another key")]
    AccountExists,
    #[error("the cell has no credentials for registry {registry}")]
    NoSuchRegistry { registry: RegistryHost },
    #[error("{what} is empty")]
    EmptyCredential { what: String },
    #[error("{deployment} has no volume {volume}")]
    NoSuchVolume { deployment: DeploymentName, volume: String },
    #[error("volume {volume} is not on {node}")]
    VolumeNotThere { volume: String, node: NodeId },
    #[error("volume {volume} is used by {by} on {node}")]
    VolumeInUse { volume: String, by: ReplicaId, node: NodeId },
    #[error("volume {volume} is external: {deployment} did not create it")]
    VolumeExternal { deployment: DeploymentName, volume: String },
    #[error(
        "the image of {service} declares volume {volume}, which moves with the rest of its replica's data"
    )]
    VolumeDeclared { service: ServiceName, volume: String },
    #[error("volumes of {deployment} are moving to {to}")]
    VolumesMoving { deployment: DeploymentName, to: NodeId },
    #[error("volume {volume} is held: a {} is under way", purpose.noun())]
    VolumeHeld { volume: String, purpose: HoldPurpose },
    #[error("the hold on the volume of {deployment} is over")]
    VolumeNotHeld { deployment: DeploymentName },
    #[error("volume {volume} is being removed from {node}")]
    VolumeGoing { volume: String, node: NodeId },
    #[error("{node} has a copy of volume {volume} already")]
    VolumeThere { volume: String, node: NodeId },
    #[error("volume {volume} is on several nodes: {}", list(nodes))]
    VolumeSplit { volume: String, nodes: Vec<NodeId> },
    #[error("volume {volume} is used by deployment {by} too")]
    VolumeShared { volume: String, by: DeploymentName },
    #[error("node {node} is ready")]
    VolumeNodeReady { node: NodeId },
    #[error("node {node} is down")]
    VolumeNodeDown { node: NodeId },
    #[error("{service} has no schedule")]
    NotScheduled { service: ServiceKey },
    #[error("the slot of {service} at {} was decided already", utc_minute(*slot))]
    SlotDecided { service: ServiceKey, slot: Timestamp },
    #[error("run {run} of {service} is not over")]
    RunOpen { service: ServiceKey, run: u64 },
    #[error(
        "service \"{service}\" has a schedule and placement=global; runs have a number of replicas"
    )]
    GlobalSchedule { service: ServiceName },
    #[error("{0}")]
    Machine(MachineRefusal),
    #[error("this cell coordinates a fleet and runs nothing; deploy to one of its shards")]
    Coordinator,
    #[error("this cell coordinates no fleet")]
    NotCoordinator,
    #[error("this cell has {deployments} deployments, and a coordinator runs nothing")]
    CellInUse { deployments: usize },
    #[error("{refusal}")]
    Fleet { refusal: Box<FleetRefusal> },
    #[error("this cell is a shard of the fleet of {coordinator} already; leave it first")]
    FleetJoined { coordinator: crate::CellId },
    #[error("this cell is in no fleet")]
    NoFleet,
}

fn list<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn shown<T: fmt::Display>(value: Option<T>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

/// What a command changed, for those who watch. A repeated write changes nothing and says nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Who may join or ask changed.
    Access,
    Node(NodeId),
    Deployment(DeploymentName),
    Service(ServiceKey),
    Replica(ReplicaId),
    /// What a node holds changed: its room, its ports, its replicas.
    Load(NodeId),
    /// Some of what the node held came free.
    Freed(NodeId),
    /// Audit events were written, the last with this number.
    Audit(u64),
    /// Where the deployment's volumes lie changed, or whether they are to go.
    Volumes(DeploymentName),
    /// Certificates of routes, or what is asked for them, changed.
    Certificates,
    /// What the cell shows this registry changed.
    Registry(RegistryHost),
    /// The cell's machines changed, or what is kept about them.
    Machines,
    /// The fleet that this cell coordinates or is of changed.
    Fleet,
}
