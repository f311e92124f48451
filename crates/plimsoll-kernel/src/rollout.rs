//! What comes next in a rollout: another step, a pause, the way back, or the end. Which replica a step is about is settled
//! in [`reconcile`](crate::reconcile), how it is carried out in [`moves`](crate::moves).

use plimsoll_model::rollout::{RolloutHalt, RolloutPhase};
use plimsoll_model::spec::OnFailure;
use plimsoll_model::{ObservedState, Replica, Rollout, ServiceSpec, Slot, Timestamp};

use crate::moves;
use crate::policy::Policy;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RolloutDecision {
    /// Steps may begin.
    Go,
    /// None may, until then where there is a time.
    Hold(Option<Timestamp>),
    /// These took too long; their steps have failed.
    Late(Vec<Slot>),
    Pause(RolloutHalt),
    Abort(RolloutHalt),
    End,
}

/// What a verdict rests on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RolloutContext<'a> {
    /// What should run now: the new spec, or the old one while a rollout is taken back.
    pub(crate) spec: &'a ServiceSpec,
    pub(crate) policy: &'a Policy,
    pub(crate) now: Timestamp,
}

pub(crate) fn judge<'r>(
    rollout: &Rollout,
    given: RolloutContext<'_>,
    replicas: impl Iterator<Item = (&'r Slot, &'r Replica)> + Clone,
) -> RolloutDecision {
    match rollout.phase {
        RolloutPhase::Done | RolloutPhase::Undone => RolloutDecision::Go,
        RolloutPhase::Paused => RolloutDecision::Hold(None),
        RolloutPhase::Undoing => {
            let is_left =
                |replica: &Replica| !is_current(replica, given.spec) && !is_stalled(replica);
            let mut replicas = replicas;
            if replicas.any(|(_, replica)| is_left(replica)) {
                RolloutDecision::Go
            } else {
                RolloutDecision::End
            }
        }
        RolloutPhase::Rolling => rolling(rollout, given, replicas),
    }
}

fn rolling<'r>(
    rollout: &Rollout,
    given: RolloutContext<'_>,
    replicas: impl Iterator<Item = (&'r Slot, &'r Replica)> + Clone,
) -> RolloutDecision {
    if let Some(verdict) = failed_too_often(rollout, given, replicas.clone().count()) {
        return verdict;
    }
    let tried = replicas.filter(|(slot, _)| !rollout.failed.contains_key(*slot));
    let (mut late, mut look_again) = (Vec::new(), None::<Timestamp>);
    let (mut is_left, mut last_step) = (false, None);
    for (slot, replica) in tried {
        if !is_current(replica, given.spec) {
            is_left = true;
            continue;
        }
        let Some(assignment) = &replica.assignment else { continue };
        if let Some(seen) = replica.observation(assignment).filter(|_| replica.is_running()) {
            last_step = last_step.max(Some(seen.at));
            continue;
        }
        // Its node cannot tell how it is, so its step has neither failed nor come to an end.
        let seen = replica.observation(assignment).map(|seen| seen.state);
        if seen == Some(ObservedState::Unknown) {
            is_left = true;
            continue;
        }
        // It gave up its old copy beforehand: nobody but us notices that it does not come.
        let limit = Some(moves::step_limit(given.spec, given.policy));
        let deadline = moves::deadline(replica, assignment, limit, given.policy);
        if deadline.is_some_and(|deadline| given.now >= deadline) {
            late.push(slot.clone());
        }
        look_again = [look_again, deadline].into_iter().flatten().min();
    }
    let update = &given.spec.update;
    let pause = if is_left { update.delay } else { update.monitor };
    let rested = last_step.map_or(given.now, |at| at.plus(pause));
    match (late.is_empty(), is_left) {
        (false, _) => RolloutDecision::Late(late),
        (true, true) if given.now < rested => RolloutDecision::Hold(Some(rested)),
        (true, true) => RolloutDecision::Go,
        (true, false) if look_again.is_some() => RolloutDecision::Hold(look_again),
        (true, false) if given.now < rested => RolloutDecision::Hold(Some(rested)),
        (true, false) => RolloutDecision::End,
    }
}

fn failed_too_often(
    rollout: &Rollout,
    given: RolloutContext<'_>,
    of: usize,
) -> Option<RolloutDecision> {
    let (failed, of) = (rollout.failed.len() as u64, of.max(1) as u64);
    if failed * 1_000_000 <= u64::from(given.spec.update.max_failure_millionths) * of {
        return None;
    }
    let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let halt = RolloutHalt::Failures { failed: count(failed), of: count(of) };
    match given.spec.update.on_failure {
        OnFailure::Continue => None,
        OnFailure::Rollback if rollout.from.is_some() => Some(RolloutDecision::Abort(halt)),
        // Without anything to return to, what is left is to leave it alone.
        OnFailure::Rollback | OnFailure::Pause => Some(RolloutDecision::Pause(halt)),
    }
}

/// How many replicas may change at once; 0 in a file says all of them.
pub(crate) fn width(spec: &ServiceSpec) -> usize {
    match spec.update.parallelism {
        0 => usize::MAX,
        some => some as usize,
    }
}

fn is_current(replica: &Replica, spec: &ServiceSpec) -> bool {
    let is_on_it = replica.assignment.as_ref().is_some_and(|at| at.spec == spec.hash);
    is_on_it && replica.successor.is_none()
}

fn is_stalled(replica: &Replica) -> bool {
    matches!(replica.waiting, Some(plimsoll_model::reason::WaitReason::Stalled { .. }))
}

#[cfg(test)]
mod tests;
