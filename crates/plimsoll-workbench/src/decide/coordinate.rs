//! What a coordinator decides on a described fleet: the pass that ships, on a file.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_fleet::pass::Unserved;
use plimsoll_fleet::{FleetPolicy, Reports, coordinate};
use plimsoll_model::access::Digest;
use plimsoll_model::fleet::{
    Accepts, Bucket, FleetChange, FleetCommand, FleetState, MachineType, Pool, Preemptible,
    Profile, Registration, Report, ReportOrder, ShardId, Shortfall, Supply, TransferKind, Zone,
};
use plimsoll_model::{Bytes, MilliCpus, Millis, Resources, Term, Timestamp};
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::entries::values::Parsed;
use crate::entries::{FileKind, parse};
use crate::input::Input;
use crate::mistake::Mistake;

const KIND: FileKind = FileKind {
    word: "fleet case",
    least: "`types:` and `shards:`",
    reference: "docs/reference/fleet-case-format.md",
};

/// Long after any time that a case could count back to.
const NOW: Timestamp = Timestamp(1 << 50);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FleetCaseEntry {
    #[serde(default)]
    paused: bool,
    types: BTreeMap<MachineType, SizeEntry>,
    shards: BTreeMap<ShardId, ShardEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SizeEntry {
    cpus: Option<Parsed<MilliCpus>>,
    memory: Option<Parsed<Bytes>>,
    #[serde(default)]
    gpus: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShardEntry {
    #[serde(default)]
    paused: bool,
    #[serde(default)]
    supply: Vec<SupplyEntry>,
    #[serde(default)]
    shortfalls: BTreeMap<Profile, ShortfallEntry>,
    #[serde(default)]
    preemptible: Vec<PreemptibleEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SupplyEntry {
    r#type: MachineType,
    zone: Zone,
    #[serde(default)]
    idle: u32,
    #[serde(default)]
    configured: u32,
    quota: Option<u32>,
    #[serde(default)]
    quota_used: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShortfallEntry {
    missing: SizeEntry,
    min_unit: Option<SizeEntry>,
    #[serde(default)]
    types: BTreeSet<MachineType>,
    #[serde(default)]
    zones: BTreeSet<Zone>,
    #[serde(default)]
    priority: i32,
    bucket: Option<u8>,
    /// In cycles.
    age: u64,
    #[serde(default)]
    topology_constrained: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PreemptibleEntry {
    r#type: MachineType,
    zone: Zone,
    priority: i32,
    bucket: Option<u8>,
    machines: u32,
    grace: Option<Parsed<Millis>>,
}

impl SizeEntry {
    fn resources(&self) -> Resources {
        Resources {
            cpu: self.cpus.map_or(MilliCpus(0), |it| it.0),
            memory: self.memory.map_or(Bytes(0), |it| it.0),
            gpus: self.gpus,
            all_gpus: 0,
        }
    }
}

/// What one pass begins, and why the rest is not served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FleetPassReport {
    pub begun: Vec<BegunTransfer>,
    pub unserved: Vec<UnservedShortfall>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BegunTransfer {
    /// `idle`, `quota` or `preempt`
    pub kind: &'static str,
    pub donor: String,
    pub recipient: String,
    pub machine_type: String,
    pub zone: String,
    pub count: u32,
    pub profile: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnservedShortfall {
    pub shard: String,
    pub profile: String,
    pub missing: Resources,
    pub why: String,
    pub gate: plimsoll_fleet::pass::Gate,
}

/// What a coordinator decides on the fleet that this file describes.
pub fn coordinate_case(input: &Input) -> Result<FleetPassReport> {
    let text = input.read_text()?;
    let entry: FleetCaseEntry = parse(&text.text, KIND).map_err(|mistake| mistake.on(&text))?;
    let bad = |message: String| {
        let hint = Some(format!("see {}", KIND.reference));
        Mistake { at: None, message, hint }.on(&text)
    };
    let state = books(&entry).map_err(bad)?;
    let policy = FleetPolicy::default();
    let reports = heard(&entry, &policy).map_err(bad)?;
    let decision = coordinate(&state, &reports, &policy, NOW);
    let begun = decision.batch.iter().filter_map(begun).collect();
    let unserved = decision.unserved.into_iter().map(unserved).collect();
    Ok(FleetPassReport { begun, unserved })
}

/// The coordinator's books: everybody is enrolled, and quota is cut as the file says.
fn books(entry: &FleetCaseEntry) -> std::result::Result<FleetState, String> {
    let mut batch = vec![FleetChange::Pause { is_paused: entry.paused }];
    for (nth, (shard, row)) in entry.shards.iter().enumerate() {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&(nth as u64).to_be_bytes());
        let (token, key, expires_at) = (Digest(digest), Digest(digest), NOW);
        let types = entry.types.iter().map(|(name, size)| (name.clone(), size.resources()));
        let registration = Registration { types: types.collect() };
        batch.push(FleetChange::CreateToken { shard: shard.clone(), token, expires_at });
        batch.push(FleetChange::Enrol { token, shard: shard.clone(), key });
        batch.push(FleetChange::Register { shard: shard.clone(), registration });
        for supply in &row.supply {
            if let Some(slice) = supply.quota {
                let pool = Pool { machine_type: supply.r#type.clone(), zone: supply.zone.clone() };
                batch.push(FleetChange::SetQuota { pool, shard: shard.clone(), slice });
            }
        }
    }
    let mut state = FleetState::default();
    let command = FleetCommand { at: Timestamp(0), term: Term(1), batch };
    state.apply(&command).map_err(|refusal| refusal.to_string())?;
    Ok(state)
}

/// What the leader has heard: each shortfall for as many cycles as it is old.
fn heard(entry: &FleetCaseEntry, policy: &FleetPolicy) -> std::result::Result<Reports, String> {
    let mut reports = Reports::default();
    for (shard, row) in &entry.shards {
        let mut ages: Vec<u64> = row.shortfalls.values().map(|it| it.age).chain([0]).collect();
        ages.sort_unstable_by(|a, b| b.cmp(a));
        ages.dedup();
        for (cycle, age) in (1..).zip(ages) {
            let at = Timestamp(NOW.0.saturating_sub(policy.cycles(age).0));
            let report = report(shard, row, (cycle, age));
            reports.take(report, at).map_err(|error| error.to_string())?;
        }
    }
    Ok(reports)
}

/// The report of so many cycles ago, with what was missing by then.
fn report(shard: &ShardId, row: &ShardEntry, (cycle, age): (u64, u64)) -> Report {
    let pool = |machine_type: &MachineType, zone: &Zone| Pool {
        machine_type: machine_type.clone(),
        zone: zone.clone(),
    };
    let supply = row.supply.iter().map(|it| {
        let supply = Supply { idle: it.idle, configured: it.configured, quota_used: it.quota_used };
        (pool(&it.r#type, &it.zone), supply)
    });
    let shortfalls = row.shortfalls.iter().filter(|(_, it)| it.age >= age);
    let shortfalls = shortfalls.map(|(profile, it)| Shortfall {
        profile: profile.clone(),
        deficit: it.missing.resources(),
        min_unit: it.min_unit.as_ref().map_or(Resources::NONE, SizeEntry::resources),
        accepts: Accepts { types: it.types.clone(), zones: it.zones.clone() },
        priority: it.priority,
        bucket: it.bucket.map(Bucket),
        age: it.age,
        is_topology_constrained: it.topology_constrained,
    });
    let preemptible = row.preemptible.iter().map(|it| Preemptible {
        pool: pool(&it.r#type, &it.zone),
        priority: it.priority,
        bucket: it.bucket.map(Bucket),
        machines: it.machines,
        grace: it.grace.map_or(Millis(0), |it| it.0),
    });
    Report {
        shard: shard.clone(),
        order: ReportOrder { epoch: 1, cycle },
        is_paused: row.paused,
        supply: supply.collect(),
        shortfalls: shortfalls.collect(),
        preemptible: preemptible.collect(),
    }
}

fn begun(change: &FleetChange) -> Option<BegunTransfer> {
    let (kind, donor, recipient, pool, count, profile) = match change {
        FleetChange::AskMachines { kind, donor, recipient, pool, count, profile, .. } => {
            let kind = if *kind == TransferKind::Preempt { "preempt" } else { "idle" };
            (kind, donor, recipient, pool, *count, profile)
        }
        FleetChange::MoveQuota { donor, recipient, pool, count, profile, .. } => {
            ("quota", donor, recipient, pool, *count, profile)
        }
        _ => return None,
    };
    Some(BegunTransfer {
        kind,
        donor: donor.to_string(),
        recipient: recipient.to_string(),
        machine_type: pool.machine_type.to_string(),
        zone: pool.zone.to_string(),
        count,
        profile: profile.to_string(),
    })
}

fn unserved(it: Unserved) -> UnservedShortfall {
    UnservedShortfall {
        shard: it.shard.to_string(),
        profile: it.profile.to_string(),
        missing: it.missing,
        why: it.why.to_string(),
        gate: it.why,
    }
}
