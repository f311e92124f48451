use super::*;
use crate::pressure::Pressure;
use crate::rebalance::{Dimension, Skip};
use crate::reschedule::{RescheduleReason, Score};
use crate::testkit::{node_id, replica_id};

/// One of each; a new one does not compile until it is here.
#[expect(clippy::too_many_lines, reason = "an arm for each kind")]
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
        H::NodeStatus { status: NodeStatus::Down, .. } => {
            Some(H::NodeRuntime { node: node.clone(), why: Some("no socket".to_owned()) })
        }
        H::NodeRuntime { why: Some(_), .. } => {
            Some(H::NodeRuntime { node: node.clone(), why: None })
        }
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
        H::Undeployed { .. } => Some(H::Placed { replica: replica.clone(), node: node.clone() }),
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
        H::ReplicaFailed { .. } => {
            Some(H::Unplaced { service: service.clone(), missing: 1, why: UnplacedReason::NoNodes })
        }
        H::Unplaced { .. } => Some(H::AllPlaced { service: service.clone() }),
        H::AllPlaced { .. } => {
            Some(H::Waiting { replica: replica.clone(), why: WaitReason::Stateful })
        }
        H::Waiting { .. } => Some(H::VolumesDoomed { deployment: deployment.clone() }),
        last @ (H::VolumesDoomed { .. }
        | H::VolumesRemoved { .. }
        | H::VolumeRemoved { .. }
        | H::VolumeForgotten { .. }
        | H::VolumeMoveStarted { .. }
        | H::VolumesMoved { .. }
        | H::VolumeMoveFailed { .. }
        | H::CommandRun { .. }
        | H::CommandServed { .. }
        | H::BackupTaken
        | H::Survived { .. }
        | H::LevelRaised { .. }
        | H::RebalanceMoved { .. }
        | H::RebalanceSkipped { .. }
        | H::Rescheduled { .. }
        | H::RescheduleSet { .. }
        | H::AuthorityRotation { .. }
        | H::BackupKey { .. }
        | H::FileCreated { .. }
        | H::FileRotated { .. }
        | H::FileRemoved { .. }
        | H::RegistryLogin { .. }
        | H::RegistryLogout { .. }
        | H::VolumesDeclared { .. }) => after_volumes(last),
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
        H::VolumesRemoved { deployment, .. } => {
            H::VolumeRemoved { deployment: deployment.clone(), volume: "shop_db".to_owned(), node }
        }
        H::VolumeRemoved { deployment, volume, .. } => {
            H::VolumeForgotten { deployment: deployment.clone(), volume: volume.clone(), node }
        }
        H::VolumeForgotten { deployment, volume, .. } => H::VolumeMoveStarted {
            deployment: deployment.clone(),
            volumes: [volume.clone()].into(),
            src: node,
            dst: node_id("birch"),
        },
        H::VolumeMoveStarted { deployment, volumes, src, dst } => H::VolumesMoved {
            deployment: deployment.clone(),
            volumes: volumes.clone(),
            src: src.clone(),
            dst: dst.clone(),
        },
        H::VolumesMoved { deployment, dst, .. } => H::VolumeMoveFailed {
            deployment: deployment.clone(),
            dst: dst.clone(),
            why: VolumeMoveFailure::NotStopped,
        },
        H::VolumeMoveFailed { .. } => H::CommandRun { replica },
        H::CommandRun { .. } => {
            let asked_by = "token:ci@ash".to_owned();
            H::CommandServed { replica, asked_by, through: node }
        }
        H::CommandServed { .. } => H::BackupTaken,
        H::BackupTaken => H::Survived { node, lost: 1 },
        H::Survived { .. } => H::LevelRaised { level: Level::BUILD },
        H::LevelRaised { .. } => H::RebalanceMoved { relief: Box::new(relief()) },
        H::RebalanceMoved { .. } => skip(Skip::NoCandidate, 0),
        H::RebalanceSkipped { .. } => H::Rescheduled { moved: Box::new(rescheduled()) },
        H::Rescheduled { .. } => H::RescheduleSet { settings: RescheduleSettings::default() },
        H::RescheduleSet { .. } => H::AuthorityRotation { step: RotationStep::Started },
        H::AuthorityRotation { .. } => H::BackupKey { step: BackupKeyStep::Shown },
        H::BackupKey { .. } => H::FileCreated { kind: CellFileKind::Secret, name },
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
        H::FileRemoved { kind: CellFileKind::Config, .. } => H::RegistryLogin {
            registry: RegistryHost::new("r.example").unwrap(),
            user: "ci".into(),
        },
        H::RegistryLogin { registry, .. } => H::RegistryLogout { registry: registry.clone() },
        H::RegistryLogout { .. } => {
            let service = replica.service;
            H::VolumesDeclared { service, paths: ["/data".to_owned()].into() }
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

fn rescheduled() -> RescheduledMove {
    RescheduledMove {
        replica: replica_id("shop/web/1"),
        src: node_id("ash"),
        dst: node_id("birch"),
        why: RescheduleReason::BetterScore,
        before: Some(Score { zone: 7_545, node: 1_230, headroom: 410, preferred: 200 }),
        after: Score { zone: 7_545, node: 1_845, headroom: 410, preferred: 200 },
        threshold: 610,
        src_before: Pressure::percent(50),
        src_after: Pressure::percent(40),
        dst_before: Pressure::percent(10),
        dst_after: Pressure::percent(20),
    }
}

#[test]
fn a_rescheduled_move_says_what_decided_it() {
    let better = rescheduled();
    let fill = RescheduledMove { why: RescheduleReason::Fill, ..rescheduled() };
    let no_room = RescheduledMove { why: RescheduleReason::NoRoom, before: None, ..rescheduled() };
    let shares = "reserved on ash 0.50 → 0.40, on birch 0.10 → 0.20";
    for (moved, said) in [
        (better, "(better_score): score 9385 → 10000, threshold 610"),
        (fill, "(fill): score 9385 → 10000"),
        (no_room, "(no_room): ash would be turned down for it, birch scores 10000"),
    ] {
        let expected = format!("shop-web-1 is rescheduled ash → birch {said}, {shares}");
        assert_eq!(AuditKind::Rescheduled { moved: Box::new(moved) }.to_string(), expected);
    }
}

fn skip(why: Skip, at: u64) -> AuditKind {
    let pressure = Pressure::from_millionths(900_000 + u32::try_from(at).unwrap());
    let (src, dominant) = (node_id("ash"), Dimension::Cpu);
    let skipped =
        Box::new(Skipped { src, dominant, pressure, why, nearest: None, refused: Vec::new() });
    AuditKind::RebalanceSkipped { skipped, times: RepeatCount { count: 1, last_at: Timestamp(at) } }
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
    let AuditKind::RebalanceSkipped { skipped, times } = &first.what else { panic!("{first:?}") };
    assert_eq!((first.at, times.last_at), (Timestamp(1), Timestamp(3)));
    assert_eq!(skipped.pressure.millionths(), 900_003);
}

#[test]
fn every_kind_is_in_the_list_of_words() {
    let words: Vec<&str> = all().iter().map(AuditKind::word).collect();
    assert_eq!(words, AuditKind::WORDS);
}
