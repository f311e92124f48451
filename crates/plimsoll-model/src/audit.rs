//! What happened, when, by whom: a ring of events that every node holds alike.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::access::{BackupKeyStep, Role, Scope};
use crate::cell_files::CellFileKind;
use crate::fleet::FleetEvent;
use crate::ids::{DeploymentName, FileName, NodeId, RegistryHost, ReplicaId, ServiceKey};
use crate::level::Level;
use crate::machines::MachineEvent;
use crate::node::{Availability, NodeStatus};
use crate::optimize::OptimizeStep;
use crate::preemption::{PreemptedBy, Preemption, WithdrawReason};
use crate::reason::{AbandonReason, UnplacedReason, WaitReason};
use crate::rebalance::{Relief, RepeatCount, Skipped};
use crate::replica::{MoveCause, ObservedCode};
use crate::reschedule::{RescheduleSettings, RescheduledMove};
use crate::review::{MoveReview, PaceChange};
use crate::rollout::RolloutHalt;
use crate::rotation::RotationStep;
use crate::schedule::MissedSlots;
use crate::transition::Writer;
use crate::units::{Revision, Timestamp};
use crate::volume_holds::{HoldPurpose, VolumeHoldFailure};
use crate::volumes::VolumeMoveFailure;

mod ring;
mod sentence;
mod words;

#[cfg(test)]
mod tests;

pub use ring::{AuditRing, MAX_AUDIT};

/// Who wrote a command: the component, and the identity behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Author {
    pub writer: Writer,
    pub identity: Arc<str>,
}

impl Author {
    pub fn new(writer: Writer, identity: &str) -> Self {
        Self { writer, identity: Arc::from(identity) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEvent {
    /// Counts every event ever written, so that a reader notices what the ring dropped.
    pub seq: u64,
    pub at: Timestamp,
    pub by: Author,
    pub what: AuditKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditKind {
    NodeJoined {
        node: NodeId,
    },
    NodeChanged {
        node: NodeId,
    },
    NodeStatus {
        node: NodeId,
        status: NodeStatus,
    },
    /// Its container runtime does not answer, and why; none: it answers again.
    NodeRuntime {
        node: NodeId,
        why: Option<String>,
    },
    NodeAvailability {
        node: NodeId,
        availability: Availability,
    },
    DrainTimedOut {
        node: NodeId,
        left: u32,
    },
    NodeRemoved {
        node: NodeId,
    },
    JoinTokenCreated {
        name: String,
        expires_at: Timestamp,
    },
    JoinTokenRevoked {
        name: String,
    },
    OperatorAdded {
        name: String,
        role: Role,
        scope: Scope,
    },
    OperatorRevoked {
        name: String,
    },
    AcmeConfigured {
        directory: Option<String>,
    },
    CertificateIssued {
        host: String,
        issuer: String,
        expires_at: Timestamp,
    },
    CertificateFailed {
        host: String,
        why: String,
    },
    Deployed {
        deployment: DeploymentName,
        revision: Revision,
    },
    Undeployed {
        deployment: DeploymentName,
    },
    Placed {
        replica: ReplicaId,
        node: NodeId,
    },
    MoveStarted {
        replica: ReplicaId,
        src: NodeId,
        dst: NodeId,
        cause: MoveCause,
    },
    MoveFinished {
        replica: ReplicaId,
        src: NodeId,
        dst: NodeId,
        cause: MoveCause,
    },
    MoveUndone {
        replica: ReplicaId,
        src: NodeId,
        dst: NodeId,
        why: AbandonReason,
    },
    RolloutStarted {
        service: ServiceKey,
        revision: Revision,
    },
    RolloutPaused {
        service: ServiceKey,
        why: RolloutHalt,
    },
    RolloutResumed {
        service: ServiceKey,
    },
    RolloutAborted {
        service: ServiceKey,
        why: RolloutHalt,
    },
    RolloutDone {
        service: ServiceKey,
    },
    RolloutUndone {
        service: ServiceKey,
    },
    RestartAsked {
        replica: ReplicaId,
    },
    Retired {
        replica: ReplicaId,
    },
    ReplicaFailed {
        replica: ReplicaId,
        node: NodeId,
        code: Option<ObservedCode>,
    },
    Unplaced {
        service: ServiceKey,
        missing: u32,
        why: UnplacedReason,
    },
    AllPlaced {
        service: ServiceKey,
    },
    Waiting {
        replica: ReplicaId,
        why: WaitReason,
    },
    VolumesDoomed {
        deployment: DeploymentName,
    },
    VolumesRemoved {
        deployment: DeploymentName,
        node: NodeId,
    },
    /// One copy of one volume.
    VolumeRemoved {
        deployment: DeploymentName,
        volume: String,
        node: NodeId,
    },
    /// What a node that is down has of it does not count any more.
    VolumeForgotten {
        deployment: DeploymentName,
        volume: String,
        node: NodeId,
    },
    VolumeMoveStarted {
        deployment: DeploymentName,
        volumes: BTreeSet<String>,
        src: NodeId,
        dst: NodeId,
    },
    VolumesMoved {
        deployment: DeploymentName,
        volumes: BTreeSet<String>,
        src: NodeId,
        dst: NodeId,
    },
    VolumeMoveFailed {
        deployment: DeploymentName,
        dst: NodeId,
        why: VolumeMoveFailure,
    },
    /// A backup or a restore begins.
    VolumeHeld {
        deployment: DeploymentName,
        volume: String,
        node: NodeId,
        purpose: HoldPurpose,
    },
    VolumeHoldDone {
        deployment: DeploymentName,
        volume: String,
        node: NodeId,
        purpose: HoldPurpose,
    },
    VolumeHoldFailed {
        deployment: DeploymentName,
        volume: String,
        purpose: HoldPurpose,
        why: VolumeHoldFailure,
    },
    CommandRun {
        replica: ReplicaId,
    },
    BackupTaken,
    Survived {
        node: NodeId,
        lost: u32,
    },
    LevelRaised {
        level: Level,
    },
    /// The move itself has its own events.
    RebalanceMoved {
        relief: Box<Relief>,
    },
    /// Repeated ones are one event with a count, which has the numbers of the latest.
    RebalanceSkipped {
        skipped: Box<Skipped>,
        times: RepeatCount,
    },
    /// The move itself has its own events.
    Rescheduled {
        moved: Box<RescheduledMove>,
    },
    RescheduleSet {
        settings: RescheduleSettings,
    },
    /// Some time after a move that a loop chose: what was predicted, and what came of it.
    MoveReviewed {
        review: Box<MoveReview>,
    },
    /// A loop slows down, or speeds up again, by what came of its moves.
    PaceChanged {
        change: PaceChange,
    },
    /// Replicas of lower priority make way on the node for one that finds no room.
    PreemptionStarted {
        node: NodeId,
        preemption: Box<Preemption>,
    },
    /// A replica was stopped for one of higher priority.
    Evicted {
        replica: ReplicaId,
        by: Box<PreemptedBy>,
    },
    PreemptionWithdrawn {
        by: ReplicaId,
        node: NodeId,
        why: WithdrawReason,
    },
    /// A node ran a command for another, by its own word.
    CommandServed {
        replica: ReplicaId,
        /// Who asked, as the node that passed it on told.
        asked_by: String,
        /// The node that passed it on, by its certificate.
        through: NodeId,
    },
    AuthorityRotation {
        step: RotationStep,
    },
    BackupKey {
        step: BackupKeyStep,
    },
    FileCreated {
        kind: CellFileKind,
        name: FileName,
    },
    /// The deployments that ask for it have a new revision each, with events of their own.
    FileRotated {
        kind: CellFileKind,
        name: FileName,
        version: u32,
    },
    FileRemoved {
        kind: CellFileKind,
        name: FileName,
    },
    /// The cell was given credentials. Nothing of the password is here.
    RegistryLogin {
        registry: RegistryHost,
        user: String,
    },
    RegistryLogout {
        registry: RegistryHost,
    },
    /// A node pulled the image of a service, and said where it keeps data that the file does not mention.
    VolumesDeclared {
        service: ServiceKey,
        paths: BTreeSet<String>,
    },
    /// It ended with status 0, which is what it was started for.
    JobCompleted {
        replica: ReplicaId,
        node: NodeId,
        attempts: u32,
    },
    /// A job that had started on one node, and of which nobody knows that it completed, is run on another.
    JobRerun {
        replica: ReplicaId,
        src: NodeId,
        dst: NodeId,
    },
    /// A better layout that somebody asked for goes on.
    Optimize {
        step: OptimizeStep,
    },
    /// A service on a schedule runs: for a slot, or because it was asked to.
    RunStarted {
        service: ServiceKey,
        run: u64,
        slot: Option<Timestamp>,
    },
    /// Nothing was started for these slots.
    SlotsMissed {
        service: ServiceKey,
        missed: MissedSlots,
    },
    /// Something about the machines of the cell.
    Machine {
        event: MachineEvent,
    },
    /// Something of a fleet: on its coordinator, or on a cell that is a shard of it.
    Fleet {
        event: Box<FleetEvent>,
    },
}
