use super::*;
use crate::CellId;
use crate::fleet::Zone as MachineZone;
use crate::fleet::{Ack, InstructionId, MachineId, MachineType, Pool, Profile, ShardId};
use crate::fleet::{TransferEnd, TransferId, TransferKind};
use crate::machines::{MachineEvent, MachineState};
use crate::preemption::Victim;
use crate::pressure::Pressure;
use crate::rebalance::{Dimension, Skip};
use crate::reschedule::{RescheduleReason, Score};
use crate::review::{MovingLoop, ReviewResult};
use crate::schedule::MissReason;
use crate::testkit::{node_id, replica_id};
use crate::units::{Generation, Resources};

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
        | H::VolumeHeld { .. }
        | H::VolumeHoldDone { .. }
        | H::VolumeHoldFailed { .. }
        | H::CommandRun { .. }
        | H::CommandServed { .. }
        | H::BackupTaken
        | H::Survived { .. }
        | H::LevelRaised { .. }
        | H::RebalanceMoved { .. }
        | H::RebalanceSkipped { .. }
        | H::Rescheduled { .. }
        | H::RescheduleSet { .. }
        | H::MoveReviewed { .. }
        | H::PaceChanged { .. }
        | H::PreemptionStarted { .. }
        | H::Evicted { .. }
        | H::PreemptionWithdrawn { .. }
        | H::AuthorityRotation { .. }
        | H::BackupKey { .. }
        | H::FileCreated { .. }
        | H::FileRotated { .. }
        | H::FileRemoved { .. }
        | H::RegistryLogin { .. }
        | H::RegistryLogout { .. }
        | H::VolumesDeclared { .. }
        | H::JobCompleted { .. }
        | H::JobRerun { .. }
        | H::Optimize { .. }
        | H::RunStarted { .. }
        | H::SlotsMissed { .. }
        | H::Machine { .. }
        | H::Fleet { .. }) => after_volumes(last),
    } {
        all.push(next);
    }
    all
}

/// The rest of them.
#[expect(clippy::too_many_lines, reason = "an arm for each kind")]
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
        H::VolumeMoveFailed { .. } => held(HoldPurpose::Backup),
        H::VolumeHeld { purpose: HoldPurpose::Backup, .. } => held(HoldPurpose::Restore),
        H::VolumeHeld { .. } => hold_done(HoldPurpose::LiveBackup),
        H::VolumeHoldDone { purpose: HoldPurpose::Restore, .. } => hold_failed(HoldPurpose::Backup),
        H::VolumeHoldDone { .. } => hold_done(HoldPurpose::Restore),
        H::VolumeHoldFailed { purpose: HoldPurpose::Restore, .. } => H::CommandRun { replica },
        H::VolumeHoldFailed { .. } => hold_failed(HoldPurpose::Restore),
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
        H::RescheduleSet { .. } => H::MoveReviewed { review: Box::new(reviewed()) },
        H::MoveReviewed { .. } => H::PaceChanged { change: slowed() },
        H::PaceChanged { .. } => H::PreemptionStarted { node, preemption: Box::new(preemption()) },
        H::PreemptionStarted { .. } => H::Evicted { replica, by: Box::new(preempted()) },
        H::Evicted { .. } => {
            H::PreemptionWithdrawn { by: replica, node, why: WithdrawReason::NotNeeded }
        }
        H::PreemptionWithdrawn { .. } => H::AuthorityRotation { step: RotationStep::Started },
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
        H::VolumesDeclared { .. } => H::JobCompleted { replica, node: node_id("ash"), attempts: 2 },
        H::JobCompleted { .. } => {
            H::JobRerun { replica, src: node_id("ash"), dst: node_id("birch") }
        }
        H::JobRerun { .. } => H::Optimize { step: OptimizeStep::Started { moves: 2, gain: 615 } },
        H::Optimize { .. } => {
            H::RunStarted { service: replica.service, run: 7, slot: Some(Timestamp(10_800_000)) }
        }
        H::RunStarted { service, .. } => H::SlotsMissed {
            service: service.clone(),
            missed: MissedSlots {
                first: Timestamp(10_800_000),
                last: Timestamp(97_200_000),
                count: 2,
                why: MissReason::StillRunning { run: 7 },
            },
        },
        H::SlotsMissed { .. } => H::Machine {
            event: MachineEvent::Stepped {
                machine: MachineId::new("m1").unwrap(),
                from: MachineState::Idle,
                to: MachineState::Configuring,
            },
        },
        H::Machine { event: MachineEvent::Stepped { .. } } => {
            let (transfer, id) = (TransferId(7), InstructionId(8));
            H::Machine { event: MachineEvent::Finished { transfer, id, ack: Ack::Done } }
        }
        H::Machine { event: MachineEvent::Finished { .. } } => {
            H::Machine { event: MachineEvent::Paused { is_paused: true } }
        }
        H::Machine { event: MachineEvent::Paused { .. } } => {
            H::Fleet { event: Box::new(FleetEvent::Began) }
        }
        H::Fleet { event } => H::Fleet { event: Box::new(after_fleet(event)?) },
        _ => return None,
    })
}

fn after_fleet(last: &FleetEvent) -> Option<FleetEvent> {
    use FleetEvent as E;
    let (transfer, count) = (TransferId(7), 2);
    let shard = || ShardId::new("north").unwrap();
    let pool =
        Pool { machine_type: MachineType::new("m").unwrap(), zone: MachineZone::new("z").unwrap() };
    let coordinator = CellId::new("hub").unwrap();
    Some(match last {
        E::Began => E::TokenCreated { shard: shard(), expires_at: Timestamp(0) },
        E::TokenCreated { .. } => E::Enrolled { shard: shard() },
        E::Enrolled { .. } => E::Expelled { shard: shard() },
        E::Expelled { .. } => E::Paused { is_paused: true },
        E::Paused { is_paused: true } => E::Paused { is_paused: false },
        E::Paused { .. } => E::QuotaSet { pool, shard: shard(), slice: 3 },
        E::QuotaSet { .. } => E::TransferStarted {
            transfer,
            kind: TransferKind::Idle,
            donor: shard(),
            recipient: ShardId::new("south").unwrap(),
            pool,
            count,
            profile: Profile::new("web").unwrap(),
        },
        E::TransferStarted { .. } => {
            let named = [MachineId::new("m1").unwrap()].into();
            E::MachinesMoved { transfer, recipient: shard(), count: 2, named }
        }
        E::MachinesMoved { .. } => E::TransferEnded { transfer, end: TransferEnd::Done },
        E::TransferEnded { .. } => E::Joined { coordinator, shard: shard() },
        E::Joined { .. } => E::Left { coordinator, shard: shard() },
        E::Left { .. } => return None,
    })
}

#[test]
fn a_transfer_has_its_number_in_every_event() {
    let said: Vec<String> = all()
        .iter()
        .filter(|it| FleetEvent::WORDS[7..10].contains(&it.word()))
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        said,
        [
            "t7: 2 idle m in z, north → south, for web",
            "t7: 2 machines belong to north: m1 and 1 more",
            "t7: done",
        ]
    );
}

fn shop_db() -> (DeploymentName, String) {
    (DeploymentName::new("shop").unwrap(), "shop_db".to_owned())
}

fn held(purpose: HoldPurpose) -> AuditKind {
    let (deployment, volume) = shop_db();
    AuditKind::VolumeHeld { deployment, volume, node: node_id("ash"), purpose }
}

fn hold_done(purpose: HoldPurpose) -> AuditKind {
    let (deployment, volume) = shop_db();
    AuditKind::VolumeHoldDone { deployment, volume, node: node_id("ash"), purpose }
}

fn hold_failed(purpose: HoldPurpose) -> AuditKind {
    let (deployment, volume) = shop_db();
    let why = VolumeHoldFailure::Lapsed;
    AuditKind::VolumeHoldFailed { deployment, volume, purpose, why }
}

fn certificate(is_issued: bool) -> AuditKind {
    let (host, text) = ("shop.example".to_owned(), "Pebble".to_owned());
    if is_issued {
        AuditKind::CertificateIssued { host, issuer: text, expires_at: Timestamp(0) }
    } else {
        AuditKind::CertificateFailed { host, why: text }
    }
}

fn preemption() -> Preemption {
    let victim =
        Victim { generation: Generation(7), priority: 0, penalty: 10, until: Timestamp(600_000) };
    Preemption {
        by: replica_id("shop/web/2"),
        priority: 100,
        request: Resources::NONE,
        ports: Vec::new(),
        victims: [(replica_id("shop/batch/1"), victim)].into(),
        began: Timestamp(0),
    }
}

fn preempted() -> PreemptedBy {
    let by = replica_id("shop/web/2");
    PreemptedBy { by, node: node_id("ash"), priority: 100, own: 0 }
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

fn reviewed() -> MoveReview {
    MoveReview {
        replica: replica_id("shop/web/1"),
        src: node_id("ash"),
        dst: node_id("birch"),
        began: Timestamp(0),
        by: MovingLoop::Rebalancer,
        predicted: 240_000,
        result: ReviewResult::Realised { gain: 200_000 },
    }
}

fn slowed() -> PaceChange {
    let by = MovingLoop::Rebalancer;
    PaceChange { by, doublings: 1, failed: 5, judged: 8, is_slower: true }
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

#[test]
fn a_loop_that_changes_its_pace_says_why() {
    assert_eq!(
        AuditKind::PaceChanged { change: slowed() }.to_string(),
        "the rebalancer slows down to 1 cycle in 2: 5 of its last 8 moves brought less than half of what was predicted"
    );
}
