//! A pass of a coordinator over 200 cells that report 100 shortfalls each, the most that a report has: all of them too young, which is
//! what most passes see; all of them old, with nothing to give; and with machines to give in every tenth cell.

use std::hint::black_box;

use plimsoll_fleet::{FleetPolicy, Reports, coordinate};
use plimsoll_model::access::Digest;
use plimsoll_model::fleet::{
    Accepts, Bucket, FleetChange, FleetCommand, FleetState, MachineType, Pool, Profile,
    Registration, Report, ReportOrder, ShardId, Shortfall, Supply, Zone,
};
use plimsoll_model::{Bytes, MilliCpus, Resources, Term, Timestamp};

use super::{Table, sample};

const RUNS: usize = 15;
const SHARDS: u64 = 200;
const SHORTFALLS: u64 = 100;
const NOW: Timestamp = Timestamp(10_000_000);

pub(super) fn coordinating(table: &mut Table) {
    for (what, age, idle, is_begun) in [
        ("too young", 0, 0, false),
        ("nothing to give", 20, 0, false),
        ("served by every tenth cell", 20, 500, true),
    ] {
        let (state, reports) = fleet(age, idle);
        let policy = FleetPolicy::default();
        let times = sample(RUNS, || {
            let decision = coordinate(&state, &reports, &policy, NOW);
            assert_eq!(!decision.batch.is_empty(), is_begun, "{what}");
            black_box(decision);
        });
        let size = format!("{SHARDS} cells × {SHORTFALLS} shortfalls");
        table.time(&format!("a pass of a coordinator, {size}, {what}"), "≤ 1 ms", &times);
    }
}

fn pool(nth: u64) -> Pool {
    Pool {
        machine_type: MachineType::new(format!("m{}", nth % 10)).expect("a short name"),
        zone: Zone::new(format!("z{}", nth % 3)).expect("a short name"),
    }
}

fn fleet(age: u64, idle: u32) -> (FleetState, Reports) {
    let machine = Resources { cpu: MilliCpus(16_000), memory: Bytes(32 << 30), ..Resources::NONE };
    let (mut state, mut reports) = (FleetState::default(), Reports::default());
    for nth in 0..SHARDS {
        let shard = ShardId::new(format!("s{nth}")).expect("a short name");
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&nth.to_be_bytes());
        let (token, key) = (Digest(digest), Digest(digest));
        let types = (0..10).map(|nth| (pool(nth).machine_type, machine)).collect();
        let batch = vec![
            FleetChange::CreateToken { shard: shard.clone(), token, expires_at: NOW },
            FleetChange::Enrol { token, shard: shard.clone(), key },
            FleetChange::Register { shard: shard.clone(), registration: Registration { types } },
        ];
        let command = FleetCommand { at: Timestamp(0), term: Term(1), batch };
        state.apply(&command).expect("a cell can join");
        let gives = idle > 0 && nth % 10 == 0;
        let supply = Supply { idle: if gives { idle } else { 0 }, configured: 50, quota_used: 0 };
        let lacks = if gives { 0 } else { SHORTFALLS };
        let report = |cycle, age| Report {
            shard: shard.clone(),
            order: ReportOrder { epoch: 1, cycle },
            is_paused: false,
            supply: (0..30).map(|nth| (pool(nth), supply)).collect(),
            shortfalls: (0..lacks).map(|nth| shortfall(nth, age)).collect(),
            preemptible: Vec::new(),
        };
        // Heard of for as long as it is old.
        let since = Timestamp(NOW.0 - age * 10_000);
        reports.take(report(1, 0), since).expect("a report");
        reports.take(report(2, age), NOW).expect("a report");
    }
    (state, reports)
}

fn shortfall(nth: u64, age: u64) -> Shortfall {
    let unit = Resources { cpu: MilliCpus(4_000), memory: Bytes(8 << 30), ..Resources::NONE };
    Shortfall {
        profile: Profile::new(format!("p{nth}")).expect("a short name"),
        deficit: unit,
        min_unit: unit,
        accepts: Accepts { types: [pool(nth).machine_type].into(), zones: [].into() },
        priority: i32::try_from(nth).unwrap_or(0),
        bucket: Some(Bucket(5)),
        age,
        is_topology_constrained: false,
    }
}
