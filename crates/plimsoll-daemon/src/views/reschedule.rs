//! The background rescheduler and what automatic moves were worth, as people and programs read it.

use plimsoll_kernel::reschedule::{self, CycleSummary, FillPlan, Rescheduler};
use plimsoll_model::audit::AuditKind;
use plimsoll_model::reschedule::RescheduledMove;
use plimsoll_model::review::MovingLoop;
use plimsoll_model::{Pressure, ReplicaId, Score, State, Timestamp};

use super::Source;
use plimsoll_api::view::{
    FillStatus, LoopStatus, MoveReview, RescheduleCycle, RescheduleMove, RescheduleStatus,
    RescheduleVerdict, Time,
};

/// How many moves and reviews are told of.
const SHOWN: usize = 20;

/// Who does not lead knows of no cycles.
pub fn reschedule_status(source: &Source<'_>, led: Option<&Rescheduler>) -> RescheduleStatus {
    let Source { state, policy, here, .. } = source;
    let (settings, set) = (state.rescheduling(), state.rescheduling_set());
    let open = state.nodes().values().filter(|node| node.is_open()).count();
    let newest_first = || state.audit().events().rev();
    let moved = newest_first().filter_map(|event| match &event.what {
        AuditKind::Rescheduled { moved } => Some(one_move(moved, Some(event.at))),
        _ => None,
    });
    let cycles = led.into_iter().flat_map(|led| led.cycles().iter().rev());
    let offers = led.into_iter().flat_map(Rescheduler::last_offers);
    RescheduleStatus {
        is_paused: settings.is_paused,
        target_percent: settings.target.map(percent),
        set_by: set.map(|set| set.by.identity.to_string()),
        set_at: set.map(|set| Time(set.at)),
        moving: count(state.moving().len()),
        most_moves: count(policy.reschedule.moves_at_once(open)),
        cycles: cycles.map(cycle).collect(),
        offers: offers.map(|moved| one_move(moved, None)).collect(),
        moved: moved.take(SHOWN).collect(),
        loops: MovingLoop::ALL.map(|by| loop_status(source, by, here.now)).into(),
        reviews: reviews(state, |_| true).take(SHOWN).collect(),
    }
}

/// The reviews of one replica's moves, the newest first.
pub(super) fn reviews_of(state: &State, id: &ReplicaId) -> Vec<MoveReview> {
    reviews(state, move |replica| replica == id).take(SHOWN).collect()
}

fn reviews(
    state: &State,
    is_asked: impl Fn(&ReplicaId) -> bool,
) -> impl Iterator<Item = MoveReview> {
    state.audit().events().rev().filter_map(move |event| match &event.what {
        AuditKind::MoveReviewed { review } if is_asked(&review.replica) => {
            Some(MoveReview::of(review, Time(event.at)))
        }
        _ => None,
    })
}

pub(super) fn fill_status(plan: &FillPlan, now: Timestamp) -> FillStatus {
    FillStatus {
        has: plan.has,
        fair_share: plan.fair_share,
        losses: plan.losses,
        stage: plan.stage.word().to_owned(),
        next_at: plan.stage.next(now).map(Time),
        text: plan.to_string(),
    }
}

/// What the rescheduler says of one replica.
pub fn reschedule_verdict(verdict: &reschedule::RescheduleVerdict) -> RescheduleVerdict {
    let compared = verdict.compared.as_ref();
    RescheduleVerdict {
        stays: verdict.stays.as_ref().map(|stays| stays.word().to_owned()),
        best: compared.map(|it| it.best.to_string()),
        score_best: compared.map(|it| it.best_score.total()),
        score_current: compared.map(|it| it.current_score.total()),
        threshold: compared.map(|it| it.threshold),
        text: verdict.to_string(),
    }
}

fn cycle(summary: &CycleSummary) -> RescheduleCycle {
    let stayed = summary.stayed.iter();
    RescheduleCycle {
        at: Time(summary.at),
        candidates: summary.candidates as u64,
        compared: summary.compared as u64,
        offers: summary.offers as u64,
        withheld: summary.withheld.as_ref().map(|why| why.word().to_owned()),
        why: summary.withheld.as_ref().map(ToString::to_string),
        stayed: stayed.map(|(word, count)| ((*word).to_owned(), *count as u64)).collect(),
    }
}

fn one_move(moved: &RescheduledMove, at: Option<Timestamp>) -> RescheduleMove {
    RescheduleMove {
        replica: moved.replica.to_string(),
        src: moved.src.to_string(),
        dst: moved.dst.to_string(),
        reason: moved.why.word().to_owned(),
        score_before: moved.before.map(Score::total),
        score_after: moved.after.total(),
        threshold: moved.threshold,
        at: at.map(Time),
        text: moved.to_string(),
    }
}

fn loop_status(source: &Source<'_>, by: MovingLoop, now: Timestamp) -> LoopStatus {
    let record = source.state.reviews().of(by);
    let pending = source.state.reviews().pending().values();
    LoopStatus {
        name: by.word().to_owned(),
        slowed: 1 << record.doublings(now),
        interval_ms: record.interval(source.policy.sample_interval, now).0,
        moved_at: record.moved_at.map(Time),
        pending: pending.filter(|pending| pending.predicted.by() == by).count() as u64,
        held: record.held,
        failed: record.failed,
        not_judged: record.not_judged,
        recent: record.recent.clone(),
    }
}

fn percent(share: Pressure) -> u32 {
    share.millionths() / 10_000
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
