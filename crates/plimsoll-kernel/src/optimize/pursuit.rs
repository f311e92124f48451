//! Carries a plan out, a move at a time in its order, through the one move path: each begins once placement's filters and the
//! shared budgets and cooldowns let it, and the rest is dropped as soon as the cell is not what the plan was made for. A leader
//! keeps it while it leads; the next one knows nothing of it, and nothing is half done.

use std::collections::VecDeque;

use plimsoll_model::optimize::{OptimizeDrop, OptimizeStep, OptimizedMove};
use plimsoll_model::reason::FilterWord;
use plimsoll_model::{AuditEntry, Change, Guarded, Millis, MoveCause, Replica, State, Timestamp};

use crate::place::Roster;
use crate::place::filter::{PlacementRequest, filter};
use crate::policy::Policy;
use crate::rebalance::{MoveInFlight, Rebalancer};
use crate::reschedule::{MoveHindrance, is_mass_loss, may_begin};

/// How long the next move may be held up while none is under way: longer than a node rests and a container stops.
const PATIENCE: Millis = Millis::minutes(10);

/// What of a plan is left to do.
#[derive(Debug, Clone)]
pub(crate) struct Pursuit {
    ahead: VecDeque<OptimizedMove>,
    under_way: Vec<OptimizedMove>,
    done: u32,
    of: u32,
    /// When something of it last began or ended.
    since: Timestamp,
    /// How far the one came that it took the place of.
    replaced: Option<(u32, u32)>,
    is_over: bool,
}

/// Why the next move does not begin now.
enum Hindrance {
    Later,
    Never(OptimizeDrop),
}

impl Pursuit {
    pub(crate) fn new(moves: Vec<OptimizedMove>, before: Option<&Self>, now: Timestamp) -> Self {
        let of = u32::try_from(moves.len()).unwrap_or(u32::MAX);
        let replaced = before.map(|before| (before.done, before.of));
        let (ahead, under_way) = (moves.into(), Vec::new());
        Self { ahead, under_way, done: 0, of, since: now, replaced, is_over: false }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// What is left: moves to begin, and moves under way.
    pub(crate) fn left(&self) -> (usize, usize) {
        (self.ahead.len(), self.under_way.len())
    }

    /// The next moves that may begin, and the end of the plan.
    pub(crate) fn next(
        &mut self,
        state: &State,
        roster: &Roster,
        policy: &Policy,
        measured: &mut Rebalancer,
        now: Timestamp,
    ) -> Vec<Guarded> {
        let mut batch = Vec::new();
        if let Some((done, of)) = self.replaced.take() {
            batch.push(record(OptimizeStep::Ended { done, of, why: Some(OptimizeDrop::Replaced) }));
        }
        let mut dropped = self.look(state, now);
        // One at a time: the next turn, which follows at once, sees what this one took of the budgets.
        if dropped.is_none()
            && let Some(next) = self.ahead.front()
        {
            match begin(state, roster, policy, measured, (next, now)) {
                Ok(changes) => {
                    batch.extend(changes);
                    self.since = now;
                    self.under_way.extend(self.ahead.pop_front());
                }
                Err(Hindrance::Never(why)) => dropped = Some(why),
                Err(Hindrance::Later) => {
                    let is_stuck = self.under_way.is_empty() && now.since(self.since) > PATIENCE;
                    let replica = next.replica.clone();
                    dropped = is_stuck.then_some(OptimizeDrop::Stuck { replica });
                }
            }
        }
        self.is_over = dropped.is_some() || (self.ahead.is_empty() && self.under_way.is_empty());
        if self.is_over {
            let (done, of) = (self.done, self.of);
            batch.push(record(OptimizeStep::Ended { done, of, why: dropped }));
        }
        batch
    }

    /// What came of the moves under way, and whether one of them failed.
    fn look(&mut self, state: &State, now: Timestamp) -> Option<OptimizeDrop> {
        let mut failed = None;
        let (mut done, before) = (0, self.under_way.len());
        self.under_way.retain(|moved| {
            let id = || moved.replica.clone();
            let Some(replica) = state.replica(&moved.replica) else {
                failed = Some(OptimizeDrop::Changed { replica: id() });
                return false;
            };
            let current = replica.assignment.as_ref();
            if current.is_some_and(|current| current.node == moved.dst) {
                done += 1;
                return false;
            }
            if heads_for(replica, moved) {
                return true;
            }
            failed = Some(OptimizeDrop::MoveFailed { replica: id() });
            false
        });
        self.done += done;
        if self.under_way.len() < before {
            self.since = now;
        }
        failed
    }
}

fn heads_for(replica: &Replica, moved: &OptimizedMove) -> bool {
    let next = replica.successor.as_ref();
    next.is_some_and(|next| next.cause == MoveCause::Optimize && next.assignment.node == moved.dst)
}

/// The changes that begin the move, with the room that it takes on the roster; or why it does not begin.
fn begin(
    state: &State,
    roster: &Roster,
    policy: &Policy,
    measured: &mut Rebalancer,
    (moved, now): (&OptimizedMove, Timestamp),
) -> Result<[Guarded; 2], Hindrance> {
    let OptimizedMove { replica: id, src, dst, .. } = moved;
    let changed = || Hindrance::Never(OptimizeDrop::Changed { replica: id.clone() });
    if is_mass_loss(state) {
        return Err(Hindrance::Later);
    }
    let movable =
        may_begin(state, roster, policy, id, now).map_err(|hindrance| match hindrance {
            MoveHindrance::Budget => Hindrance::Later,
            MoveHindrance::Changed => changed(),
        })?;
    let service = state.service(&id.service).ok_or_else(changed)?;
    let spec = service.desired().ok_or_else(changed)?;
    let (node, to) = state.node(dst).zip(roster.place_of(dst)).ok_or_else(changed)?;
    if movable.node != *src {
        return Err(changed());
    }
    let rests = |at: Timestamp| now.since(at) < policy.rebalance.cooldown_node;
    if node.received_at.is_some_and(rests) {
        return Err(Hindrance::Later);
    }
    let ask = PlacementRequest::new(spec, &service.row.failures, policy, now);
    let headings = service.replicas.values().filter_map(Replica::heading);
    let here = headings.filter(|it| it.node == *dst).count();
    if let Some(why) = filter(&ask, roster, to, u32::try_from(here).unwrap_or(u32::MAX)) {
        // Room may come while something stops; nothing else gets better by waiting.
        let may_come = matches!(
            why.word(),
            FilterWord::InsufficientCapacity | FilterWord::PortTaken | FilterWord::MaxPerNode
        );
        let drop = OptimizeDrop::NoRoom { replica: id.clone(), node: dst.clone() };
        return Err(if may_come { Hindrance::Later } else { Hindrance::Never(drop) });
    }
    let footprint = |node| measured.footprint((state, roster, policy), (id, spec), node, now);
    let (off, on) = (footprint(src), footprint(dst));
    if !measured.stays_cool(policy, dst, on) {
        return Err(Hindrance::Later);
    }
    let in_flight = MoveInFlight { src: src.clone(), dst: dst.clone(), off, on };
    measured.expect(id.clone(), in_flight);
    let succeed = Change::Succeed {
        replica: id.clone(),
        node: dst.clone(),
        spec: spec.hash,
        cause: MoveCause::Optimize,
    };
    let generation = movable.generation;
    Ok([
        succeed.at_generation(Some(generation)),
        record(OptimizeStep::Moved(Box::new(moved.clone()))),
    ])
}

fn record(step: OptimizeStep) -> Guarded {
    Change::Record { entry: AuditEntry::Optimize(step) }.free()
}
