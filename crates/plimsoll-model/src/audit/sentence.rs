//! What each kind of event says to people: one sentence.

use std::collections::BTreeSet;
use std::fmt::{Display, Formatter, Result};

use super::AuditKind as Kind;
use crate::access::{Role, Scope};
use crate::ids::{NodeId, ReplicaId, ServiceKey};
use crate::node::{Availability, NodeStatus};
use crate::preemption::Preemption;
use crate::rebalance::{RepeatCount, Skipped};
use crate::schedule::{MissedSlots, utc_minute};

impl Display for Kind {
    #[expect(clippy::too_many_lines, reason = "an arm for each kind")]
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
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
            Self::NodeAvailability { node, availability } => available(f, node, *availability),
            Self::DrainTimedOut { node, left } => {
                write!(f, "{node} is not empty in time: {left} replicas stay and it is cordoned")
            }
            Self::NodeRemoved { node } => write!(f, "{node} left the cell"),
            Self::JoinTokenCreated { name, .. } => write!(f, "join token {name} was made"),
            Self::JoinTokenRevoked { name } => write!(f, "join token {name} is revoked"),
            Self::OperatorAdded { name, role, scope } => operator(f, name, *role, scope),
            Self::OperatorRevoked { name } => write!(f, "the token of {name} is revoked"),
            Self::AcmeConfigured { directory } => acme(f, directory.as_deref()),
            Self::CertificateIssued { host, issuer, .. } => {
                write!(f, "certificate of {host} issued by {issuer}")
            }
            Self::CertificateFailed { host, why } => write!(f, "no certificate for {host}: {why}"),
            Self::FileCreated { .. }
            | Self::FileRotated { .. }
            | Self::FileRemoved { .. }
            | Self::RegistryLogin { .. }
            | Self::RegistryLogout { .. } => kept(f, self),
            Self::VolumesDeclared { service, paths } => declared(f, service, paths),
            Self::Deployed { deployment, revision } => write!(f, "{deployment} {revision} applied"),
            Self::Undeployed { deployment } => write!(f, "{deployment} deleted"),
            Self::Placed { replica, node } => write!(f, "{replica} placed on {node}"),
            Self::MoveStarted { replica, src, dst, cause } => {
                moved(f, replica, (src, dst), ["is being replaced", "moves"], cause.word())
            }
            Self::MoveFinished { replica, src, dst, cause } => {
                moved(f, replica, (src, dst), ["was replaced", "moved"], cause.word())
            }
            Self::MoveUndone { replica, src, dst, why } => {
                stays(f, replica, (src, dst), why.word())
            }
            Self::RolloutStarted { service, revision } => {
                write!(f, "rollout of {service} to {revision} started")
            }
            Self::RolloutPaused { service, why } => write!(f, "rollout of {service} paused: {why}"),
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
            Self::JobCompleted { .. }
            | Self::JobRerun { .. }
            | Self::RunStarted { .. }
            | Self::SlotsMissed { .. } => job(f, self),
            Self::Unplaced { service, missing: 0, why } => write!(f, "{service} waits: {why}"),
            Self::Unplaced { service, missing, why } => {
                write!(f, "{service} lacks {missing} replicas: {why}")
            }
            Self::AllPlaced { service } => write!(f, "{service} has all its replicas placed"),
            Self::Waiting { replica, why } => write!(f, "{replica} waits: {why}"),
            Self::CommandRun { .. } | Self::CommandServed { .. } => command(f, self),
            Self::BackupTaken => f.write_str("a backup was taken"),
            Self::VolumesDoomed { deployment } => {
                write!(f, "the volumes of {deployment} are to be removed")
            }
            Self::VolumesRemoved { deployment, node } => {
                write!(f, "the volumes of {deployment} on {node} are removed")
            }
            Self::VolumeRemoved { .. }
            | Self::VolumeForgotten { .. }
            | Self::VolumeMoveStarted { .. }
            | Self::VolumesMoved { .. }
            | Self::VolumeMoveFailed { .. }
            | Self::VolumeHeld { .. }
            | Self::VolumeHoldDone { .. }
            | Self::VolumeHoldFailed { .. } => volume(f, self),
            Self::LevelRaised { level } => {
                write!(f, "every server is upgraded: the cell speaks {level}")
            }
            Self::RebalanceMoved { .. }
            | Self::RebalanceSkipped { .. }
            | Self::Rescheduled { .. }
            | Self::RescheduleSet { .. }
            | Self::MoveReviewed { .. }
            | Self::PaceChanged { .. } => loops(f, self),
            Self::PreemptionStarted { .. }
            | Self::Evicted { .. }
            | Self::PreemptionWithdrawn { .. } => preemption(f, self),
            Self::AuthorityRotation { step } => write!(f, "{step}"),
            Self::BackupKey { step } => write!(f, "{step}"),
            Self::Optimize { step } => write!(f, "{step}"),
            Self::Machine { event } => write!(f, "{event}"),
            Self::Fleet { event } => write!(f, "{event}"),
            Self::Survived { node, lost } => survived(f, node, *lost),
        }
    }
}

/// What the cell keeps for services: secrets, configs and credentials.
fn kept(f: &mut Formatter<'_>, kind: &Kind) -> Result {
    match kind {
        Kind::FileCreated { kind, name } => write!(f, "{kind} {name} created"),
        Kind::FileRotated { kind, name, version } => {
            write!(f, "{kind} {name} rotated to version {version}")
        }
        Kind::FileRemoved { kind, name } => write!(f, "{kind} {name} removed"),
        Kind::RegistryLogin { registry, user } => {
            write!(f, "logged in to registry {registry} as {user}")
        }
        Kind::RegistryLogout { registry } => write!(f, "logged out of registry {registry}"),
        _ => Ok(()),
    }
}

/// What the rebalancer and the rescheduler do and leave.
fn loops(f: &mut Formatter<'_>, kind: &Kind) -> Result {
    match kind {
        Kind::RebalanceMoved { relief } => write!(f, "{relief}"),
        Kind::RebalanceSkipped { skipped, times } => rebalance_skipped(f, skipped, *times),
        Kind::Rescheduled { moved } => write!(f, "{moved}"),
        Kind::RescheduleSet { settings } => write!(f, "the rescheduler is {settings}"),
        Kind::MoveReviewed { review } => write!(f, "{review}"),
        Kind::PaceChanged { change } => write!(f, "{change}"),
        _ => Ok(()),
    }
}

/// Commands beside replicas.
fn command(f: &mut Formatter<'_>, kind: &Kind) -> Result {
    match kind {
        Kind::CommandRun { replica } => write!(f, "a command was run in {replica}"),
        Kind::CommandServed { replica, asked_by, through } => {
            write!(f, "ran a command in {replica} for {asked_by}, asked by {through}")
        }
        _ => Ok(()),
    }
}

/// Who makes way for whom.
fn preemption(f: &mut Formatter<'_>, kind: &Kind) -> Result {
    match kind {
        Kind::PreemptionStarted { node, preemption } => {
            let Preemption { by, priority, victims, began, .. } = &**preemption;
            write!(f, "{by} (priority {priority}) preempts on {node}")?;
            for (i, (replica, victim)) in victims.iter().enumerate() {
                let (own, left) = (victim.priority, victim.until.since(*began));
                let before = if i == 0 { ":" } else { "," };
                write!(f, "{before} {replica} (priority {own}) within {left}")?;
            }
            Ok(())
        }
        Kind::Evicted { replica, by } => write!(f, "{replica} stopped: {by}"),
        Kind::PreemptionWithdrawn { by, node, why } => {
            write!(f, "{by} no longer preempts on {node}: {why}")
        }
        _ => Ok(()),
    }
}

fn declared(f: &mut Formatter<'_>, service: &ServiceKey, paths: &BTreeSet<String>) -> Result {
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let paths = if paths.is_empty() { "none".to_owned() } else { paths.join(", ") };
    write!(f, "volumes that the image of {service} declares: {paths}")
}

fn available(f: &mut Formatter<'_>, node: &NodeId, availability: Availability) -> Result {
    match availability {
        Availability::Active => write!(f, "{node} uncordoned"),
        Availability::Cordoned => write!(f, "{node} is cordoned"),
        Availability::Draining => write!(f, "{node} is draining"),
    }
}

fn operator(f: &mut Formatter<'_>, name: &str, role: Role, scope: &Scope) -> Result {
    write!(f, "{name} may {}", role.word())?;
    if scope.is_bound() { write!(f, " in {scope}") } else { Ok(()) }
}

fn acme(f: &mut Formatter<'_>, directory: Option<&str>) -> Result {
    match directory {
        None => f.write_str("no ACME authority is asked for certificates any more"),
        Some(directory) => write!(f, "certificates are asked of {directory}"),
    }
}

/// A new spec goes where the old one was: nothing moves.
fn moved(
    f: &mut Formatter<'_>,
    replica: &ReplicaId,
    (src, dst): (&NodeId, &NodeId),
    [replaced, moves]: [&str; 2],
    cause: &str,
) -> Result {
    if src == dst {
        write!(f, "{replica} {replaced} on {dst} ({cause})")
    } else {
        write!(f, "{replica} {moves} {src} → {dst} ({cause})")
    }
}

fn stays(
    f: &mut Formatter<'_>,
    replica: &ReplicaId,
    (src, dst): (&NodeId, &NodeId),
    why: &str,
) -> Result {
    if src == dst {
        write!(f, "{replica} stays as it was on {dst} ({why})")
    } else {
        write!(f, "{replica} stays on {src}, not {dst} ({why})")
    }
}

fn rebalance_skipped(f: &mut Formatter<'_>, skipped: &Skipped, times: RepeatCount) -> Result {
    write!(f, "{skipped}")?;
    if times.count == 1 { Ok(()) } else { write!(f, "; {} times in a row", times.count) }
}

/// What became of a job.
fn job(f: &mut Formatter<'_>, what: &Kind) -> Result {
    match what {
        Kind::JobCompleted { replica, node, attempts } => {
            write!(f, "{replica} completed on {node}")?;
            if *attempts > 1 { write!(f, " at attempt {attempts}") } else { Ok(()) }
        }
        Kind::JobRerun { replica, src, dst } => {
            write!(f, "{replica} runs again on {dst}: it had not completed on {src}")
        }
        Kind::RunStarted { service, run, slot: Some(slot) } => {
            write!(f, "run {run} of {service} started, due at {}", utc_minute(*slot))
        }
        Kind::RunStarted { service, run, slot: None } => {
            write!(f, "run {run} of {service} started by request")
        }
        Kind::SlotsMissed { service, missed } if missed.count == 1 => {
            write!(f, "{service} missed its run at {}: {}", utc_minute(missed.last), missed.why)
        }
        Kind::SlotsMissed { service, missed } => {
            let MissedSlots { first, last, count, why } = missed;
            let (first, last) = (utc_minute(*first), utc_minute(*last));
            write!(f, "{service} missed {count} runs from {first} to {last}: {why}")
        }
        _ => Ok(()),
    }
}

/// What became of single volumes.
fn volume(f: &mut Formatter<'_>, kind: &Kind) -> Result {
    match kind {
        Kind::VolumeRemoved { volume, node, .. } => {
            write!(f, "volume {volume} on {node} is removed")
        }
        Kind::VolumeForgotten { volume, node, .. } => {
            write!(f, "volume {volume} on {node}, which is down, is forgotten")
        }
        Kind::VolumeMoveStarted { volumes, src, dst, .. } => {
            write!(f, "{} {src} → {dst} started", named(volumes))
        }
        Kind::VolumesMoved { volumes, src, dst, .. } => {
            write!(f, "{} {src} → {dst} finished; {src} keeps an old copy", named(volumes))
        }
        Kind::VolumeMoveFailed { deployment, dst, why } => {
            write!(f, "move of volumes of {deployment} to {dst} failed: {why}")
        }
        Kind::VolumeHeld { volume, node, purpose, .. } => {
            write!(f, "{} of volume {volume} on {node} started", purpose.noun())
        }
        Kind::VolumeHoldDone { volume, node, purpose, .. } => {
            write!(f, "{} of volume {volume} on {node} finished", purpose.noun())
        }
        Kind::VolumeHoldFailed { volume, purpose, why, .. } => {
            write!(f, "{} of volume {volume} failed: {why}", purpose.noun())
        }
        _ => Ok(()),
    }
}

fn named(volumes: &BTreeSet<String>) -> String {
    let names: Vec<&str> = volumes.iter().map(String::as_str).collect();
    let what = if names.len() == 1 { "volume" } else { "volumes" };
    format!("move of {what} {}", names.join(", "))
}

fn survived(f: &mut Formatter<'_>, node: &NodeId, lost: u32) -> Result {
    write!(f, "the cell was recovered with {node} as its only server; {lost} nodes were removed")
}
