//! A fleet as tables.

use std::fmt::Write as _;

use plimsoll_api::view::{
    FleetMachine, FleetQuota, FleetRole, FleetShard, FleetShortfall, FleetStatus, FleetTransfer,
    Time,
};
use plimsoll_model::{Bytes, MilliCpus, Timestamp};

use crate::age::age;
use crate::output::count;
use crate::table::Table;

pub(super) fn status(status: &FleetStatus, now: Timestamp) -> String {
    match status.role {
        FleetRole::None => {
            "this cell is in no fleet; `plimsoll fleet join STRING` joins one\n".to_owned()
        }
        FleetRole::Shard => place(status, now),
        FleetRole::Coordinator => coordinator(status, now),
    }
}

/// A shard's place in its fleet.
pub(super) fn place(status: &FleetStatus, now: Timestamp) -> String {
    let Some(place) = &status.membership else { return String::new() };
    let since = age(place.joined_at, now);
    let mut text =
        format!("shard {} of the fleet of {}, for {since}\n", place.shard, place.coordinator);
    let _ = match (&place.trouble, place.answered_at) {
        (Some(trouble), _) => writeln!(text, "the coordinator does not answer: {trouble}"),
        (None, Some(at)) => writeln!(text, "the coordinator answered {} ago", age(at, now)),
        (None, None) => writeln!(text, "the coordinator has not answered yet"),
    };
    text
}

fn coordinator(status: &FleetStatus, now: Timestamp) -> String {
    let FleetStatus { shards, machines, shortfalls, transfers: open, .. } = status;
    let state = if status.is_paused { "paused" } else { "running" };
    let mut text = format!(
        "{state}; {}, {} under way, {}, {} moved so far\n",
        count(shards.len(), "shard"),
        count(open.len(), "transfer"),
        count(shortfalls.len(), "shortfall"),
        count(machines.len(), "machine")
    );
    for (rows, head) in [
        (self::shards(shards, now), ""),
        (transfers(open, now), "\ntransfers under way:\n"),
        (self::shortfalls(shortfalls), "\nshortfalls:\n"),
    ] {
        if !rows.is_empty() {
            text.push_str(head);
            text.push_str(&rows);
        }
    }
    text
}

fn ago(at: Option<Time>, now: Timestamp) -> String {
    at.map_or_else(|| "never".to_owned(), |at| format!("{} ago", age(at, now)))
}

pub(super) fn shards(shards: &[FleetShard], now: Timestamp) -> String {
    if shards.is_empty() {
        return String::new();
    }
    let mut table = Table::new(["SHARD", "HEARD", ">IDLE", ">IN USE", ">SHORTFALLS", ">PENDING"]);
    for it in shards {
        let name = if it.is_paused { format!("{} (paused)", it.name) } else { it.name.clone() };
        let numbers = [it.idle.to_string(), it.configured.to_string()];
        let [idle, in_use] = numbers;
        let (lacks, pending) = (it.shortfalls.to_string(), it.pending.to_string());
        table.row([name, ago(it.heard_at, now), idle, in_use, lacks, pending]);
    }
    table.render()
}

pub(super) fn machines(machines: &[FleetMachine], now: Timestamp) -> String {
    let mut table = Table::new(["MACHINE", "OWNER", ">EPOCH", "SINCE"]);
    for it in machines {
        let since = ago(Some(it.since), now);
        table.row([it.name.clone(), it.owner.clone(), it.epoch.to_string(), since]);
    }
    table.render()
}

pub(super) fn shortfalls(shortfalls: &[FleetShortfall]) -> String {
    if shortfalls.is_empty() {
        return String::new();
    }
    let mut table = Table::new(["SHORTFALL", ">PRIORITY", ">CYCLES", "MISSING", "WHY NOT SERVED"]);
    for it in shortfalls {
        let why = it.reason.clone().unwrap_or_else(|| "served, or not looked at yet".to_owned());
        let (priority, cycles) = (it.priority.to_string(), it.age.to_string());
        table.row([it.name.clone(), priority, cycles, missing(it), why]);
    }
    table.render()
}

fn missing(it: &FleetShortfall) -> String {
    let mut text = format!("{} cpu, {}", MilliCpus(it.cpu_millis), Bytes(it.memory_bytes));
    if it.gpus > 0 {
        let _ = write!(text, ", {} gpu", it.gpus);
    }
    text
}

pub(super) fn quota(quota: &[FleetQuota]) -> String {
    let mut table = Table::new(["TYPE", "ZONE", "SHARD", ">SLICE", ">USED"]);
    for it in quota {
        let used = it.used.map_or_else(|| "-".to_owned(), |used| used.to_string());
        let (kind, zone) = (it.machine_type.clone(), it.zone.clone());
        table.row([kind, zone, it.shard.clone(), it.slice.to_string(), used]);
    }
    table.render()
}

pub(super) fn transfers(transfers: &[FleetTransfer], now: Timestamp) -> String {
    if transfers.is_empty() {
        return String::new();
    }
    let mut table = Table::new([
        "TRANSFER",
        "KIND",
        "FROM",
        "TO",
        ">COUNT",
        "OF",
        "STEP",
        "SINCE",
        "WAITS FOR",
    ]);
    for it in transfers {
        let of = format!("{} in {}", it.machine_type, it.zone);
        table.row([
            it.id.clone(),
            it.kind.clone(),
            it.donor.clone(),
            it.recipient.clone(),
            it.count.to_string(),
            of,
            it.step.clone(),
            ago(Some(it.since), now),
            it.waits_for.join(", "),
        ]);
    }
    table.render()
}

pub(super) fn explained(it: &FleetShortfall) -> String {
    let mut text = format!(
        "{} lacks {}, priority {}, for {} cycles\n",
        it.name,
        missing(it),
        it.priority,
        it.age
    );
    if it.gates.is_empty() {
        text.push_str("it was served, or no pass has looked at it yet\n");
        return text;
    }
    for gate in &it.gates {
        let tier = if gate.tier.is_empty() { "not served" } else { &gate.tier };
        let _ = writeln!(text, "  {tier:10} {}", gate.why);
    }
    text
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use plimsoll_api::view::FleetGate;

    use super::*;

    const NOW: Timestamp = Timestamp(10_000_000);

    fn time(seconds: u64) -> Time {
        Time(Timestamp(NOW.0 - seconds * 1_000))
    }

    fn fleet() -> FleetStatus {
        FleetStatus {
            role: FleetRole::Coordinator,
            membership: None,
            is_paused: false,
            next_pass: None,
            shards: vec![FleetShard {
                name: "north".into(),
                joined_at: Some(time(900)),
                heard_at: Some(time(4)),
                is_paused: true,
                idle: 3,
                configured: 40,
                shortfalls: 1,
                pending: 2,
            }],
            machines: Vec::new(),
            shortfalls: vec![FleetShortfall {
                name: "north/web".into(),
                cpu_millis: 32_000,
                memory_bytes: 64 << 30,
                gpus: 0,
                priority: 100,
                age: 7,
                reason: Some("idle: no shard has any to give".into()),
                gates: vec![FleetGate {
                    tier: "idle".into(),
                    why: "no shard has any to give".into(),
                }],
            }],
            quota: Vec::new(),
            transfers: Vec::new(),
        }
    }

    #[test]
    fn a_fleet_is_told_in_tables() {
        let said = status(&fleet(), NOW);
        let said = anstream::adapter::strip_str(&said).to_string();
        expect![[r#"
            running; 1 shard, 0 transfers under way, 1 shortfall, 0 machines moved so far
            SHARD           HEARD   IDLE  IN USE  SHORTFALLS  PENDING
            north (paused)  4s ago     3      40           1        2

            shortfalls:
            SHORTFALL  PRIORITY  CYCLES  MISSING         WHY NOT SERVED
            north/web       100       7  32 cpu, 64 GiB  idle: no shard has any to give
        "#]]
        .assert_eq(&said);
    }

    #[test]
    fn a_shortfall_is_explained_gate_by_gate() {
        expect![[r#"
            north/web lacks 32 cpu, 64 GiB, priority 100, for 7 cycles
              idle       no shard has any to give
        "#]]
        .assert_eq(&explained(&fleet().shortfalls[0]));
    }
}
