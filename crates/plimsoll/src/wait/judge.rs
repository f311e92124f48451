//! When to stop waiting for a deployment: it is steady, it will not get there, or time has run out.

use plimsoll_api::view::{Deployment, Progress, Reason, ReasonCode};
use plimsoll_model::Millis;

use crate::replica_line::ready;

/// How long a deployment with nothing else under way may be stuck before that is believed. Pulls and placements are
/// tried again by themselves; three tries at an image fit into this.
const PATIENCE: Millis = Millis::seconds(10);

/// Reasons that nothing but another apply ends.
const FINAL: [ReasonCode; 4] =
    [ReasonCode::RestartExhausted, ReasonCode::Stalled, ReasonCode::RolledBack, ReasonCode::Paused];

#[derive(Debug, Clone, Copy)]
pub(super) struct Goal {
    pub(super) revision: Option<u64>,
    pub(super) timeout: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WaitVerdict {
    Steady,
    Waiting,
    /// It will not get there by itself.
    Stuck(Vec<Reason>),
    /// It may still get there.
    Late(Vec<Reason>),
    /// Someone asked for something else meanwhile.
    Superseded {
        by: u64,
    },
    /// Someone deleted it meanwhile.
    Gone,
}

/// What has been seen so far.
#[derive(Debug)]
pub(super) struct Judge {
    goal: Goal,
    stuck: Option<Stuck>,
}

/// Since when these were the reasons, and how many replicas were ready then.
#[derive(Debug)]
struct Stuck {
    /// What each is about, and its word.
    reasons: Vec<(String, ReasonCode)>,
    ready: u32,
    since: Millis,
}

impl Judge {
    pub(super) fn new(goal: Goal) -> Self {
        Self { goal, stuck: None }
    }

    /// Nothing can be seen just now; only time passes.
    pub(super) fn blind(&self, at: Millis) -> WaitVerdict {
        if at >= self.goal.timeout { WaitVerdict::Late(Vec::new()) } else { WaitVerdict::Waiting }
    }

    /// A look at the deployment so long after the beginning.
    pub(super) fn look(&mut self, deployment: Option<&Deployment>, at: Millis) -> WaitVerdict {
        let Some(deployment) = deployment.filter(|deployment| !deployment.is_deleted) else {
            return WaitVerdict::Gone;
        };
        if let Some(revision) = self.goal.revision
            && deployment.revision > revision
        {
            return WaitVerdict::Superseded { by: deployment.revision };
        }
        let is_late = at >= self.goal.timeout;
        match &deployment.progress {
            Progress::Steady => WaitVerdict::Steady,
            Progress::Stuck { why } if self.is_believed(deployment, why, at) => {
                WaitVerdict::Stuck(why.clone())
            }
            Progress::Stuck { why: reasons } | Progress::Working { doing: reasons } if is_late => {
                WaitVerdict::Late(reasons.clone())
            }
            // A try that is under way does not make one forget the tries before it.
            Progress::Stuck { .. } | Progress::Working { .. } => WaitVerdict::Waiting,
        }
    }

    fn is_believed(&mut self, deployment: &Deployment, why: &[Reason], at: Millis) -> bool {
        if why.iter().any(|reason| FINAL.contains(&reason.word)) {
            return true;
        }
        let reasons: Vec<(String, ReasonCode)> =
            why.iter().map(|reason| (reason.subject.clone(), reason.word)).collect();
        let (ready, _) = ready(deployment);
        match &self.stuck {
            Some(stuck) if stuck.reasons == reasons && stuck.ready == ready => {
                at.0.saturating_sub(stuck.since.0) >= PATIENCE.0
            }
            _ => {
                self.stuck = Some(Stuck { reasons, ready, since: at });
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{deployment, reason, with_progress};

    fn stuck(word: ReasonCode) -> Progress {
        Progress::Stuck { why: vec![reason("shop-web-1", word, "")] }
    }

    fn working() -> Progress {
        Progress::Working { doing: Vec::new() }
    }

    /// The verdict after looks at these seconds.
    fn after(looks: &[(u64, Progress)]) -> WaitVerdict {
        let goal = Goal { revision: Some(3), timeout: Millis::minutes(1) };
        let mut judge = Judge::new(goal);
        let mut verdict = WaitVerdict::Waiting;
        for (second, progress) in looks {
            let deployment = with_progress(deployment("shop"), progress.clone());
            verdict = judge.look(Some(&deployment), Millis::seconds(*second));
        }
        verdict
    }

    #[test]
    fn stuck_is_believed_when_it_lasts() {
        let pull = || stuck(ReasonCode::ImagePullFailed);
        let is_stuck = |looks: &[(u64, Progress)]| matches!(after(looks), WaitVerdict::Stuck(_));
        for (case, looks, believed) in [
            ("at first sight", vec![(0, pull())], false),
            ("for a while", vec![(0, pull()), (9, pull())], false),
            ("long enough", vec![(0, pull()), (10, pull())], true),
            ("a try in between", vec![(0, pull()), (5, working()), (10, pull())], true),
            (
                "another reason",
                vec![(0, pull()), (9, stuck(ReasonCode::NoNodes)), (10, pull())],
                false,
            ),
            ("it gave up", vec![(0, stuck(ReasonCode::RestartExhausted))], true),
            ("the rollout was undone", vec![(0, stuck(ReasonCode::Stalled))], true),
            ("it only works", vec![(0, working()), (59, working())], false),
        ] {
            assert_eq!(is_stuck(&looks), believed, "{case}");
        }
    }

    #[test]
    fn waiting_has_an_end() {
        assert_eq!(after(&[(60, working())]), WaitVerdict::Late(Vec::new()));
        assert_eq!(after(&[(60, Progress::Steady)]), WaitVerdict::Steady);
        let goal = Goal { revision: Some(3), timeout: Millis::minutes(1) };
        let mut judge = Judge::new(goal);
        assert_eq!(judge.look(None, Millis(0)), WaitVerdict::Gone);
        let mut later = deployment("shop");
        later.revision = 4;
        assert_eq!(judge.look(Some(&later), Millis(0)), WaitVerdict::Superseded { by: 4 });
        assert_eq!(judge.blind(Millis::seconds(59)), WaitVerdict::Waiting);
        assert_eq!(judge.blind(Millis::seconds(60)), WaitVerdict::Late(Vec::new()));
    }
}
