//! Changes to what runs on a schedule. A slot is decided once: what is written here is refused if it was already, or if the
//! last run is not over, whoever leads and whatever it believes.

use std::sync::Arc;

use super::Txn;
use super::deployments::Services;
use crate::audit::AuditKind;
use crate::command::Refusal;
use crate::ids::{ReplicaId, ServiceKey};
use crate::replica::Replica;
use crate::schedule::{JobRun, KEPT_MISSES, KEPT_RUNS, MissedSlots, Schedule, ScheduleRow};
use crate::spec::{Mode, ServiceSpec};
use crate::state::Service;
use crate::units::Timestamp;

impl Txn<'_> {
    /// A run starts: of a slot, or because an operator asked for it. Its replicas are placed as any that are missing, and the
    /// oldest run that is kept makes way.
    pub(super) fn start_run(
        &mut self,
        key: &ServiceKey,
        slot: Option<Timestamp>,
    ) -> Result<(), Refusal> {
        let mut row = self.undecided(key, slot)?;
        let service = self.service(key)?;
        if let Some(run) = service.open_run() {
            return Err(Refusal::RunOpen { service: key.clone(), run: run.number });
        }
        let copies = copies(service).ok_or_else(|| not_scheduled(key))?;
        row.last_run += 1;
        row.decided = slot.unwrap_or(row.decided);
        let number = row.last_run;
        row.runs.push(JobRun { number, slot, at: self.at, copies });
        let excess = row.runs.len().saturating_sub(KEPT_RUNS);
        row.runs.drain(..excess);
        let first = row.runs.first().map_or(number, |run| run.number);
        let old = service.replicas.iter().filter(|(_, it)| it.run.is_none_or(|run| run < first));
        let old: Vec<ReplicaId> =
            old.map(|(slot, _)| ReplicaId::new(key.clone(), slot.clone())).collect();
        self.pass_data_on(key);
        for id in old {
            self.retire(&id)?;
        }
        self.put_schedule(key, row)?;
        self.audit(AuditKind::RunStarted { service: key.clone(), run: number, slot });
        Ok(())
    }

    /// What the image declares as volumes goes from run to run: those that are over have no use for it.
    fn pass_data_on(&mut self, key: &ServiceKey) {
        let Some(service) = self.state.services.get(key) else { return };
        let past = service.replicas.iter().filter(|(_, replica)| replica.data.is_some());
        let past: Vec<(ReplicaId, Replica)> = past
            .map(|(slot, replica)| (ReplicaId::new(key.clone(), slot.clone()), replica.clone()))
            .collect();
        for (id, replica) in past {
            self.release_data(&id, replica.data);
            self.set_replica(&id, Some(Replica { data: None, ..replica }));
        }
    }

    /// Nothing is started for these slots.
    pub(super) fn miss_slots(
        &mut self,
        key: &ServiceKey,
        missed: &MissedSlots,
    ) -> Result<(), Refusal> {
        let mut row = self.undecided(key, Some(missed.last))?;
        row.decided = missed.last;
        row.missed.push(*missed);
        let excess = row.missed.len().saturating_sub(KEPT_MISSES);
        row.missed.drain(..excess);
        self.put_schedule(key, row)?;
        self.audit(AuditKind::SlotsMissed { service: key.clone(), missed: *missed });
        Ok(())
    }

    /// The runs of a service for which the slot is yet to be decided.
    fn undecided(&self, key: &ServiceKey, slot: Option<Timestamp>) -> Result<ScheduleRow, Refusal> {
        let service = self.service(key)?;
        if service.desired().is_none_or(|spec| spec.schedule.is_none()) {
            return Err(not_scheduled(key));
        }
        let row = service.row.schedule.as_deref().cloned().ok_or_else(|| not_scheduled(key))?;
        match slot.filter(|slot| *slot <= row.decided) {
            Some(slot) => Err(Refusal::SlotDecided { service: key.clone(), slot }),
            None => Ok(row),
        }
    }

    /// Writes the runs, and asks for as many replicas as they have.
    fn put_schedule(&mut self, key: &ServiceKey, schedule: ScheduleRow) -> Result<(), Refusal> {
        let mut row = self.service(key)?.row.clone();
        if let Some(spec) = row.desired.and_then(|hash| row.specs.get_mut(&hash)) {
            ask_for(Arc::make_mut(spec), &schedule);
        }
        row.schedule = Some(Box::new(schedule));
        self.set_service(key, Some(row));
        Ok(())
    }

    /// The spec as the service has it, and its runs: what ran before goes on counting, and a schedule with other slots begins
    /// now. What a job did before it had a schedule counts as a run; what served before ends.
    pub(super) fn with_schedule(
        &self,
        key: &ServiceKey,
        spec: &Arc<ServiceSpec>,
    ) -> (Arc<ServiceSpec>, Option<Box<ScheduleRow>>) {
        let Some(schedule) = &spec.schedule else { return (Arc::clone(spec), None) };
        let old = self.state.services.get(key).filter(|service| service.row.desired.is_some());
        let is_same = |it: &Schedule| it.is_same_time(schedule);
        let had = old.and_then(|old| old.desired()?.schedule.as_ref());
        let kept = old.and_then(|old| old.row.schedule.as_deref());
        let mut row = kept.cloned().unwrap_or_default();
        if !had.is_some_and(is_same) {
            row.decided = row.decided.max(self.at);
        }
        let adopted = kept.is_none().then(|| old.map_or(0, adoptable)).filter(|copies| *copies > 0);
        if let Some(copies) = adopted {
            row.last_run += 1;
            row.runs.push(JobRun { number: row.last_run, slot: None, at: self.at, copies });
        }
        let mut spec = Arc::clone(spec);
        let copies = spec.copies();
        // Of a run that has not begun as many start as are asked for by now.
        if let (Some(run), Some(copies)) = (row.runs.last_mut(), copies)
            && old.is_some_and(|old| has_not_begun(old, run))
        {
            run.copies = copies;
        }
        let of = Arc::make_mut(&mut spec);
        if let Some(schedule) = &mut of.schedule {
            schedule.copies = copies;
        }
        ask_for(of, &row);
        (spec, Some(Box::new(row)))
    }

    /// Which run its replicas are of, once the row is written; what belongs to none ends, and so does what is too much of one that
    /// has not begun.
    pub(super) fn sort_into_runs(&mut self, key: &ServiceKey) {
        self.assign_runs(key);
        let Some(service) = self.state.services.get(key) else { return };
        let last = service.row.schedule.as_ref().and_then(|row| row.runs.last());
        let Some(run) = last.filter(|run| has_not_begun(service, run)) else { return };
        let own = service
            .replicas
            .iter()
            .filter(|(_, it)| it.run == Some(run.number) && it.assignment.is_some());
        let surplus = own.skip(run.copies as usize);
        let surplus: Vec<ReplicaId> =
            surplus.map(|(slot, _)| ReplicaId::new(key.clone(), slot.clone())).collect();
        for id in surplus {
            self.retire(&id).expect("a replica that is there can be retired");
        }
    }

    fn assign_runs(&mut self, key: &ServiceKey) {
        let Some(service) = self.state.services.get(key) else { return };
        let is_job = service.row.schedule.is_some();
        let run = service.row.schedule.as_ref().and_then(|row| row.runs.last()).map(|it| it.number);
        let others: Vec<ReplicaId> = service
            .replicas
            .iter()
            .filter(|(_, replica)| replica.assignment.is_some() && replica.run.is_some() != is_job)
            .map(|(slot, _)| ReplicaId::new(key.clone(), slot.clone()))
            .collect();
        for id in others {
            let Some(replica) = self.state.replica(&id) else { continue };
            let mut replica = replica.clone();
            // What is left of a run that is over holds nothing, and would again if it were of no run.
            let is_record = replica.assignment.as_ref().is_some_and(|at| replica.is_record(at));
            replica.run = run;
            if (is_job && run.is_none()) || is_record {
                self.retire(&id).expect("a replica that is there can be retired");
            } else {
                self.set_replica(&id, Some(replica));
            }
        }
    }
}

/// Whether the run is open and nothing of it has started anywhere, as far as is known.
fn has_not_begun(service: &Service, run: &JobRun) -> bool {
    let is_open = service.open_run().is_some_and(|open| open.number == run.number);
    let has_started = |replica: &Replica| replica.holds().any(|at| replica.has_started(at));
    is_open && !service.replicas_of(run.number).any(has_started)
}

/// How many replicas there are of a job that had no schedule. Those of a `global` one are named after nodes, and end.
fn adoptable(service: &Service) -> u32 {
    let is_one = |spec: &Arc<ServiceSpec>| spec.is_job() && spec.placement.mode != Mode::Global;
    let was_job = service.desired().is_some_and(is_one);
    let live = service.replicas.values().filter(|replica| replica.assignment.is_some());
    if was_job { u32::try_from(live.count()).unwrap_or(u32::MAX) } else { 0 }
}

/// All runs that are kept have their replicas.
fn ask_for(spec: &mut ServiceSpec, row: &ScheduleRow) {
    let all = row.runs.iter().fold(0_u32, |sum, run| sum.saturating_add(run.copies));
    if let Some(mode) = spec.placement.mode.scaled(all) {
        spec.placement.mode = mode;
    }
}

fn copies(service: &Service) -> Option<u32> {
    service.desired()?.schedule.as_ref()?.copies
}

fn not_scheduled(key: &ServiceKey) -> Refusal {
    Refusal::NotScheduled { service: key.clone() }
}

/// What runs on a schedule is a job with a number of copies.
pub(super) fn check(services: &Services) -> Result<(), Refusal> {
    for (service, spec) in services {
        if spec.schedule.is_some() && spec.placement.mode == Mode::Global {
            return Err(Refusal::GlobalSchedule { service: service.clone() });
        }
    }
    Ok(())
}
