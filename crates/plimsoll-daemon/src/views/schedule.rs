//! The schedule of a service as people see it.

use plimsoll_api::view::{MissedRuns, ScheduledRun, ServiceSchedule, Time};
use plimsoll_model::schedule::{JobRun, RunState, ZoneName};
use plimsoll_model::state::Service as Row;
use plimsoll_model::{Assignment, Replica, ReplicaId, ServiceKey};

pub(super) fn view(key: &ServiceKey, row: &Row) -> Option<ServiceSchedule> {
    let schedule = row.desired()?.schedule.as_ref()?;
    let kept = row.row.schedule.as_deref()?;
    let missed = kept.missed.iter().map(|missed| MissedRuns {
        first: Time(missed.first),
        last: Time(missed.last),
        count: missed.count,
        reason: missed.why.word().to_owned(),
        text: missed.why.to_string(),
    });
    Some(ServiceSchedule {
        cron: schedule.cron.to_string(),
        timezone: schedule.zone.as_ref().map_or("UTC", ZoneName::as_str).to_owned(),
        next: schedule.next(kept.decided).map(Time),
        runs: kept.runs.iter().map(|run| of_run(key, row, run)).collect(),
        missed: missed.collect(),
    })
}

fn of_run(key: &ServiceKey, row: &Row, run: &JobRun) -> ScheduledRun {
    let state = row.run_state(run);
    let own = || row.replicas.iter().filter(|(_, replica)| replica.run == Some(run.number));
    let ended = |replica: &Replica| {
        let seen = |at: &Assignment| replica.observation(at).map(|seen| seen.at);
        replica.assignment.as_ref().and_then(seen)
    };
    let last = own().filter_map(|(_, replica)| ended(replica)).max();
    ScheduledRun {
        run: run.number,
        slot: run.slot.map(Time),
        started: Time(run.at),
        ended: last.filter(|_| state != RunState::Open).map(Time),
        state: state.word().to_owned(),
        replicas: own()
            .map(|(slot, _)| ReplicaId::new(key.clone(), slot.clone()).to_string())
            .collect(),
    }
}
