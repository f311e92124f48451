//! Services with a number of replicas: `spread`, `pack` and `hosts`.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_model::preemption::MAX_PREEMPTIONS;
use plimsoll_model::reason::{AbandonReason, Filter, WaitReason};
use plimsoll_model::rollout::RolloutPhase;
use plimsoll_model::state::Service;
use plimsoll_model::{
    Assignment, Change, Guarded, Millis, Mode, MoveCause, Replica, ReplicaId, Resources, Rollout,
    ServiceKey, ServiceSpec, Slot, Timestamp,
};

use super::Pass;
use super::scale_down::{ScaleDown, ScaleDownCandidate};
use super::unplaced::{CandidateNodes, UnplacedService};
use crate::budget::{DisruptionBudget, DisruptionCost};
use crate::condition::PlacementCondition;
use crate::data::{has_data, runs_with_data};
use crate::declared;
use crate::moves::{self, MoveContext, MoveStep};
use crate::place::filter::PlacementRequest;
use crate::place::{Placer, Roster};
use crate::rollout;

/// How long after its first failure a service is tried on another node, and how long a failure counts for that.
const FIRST_RETRY: Millis = Millis::seconds(1);
const FAILURE_MEMORY: Millis = Millis::minutes(10);

/// A replica with an assignment, and what is the matter with it.
struct Live<'s> {
    slot: &'s Slot,
    replica: &'s Replica,
    assignment: &'s Assignment,
    condition: PlacementCondition,
    /// Where it counts: where its move takes it, unless this pass has just given that up.
    heading: &'s Assignment,
    /// A move of it is under way and goes on.
    is_moving: bool,
    /// A step of this pass has already changed it; the next pass takes it from there.
    is_done: bool,
}

/// Whether it was stopped where it is, because its node is drained by force. One of the former kind that was serves nobody and
/// comes back for nobody: there is nothing to wait for.
pub(super) fn is_stopped_by_force(replica: &Replica) -> bool {
    let is_stopped = |at: &Assignment| replica.is_stopped(at);
    replica.successor.is_none() && replica.assignment.as_ref().is_some_and(is_stopped)
}

impl<'s> Pass<'s> {
    pub(super) fn replicated(
        &mut self,
        roster: &mut Roster,
        key: &'s ServiceKey,
        service: &'s Service,
        spec: &'s Arc<ServiceSpec>,
    ) -> bool {
        let wanted = spec.placement.mode.replicas().unwrap_or(0) as usize;
        if self.is_undisturbed(roster, key, spec) && is_quiescent(service, wanted) {
            return true;
        }
        let ask = PlacementRequest::new(spec, &service.row.failures, self.policy, self.now);
        let ask = ask.bound(self.binding(key, spec));
        let mut live = self.live(roster, &ask, key, service);
        if is_settled(&live, wanted, service) {
            return true;
        }
        self.advance_moves(key, service, spec, &mut live);
        // None where it should run something else from here on: the next pass knows what.
        let Some(goes_on) = self.rollout(key, service, spec, |_| true) else { return false };
        let others = self.drop_other_kind(key, &mut live, wanted);
        // What is in the way may be its own former kind, which makes way by itself.
        let seeks_room = others.is_empty();
        let headings: Vec<_> = live.iter().map(|l| l.heading.node.clone()).collect();
        let mut placer = Placer::new(roster, ask, headings.iter());
        self.drop_surplus(key, &mut placer, &mut live, wanted);
        let waiting = self.relocate(key, &mut placer, (service, spec), &mut live);
        self.evict_overdue(key, &mut placer, &mut live);
        let missing = self.place_missing(key, &mut placer, service, spec, live.len(), wanted);
        if missing > 0 && live.iter().all(|l| l.replica.is_running()) {
            self.make_way(key, service, others.into_iter().map(|l| l.slot));
        }
        self.roll(key, &mut placer, (service, spec), &mut live, goes_on);
        let tally = placer.close();
        if missing > 0 || !waiting.is_empty() {
            let among = CandidateNodes::All(tally);
            let needs =
                if seeks_room { self.needs(key, &live, &waiting, missing) } else { Vec::new() };
            let unplaced = UnplacedService { key, service, spec, missing, waiting, among, needs };
            self.unplaced.push(unplaced);
        }
        true
    }

    /// Who needs room: what is lost and what is missing, and of what has to leave its node one at a time.
    fn needs(
        &self,
        key: &ServiceKey,
        live: &[Live<'_>],
        waiting: &[ReplicaId],
        missing: usize,
    ) -> Vec<ReplicaId> {
        let is_lost = |id: &&ReplicaId| {
            let mut its = live.iter().filter(|l| *l.slot == id.slot);
            its.any(|l| {
                matches!(l.condition, PlacementCondition::Lost | PlacementCondition::RuntimeLost)
            })
        };
        let (lost, leaving): (Vec<&ReplicaId>, Vec<&ReplicaId>) = waiting.iter().partition(is_lost);
        let mut needs: Vec<ReplicaId> =
            lost.into_iter().chain(leaving.into_iter().take(1)).cloned().collect();
        let is_placed = |change: &&Guarded| matches!(&change.change, Change::Place { replica, .. } if replica.service == *key);
        let placed = self.decision.batch.iter().filter(is_placed).count();
        let next = self.state.next_index(key).saturating_add(u32::try_from(placed).unwrap_or(0));
        // More than this is never freed at once.
        let missing = u32::try_from(missing.min(MAX_PREEMPTIONS)).unwrap_or(u32::MAX);
        needs.extend((0..missing).map(|n| ReplicaId::indexed(key, next.saturating_add(n))));
        needs
    }

    /// Stops what makes way for a replica of higher priority, has had its time, and found no room elsewhere.
    fn evict_overdue(
        &mut self,
        key: &ServiceKey,
        placer: &mut Placer<'_>,
        live: &mut Vec<Live<'_>>,
    ) {
        let now = self.now;
        live.retain(|l| {
            let PlacementCondition::Preempted { until } = l.condition else { return true };
            if l.is_moving || l.is_done {
                return true;
            }
            let id = ReplicaId::new(key.clone(), l.slot.clone());
            if now < until {
                self.wait_preempted(&id, l.replica);
                return true;
            }
            placer.end(&l.heading.node);
            self.evict(&id, l.replica);
            false
        });
    }

    /// Whether every node that has something of the service may keep it, as far as that is known without a look at each.
    fn is_undisturbed(&self, roster: &Roster, key: &ServiceKey, spec: &ServiceSpec) -> bool {
        let placement = &spec.placement;
        let takes_any = placement.constraints.is_empty()
            && !matches!(placement.mode, Mode::Hosts { .. })
            && roster.all_runtimes_can_run(&spec.container);
        takes_any && self.disturbed.as_ref().is_some_and(|disturbed| !disturbed.contains(key))
    }

    fn live(
        &mut self,
        roster: &Roster,
        ask: &PlacementRequest<'_>,
        key: &ServiceKey,
        service: &'s Service,
    ) -> Vec<Live<'s>> {
        let mut live = Vec::with_capacity(service.replicas.len());
        for (slot, replica) in &service.replicas {
            let Some(assignment) = &replica.assignment else { continue };
            let id = ReplicaId::new(key.clone(), slot.clone());
            let condition = self.condition(roster, ask, &id, (replica, assignment));
            if let PlacementCondition::InGrace { until } = condition {
                self.wake_at(until);
            }
            let heading = replica.heading().unwrap_or(assignment);
            let is_moving = replica.successor.is_some();
            live.push(Live {
                slot,
                replica,
                assignment,
                condition,
                heading,
                is_moving,
                is_done: false,
            });
        }
        live
    }

    pub(super) fn advance_one(
        &mut self,
        id: &ReplicaId,
        replica: &Replica,
        (service, spec): (&Service, &ServiceSpec),
        is_settled: bool,
    ) -> MoveStep {
        let Some(successor) = &replica.successor else { return MoveStep::None };
        let dst = self.state.node(&successor.assignment.node);
        let src = replica.assignment.as_ref().and_then(|from| self.state.node(&from.node));
        let (policy, now) = (self.policy, self.now);
        let evict_at = self.evict_at(id, replica);
        let given = MoveContext { src, dst, spec, is_settled, evict_at, policy, now };
        let step = declared::step(self.state, id, service);
        let step = step.unwrap_or_else(|| moves::step(replica, &given));
        match &step {
            MoveStep::None => {}
            MoveStep::Wait(until) => until.iter().for_each(|until| self.wake_at(*until)),
            MoveStep::Promote => self.about(id, Change::Promote { replica: id.clone() }),
            MoveStep::Abandon(why) => {
                let change = Change::Abandon { replica: id.clone(), why: why.clone() };
                self.about(id, change);
                let is_unhealthy =
                    matches!(why, AbandonReason::SuccessorFailed | AbandonReason::TimedOut);
                let is_own = matches!(successor.cause, MoveCause::Outdated | MoveCause::Restart);
                // A rollout keeps account of what failed; what else has failed once is left alone.
                let is_rolling = service.row.rollout.as_ref().is_some_and(|rollout| {
                    let is_kept =
                        matches!(rollout.phase, RolloutPhase::Rolling | RolloutPhase::Paused);
                    is_kept && rollout.to == successor.assignment.spec
                });
                if is_unhealthy && is_own && is_rolling && successor.cause == MoveCause::Outdated {
                    self.about(id, Change::StepLate { replica: id.clone() });
                } else if is_unhealthy && is_own {
                    let waiting = Some(WaitReason::Stalled { spec: spec.hash });
                    self.about(id, Change::SetWaiting { replica: id.clone(), waiting });
                }
            }
        }
        step
    }

    fn advance_moves(
        &mut self,
        key: &ServiceKey,
        service: &Service,
        spec: &ServiceSpec,
        live: &mut [Live<'_>],
    ) {
        for l in live.iter_mut().filter(|l| l.is_moving) {
            let id = ReplicaId::new(key.clone(), l.slot.clone());
            match self.advance_one(
                &id,
                l.replica,
                (service, spec),
                l.condition == PlacementCondition::Settled,
            ) {
                MoveStep::None | MoveStep::Wait(_) => {}
                MoveStep::Promote => (l.is_moving, l.is_done) = (false, true),
                MoveStep::Abandon(_) => {
                    (l.is_moving, l.is_done) = (false, true);
                    l.heading = l.assignment;
                }
            }
        }
    }

    /// Replicas named after nodes are left from when the service was `global`; they go once the others run. Returns those
    /// that stay until then.
    fn drop_other_kind(
        &mut self,
        key: &ServiceKey,
        live: &mut Vec<Live<'s>>,
        wanted: usize,
    ) -> Vec<Live<'s>> {
        let (ours, others): (Vec<_>, Vec<_>) =
            std::mem::take(live).into_iter().partition(|l| matches!(l.slot, Slot::Index(_)));
        *live = ours;
        let is_filled = live.len() >= wanted && live.iter().all(|l| l.replica.is_running());
        let (going, staying): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|l| is_filled || is_stopped_by_force(l.replica));
        for l in going {
            self.retire(&ReplicaId::new(key.clone(), l.slot.clone()));
        }
        staying
    }

    /// Both kinds want the same room or port: the first of the former kind makes way, and the next once that is used.
    pub(super) fn make_way<'o>(
        &mut self,
        key: &ServiceKey,
        service: &Service,
        mut others: impl Iterator<Item = &'o Slot>,
    ) {
        let is_stopping =
            |replica: &Replica| replica.assignment.is_none() && !replica.leaving.is_empty();
        if service.replicas.values().any(is_stopping) {
            return;
        }
        if let Some(slot) = others.next() {
            self.retire(&ReplicaId::new(key.clone(), slot.clone()));
        }
    }

    /// Ends what is too many, those that serve least first.
    fn drop_surplus(
        &mut self,
        key: &ServiceKey,
        placer: &mut Placer<'_>,
        live: &mut Vec<Live<'_>>,
        wanted: usize,
    ) {
        if live.len() <= wanted {
            return;
        }
        let place = |l: &Live<'_>| placer.roster().zone_and_place(&l.heading.node);
        // What a step of this pass has changed is decided on anew by the next one.
        let candidates = live.iter().filter(|l| !l.is_done).filter_map(|l| {
            let ((zone, node), Slot::Index(slot)) = (place(l), l.slot) else { return None };
            // What has completed goes before what is still at it.
            let is_idle = !l.replica.is_running() || l.replica.has_completed(l.assignment);
            let idleness = (l.condition.severity(), is_idle);
            Some(ScaleDownCandidate { idleness, zone, node, slot: *slot })
        });
        let mut scale_down = ScaleDown::new(live.iter().map(place), candidates);
        let goers = std::iter::from_fn(|| scale_down.next()).take(live.len() - wanted);
        let gone: BTreeSet<u32> = goers.map(|candidate| candidate.slot).collect();
        live.retain(|l| {
            let is_surplus = matches!(l.slot, Slot::Index(index) if gone.contains(index));
            if is_surplus {
                placer.end(&l.heading.node);
                self.retire(&ReplicaId::new(key.clone(), l.slot.clone()));
            }
            !is_surplus
        });
    }

    /// Gives every lost replica a new node, and one misplaced one at a time. Returns those that found no room.
    fn relocate(
        &mut self,
        key: &ServiceKey,
        placer: &mut Placer<'_>,
        (service, spec): (&Service, &ServiceSpec),
        live: &mut [Live<'_>],
    ) -> Vec<ReplicaId> {
        let mut budget = budget(live);
        let unmet_hosts = placer.unmet_hosts();
        let mut no_room = Vec::new();
        for l in live.iter_mut().filter(|l| !l.is_moving && !l.is_done) {
            let id = ReplicaId::new(key.clone(), l.slot.clone());
            let cause = match l.condition {
                PlacementCondition::Lost => MoveCause::NodeLost,
                PlacementCondition::RuntimeLost => MoveCause::RuntimeLost,
                PlacementCondition::Misplaced => MoveCause::Misplaced,
                PlacementCondition::Preempted { .. } => MoveCause::Preempted,
                PlacementCondition::Settled
                | PlacementCondition::Unattended
                | PlacementCondition::InGrace { .. }
                | PlacementCondition::Outdated
                | PlacementCondition::RestartDue => {
                    self.stop_waiting(&id, l.replica, spec, l.condition);
                    continue;
                }
            };
            let is_leaving = matches!(cause, MoveCause::Misplaced | MoveCause::Preempted);
            if is_leaving && is_at_its_job(spec, l.replica, l.assignment) {
                // One that makes way for another has its grace to end in.
                if cause == MoveCause::Misplaced {
                    self.wait(&id, WaitReason::JobRunning);
                }
                continue;
            }
            // Also what does not run yet may start while the other copy does.
            let makes_way_first = is_leaving && !spec.can_run_twice();
            let is_missed = makes_way_first && l.replica.is_running();
            // It would have to make way before it starts elsewhere, and nobody can stop it.
            let node = self.state.node(&l.assignment.node);
            if makes_way_first && node.is_some_and(|node| node.outage.is_some()) {
                continue;
            }
            let cost = if is_missed { DisruptionCost::OneServing } else { DisruptionCost::Nothing };
            let makes_way = cause == MoveCause::Preempted;
            if is_leaving && !budget.allows(1, cost) {
                continue;
            }
            if let Some(until) = retry_at(service, self.now).filter(|until| self.now < *until) {
                self.wake_at(until);
                continue;
            }
            let is_lost = matches!(cause, MoveCause::NodeLost | MoveCause::RuntimeLost);
            let brake = if is_lost { self.brake() } else { None };
            if makes_way && (has_data(service, l.replica) || unmet_hosts.is_some()) {
                // Its end is what it waits for.
            } else if has_data(service, l.replica) {
                self.wait(&id, WaitReason::Stateful);
            } else if let Some(brake) = brake {
                self.wait(&id, brake);
            } else if let Some(why) = &unmet_hosts {
                self.wait(&id, WaitReason::NoPlace(why.clone()));
            } else if no_room.is_empty() {
                placer.lift(&l.assignment.node);
                let own = placer.roster().place_of(&l.assignment.node).filter(|_| makes_way);
                let Some(choice) = placer.best(&id).filter(|choice| Some(choice.at) != own) else {
                    placer.lower(&l.assignment.node);
                    if !makes_way {
                        no_room.push(id);
                    }
                    continue;
                };
                placer.take(choice.at, &id);
                let node = placer.roster().id_at(choice.at).clone();
                self.promise(key, spec, &node);
                self.about(
                    &id,
                    Change::Succeed { replica: id.clone(), node, spec: spec.hash, cause },
                );
                self.scored(choice.score);
                if makes_way_first {
                    // It cannot run twice: it makes way here before it starts there.
                    self.about(&id, Change::Promote { replica: id.clone() });
                }
                l.is_moving = true;
                budget.begin(l.replica.is_running());
            } else if !makes_way {
                // What one replica of a service does not find, the next does not find either.
                no_room.push(id);
            }
        }
        no_room
    }

    /// The reason a replica waited for has gone by itself. A stalled spec stays stalled until another is applied, and
    /// whether there is room in its own place by now is seen when it is renewed.
    pub(super) fn stop_waiting(
        &mut self,
        id: &ReplicaId,
        replica: &Replica,
        spec: &ServiceSpec,
        condition: PlacementCondition,
    ) {
        let lasts = match &replica.waiting {
            None => return,
            Some(WaitReason::Stalled { spec: stalled }) => *stalled == spec.hash,
            Some(WaitReason::NoRoomInPlace(_)) => condition.is_recreated(),
            Some(WaitReason::Preempted { .. }) => {
                matches!(condition, PlacementCondition::Preempted { .. })
            }
            Some(WaitReason::Stateful | WaitReason::MassLoss { .. } | WaitReason::NoPlace(_)) => {
                false
            }
            Some(WaitReason::JobRunning) => condition == PlacementCondition::Misplaced,
        };
        if !lasts {
            self.about(id, Change::SetWaiting { replica: id.clone(), waiting: None });
        }
    }

    /// Places what is missing, and returns how many found no room.
    fn place_missing(
        &mut self,
        key: &ServiceKey,
        placer: &mut Placer<'_>,
        service: &Service,
        spec: &ServiceSpec,
        have: usize,
        wanted: usize,
    ) -> usize {
        let mut missing = wanted.saturating_sub(have);
        if missing > 0
            && let Some(why) = placer.unmet_hosts()
        {
            self.explain_missing(key, service, missing, Some(why));
            return 0;
        }
        let mut index = self.state.next_index(key);
        while missing > 0 {
            let id = ReplicaId::indexed(key, index);
            index += 1;
            if self.state.is_name_taken(&id) {
                continue;
            }
            let (copy, vacant) = placer.best_copy(&id);
            // Data that is there is found again before a replica begins without any; where it is out of reach, it is waited
            // for.
            let choice = if copy.is_none() && missing > vacant { placer.best(&id) } else { copy };
            let Some(choice) = choice else { return missing };
            placer.take(choice.at, &id);
            let node = placer.roster().id_at(choice.at).clone();
            self.promise(key, spec, &node);
            let change = Change::Place { replica: id, node, spec: spec.hash };
            self.decision.batch.push(change.at_generation(None));
            self.scored(choice.score);
            missing -= 1;
        }
        self.explain_missing(key, service, 0, None);
        0
    }

    /// Takes replicas to the desired spec, as many at once as the service allows: first those that do not serve anyway,
    /// then the others, each only while all the rest run.
    fn roll(
        &mut self,
        key: &ServiceKey,
        placer: &mut Placer<'_>,
        (service, spec): (&Service, &ServiceSpec),
        live: &mut [Live<'_>],
        goes_on: bool,
    ) {
        let stalled = Some(WaitReason::Stalled { spec: spec.hash });
        if live.iter().any(|l| l.is_done || l.replica.waiting == stalled) {
            return;
        }
        let rollout = service.row.rollout.as_ref();
        let has_tried = |l: &Live<'_>| rollout.is_some_and(|rollout| rollout.has_tried(l.slot));
        // What was stopped by force comes back, whatever the rollout does: there is no old copy to stay with. What failed a
        // moment ago is not tried again at once.
        let is_stopped = |l: &Live<'_>| l.replica.is_stopped(l.assignment);
        let retry = retry_at(service, self.now).filter(|at| *at > self.now);
        if let Some(at) = retry.filter(|_| live.iter().any(is_stopped)) {
            self.wake_at(at);
        }
        let may_go = |l: &Live<'_>| {
            let is_restart = l.assignment.spec == spec.hash;
            if is_stopped(l) { retry.is_none() } else { is_restart || (goes_on && !has_tried(l)) }
        };
        // A failure that the service allows for is not waited for.
        let runs = |l: &Live<'_>| l.replica.is_running() || has_tried(l);
        let mut budget = DisruptionBudget::new(live.iter().map(|l| (l.is_moving, runs(l))));
        loop {
            let outdated = live
                .iter_mut()
                .filter(|l| l.condition.is_recreated() && !l.is_moving && !l.is_done && may_go(l));
            let next = outdated.min_by_key(|l| (l.replica.is_running(), l.slot));
            let Some(l) = next else { return };
            let runs = l.replica.is_running();
            let is_served = runs && !spec.is_job();
            let cost = if is_served { DisruptionCost::OneServing } else { DisruptionCost::Nothing };
            let cause = cause(l.assignment, spec);
            let width = match cause {
                // Nobody is served by a job: all of it may run again at once.
                _ if spec.is_job() => usize::MAX,
                MoveCause::Outdated => rollout::width(spec),
                _ => 1,
            };
            if !budget.allows(width, cost) {
                return;
            }
            match self.renew_one(key, placer, (service, spec), l, cause) {
                Ok(()) => {
                    l.is_moving = true;
                    budget.begin(runs);
                }
                Err(filter) => {
                    l.is_done = true;
                    let id = ReplicaId::new(key.clone(), l.slot.clone());
                    self.wait(&id, WaitReason::NoRoomInPlace(filter));
                }
            }
        }
    }

    /// Gives a replica its next copy: beside the old one, elsewhere, or in its place. Says why where none of it can be.
    fn renew_one(
        &mut self,
        key: &ServiceKey,
        placer: &mut Placer<'_>,
        (service, spec): (&Service, &ServiceSpec),
        l: &Live<'_>,
        cause: MoveCause,
    ) -> Result<(), Filter> {
        let id = ReplicaId::new(key.clone(), l.slot.clone());
        let succeed = |node| Change::Succeed { replica: id.clone(), node, spec: spec.hash, cause };
        let may_leave = !has_data(service, l.replica);
        // One that failed with this very spec, or was stopped by force, is tried again in its own place, with all its
        // tries: there is nothing that runs to be kept.
        let is_retry = (cause == MoveCause::Restart && !l.replica.is_running())
            || l.replica.is_stopped(l.assignment);
        if let Some(filter) = placer.is_volume_elsewhere(&l.assignment.node) {
            return self.follow_volume(placer, (service, spec), l, (id, cause), filter);
        }
        if spec.can_overlap() && !is_retry {
            placer.lift(&l.assignment.node);
            let beside = placer.stay(&l.assignment.node);
            let beside = beside.or_else(|| placer.best(&id).filter(|_| may_leave));
            if let Some(choice) = beside {
                placer.take(choice.at, &id);
                let node = placer.roster().id_at(choice.at).clone();
                self.promise(key, spec, &node);
                self.about(&id, succeed(node));
                self.scored(choice.score);
                return Ok(());
            }
            placer.lower(&l.assignment.node);
        }
        // Two copies cannot stand side by side, or nowhere has room for both: the old one makes way, in its own place if the
        // new one fits there, and elsewhere if not.
        let freed = freed(service, l.replica, l.assignment);
        let in_place = placer.take_in_place(&id, &l.assignment.node, freed);
        let elsewhere = match &in_place {
            Err(_) if may_leave => {
                placer.lift(&l.assignment.node);
                let choice = placer.best(&id);
                if choice.is_none() {
                    placer.lower(&l.assignment.node);
                }
                choice
            }
            Ok(()) | Err(_) => None,
        };
        match (in_place, elsewhere) {
            (Ok(()), _) => {
                self.promise(key, spec, &l.assignment.node);
                self.about(&id, succeed(l.assignment.node.clone()));
            }
            (Err(_), Some(choice)) => {
                placer.take(choice.at, &id);
                let node = placer.roster().id_at(choice.at).clone();
                self.promise(key, spec, &node);
                self.about(&id, succeed(node));
                self.scored(choice.score);
                if spec.can_run_twice() {
                    return Ok(());
                }
            }
            (Err(filter), None) => return Err(filter),
        }
        self.about(&id, Change::Promote { replica: id.clone() });
        Ok(())
    }
}

impl Pass<'_> {
    /// The new spec mounts a volume that is on another node: the next copy goes there, unless this one has data here.
    fn follow_volume(
        &mut self,
        placer: &mut Placer<'_>,
        (service, spec): (&Service, &ServiceSpec),
        l: &Live<'_>,
        (id, cause): (ReplicaId, MoveCause),
        filter: Filter,
    ) -> Result<(), Filter> {
        if runs_with_data(service, l.replica) {
            return Err(filter);
        }
        placer.lift(&l.assignment.node);
        let Some(choice) = placer.best(&id) else {
            placer.lower(&l.assignment.node);
            return Err(filter);
        };
        placer.take(choice.at, &id);
        let node = placer.roster().id_at(choice.at).clone();
        self.promise(&id.service, spec, &node);
        self.about(&id, Change::Succeed { replica: id.clone(), node, spec: spec.hash, cause });
        self.scored(choice.score);
        if !spec.can_run_twice() {
            self.about(&id, Change::Promote { replica: id.clone() });
        }
        Ok(())
    }
}

/// When a replica that has to leave its node may be tried elsewhere again, after the service failed to start: what failed a
/// moment ago on one node fails on the next, so each failure of late doubles the wait.
fn retry_at(service: &Service, now: Timestamp) -> Option<Timestamp> {
    let failures = service.row.failures.values().flatten();
    let recent = failures.filter(|at| now.since(**at) < FAILURE_MEMORY);
    let (count, last) = recent.fold((0_u32, None), |(n, last), at| (n + 1, last.max(Some(*at))));
    let wait = FIRST_RETRY.0.saturating_mul(1 << count.saturating_sub(1).min(16));
    last.map(|last| last.plus(Millis(wait.min(FAILURE_MEMORY.0))))
}

fn budget(live: &[Live<'_>]) -> DisruptionBudget {
    DisruptionBudget::new(live.iter().map(|l| (l.is_moving, l.replica.is_running())))
}

/// Whether it is a job that should run there and does. To move it is to run it twice: it ends where it is.
pub(super) fn is_at_its_job(spec: &ServiceSpec, replica: &Replica, at: &Assignment) -> bool {
    let is_current = at.spec == spec.hash && !replica.is_stale(at);
    let is_current = is_current || replica.run.is_some();
    spec.is_job() && is_current && replica.has_started(at) && !replica.is_over(at)
}

/// What the end of an assignment makes free. What has completed had set nothing aside any more.
pub(super) fn freed(service: &Service, replica: &Replica, assignment: &Assignment) -> Resources {
    let old = service.spec_of(assignment).filter(|_| !replica.has_vacated(assignment));
    old.map_or(Resources::NONE, |old| old.request())
}

/// Why an assignment that is not the one it should be is replaced.
pub(super) fn cause(assignment: &Assignment, spec: &ServiceSpec) -> MoveCause {
    if assignment.spec == spec.hash { MoveCause::Restart } else { MoveCause::Outdated }
}

/// Whether there is nothing to do where every node may keep what it has: by far the most common answer, so it is asked
/// first.
fn is_quiescent(service: &Service, wanted: usize) -> bool {
    let replicas = service.quiescence();
    replicas.unsettled == 0 && replicas.quiescent as usize == wanted && has_no_cares(service)
}

/// Whether there is nothing to do.
fn is_settled(live: &[Live<'_>], wanted: usize, service: &Service) -> bool {
    live.len() == wanted
        && has_no_cares(service)
        && live.iter().all(|l| {
            let is_quiet = matches!(
                l.condition,
                PlacementCondition::Settled
                    | PlacementCondition::InGrace { .. }
                    | PlacementCondition::Unattended
            );
            is_quiet
                && !l.is_moving
                && l.replica.waiting.is_none()
                && matches!(l.slot, Slot::Index(_))
        })
}

/// Whether nothing is the matter with the service as a whole.
fn has_no_cares(service: &Service) -> bool {
    service.row.unplaced.is_none() && service.row.rollout.as_ref().is_none_or(Rollout::is_over)
}
