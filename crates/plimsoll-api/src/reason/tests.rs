use plimsoll_kernel::condition::Startup;
use plimsoll_kernel::plan::StayReason;
use plimsoll_model::reason::{AbandonReason, UnplacedReason, WaitReason};
use plimsoll_model::rebalance::Skip;
use plimsoll_model::replica::MoveCause;
use plimsoll_model::spec::SpecHash;
use plimsoll_model::{Millis, NodeId, ObservedCode, ObservedState};

use super::*;

#[test]
fn a_word_is_written_and_read_as_it_is_printed() {
    for code in ReasonCode::ALL {
        let written = serde_json::to_string(code).unwrap();
        assert_eq!(written, format!("\"{code}\""));
        assert_eq!(serde_json::from_str::<ReasonCode>(&written).unwrap(), *code);
    }
}

#[test]
fn the_word_of_a_newer_node_is_unknown_and_its_text_is_kept() {
    let sent = r#"{"subject":"shop-web-1","word":"struck_by_lightning","text":"at 12:00"}"#;
    let reason: Reason = serde_json::from_str(sent).unwrap();
    assert_eq!(reason, Reason::new("shop-web-1", ReasonCode::Unknown, "at 12:00"));
}

#[test]
fn the_models_words_are_the_apis() {
    let same = |ours: ReasonCode, theirs: &str| assert_eq!(ours.word(), theirs);
    for why in [
        WaitReason::Stateful,
        WaitReason::MassLoss { down: 3, nodes: 4 },
        WaitReason::Stalled { spec: SpecHash([0; 32]) },
        WaitReason::NoPlace(UnplacedReason::NoNodes),
    ] {
        same((&why).into(), why.word());
    }
    for why in [
        StayReason::Settled,
        StayReason::Moving(Startup { node: NodeId::new("ash").unwrap(), observed: None }),
        StayReason::InGrace { left: Millis(1) },
        StayReason::NodeDown,
        StayReason::InTurn(MoveCause::Outdated),
        StayReason::Waiting(WaitReason::Stateful),
    ] {
        same((&why).into(), why.word());
    }
    for why in [
        AbandonReason::SuccessorFailed,
        AbandonReason::TimedOut,
        AbandonReason::DestinationLost,
        AbandonReason::Needless,
    ] {
        same((&why).into(), why.word());
    }
    for cause in [
        MoveCause::NodeLost,
        MoveCause::RuntimeLost,
        MoveCause::Misplaced,
        MoveCause::Outdated,
        MoveCause::Pressure,
        MoveCause::Reschedule,
        MoveCause::Preempted,
        MoveCause::Restart,
        MoveCause::Optimize,
    ] {
        same(cause.into(), cause.word());
    }
    for skip in [
        Skip::CooldownReplica,
        Skip::CooldownNode,
        Skip::ResourceLimits,
        Skip::AntiAffinity,
        Skip::DstCap,
        Skip::ReliefFloor,
        Skip::NoEligibleDst,
        Skip::NoCandidate,
        Skip::SlowedDown,
    ] {
        same(skip.into(), skip.word());
    }
    for edge in ObservedState::EDGES {
        same(edge.from.into(), edge.from.word());
    }
    let exited = ObservedCode::Exited { status: Some(1) };
    for code in [
        ObservedCode::OutOfMemory,
        ObservedCode::Vanished,
        ObservedCode::RuntimeUnavailable,
        ObservedCode::Completed,
        exited.clone(),
        ObservedCode::JobCompleted { attempts: 1 },
        ObservedCode::JobFailed { attempts: 2, last: Box::new(exited.clone()) },
        ObservedCode::RestartExhausted { tries: 3, last: Box::new(exited) },
        ObservedCode::Unhealthy { output: String::new() },
        ObservedCode::StartFailed { error: String::new() },
    ] {
        same((&code).into(), code.word());
    }
}

#[test]
fn advice_names_what_it_is_about() {
    let paused = Reason::new("shop/web", ReasonCode::Paused, "");
    assert_eq!(
        paused.advice().unwrap(),
        "`plimsoll rollout resume shop` continues, `plimsoll rollout abort shop` rolls back"
    );
    let exited = Reason::new("shop-web-2", ReasonCode::RecentFailures, "");
    assert_eq!(exited.advice().unwrap(), "`plimsoll logs shop-web-2` shows why it failed there");
}
