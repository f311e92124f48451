use std::collections::BTreeMap;

use crate::{Resources, Term};
use proptest::prelude::*;

use super::*;
use crate::fleet::ids::{MachineType, Profile, Zone};
use crate::fleet::instruction::AckError;

fn shard(nth: u8) -> ShardId {
    ShardId::new(format!("s{nth}")).unwrap()
}

fn pool() -> Pool {
    Pool { machine_type: MachineType::new("m").unwrap(), zone: Zone::new("z").unwrap() }
}

/// What can happen to a coordinator, whether or not it makes sense.
#[derive(Debug, Clone)]
enum Step {
    Ask { donor: u8, recipient: u8, count: u32, is_drain: bool },
    Quota { donor: u8, recipient: u8, count: u32 },
    Answer { shard: u8, nth: usize, ack: u8, machines: Vec<u8> },
    Expire { nth: u64 },
    Wait { seconds: u64 },
    Expel { shard: u8 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = || 0_u8..4;
    let machines = prop::collection::vec(0_u8..6, 0..4);
    let step = prop_oneof![
        (who(), who(), 0_u32..5, any::<bool>()).prop_map(|(donor, recipient, count, is_drain)| {
            Step::Ask { donor, recipient, count, is_drain }
        }),
        (who(), who(), 0_u32..30).prop_map(|(donor, recipient, count)| Step::Quota {
            donor,
            recipient,
            count
        }),
        (who(), 0_usize..6, 0_u8..4, machines)
            .prop_map(|(shard, nth, ack, machines)| Step::Answer { shard, nth, ack, machines }),
        (0_u64..40).prop_map(|nth| Step::Expire { nth }),
        (1_u64..120).prop_map(|seconds| Step::Wait { seconds }),
        (2_u8..4).prop_map(|shard| Step::Expel { shard }),
    ];
    prop::collection::vec(step, 0..120)
}

fn change(state: &FleetState, step: &Step) -> Option<FleetChange> {
    let (profile, cooldown) = (Profile::new("p").unwrap(), Millis::seconds(80));
    Some(match step {
        Step::Ask { donor, recipient, count, is_drain } => FleetChange::AskMachines {
            kind: if *is_drain { TransferKind::Preempt } else { TransferKind::Idle },
            donor: shard(*donor),
            recipient: shard(*recipient),
            pool: pool(),
            count: *count,
            profile,
            priority: 1,
            patience: Millis::seconds(80),
            ttl: Millis::seconds(160),
            cooldown,
        },
        Step::Quota { donor, recipient, count } => FleetChange::MoveQuota {
            donor: shard(*donor),
            recipient: shard(*recipient),
            pool: pool(),
            count: *count,
            profile,
            cooldown,
        },
        Step::Answer { shard: who, nth, ack, machines } => {
            let id = *state.shards.get(&shard(*who))?.pending.keys().nth(*nth)?;
            let name = |nth: &u8| MachineId::new(format!("m{nth}")).unwrap();
            let ack = match ack {
                0 => Ack::Done,
                1 => Ack::Reserved { machines: machines.iter().map(name).collect() },
                2 => Ack::Refused { reason: AckError::NothingToGive },
                _ => Ack::Failed { reason: AckError::Provider },
            };
            let order = ReportOrder::default();
            let shard = shard(*who);
            FleetChange::Acknowledge { shard, id, order, ack, max_failures: 3, cooldown }
        }
        Step::Expire { nth } => FleetChange::Expire { transfer: TransferId(*nth) },
        Step::Wait { .. } => return None,
        Step::Expel { shard: who } => FleetChange::Expel { shard: shard(*who) },
    })
}

/// A token is made for the shard and used.
fn enrolled(nth: u8) -> [FleetChange; 2] {
    let (token, key) = (Digest([nth; 32]), Digest([100 + nth; 32]));
    let expires_at = Timestamp(1 << 40);
    [
        FleetChange::CreateToken { shard: shard(nth), token, expires_at },
        FleetChange::Enrol { token, shard: shard(nth), key },
    ]
}

fn quota(state: &FleetState) -> u32 {
    state.quotas().values().flat_map(BTreeMap::values).sum()
}

proptest! {
    /// Whatever is asked, answered, lost or late: quota stays what it was, epochs only grow, a machine that has changed hands
    /// rests, and what is refused changes nothing.
    #[test]
    fn whatever_happens_quota_is_conserved_and_machines_have_one_owner(steps in steps()) {
        let mut state = FleetState::default();
        let mut at = Timestamp(1_000);
        let mut batch: Vec<FleetChange> = (0..4).flat_map(enrolled).collect();
        batch.extend((0..2).map(|nth| FleetChange::SetQuota { pool: pool(), shard: shard(nth), slice: 50 }));
        state.apply(&FleetCommand { at, term: Term(1), batch }).unwrap();
        let mut whole = quota(&state);
        for step in steps {
            if let Step::Wait { seconds } = step {
                at = at.plus(Millis::seconds(seconds));
            }
            let Some(change) = change(&state, &step) else { continue };
            let before = state.clone();
            let expelled = match &change {
                FleetChange::Expel { shard } => Some(shard.clone()),
                _ => None,
            };
            let result = state.apply(&FleetCommand { at, term: Term(1), batch: vec![change] });
            if let (Some(shard), true) = (expelled, result.is_ok()) {
                prop_assert!(!state.shards.contains_key(&shard));
                // Its own slice goes with it, and what it had yet to give up; nobody gets more for that.
                prop_assert!(quota(&state) <= whole, "after {:?}", step);
                whole = quota(&state);
            }
            if result.is_err() {
                prop_assert_eq!(&state, &before);
            }
            prop_assert_eq!(quota(&state), whole, "after {:?}", step);
            for (machine, now) in state.owners() {
                let Some(then) = before.owners().get(machine) else { continue };
                prop_assert!(now.epoch >= then.epoch);
                if now.owner != then.owner {
                    prop_assert!(now.epoch > then.epoch);
                    prop_assert!(at.since(then.since) >= Millis::seconds(80));
                }
            }
            // Every transfer has somebody to wait for, so that it can end.
            for (id, transfer) in state.transfers() {
                let waits = state.shards.values().flat_map(|it| it.pending.values());
                let is_awaited = waits.into_iter().any(|it| it.transfer == *id);
                prop_assert!(is_awaited, "{id} waits for nobody: {transfer:?}");
            }
        }
    }
}

fn write(state: &mut FleetState, at: u64, batch: Vec<FleetChange>) -> Result<(), FleetRefusal> {
    let command = FleetCommand { at: Timestamp(at), term: Term(1), batch };
    state.apply(&command).map(drop)
}

#[test]
fn a_token_serves_one_cell_once_in_its_time_and_under_its_name() {
    let mut state = FleetState::default();
    let (token, key, other) = (Digest([1; 32]), Digest([2; 32]), Digest([3; 32]));
    let create = |expires_at| {
        let expires_at = Timestamp(expires_at);
        vec![FleetChange::CreateToken { shard: shard(0), token, expires_at }]
    };
    let enrol = |nth, key| vec![FleetChange::Enrol { token, shard: shard(nth), key }];
    assert_eq!(write(&mut state, 1, enrol(0, key)), Err(FleetRefusal::TokenUnknown));
    write(&mut state, 1, create(100)).unwrap();
    let ago = Millis(20);
    assert_eq!(write(&mut state, 120, enrol(0, key)), Err(FleetRefusal::TokenExpired { ago }));
    let (named, shard_1) = (shard(0), shard(1));
    let another = FleetRefusal::TokenForAnother { named, shard: shard_1 };
    assert_eq!(write(&mut state, 2, enrol(1, key)), Err(another));
    write(&mut state, 3, enrol(0, key)).unwrap();
    assert_eq!(state.shard_of(&key), Some(&shard(0)));
    // Its answer was lost: the same cell asks again. Another one has no use of it.
    write(&mut state, 4, enrol(0, key)).unwrap();
    let used = FleetRefusal::TokenUsed { by: shard(0) };
    assert_eq!(write(&mut state, 5, enrol(0, other)), Err(used.clone()));
    write(&mut state, 6, vec![FleetChange::Expel { shard: shard(0) }]).unwrap();
    assert_eq!(state.shard_of(&key), None);
    assert_eq!(write(&mut state, 7, enrol(0, key)), Err(used), "an expelled cell has no use of it");
}

#[test]
fn a_shard_does_not_say_what_machines_of_others_have() {
    let mut state = FleetState::default();
    let batch = [0, 1].into_iter().flat_map(enrolled).collect();
    write(&mut state, 1, batch).unwrap();
    let machine_type = MachineType::new("m").unwrap();
    let register = |nth, cpus| {
        let capacity = Resources { cpu: crate::MilliCpus(cpus), ..Resources::NONE };
        let types = [(MachineType::new("m").unwrap(), capacity)].into();
        vec![FleetChange::Register { shard: shard(nth), registration: Registration { types } }]
    };
    write(&mut state, 2, register(0, 4_000)).unwrap();
    write(&mut state, 3, register(1, 1)).unwrap();
    assert_eq!(state.capacity(&machine_type).unwrap().cpu.0, 4_000);
    // Once it is the only one that has them, it does.
    write(&mut state, 4, vec![FleetChange::Expel { shard: shard(0) }]).unwrap();
    write(&mut state, 5, register(1, 2)).unwrap();
    assert_eq!(state.capacity(&machine_type).unwrap().cpu.0, 2);
    let unknown = FleetRefusal::UnknownShard { shard: shard(7) };
    assert_eq!(write(&mut state, 6, register(7, 2)), Err(unknown));
}

#[test]
fn an_expelled_shard_is_waited_for_no_more_and_what_moved_has_moved() {
    let mut state = FleetState::default();
    let batch = [0, 1, 2].into_iter().flat_map(enrolled).collect();
    write(&mut state, 1, batch).unwrap();
    let ask = |donor, recipient| Step::Ask { donor, recipient, count: 2, is_drain: false };
    for step in [ask(0, 1), ask(2, 0)] {
        let change = change(&state, &step).unwrap();
        write(&mut state, 2, vec![change]).unwrap();
    }
    let answer = Step::Answer { shard: 0, nth: 0, ack: 1, machines: vec![1, 2] };
    let change = change(&state, &answer).unwrap();
    write(&mut state, 3, vec![change]).unwrap();
    assert_eq!(state.transfers().len(), 2);
    let expel = FleetCommand {
        at: Timestamp(4),
        term: Term(1),
        batch: vec![FleetChange::Expel { shard: shard(0) }],
    };
    let ended = state.apply(&expel).unwrap();
    assert_eq!(ended.iter().map(|(_, end)| *end).collect::<Vec<_>>(), [TransferEnd::Expelled]);
    // The recipient of what moved is told yet.
    assert_eq!(state.transfers().len(), 1);
    assert_eq!(state.shards[&shard(1)].pending.len(), 1);
    assert!(state.owners().values().all(|it| it.owner == shard(1)));
}
