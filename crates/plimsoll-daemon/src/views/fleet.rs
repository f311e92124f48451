//! A fleet as people read it: what is in the books, with what the leader has heard.

use plimsoll_api::view::{
    FleetMachine, FleetPlace, FleetQuota, FleetRole, FleetShard, FleetStatus, FleetTransfer, Time,
};
use plimsoll_model::State;
use plimsoll_model::fleet::{FleetState, TransferKind, TransferStep};

use crate::fleet::{FleetLinkStatus, FleetMemory};

/// The coordinator's whole view of its fleet; of a shard, its place in one.
pub fn fleet_status(
    state: &State,
    memory: Option<FleetMemory>,
    link: &FleetLinkStatus,
) -> FleetStatus {
    let membership = state.fleet_membership().map(|it| FleetPlace {
        coordinator: it.coordinator.to_string(),
        shard: it.shard.to_string(),
        joined_at: Time(it.joined_at),
        answered_at: link.answered_at.map(Time),
        trouble: link.trouble.clone(),
    });
    let role = match (state.fleet(), &membership) {
        (Some(_), _) => FleetRole::Coordinator,
        (None, Some(_)) => FleetRole::Shard,
        (None, None) => FleetRole::None,
    };
    let mut status = FleetStatus {
        role,
        membership,
        is_paused: false,
        next_pass: memory.as_ref().map(|memory| Time(memory.next_pass)),
        shards: Vec::new(),
        machines: Vec::new(),
        shortfalls: Vec::new(),
        quota: Vec::new(),
        transfers: Vec::new(),
    };
    if let Some(fleet) = state.fleet() {
        let memory = memory.unwrap_or_default();
        status.is_paused = fleet.is_paused();
        status.shards = shards(fleet, &memory);
        status.machines = machines(fleet);
        status.quota = quota(fleet, &memory);
        status.transfers = transfers(fleet);
        status.shortfalls = memory.shortfalls;
    }
    status
}

fn shards(fleet: &FleetState, memory: &FleetMemory) -> Vec<FleetShard> {
    let rows = fleet.shards().iter().map(|(id, row)| {
        let heard = memory.shards.get(id);
        let supply = || heard.into_iter().flat_map(|it| it.supply.values());
        FleetShard {
            name: id.to_string(),
            joined_at: row.joined_at.map(Time),
            heard_at: heard.map(|it| Time(it.heard_at)),
            is_paused: heard.is_some_and(|it| it.is_paused),
            idle: supply().map(|it| it.idle).sum(),
            configured: supply().map(|it| it.configured).sum(),
            shortfalls: heard.map_or(0, |it| it.shortfalls),
            pending: row.pending.len(),
        }
    });
    rows.collect()
}

fn machines(fleet: &FleetState) -> Vec<FleetMachine> {
    let rows = fleet.owners().iter().map(|(id, row)| FleetMachine {
        name: id.to_string(),
        owner: row.owner.to_string(),
        epoch: row.epoch,
        since: Time(row.since),
    });
    rows.collect()
}

fn quota(fleet: &FleetState, memory: &FleetMemory) -> Vec<FleetQuota> {
    let rows = fleet.quotas().iter().flat_map(|(pool, slices)| {
        slices.iter().map(move |(shard, slice)| {
            let heard = memory.shards.get(shard);
            FleetQuota {
                machine_type: pool.machine_type.to_string(),
                zone: pool.zone.to_string(),
                shard: shard.to_string(),
                slice: *slice,
                used: heard.map(|it| it.supply.get(pool).map_or(0, |it| it.quota_used)),
            }
        })
    });
    rows.collect()
}

fn transfers(fleet: &FleetState) -> Vec<FleetTransfer> {
    let rows = fleet.transfers().iter().map(|(id, row)| {
        let waits = fleet.shards().iter();
        let waits = waits.filter(|(_, it)| it.pending.values().any(|it| it.transfer == *id));
        FleetTransfer {
            id: id.to_string(),
            kind: match row.kind {
                TransferKind::Idle => "idle",
                TransferKind::Quota => "quota",
                TransferKind::Preempt => "preempt",
            }
            .to_owned(),
            donor: row.donor.to_string(),
            recipient: row.recipient.to_string(),
            machine_type: row.pool.machine_type.to_string(),
            zone: row.pool.zone.to_string(),
            count: row.count,
            profile: row.profile.to_string(),
            step: match row.step {
                TransferStep::Asked => "asked",
                TransferStep::Moved { .. } => "moved",
                TransferStep::Shrinking => "shrinking",
                TransferStep::Growing => "growing",
            }
            .to_owned(),
            since: Time(row.since),
            waits_for: waits.map(|(shard, _)| shard.to_string()).collect(),
        }
    });
    rows.collect()
}
