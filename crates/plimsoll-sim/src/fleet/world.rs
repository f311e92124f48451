//! The clock, the network and the coordinator of a simulated fleet.

use std::collections::BTreeMap;

use plimsoll_fleet::FleetLeader;
use plimsoll_model::access::Digest;
use plimsoll_model::fleet::{
    CoordinatorAnswer, FleetChange, FleetCommand, FleetState, MachineId, ShardMessage, TransferEnd,
    TransferKind,
};
use plimsoll_model::{Millis, Term, Timestamp};

use super::FleetScenario;
use super::invariants::{FleetInvariant, FleetWatch, judge};
use super::shard::{SimShard, next_rotation, rotated};
use crate::rng::SimRng;

const BEGIN: Timestamp = Timestamp(1_000_000);

/// How often everything is looked at.
const LOOK: Millis = Millis::seconds(30);

/// How many cycles before the end nothing may begin any more.
const CALM_CYCLES: u64 = 30;

#[derive(Debug)]
enum Due {
    Cycle(usize),
    Rotate(usize),
    /// A message to the coordinator, from a shard of this epoch.
    Report(usize, ShardMessage),
    Answer(usize, CoordinatorAnswer),
    Pass,
    /// The coordinator leads again, under a new term.
    Elected,
    Look,
}

/// What became of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetOutcome {
    pub seed: u64,
    /// When it broke, if it did.
    pub broken: Option<(Millis, FleetInvariant)>,
    pub passes: u64,
    pub messages: u64,
    /// Transfers that were begun: idle machines, quota, drains.
    pub begun: [u64; 3],
    pub ended: BTreeMap<&'static str, u64>,
    pub terms: u64,
    pub crashes: u64,
    pub machines_moved: u64,
    /// How many shards lacked something in the end.
    pub lacking: usize,
}

struct FleetWorld<'s> {
    scenario: &'s FleetScenario,
    rng: SimRng,
    now: Timestamp,
    due: BTreeMap<(Timestamp, u64), Due>,
    next: u64,
    state: FleetState,
    leader: Option<FleetLeader>,
    term: Term,
    shards: Vec<SimShard>,
    watch: FleetWatch,
    last_begun: Vec<Timestamp>,
    outcome: FleetOutcome,
}

/// One run, to its end or to the first promise that is broken.
pub fn run_fleet(scenario: &FleetScenario, seed: u64) -> FleetOutcome {
    let mut world = FleetWorld::new(scenario, seed);
    let ran = world.run();
    let since = world.now.since(BEGIN);
    world.outcome.broken = ran.err().map(|why| (since, why));
    world.outcome.lacking = world.shards.iter().filter(|it| it.is_lacking()).count();
    world.outcome
}

impl<'s> FleetWorld<'s> {
    fn new(scenario: &'s FleetScenario, seed: u64) -> Self {
        let mut rng = SimRng::new(seed);
        let shards: Vec<SimShard> =
            (0..scenario.shards).map(|nth| SimShard::new(nth, scenario, &mut rng)).collect();
        let outcome = FleetOutcome {
            seed,
            broken: None,
            passes: 0,
            messages: 0,
            begun: [0; 3],
            ended: BTreeMap::new(),
            terms: 1,
            crashes: 0,
            machines_moved: 0,
            lacking: 0,
        };
        let mut world = Self {
            scenario,
            rng,
            now: BEGIN,
            due: BTreeMap::new(),
            next: 0,
            state: FleetState::default(),
            leader: Some(FleetLeader::new(scenario.policy, BEGIN)),
            term: Term(1),
            shards,
            watch: FleetWatch::default(),
            last_begun: Vec::new(),
            outcome,
        };
        world.found();
        world
    }

    /// Every shard is enrolled, and quota is cut in equal slices.
    fn found(&mut self) {
        let mut batch = Vec::new();
        for (nth, shard) in self.shards.iter().enumerate() {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&(nth as u64).to_be_bytes());
            let (token, key, id) = (Digest(digest), Digest(digest), shard.id.clone());
            let expires_at = Timestamp(u64::MAX);
            batch.push(FleetChange::CreateToken { shard: id.clone(), token, expires_at });
            batch.push(FleetChange::Enrol { token, shard: id.clone(), key });
            let (pool, slice) = (shard.pool.clone(), self.scenario.quota);
            batch.push(FleetChange::SetQuota { pool, shard: id, slice });
        }
        let command = FleetCommand { at: self.now, term: self.term, batch };
        self.state.apply(&command).expect("what founds a fleet is in order");
        self.watch.whole = self.shards.len() as u64 * u64::from(self.scenario.quota);
        let all = self.shards.iter().flat_map(SimShard::held);
        self.watch.everything = all.cloned().collect::<std::collections::BTreeSet<MachineId>>();
        for nth in 0..self.shards.len() {
            let offset = Millis(self.rng.below(self.scenario.policy.cycle.0));
            self.after(offset, Due::Cycle(nth));
            let first = Millis(self.rng.below(self.scenario.rotation.0));
            self.after(first, Due::Rotate(nth));
        }
        self.after(self.scenario.policy.cycle, Due::Pass);
        self.after(LOOK, Due::Look);
    }

    fn after(&mut self, span: Millis, what: Due) {
        self.next += 1;
        self.due.insert((self.now.plus(span), self.next), what);
    }

    fn is_restless(&self) -> bool {
        self.now.since(BEGIN) < self.scenario.restless
    }

    fn run(&mut self) -> Result<(), FleetInvariant> {
        let end = BEGIN.plus(self.scenario.restless).plus(self.scenario.settling);
        while let Some(((at, _), what)) = self.due.pop_first() {
            if at > end {
                break;
            }
            self.now = at;
            self.happen(what)?;
        }
        self.watch.look_at_all(&self.state, &self.shards)?;
        let calm = self.scenario.policy.cycles(CALM_CYCLES);
        let begun = self.last_begun.iter().filter(|at| end.since(**at) < calm).count();
        let transfers = self.state.transfers().len();
        if transfers > 0 || begun > 0 {
            return Err(FleetInvariant::Unsettled { transfers, begun });
        }
        Ok(())
    }

    fn happen(&mut self, what: Due) -> Result<(), FleetInvariant> {
        match what {
            Due::Cycle(nth) => self.cycle(nth),
            Due::Rotate(nth) => {
                if self.is_restless() {
                    self.shards[nth].demand = rotated(self.scenario, &mut self.rng);
                    let next = next_rotation(self.scenario, &mut self.rng);
                    self.after(next, Due::Rotate(nth));
                }
            }
            Due::Report(nth, message) => return self.reported(nth, &message),
            Due::Answer(nth, answer) => {
                let heard = (self.now, &mut self.rng);
                if self.now >= self.shards[nth].down_until {
                    self.shards[nth].hear(&answer, self.scenario, heard);
                }
            }
            Due::Pass => return self.pass(),
            Due::Elected => {
                self.term = Term(self.term.0 + 1);
                self.outcome.terms += 1;
                self.leader = Some(FleetLeader::new(self.scenario.policy, self.now));
            }
            Due::Look => {
                self.after(LOOK, Due::Look);
                return self.watch.look_at_all(&self.state, &self.shards);
            }
        }
        Ok(())
    }

    fn cycle(&mut self, nth: usize) {
        self.after(self.scenario.policy.cycle, Due::Cycle(nth));
        if self.now < self.shards[nth].down_until {
            return;
        }
        if self.is_restless() && self.rng.below(1_000) < self.scenario.crash_percent {
            let until = self.now.plus(self.rng.between(self.scenario.outage));
            self.shards[nth].crash(until);
            self.outcome.crashes += 1;
            return;
        }
        self.shards[nth].cycle(self.scenario, self.now, &mut self.rng);
        let message = self.shards[nth].speak(self.scenario);
        self.send(|| Due::Report(nth, message.clone()));
    }

    /// Lost, late, twice, or in another order.
    fn send(&mut self, what: impl Fn() -> Due) {
        self.outcome.messages += 1;
        let (loss, delay) = if self.is_restless() {
            (self.scenario.loss_percent, self.scenario.delay)
        } else {
            (0, Millis(200))
        };
        if self.rng.percent(loss) {
            return;
        }
        let copies = 1 + u64::from(self.rng.percent(loss));
        for _ in 0..copies {
            // Most are quick.
            let most = if self.rng.percent(90) { Millis(delay.0 / 50) } else { delay };
            let span = Millis(1 + self.rng.below(most.0 + 1));
            self.after(span, what());
        }
    }

    fn reported(&mut self, nth: usize, message: &ShardMessage) -> Result<(), FleetInvariant> {
        let Some(mut leader) = self.leader.take() else { return Ok(()) };
        let id = self.shards[nth].id.clone();
        let heard = leader.hear(&self.state, &id, message, self.now);
        let batch = heard.expect("a modelled shard says what shards say");
        let written = self.write(batch);
        let answer = leader.answer(&self.state, &id, self.term);
        self.leader = Some(leader);
        written?;
        self.send(|| Due::Answer(nth, answer.clone()));
        Ok(())
    }

    fn pass(&mut self) -> Result<(), FleetInvariant> {
        self.after(self.scenario.policy.cycle, Due::Pass);
        let Some(mut leader) = self.leader.take() else { return Ok(()) };
        if !leader.is_pass_due(self.now) {
            self.leader = Some(leader);
            return Ok(());
        }
        if self.is_restless() && self.rng.percent(self.scenario.crash_percent) {
            self.outcome.crashes += 1;
            let outage = self.rng.between(self.scenario.outage);
            self.after(outage, Due::Elected);
            return Ok(());
        }
        self.outcome.passes += 1;
        let decision = leader.pass(&self.state, self.now);
        let judged = judge(&decision.batch, &self.state, &leader, self.now);
        self.leader = Some(leader);
        judged?;
        for change in &decision.batch {
            let kind = match change {
                FleetChange::AskMachines { kind: TransferKind::Preempt, .. } => 2,
                FleetChange::AskMachines { .. } => 0,
                FleetChange::MoveQuota { .. } => 1,
                _ => continue,
            };
            self.outcome.begun[kind] += 1;
            self.last_begun.push(self.now);
        }
        self.write(decision.batch)
    }

    fn write(&mut self, batch: Vec<FleetChange>) -> Result<(), FleetInvariant> {
        if batch.is_empty() {
            return Ok(());
        }
        let owned = self.state.owners().values().map(|it| it.epoch).sum::<u64>();
        let command = FleetCommand { at: self.now, term: self.term, batch };
        let ended = self.state.apply(&command).expect("a leader writes what can be written");
        for (_, end) in ended {
            *self.outcome.ended.entry(TransferEnd::word(end)).or_default() += 1;
        }
        let owns = self.state.owners().values().map(|it| it.epoch).sum::<u64>();
        self.outcome.machines_moved += owns - owned;
        self.watch.look(&self.state, &self.scenario.policy)
    }
}
