//! What a leader of the coordinator keeps and does: hears shards, decides when a pass is due, and says what each shard is to do.
//! The daemon and the simulator give it time, messages and the replicated state, and write what it returns.

use std::collections::BTreeMap;

use plimsoll_model::fleet::{
    CoordinatorAnswer, FleetChange, FleetState, Instruction, ReportError, ShardId, ShardKinds,
    ShardMessage,
};
use plimsoll_model::{Term, Timestamp};

use crate::pass::{FleetDecision, Unserved, coordinate};
use crate::policy::FleetPolicy;
use crate::reports::Reports;

/// It is soft: a new leader begins with nothing.
#[derive(Debug, Clone)]
pub struct FleetLeader {
    policy: FleetPolicy,
    reports: Reports,
    /// As each shard said since this leader began.
    kinds: BTreeMap<ShardId, ShardKinds>,
    next_pass: Timestamp,
    unserved: Vec<Unserved>,
}

impl FleetLeader {
    /// The first pass waits for shards to be heard.
    pub fn new(policy: FleetPolicy, now: Timestamp) -> Self {
        let next_pass = now.plus(policy.cycles(policy.pass_cycles));
        let (reports, kinds) = (Reports::default(), BTreeMap::new());
        Self { policy, reports, kinds, next_pass, unserved: Vec::new() }
    }

    pub fn policy(&self) -> &FleetPolicy {
        &self.policy
    }

    pub fn reports(&self) -> &Reports {
        &self.reports
    }

    /// Why each shortfall that the last pass did not serve was not.
    pub fn unserved(&self) -> &[Unserved] {
        &self.unserved
    }

    /// Takes what a shard says. Returns what is to be written of it: what its machines are, and what became of instructions.
    pub fn hear(
        &mut self,
        state: &FleetState,
        shard: &ShardId,
        message: &ShardMessage,
        now: Timestamp,
    ) -> Result<Vec<FleetChange>, ReportError> {
        let mut batch = Vec::new();
        let kinds = message.kinds.as_ref().or_else(|| self.kinds.get(shard));
        if let Some(kinds) = kinds {
            // Checked before anything of it counts.
            let report = message.report(shard, &kinds.pools)?;
            if let Some(said) = &message.kinds {
                if self.kinds.get(shard) != Some(said) {
                    let (shard, registration) = (shard.clone(), said.registration.clone());
                    batch.push(FleetChange::Register { shard, registration });
                }
                self.kinds.insert(shard.clone(), said.clone());
            }
            self.reports.take(report, now)?;
        } else {
            // Its answers count all the same: they are about what was written.
            message.check(shard)?;
        }
        let pending = state.shards().get(shard).map(|it| &it.pending);
        let waits = |id| pending.is_some_and(|pending| pending.contains_key(id));
        let acks = message.acks.iter().filter(|(id, _)| waits(id));
        batch.extend(acks.map(|(id, ack)| FleetChange::Acknowledge {
            shard: shard.clone(),
            id: *id,
            order: message.order,
            ack: ack.clone(),
            max_failures: self.policy.max_failures,
            cooldown: self.policy.cycles(self.policy.cooldown_cycles),
        }));
        Ok(batch)
    }

    pub fn is_pass_due(&self, now: Timestamp) -> bool {
        now >= self.next_pass
    }

    pub fn next_pass(&self) -> Timestamp {
        self.next_pass
    }

    /// One pass. The next is due some cycles from now, whenever this one was.
    pub fn pass(&mut self, state: &FleetState, now: Timestamp) -> FleetDecision {
        self.next_pass = now.plus(self.policy.cycles(self.policy.pass_cycles));
        let gone = |shard: &ShardId| !state.shards().contains_key(shard);
        let gone: Vec<ShardId> = self.kinds.keys().filter(|it| gone(it)).cloned().collect();
        for shard in gone {
            self.kinds.remove(&shard);
            self.reports.forget(&shard);
        }
        let decision = coordinate(state, &self.reports, &self.policy, now);
        self.unserved.clone_from(&decision.unserved);
        decision
    }

    /// What the shard is told: everything that it has not carried out yet.
    pub fn answer(&self, state: &FleetState, shard: &ShardId, term: Term) -> CoordinatorAnswer {
        let pending = state.shards().get(shard).into_iter().flat_map(|it| &it.pending);
        let instructions = pending.map(|(id, it)| {
            let order = it.order.clone();
            Instruction { term, id: *id, transfer: it.transfer, order }
        });
        let wants_kinds = !self.kinds.contains_key(shard);
        CoordinatorAnswer { term, instructions: instructions.collect(), wants_kinds }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::access::Digest;
    use plimsoll_model::fleet::{
        Ack, FleetCommand, InstructionId, MachineType, Pool, Registration, Report, ReportOrder,
        Supply, Zone,
    };

    use super::*;

    fn shard() -> ShardId {
        ShardId::new("a").unwrap()
    }

    fn enrolled() -> FleetState {
        let mut state = FleetState::default();
        let (token, key) = (Digest([1; 32]), Digest([2; 32]));
        let expires_at = Timestamp(u64::MAX);
        let batch = vec![
            FleetChange::CreateToken { shard: shard(), token, expires_at },
            FleetChange::Enrol { token, shard: shard(), key },
        ];
        state.apply(&FleetCommand { at: Timestamp(1), term: Term(1), batch }).unwrap();
        state
    }

    fn message(cycle: u64, says_kinds: bool) -> ShardMessage {
        let (machine_type, zone) = (MachineType::new("m").unwrap(), Zone::new("z").unwrap());
        let supply = Supply { idle: 3, ..Supply::default() };
        let report = Report {
            shard: shard(),
            order: ReportOrder { epoch: 1, cycle },
            is_paused: false,
            supply: [(Pool { machine_type, zone }, supply)].into(),
            shortfalls: Vec::new(),
            preemptible: Vec::new(),
        };
        let kinds = ShardKinds::of(Registration::default(), &report);
        ShardMessage::new(report, &kinds, says_kinds, Vec::new()).unwrap()
    }

    #[test]
    fn a_new_leader_asks_for_kinds_and_hears_nothing_of_supply_until_it_knows_them() {
        let state = enrolled();
        let mut leader = FleetLeader::new(FleetPolicy::default(), Timestamp(0));
        let batch = leader.hear(&state, &shard(), &message(1, false), Timestamp(1)).unwrap();
        assert!(batch.is_empty() && leader.reports().get(&shard()).is_none());
        assert!(leader.answer(&state, &shard(), Term(1)).wants_kinds);
        let batch = leader.hear(&state, &shard(), &message(2, true), Timestamp(2)).unwrap();
        assert!(matches!(batch.as_slice(), [FleetChange::Register { .. }]), "{batch:?}");
        assert!(!leader.answer(&state, &shard(), Term(1)).wants_kinds);
        // Said again it is not written again, and from now on the summary is enough.
        assert!(leader.hear(&state, &shard(), &message(3, true), Timestamp(3)).unwrap().is_empty());
        leader.hear(&state, &shard(), &message(4, false), Timestamp(4)).unwrap();
        let heard = leader.reports().get(&shard()).unwrap();
        assert_eq!((heard.order.cycle, heard.supply.len()), (4, 1));
    }

    #[test]
    fn answers_to_what_nobody_asked_are_not_written_and_too_many_are_refused() {
        let state = enrolled();
        let mut leader = FleetLeader::new(FleetPolicy::default(), Timestamp(0));
        let ack = |id| (InstructionId(id), Ack::Done);
        let mut said = message(1, true);
        said.acks = vec![ack(7)];
        let batch = leader.hear(&state, &shard(), &said, Timestamp(1)).unwrap();
        assert!(matches!(batch.as_slice(), [FleetChange::Register { .. }]), "{batch:?}");
        said.acks = (0..257).map(ack).collect();
        let refused = leader.hear(&state, &shard(), &said, Timestamp(2)).unwrap_err();
        assert_eq!(refused.to_string(), "a reports 257 acknowledgements; at most 256 are taken");
    }
}
