//! What happened, when, by whom: a ring of events that every node holds alike.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::access::{Role, Scope};
use crate::cell_files::CellFileKind;
use crate::ids::{DeploymentName, FileName, NodeId, ReplicaId, ServiceKey};
use crate::level::Level;
use crate::node::{Availability, NodeStatus};
use crate::reason::{AbandonReason, UnplacedReason, WaitReason};
use crate::rebalance::{Relief, RepeatCount, Skipped};
use crate::replica::{MoveCause, ObservedCode};
use crate::rollout::RolloutHalt;
use crate::rotation::RotationStep;
use crate::transition::Writer;
use crate::units::{Revision, Timestamp};

/// How many events the ring keeps; the oldest go first. At 150 bytes an event this is some 1.5 MB of state.
pub const MAX_AUDIT: usize = 10_000;

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
}

impl AuditKind {
    /// Every word there is, in the order of what they are for.
    pub const WORDS: [&'static str; 50] = [
        "node_joined",
        "node_changed",
        "node_ready",
        "node_down",
        "runtime_unavailable",
        "runtime_available",
        "node_availability",
        "drain_timeout",
        "node_removed",
        "join_token_created",
        "join_token_revoked",
        "operator_added",
        "operator_revoked",
        "acme_configured",
        "certificate_issued",
        "certificate_failed",
        "deployed",
        "undeployed",
        "placed",
        "move_started",
        "move_finished",
        "move_undone",
        "rollout_started",
        "rollout_paused",
        "rollout_resumed",
        "rollout_aborted",
        "rollout_done",
        "rollout_undone",
        "restart_asked",
        "retired",
        "replica_failed",
        "unplaced",
        "all_placed",
        "waiting",
        "volumes_doomed",
        "volumes_removed",
        "command_run",
        "command_served",
        "backup_taken",
        "survived",
        "level_raised",
        "rebalance_moved",
        "rebalance_skipped",
        "authority_rotation",
        "secret_created",
        "config_created",
        "secret_rotated",
        "config_rotated",
        "secret_removed",
        "config_removed",
    ];

    pub fn word(&self) -> &'static str {
        match self {
            Self::NodeJoined { .. } => "node_joined",
            Self::NodeChanged { .. } => "node_changed",
            Self::NodeStatus { status: NodeStatus::Ready, .. } => "node_ready",
            Self::NodeStatus { status: NodeStatus::Down, .. } => "node_down",
            Self::NodeRuntime { why: Some(_), .. } => "runtime_unavailable",
            Self::NodeRuntime { why: None, .. } => "runtime_available",
            Self::NodeAvailability { .. } => "node_availability",
            Self::DrainTimedOut { .. } => "drain_timeout",
            Self::NodeRemoved { .. } => "node_removed",
            Self::JoinTokenCreated { .. } => "join_token_created",
            Self::JoinTokenRevoked { .. } => "join_token_revoked",
            Self::OperatorAdded { .. } => "operator_added",
            Self::OperatorRevoked { .. } => "operator_revoked",
            Self::AcmeConfigured { .. } => "acme_configured",
            Self::CertificateIssued { .. } => "certificate_issued",
            Self::CertificateFailed { .. } => "certificate_failed",
            Self::Deployed { .. } => "deployed",
            Self::Undeployed { .. } => "undeployed",
            Self::Placed { .. } => "placed",
            Self::MoveStarted { .. } => "move_started",
            Self::MoveFinished { .. } => "move_finished",
            Self::MoveUndone { .. } => "move_undone",
            Self::RolloutStarted { .. } => "rollout_started",
            Self::RolloutPaused { .. } => "rollout_paused",
            Self::RolloutResumed { .. } => "rollout_resumed",
            Self::RolloutAborted { .. } => "rollout_aborted",
            Self::RolloutDone { .. } => "rollout_done",
            Self::RolloutUndone { .. } => "rollout_undone",
            Self::RestartAsked { .. } => "restart_asked",
            Self::Retired { .. } => "retired",
            Self::ReplicaFailed { .. } => "replica_failed",
            Self::Unplaced { .. } => "unplaced",
            Self::AllPlaced { .. } => "all_placed",
            Self::Waiting { .. } => "waiting",
            Self::VolumesDoomed { .. } => "volumes_doomed",
            Self::VolumesRemoved { .. } => "volumes_removed",
            Self::CommandRun { .. } => "command_run",
            Self::CommandServed { .. } => "command_served",
            Self::BackupTaken => "backup_taken",
            Self::Survived { .. } => "survived",
            Self::LevelRaised { .. } => "level_raised",
            Self::RebalanceMoved { .. } => "rebalance_moved",
            Self::RebalanceSkipped { .. } => "rebalance_skipped",
            Self::AuthorityRotation { .. } => "authority_rotation",
            Self::FileCreated { kind: CellFileKind::Secret, .. } => "secret_created",
            Self::FileCreated { kind: CellFileKind::Config, .. } => "config_created",
            Self::FileRotated { kind: CellFileKind::Secret, .. } => "secret_rotated",
            Self::FileRotated { kind: CellFileKind::Config, .. } => "config_rotated",
            Self::FileRemoved { kind: CellFileKind::Secret, .. } => "secret_removed",
            Self::FileRemoved { kind: CellFileKind::Config, .. } => "config_removed",
        }
    }
}

impl AuditKind {
    /// Of who may join, and ask for what.
    fn fmt_access(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::JoinTokenCreated { name, .. } => write!(f, "join token {name} was made"),
            Self::JoinTokenRevoked { name } => write!(f, "join token {name} is revoked"),
            Self::OperatorAdded { name, role, scope } if scope.is_bound() => {
                write!(f, "{name} may {} in {scope}", role.word())
            }
            Self::OperatorAdded { name, role, .. } => write!(f, "{name} may {}", role.word()),
            Self::OperatorRevoked { name } => write!(f, "the token of {name} is revoked"),
            _ => Ok(()),
        }
    }

    /// Of what the cell keeps for its services.
    fn fmt_kept(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AcmeConfigured { directory: None } => {
                f.write_str("no ACME authority is asked for certificates any more")
            }
            Self::AcmeConfigured { directory: Some(directory) } => {
                write!(f, "certificates are asked of {directory}")
            }
            Self::CertificateIssued { host, issuer, .. } => {
                write!(f, "certificate of {host} issued by {issuer}")
            }
            Self::CertificateFailed { host, why } => {
                write!(f, "no certificate for {host}: {why}")
            }
            Self::FileCreated { kind, name } => write!(f, "{kind} {name} created"),
            Self::FileRotated { kind, name, version } => {
                write!(f, "{kind} {name} rotated to version {version}")
            }
            Self::FileRemoved { kind, name } => write!(f, "{kind} {name} removed"),
            _ => Ok(()),
        }
    }
}

impl AuditKind {
    fn fmt_node(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeJoined { node } => write!(f, "{node} joined"),
            Self::NodeChanged { node } => write!(f, "{node} changed what it offers"),
            Self::NodeStatus { node, status: NodeStatus::Ready } => write!(f, "{node} is ready"),
            Self::NodeStatus { node, status: NodeStatus::Down } => write!(f, "{node} is down"),
            Self::NodeRuntime { node, why: Some(why) } => {
                write!(f, "the container runtime of {node} does not answer: {why}")
            }
            Self::NodeRuntime { node, why: None } => {
                write!(f, "the container runtime of {node} answers again")
            }
            Self::NodeAvailability { node, availability } => match availability {
                Availability::Active => write!(f, "{node} uncordoned"),
                Availability::Cordoned => write!(f, "{node} is cordoned"),
                Availability::Draining => write!(f, "{node} is draining"),
            },
            Self::DrainTimedOut { node, left } => {
                write!(f, "{node} is not empty in time: {left} replicas stay and it is cordoned")
            }
            Self::NodeRemoved { node } => write!(f, "{node} left the cell"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for AuditKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeJoined { .. }
            | Self::NodeChanged { .. }
            | Self::NodeStatus { .. }
            | Self::NodeRuntime { .. }
            | Self::NodeAvailability { .. }
            | Self::DrainTimedOut { .. }
            | Self::NodeRemoved { .. } => self.fmt_node(f),
            Self::JoinTokenCreated { .. }
            | Self::JoinTokenRevoked { .. }
            | Self::OperatorAdded { .. }
            | Self::OperatorRevoked { .. } => self.fmt_access(f),
            Self::AcmeConfigured { .. }
            | Self::CertificateIssued { .. }
            | Self::CertificateFailed { .. }
            | Self::FileCreated { .. }
            | Self::FileRotated { .. }
            | Self::FileRemoved { .. } => self.fmt_kept(f),
            Self::Deployed { deployment, revision } => write!(f, "{deployment} {revision} applied"),
            Self::Undeployed { deployment } => write!(f, "{deployment} deleted"),
            Self::Placed { replica, node } => write!(f, "{replica} placed on {node}"),
            // A new spec goes where the old one was: nothing moves.
            Self::MoveStarted { replica, src, dst, cause } if src == dst => {
                write!(f, "{replica} is being replaced on {dst} ({})", cause.word())
            }
            Self::MoveFinished { replica, src, dst, cause } if src == dst => {
                write!(f, "{replica} was replaced on {dst} ({})", cause.word())
            }
            Self::MoveUndone { replica, src, dst, why } if src == dst => {
                write!(f, "{replica} stays as it was on {dst} ({})", why.word())
            }
            Self::MoveStarted { replica, src, dst, cause } => {
                write!(f, "{replica} moves {src} → {dst} ({})", cause.word())
            }
            Self::MoveFinished { replica, src, dst, cause } => {
                write!(f, "{replica} moved {src} → {dst} ({})", cause.word())
            }
            Self::MoveUndone { replica, src, dst, why } => {
                write!(f, "{replica} stays on {src}, not {dst} ({})", why.word())
            }
            Self::RolloutStarted { service, revision } => {
                write!(f, "rollout of {service} to {revision} started")
            }
            Self::RolloutPaused { service, why } => {
                write!(f, "rollout of {service} paused: {why}")
            }
            Self::RolloutResumed { service } => write!(f, "rollout of {service} resumed"),
            Self::RolloutAborted { service, why } => {
                write!(f, "rollout of {service} aborted, rolling back: {why}")
            }
            Self::RolloutDone { service } => write!(f, "rollout of {service} finished"),
            Self::RolloutUndone { service } => write!(f, "{service} rolled back"),
            Self::RestartAsked { replica } => write!(f, "restart of {replica} requested"),
            Self::Retired { replica } => write!(f, "{replica} retired"),
            Self::ReplicaFailed { replica, node, code: None } => {
                write!(f, "{replica} failed on {node}")
            }
            Self::ReplicaFailed { replica, node, code: Some(code) } => {
                write!(f, "{replica} failed on {node}: {code}")
            }
            Self::Unplaced { service, missing: 0, why } => write!(f, "{service} waits: {why}"),
            Self::Unplaced { service, missing, why } => {
                write!(f, "{service} lacks {missing} replicas: {why}")
            }
            Self::AllPlaced { service } => write!(f, "{service} has all its replicas placed"),
            Self::Waiting { replica, why } => write!(f, "{replica} waits: {why}"),
            Self::CommandRun { replica } => write!(f, "a command was run in {replica}"),
            Self::CommandServed { replica, asked_by, through } => {
                write!(f, "ran a command in {replica} for {asked_by}, asked by {through}")
            }
            Self::BackupTaken => f.write_str("a backup was taken"),
            Self::VolumesDoomed { deployment } => {
                write!(f, "the volumes of {deployment} are to be removed")
            }
            Self::VolumesRemoved { deployment, node } => {
                write!(f, "the volumes of {deployment} on {node} are removed")
            }
            Self::LevelRaised { level } => {
                write!(f, "every server is upgraded: the cell speaks {level}")
            }
            Self::RebalanceMoved { relief } => write!(f, "{relief}"),
            Self::RebalanceSkipped { skipped, times: RepeatCount { count: 1, .. } } => {
                write!(f, "{skipped}")
            }
            Self::RebalanceSkipped { skipped, times } => {
                write!(f, "{skipped}; {} times in a row", times.count)
            }
            Self::AuthorityRotation { step } => write!(f, "{step}"),
            Self::Survived { node, lost } => {
                write!(
                    f,
                    "the cell was recovered with {node} as its only server; {lost} nodes were removed"
                )
            }
        }
    }
}

/// The last [`MAX_AUDIT`] events.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AuditRing {
    next_seq: u64,
    events: VecDeque<AuditEvent>,
}

impl AuditRing {
    /// Adds events, which is not for nothing, and returns the number of the last.
    pub(crate) fn extend(&mut self, at: Timestamp, by: &Author, mut kinds: Vec<AuditKind>) -> u64 {
        kinds.retain(|what| !self.folds(what, at));
        let new = kinds.len();
        // What the ring would have dropped again before anyone could read it is only counted.
        let unread = new.saturating_sub(MAX_AUDIT);
        let excess = (self.events.len() + new - unread).saturating_sub(MAX_AUDIT);
        self.events.drain(..excess);
        self.next_seq += unread as u64;
        for what in kinds.into_iter().skip(unread) {
            self.events.push_back(AuditEvent { seq: self.next_seq, at, by: by.clone(), what });
            self.next_seq += 1;
        }
        self.next_seq.saturating_sub(1)
    }

    /// Counts a skip with the one before it, where it says the same again.
    fn folds(&mut self, what: &AuditKind, at: Timestamp) -> bool {
        let AuditKind::RebalanceSkipped { skipped: new, .. } = what else { return false };
        let of_rebalancer = self.events.iter_mut().rev().find_map(|event| match &mut event.what {
            AuditKind::RebalanceSkipped { skipped, times } => Some(Some((skipped, times))),
            AuditKind::RebalanceMoved { .. } => Some(None),
            _ => None,
        });
        let Some((last, times)) = of_rebalancer.flatten().filter(|(last, _)| last.repeats(new))
        else {
            return false;
        };
        last.clone_from(new);
        *times = RepeatCount { count: times.count.saturating_add(1), last_at: at };
        true
    }

    /// Oldest first.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = &AuditEvent> + ExactSizeIterator {
        self.events.iter()
    }

    /// Events from `seq` on, as far back as the ring goes.
    pub fn since(&self, seq: u64) -> impl Iterator<Item = &AuditEvent> {
        let first = self.next_seq - self.events.len() as u64;
        let skip = usize::try_from(seq.saturating_sub(first)).unwrap_or(usize::MAX);
        self.events.iter().skip(skip)
    }

    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pressure::Pressure;
    use crate::rebalance::{Dimension, Skip};
    use crate::testkit::{node_id, replica_id};

    fn runtime(why: Option<&str>) -> AuditKind {
        AuditKind::NodeRuntime { node: node_id("ash"), why: why.map(str::to_owned) }
    }

    /// One of each; a new one does not compile until it is here.
    fn all() -> Vec<AuditKind> {
        use AuditKind as H;
        let (node, replica) = (node_id("ash"), replica_id("shop/web/1"));
        let (src, dst, cause) = (node_id("ash"), node_id("birch"), MoveCause::Outdated);
        let service = replica.service.clone();
        let deployment = service.deployment.clone();
        let mut all = vec![H::NodeJoined { node: node.clone() }];
        while let Some(next) = match all.last().expect("it begins with one") {
            H::NodeJoined { .. } => Some(H::NodeChanged { node: node.clone() }),
            H::NodeChanged { .. } => {
                Some(H::NodeStatus { node: node.clone(), status: NodeStatus::Ready })
            }
            H::NodeStatus { status: NodeStatus::Ready, .. } => {
                Some(H::NodeStatus { node: node.clone(), status: NodeStatus::Down })
            }
            H::NodeStatus { status: NodeStatus::Down, .. } => Some(runtime(Some("no socket"))),
            H::NodeRuntime { why: Some(_), .. } => Some(runtime(None)),
            H::NodeRuntime { why: None, .. } => {
                Some(H::NodeAvailability { node: node.clone(), availability: Availability::Active })
            }
            H::NodeAvailability { .. } => Some(H::DrainTimedOut { node: node.clone(), left: 1 }),
            H::DrainTimedOut { .. } => Some(H::NodeRemoved { node: node.clone() }),
            H::NodeRemoved { .. } => {
                Some(H::JoinTokenCreated { name: "elm".to_owned(), expires_at: Timestamp(0) })
            }
            H::JoinTokenCreated { .. } => Some(H::JoinTokenRevoked { name: "elm".to_owned() }),
            H::JoinTokenRevoked { .. } => {
                let scope = Scope::default();
                Some(H::OperatorAdded { name: "ann".to_owned(), role: Role::Read, scope })
            }
            H::OperatorAdded { .. } => Some(H::OperatorRevoked { name: "ann".to_owned() }),
            H::OperatorRevoked { .. } => Some(H::AcmeConfigured { directory: None }),
            H::AcmeConfigured { .. } => Some(certificate(true)),
            H::CertificateIssued { .. } => Some(certificate(false)),
            H::CertificateFailed { .. } => {
                Some(H::Deployed { deployment: deployment.clone(), revision: Revision(1) })
            }
            H::Deployed { .. } => Some(H::Undeployed { deployment: deployment.clone() }),
            H::Undeployed { .. } => {
                Some(H::Placed { replica: replica.clone(), node: node.clone() })
            }
            H::Placed { .. } => Some(H::MoveStarted {
                replica: replica.clone(),
                src: src.clone(),
                dst: dst.clone(),
                cause,
            }),
            H::MoveStarted { .. } => Some(H::MoveFinished {
                replica: replica.clone(),
                src: src.clone(),
                dst: dst.clone(),
                cause,
            }),
            H::MoveFinished { .. } => Some(H::MoveUndone {
                replica: replica.clone(),
                src: src.clone(),
                dst: dst.clone(),
                why: AbandonReason::Needless,
            }),
            H::MoveUndone { .. } => {
                Some(H::RolloutStarted { service: service.clone(), revision: Revision(2) })
            }
            H::RolloutStarted { .. } => {
                Some(H::RolloutPaused { service: service.clone(), why: RolloutHalt::Operator })
            }
            H::RolloutPaused { .. } => Some(H::RolloutResumed { service: service.clone() }),
            H::RolloutResumed { .. } => {
                Some(H::RolloutAborted { service: service.clone(), why: RolloutHalt::Operator })
            }
            H::RolloutAborted { .. } => Some(H::RolloutDone { service: service.clone() }),
            H::RolloutDone { .. } => Some(H::RolloutUndone { service: service.clone() }),
            H::RolloutUndone { .. } => Some(H::RestartAsked { replica: replica.clone() }),
            H::RestartAsked { .. } => Some(H::Retired { replica: replica.clone() }),
            H::Retired { .. } => {
                Some(H::ReplicaFailed { replica: replica.clone(), node: node.clone(), code: None })
            }
            H::ReplicaFailed { .. } => Some(H::Unplaced {
                service: service.clone(),
                missing: 1,
                why: UnplacedReason::NoNodes,
            }),
            H::Unplaced { .. } => Some(H::AllPlaced { service: service.clone() }),
            H::AllPlaced { .. } => {
                Some(H::Waiting { replica: replica.clone(), why: WaitReason::Stateful })
            }
            H::Waiting { .. } => Some(H::VolumesDoomed { deployment: deployment.clone() }),
            last @ (H::VolumesDoomed { .. }
            | H::VolumesRemoved { .. }
            | H::CommandRun { .. }
            | H::CommandServed { .. }
            | H::BackupTaken
            | H::Survived { .. }
            | H::LevelRaised { .. }
            | H::RebalanceMoved { .. }
            | H::RebalanceSkipped { .. }
            | H::AuthorityRotation { .. }
            | H::FileCreated { .. }
            | H::FileRotated { .. }
            | H::FileRemoved { .. }) => after_volumes(last),
        } {
            all.push(next);
        }
        all
    }

    /// The rest of them.
    fn after_volumes(last: &AuditKind) -> Option<AuditKind> {
        use AuditKind as H;
        let (name, version) = (FileName::new("db").unwrap(), 2);
        let (replica, node) = (replica_id("shop/web/1"), node_id("ash"));
        Some(match last {
            H::VolumesDoomed { .. } => {
                H::VolumesRemoved { deployment: DeploymentName::new("shop").unwrap(), node }
            }
            H::VolumesRemoved { .. } => H::CommandRun { replica },
            H::CommandRun { .. } => {
                let asked_by = "token:ci@ash".to_owned();
                H::CommandServed { replica, asked_by, through: node }
            }
            H::CommandServed { .. } => H::BackupTaken,
            H::BackupTaken => H::Survived { node, lost: 1 },
            H::Survived { .. } => H::LevelRaised { level: Level::BUILD },
            H::LevelRaised { .. } => H::RebalanceMoved { relief: Box::new(relief()) },
            H::RebalanceMoved { .. } => skip(Skip::NoCandidate, 0),
            H::RebalanceSkipped { .. } => H::AuthorityRotation { step: RotationStep::Started },
            H::AuthorityRotation { .. } => H::FileCreated { kind: CellFileKind::Secret, name },
            H::FileCreated { kind: CellFileKind::Secret, .. } => {
                H::FileCreated { kind: CellFileKind::Config, name }
            }
            H::FileCreated { kind: CellFileKind::Config, .. } => {
                H::FileRotated { kind: CellFileKind::Secret, name, version }
            }
            H::FileRotated { kind: CellFileKind::Secret, .. } => {
                H::FileRotated { kind: CellFileKind::Config, name, version }
            }
            H::FileRotated { kind: CellFileKind::Config, .. } => {
                H::FileRemoved { kind: CellFileKind::Secret, name }
            }
            H::FileRemoved { kind: CellFileKind::Secret, .. } => {
                H::FileRemoved { kind: CellFileKind::Config, name }
            }
            _ => return None,
        })
    }

    fn certificate(is_issued: bool) -> AuditKind {
        let (host, text) = ("shop.example".to_owned(), "Pebble".to_owned());
        if is_issued {
            AuditKind::CertificateIssued { host, issuer: text, expires_at: Timestamp(0) }
        } else {
            AuditKind::CertificateFailed { host, why: text }
        }
    }

    fn relief() -> Relief {
        Relief {
            replica: replica_id("shop/web/1"),
            src: node_id("ash"),
            dst: node_id("birch"),
            dominant: Dimension::Cpu,
            relief: Pressure::percent(24),
            score: 230_000,
            move_cost: Pressure::percent(1),
            src_before: Pressure::percent(96),
            src_after: Pressure::percent(72),
            dst_before: Pressure::percent(20),
            dst_after: Pressure::percent(44),
            refused: Vec::new(),
        }
    }

    fn skip(why: Skip, at: u64) -> AuditKind {
        let pressure = Pressure::from_millionths(900_000 + u32::try_from(at).unwrap());
        let (src, dominant) = (node_id("ash"), Dimension::Cpu);
        let skipped =
            Box::new(Skipped { src, dominant, pressure, why, nearest: None, refused: Vec::new() });
        AuditKind::RebalanceSkipped {
            skipped,
            times: RepeatCount { count: 1, last_at: Timestamp(at) },
        }
    }

    #[test]
    fn a_skip_that_says_the_same_again_is_counted_and_has_the_latest_numbers() {
        let by = Author::new(Writer::Rebalancer, "leader");
        let mut ring = AuditRing::default();
        let mut add = |what: AuditKind, at: u64| ring.extend(Timestamp(at), &by, vec![what]);
        add(skip(Skip::DstCap, 1), 1);
        add(AuditKind::BackupTaken, 2);
        assert_eq!(add(skip(Skip::DstCap, 3), 3), 1, "nothing new is written");
        add(skip(Skip::ReliefFloor, 4), 4);
        add(skip(Skip::DstCap, 5), 5);
        add(AuditKind::RebalanceMoved { relief: Box::new(relief()) }, 6);
        add(skip(Skip::DstCap, 7), 7);

        let told: Vec<String> = ring.events().map(|event| event.what.to_string()).collect();
        assert_eq!(
            told,
            [
                "ash is hot (cpu 0.9000) and nothing moves: dst_cap; 2 times in a row",
                "a backup was taken",
                "ash is hot (cpu 0.9000) and nothing moves: relief_floor",
                "ash is hot (cpu 0.9000) and nothing moves: dst_cap",
                "shop-web-1 relieves ash of 0.24 cpu and goes to birch: ash 0.96 → 0.72, birch 0.20 → 0.44, \
                 score 0.23",
                "ash is hot (cpu 0.9000) and nothing moves: dst_cap",
            ]
        );
        let first = ring.events().next().expect("there are some");
        let AuditKind::RebalanceSkipped { skipped, times } = &first.what else {
            panic!("{first:?}")
        };
        assert_eq!((first.at, times.last_at), (Timestamp(1), Timestamp(3)));
        assert_eq!(skipped.pressure.millionths(), 900_003);
    }

    #[test]
    fn every_kind_is_in_the_list_of_words() {
        let words: Vec<&str> = all().iter().map(AuditKind::word).collect();
        assert_eq!(words, AuditKind::WORDS);
    }
}
