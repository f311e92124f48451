//! Services on a schedule: which slots are due, what is started for them and what is missed. What a run needs besides is
//! settled as for any service: its replicas are placed as they are missing.

use plimsoll_model::schedule::{
    JobRun, MAX_LATENESS, MissReason, MissedSlots, Schedule, ScheduleRow,
};
use plimsoll_model::state::Service;
use plimsoll_model::{Change, Guarded, ServiceKey, Timestamp};

use super::Pass;

/// How many slots are counted at once that nobody decided on: a week of every minute. What is left is counted next.
const MAX_COUNTED: u32 = 10_080;

/// What is decided on slots.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct DueSlots {
    missed: Option<MissedSlots>,
    start: Option<Timestamp>,
    /// When the next one is due.
    next: Option<Timestamp>,
}

impl Pass<'_> {
    /// Decides the slots that are due. Whether a run starts: then the rest is settled by the next pass, which sees it.
    pub(super) fn slots(
        &mut self,
        key: &ServiceKey,
        service: &Service,
        schedule: &Schedule,
    ) -> bool {
        let Some(row) = service.row.schedule.as_deref() else { return false };
        let due = judge(schedule, row, service.open_run(), self.now);
        if let Some(missed) = due.missed {
            let change = Change::MissSlots { service: key.clone(), missed };
            self.decision.batch.push(change.free());
        }
        if let Some(slot) = due.start {
            let change = Change::StartRun { service: key.clone(), slot: Some(slot) };
            self.decision.batch.push(change.free());
        }
        let next = self.decision.next_slot.into_iter().chain(due.next).min();
        self.decision.next_slot = next;
        due.start.is_some()
    }
}

/// Whether it is about when services run, and not about where. Nobody plans that ahead.
pub(crate) fn is_of_schedule(guarded: &Guarded) -> bool {
    matches!(guarded.change, Change::StartRun { .. } | Change::MissSlots { .. })
}

/// Of the slots that are due, the latest is started, unless a run is not over or it is too late for it; the others are missed.
fn judge(
    schedule: &Schedule,
    row: &ScheduleRow,
    open: Option<&JobRun>,
    now: Timestamp,
) -> DueSlots {
    let mut due = DueSlots { next: schedule.next(row.decided), ..DueSlots::default() };
    let mut missed: Option<MissedSlots> = None;
    let mut latest = None;
    while let Some(slot) = due.next.filter(|slot| *slot <= now) {
        if let Some(last) = latest.replace(slot) {
            missed = Some(one_more(missed, last, MissReason::TooLate));
        }
        if missed.is_some_and(|missed| missed.count >= MAX_COUNTED) {
            // The latest of these is decided with those that follow.
            due.next = Some(now);
            due.missed = missed;
            return due;
        }
        due.next = schedule.next(slot);
    }
    let Some(latest) = latest else { return due };
    let why = match open {
        Some(run) => Some(MissReason::StillRunning { run: run.number }),
        None => (now.since(latest) > MAX_LATENESS).then_some(MissReason::TooLate),
    };
    match why {
        Some(why) => missed = Some(one_more(missed, latest, why)),
        None => due.start = Some(latest),
    }
    due.missed = missed;
    due
}

/// Several at once are missed for one reason: that of the last.
fn one_more(missed: Option<MissedSlots>, slot: Timestamp, why: MissReason) -> MissedSlots {
    let first = missed.map_or(slot, |missed| missed.first);
    let count = missed.map_or(0, |missed| missed.count) + 1;
    MissedSlots { first, last: slot, count, why }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use plimsoll_model::schedule::{Cron, KEPT_RUNS, RunState};
    use plimsoll_model::spec::{Lifecycle, Retries};
    use plimsoll_model::testkit::{Cell, cell, cpus, global, node_id, service_key, spread};
    use plimsoll_model::{
        Millis, Observation, ObservedCode, ObservedState, Refusal, ReplicaId, ServiceSpec, Writer,
    };

    use super::*;
    use crate::policy::Policy;
    use crate::progress::{DeploymentProgress, NoReports, progress};
    use crate::testkit::{Passes, decide};

    const DAY: Millis = Millis::minutes(24 * 60);

    fn schedule(cron: &str) -> Schedule {
        Schedule::new(Cron::parse(cron).unwrap(), None)
    }

    fn nightly(mut spec: ServiceSpec) -> ServiceSpec {
        spec.lifecycle = Lifecycle::Job(Retries::NEVER);
        spec.schedule = Some(schedule("0 3 * * *"));
        spec
    }

    fn mail() -> ServiceKey {
        service_key("shop/mail")
    }

    /// Three nodes, at midnight of some day.
    fn three() -> Cell {
        let mut cell = cell().node("ash", cpus(4)).node("birch", cpus(4)).node("cedar", cpus(4));
        cell.now = Timestamp(20_000 * DAY.0);
        cell
    }

    fn nightly_cell(spec: ServiceSpec) -> Cell {
        three().deploy("shop", [("mail", nightly(spec))]).settle()
    }

    fn hours(hours: u64) -> Millis {
        Millis::minutes(60 * hours)
    }

    fn service(cell: &Cell) -> &Service {
        cell.state.service(&mail()).unwrap()
    }

    fn runs(cell: &Cell) -> Vec<(u64, RunState)> {
        let service = service(cell);
        let row = service.row.schedule.as_ref().unwrap();
        row.runs.iter().map(|run| (run.number, service.run_state(run))).collect()
    }

    fn said(cell: &Cell, word: &str) -> Vec<String> {
        let events = cell.state.audit().events().filter(|event| event.what.word() == word);
        events.map(|event| event.what.to_string()).collect()
    }

    /// Everything of the open run ends so.
    fn end(mut cell: Cell, state: ObservedState, code: &ObservedCode) -> Cell {
        let open = service(&cell).open_run().copied().unwrap();
        let of_run = service(&cell).replicas.iter().filter(|(_, it)| it.run == Some(open.number));
        let ids: Vec<(ReplicaId, _)> = of_run
            .map(|(slot, it)| {
                let generation = it.assignment.as_ref().unwrap().generation;
                (ReplicaId::new(mail(), slot.clone()), generation)
            })
            .collect();
        for (replica, generation) in ids {
            let (code, at) = (Some(code.clone()), cell.now);
            let observation = Observation { state, code, at };
            cell.change(Writer::Agent, Change::Observe { replica, generation, observation });
        }
        cell
    }

    fn complete(cell: Cell) -> Cell {
        end(cell, ObservedState::Completed, &ObservedCode::JobCompleted { attempts: 1 })
    }

    fn fail(cell: Cell) -> Cell {
        let last = Box::new(ObservedCode::Exited { status: Some(1) });
        end(cell, ObservedState::Failed, &ObservedCode::JobFailed { attempts: 1, last })
    }

    fn stands(cell: &Cell) -> DeploymentProgress {
        let services = cell.state.services().iter();
        progress(&cell.state, &Policy::default(), services, &NoReports, cell.now)
    }

    #[test]
    fn a_job_on_a_schedule_runs_at_its_slots_and_not_when_it_is_applied() {
        let cell = nightly_cell(spread(2));
        assert_eq!(cell.placed("shop/mail").len(), 0);
        assert_eq!(stands(&cell), DeploymentProgress::Steady, "there is nothing to do before");
        assert_eq!(decide(&cell).next_slot, Some(Timestamp(20_000 * DAY.0 + hours(3).0)));
        let cell = cell.later(hours(3)).settle();
        assert_eq!(cell.placed("shop/mail").len(), 2, "both copies");
        assert_eq!(runs(&cell), [(1, RunState::Open)]);
        let cell = complete(cell).settle();
        assert_eq!(runs(&cell), [(1, RunState::Completed)]);
        assert_eq!(stands(&cell), DeploymentProgress::Steady);
        let cell = cell.later(DAY).settle();
        assert_eq!(runs(&cell), [(1, RunState::Completed), (2, RunState::Open)]);
        assert_eq!(
            said(&cell, "run_started"),
            [
                "run 1 of shop/mail started, due at 2024-10-04 03:00 UTC",
                "run 2 of shop/mail started, due at 2024-10-05 03:00 UTC"
            ]
        );
    }

    #[test]
    fn a_slot_is_missed_while_the_run_before_it_is_not_over() {
        let cell = nightly_cell(spread(1)).later(hours(3)).settle().later(DAY).settle();
        assert_eq!(runs(&cell), [(1, RunState::Open)], "never two at once");
        assert_eq!(
            said(&cell, "slots_missed"),
            ["shop/mail missed its run at 2024-10-05 03:00 UTC: run 1 was not over"]
        );
        let mut cell = complete(cell).settle();
        assert_eq!(runs(&cell).len(), 1, "what was missed is not made up for");
        let again = Change::StartRun { service: mail(), slot: Some(cell.now) };
        let decided = cell.apply(Writer::Scheduler, vec![again.free()]).unwrap_err().reason;
        assert!(matches!(decided, Refusal::SlotDecided { .. }), "{decided}: whoever decides it");
    }

    #[test]
    fn slots_that_nobody_led_at_are_stated_and_the_latest_is_made_up_for_within_an_hour() {
        let away = nightly_cell(spread(1));
        let cell = away.clone().later(Millis(hours(3).0 + 2 * DAY.0)).settle();
        assert_eq!(runs(&cell), [(1, RunState::Open)]);
        assert_eq!(
            said(&cell, "slots_missed"),
            ["shop/mail missed 2 runs from 2024-10-04 03:00 UTC to 2024-10-05 03:00 UTC: \
              no leader started it in time"]
        );
        let cell = away.later(hours(5)).settle();
        assert_eq!((runs(&cell), said(&cell, "slots_missed").len()), (vec![], 1), "too late");
    }

    #[test]
    fn a_month_without_a_leader_is_counted_in_parts() {
        let mut spec = nightly(spread(1));
        spec.schedule = Some(schedule("* * * * *"));
        let cell = three().deploy("shop", [("mail", spec)]).settle().later(Millis(30 * DAY.0));
        let cell = cell.settle();
        let events = cell.state.audit().events();
        let missed: u32 = events
            .filter_map(|event| match &event.what {
                plimsoll_model::AuditKind::SlotsMissed { missed, .. } => Some(missed.count),
                _ => None,
            })
            .sum();
        assert_eq!((missed, runs(&cell)), (30 * 24 * 60 - 1, vec![(1, RunState::Open)]));
    }

    #[test]
    fn the_last_runs_are_kept_and_hold_no_room_even_where_they_failed() {
        let mut cell = nightly_cell(spread(1).reserve(3_000, 64).host_port(80)).later(hours(3));
        for round in 0..2 * KEPT_RUNS {
            cell = cell.settle();
            cell = if round % 2 == 0 { fail(cell) } else { complete(cell) };
            cell = cell.settle();
            assert_eq!(stands(&cell), DeploymentProgress::Steady, "a run that failed is over");
            cell = cell.later(DAY);
        }
        let kept: Vec<u64> = runs(&cell).into_iter().map(|(run, _)| run).collect();
        assert_eq!(kept, [6, 7, 8, 9, 10]);
        assert_eq!(service(&cell).replicas.len(), KEPT_RUNS, "their logs with them");
        for node in ["ash", "birch", "cedar"] {
            let load = cell.state.load(&node_id(node));
            assert_eq!(load.map_or(0, |load| load.reserved.cpu.0), 0, "{node}");
        }
    }

    #[test]
    fn a_run_goes_on_with_its_spec_when_another_is_applied_and_the_next_has_the_new_one() {
        let cell = nightly_cell(spread(1)).later(hours(3)).settle();
        let first = service(&cell).replicas.values().next().unwrap().assignment.clone();
        let cell = cell.deploy("shop", [("mail", nightly(spread(1).image("app:2")))]).settle();
        let after = service(&cell).replicas.values().next().unwrap().assignment.clone();
        assert_eq!(after, first, "it is not stopped");
        let cell = complete(cell).settle().deploy("shop", [("mail", nightly(spread(1)))]).settle();
        let cell = cell.deploy("shop", [("mail", nightly(spread(1).image("app:3")))]).settle();
        assert_eq!(runs(&cell), [(1, RunState::Completed)], "an apply runs nothing");
        let cell = cell.later(DAY).settle();
        let specs: BTreeSet<_> = service(&cell)
            .replicas
            .values()
            .map(|it| it.assignment.as_ref().unwrap().spec)
            .collect();
        assert_eq!((specs.len(), runs(&cell).len()), (2, 2));
    }

    #[test]
    fn a_run_whose_node_is_lost_runs_again_and_nothing_of_runs_that_are_over_does() {
        let cell = complete(nightly_cell(spread(1)).later(hours(3)).settle());
        let over = cell.placed("shop/mail");
        let cell = cell.settle().later(DAY).settle();
        let lost = service(&cell).replicas.values().last().unwrap().assignment.clone().unwrap();
        let down = lost.node.to_string();
        let cell = cell.down(&down).later(hours(2)).settle();
        let run = service(&cell).replicas.values().last().unwrap();
        assert_ne!(run.assignment.as_ref().unwrap().node, lost.node);
        assert_eq!(said(&cell, "job_rerun").len(), 1);
        assert_eq!(cell.placed("shop/mail")[..1], over[..1]);
        assert_eq!(runs(&cell), [(1, RunState::Completed), (2, RunState::Open)]);
    }

    #[test]
    fn an_operator_can_ask_for_a_run_that_counts_for_no_slot() {
        let mut cell = nightly_cell(spread(1));
        let ask = Change::StartRun { service: mail(), slot: None };
        cell.change(Writer::Operator, ask.clone());
        let mut cell = cell.settle();
        let refused = cell.apply(Writer::Operator, vec![ask.free()]).unwrap_err().reason;
        assert_eq!(refused.to_string(), "run 1 of shop/mail is not over");
        let cell = complete(cell).later(hours(3)).settle();
        assert_eq!(runs(&cell), [(1, RunState::Completed), (2, RunState::Open)]);
    }

    #[test]
    fn a_service_that_gets_a_schedule_ends_and_one_that_loses_it_runs() {
        let cell = three().deploy("shop", [("mail", spread(2))]).settle();
        let cell = cell.deploy("shop", [("mail", nightly(spread(2)))]).settle();
        assert_eq!((cell.placed("shop/mail").len(), runs(&cell)), (0, vec![]));
        let cell = complete(cell.later(hours(3)).settle()).settle();
        let cell = cell.deploy("shop", [("mail", spread(1))]).settle();
        assert_eq!(cell.placed("shop/mail").len(), 1);
        assert!(service(&cell).row.schedule.is_none());
        let is_running = service(&cell).replicas.values().all(plimsoll_model::Replica::is_running);
        assert!(is_running && service(&cell).replicas.values().all(|it| it.run.is_none()));
    }

    #[test]
    fn what_is_global_has_no_schedule() {
        let mut cell = three();
        let services = [("mail", nightly(global()))];
        let services = services.map(|(name, spec)| {
            (plimsoll_model::ServiceName::new(name).unwrap(), std::sync::Arc::new(spec))
        });
        let deployment = mail().deployment;
        let change = Change::Deploy { deployment, services: services.into(), routes: Vec::new() };
        let refused = cell.apply(Writer::Operator, vec![change.free()]).unwrap_err().reason;
        assert!(matches!(refused, Refusal::GlobalSchedule { .. }), "{refused}");
    }
}
