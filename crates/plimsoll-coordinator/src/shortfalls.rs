//! What shards lack, with why it is not served, as people read it.

use std::collections::BTreeMap;

use plimsoll_api::view::{FleetGate, FleetShortfall};
use plimsoll_fleet::FleetLeader;
use plimsoll_fleet::pass::{Gate, Tier, Unserved};
use plimsoll_model::Timestamp;
use plimsoll_model::fleet::{Profile, ShardId};

/// Every shortfall that shards report, the most important first.
pub(crate) fn told(leader: &FleetLeader, now: Timestamp) -> Vec<FleetShortfall> {
    let unserved: BTreeMap<(&ShardId, &Profile), &Unserved> =
        leader.unserved().iter().map(|it| ((&it.shard, &it.profile), it)).collect();
    let mut rows = Vec::new();
    for (shard, report) in leader.reports().iter() {
        for (profile, known) in &report.shortfalls {
            let unserved = unserved.get(&(shard, profile));
            let need = &known.shortfall;
            rows.push(FleetShortfall {
                name: format!("{shard}/{profile}"),
                cpu_millis: need.deficit.cpu.0,
                memory_bytes: need.deficit.memory.0,
                gpus: need.deficit.gpus,
                priority: need.priority,
                age: known.age(leader.policy(), now),
                reason: unserved.map(|it| it.why.to_string()),
                gates: unserved.map(|it| gates(&it.why)).unwrap_or_default(),
            });
        }
    }
    rows.sort_by(|a, b| {
        let rank =
            |it: &FleetShortfall| (std::cmp::Reverse(it.priority), std::cmp::Reverse(it.age));
        rank(a).cmp(&rank(b)).then_with(|| a.name.cmp(&b.name))
    });
    rows
}

/// Each way of serving it, and what stands in the way.
fn gates(why: &Gate) -> Vec<FleetGate> {
    let Gate::Tiers(tiers) = why else {
        return vec![FleetGate { tier: String::new(), why: why.to_string() }];
    };
    let named = |tier| match tier {
        Tier::Idle => "idle",
        Tier::Quota => "quota",
        Tier::Preempt => "preempt",
    };
    let row = |it: &plimsoll_fleet::pass::TierSkip| FleetGate {
        tier: named(it.tier).to_owned(),
        why: it.waits_for.to_string(),
    };
    tiers.iter().map(row).collect()
}
