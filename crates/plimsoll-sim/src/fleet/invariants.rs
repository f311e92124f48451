//! What must hold in a fleet at every moment, checked against the shards themselves and by brute force.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use plimsoll_fleet::{FleetLeader, FleetPolicy, Reports, ShardReport};
use plimsoll_model::Timestamp;
use plimsoll_model::fleet::{
    FleetChange, FleetState, MachineId, Ownership, Pool, ShardId, TransferKind,
};

use super::shard::SimShard;

/// A promise that was broken, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FleetInvariant {
    /// Two shards could use one machine, or one uses a machine that the books give to another.
    OneOwner {
        machine: MachineId,
        used_by: ShardId,
        owner: ShardId,
    },
    /// A machine is nobody's, and nobody is told to adopt it.
    Lost {
        machine: MachineId,
    },
    QuotaConserved {
        sum: u64,
        whole: u64,
    },
    /// The slices that shards know of are more than the quota.
    QuotaDoubled {
        known: u64,
        whole: u64,
    },
    MovedTwice {
        machine: MachineId,
        after: plimsoll_model::Millis,
    },
    Pushed {
        to: ShardId,
    },
    Drained {
        donor: ShardId,
        while_idle_at: ShardId,
        idle: u32,
    },
    Unsettled {
        transfers: usize,
        begun: usize,
    },
}

impl fmt::Display for FleetInvariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneOwner { machine, used_by, owner } => {
                write!(f, "{used_by} can use {machine}, which is {owner}'s")
            }
            Self::Lost { machine } => write!(f, "{machine} is nobody's"),
            Self::QuotaConserved { sum, whole } => write!(f, "slices sum to {sum}, not {whole}"),
            Self::QuotaDoubled { known, whole } => {
                write!(f, "shards know of slices that sum to {known}, above {whole}")
            }
            Self::MovedTwice { machine, after } => {
                write!(f, "{machine} moved again after {after}")
            }
            Self::Pushed { to } => write!(f, "{to} gets machines and reports no shortfall"),
            Self::Drained { donor, while_idle_at, idle } => {
                write!(
                    f,
                    "{donor} is drained while {while_idle_at} has {idle} idle machines to give"
                )
            }
            Self::Unsettled { transfers, begun } => write!(
                f,
                "demand has settled, and {transfers} transfers are open and {begun} were begun lately"
            ),
        }
    }
}

/// What is looked at over time.
#[derive(Debug, Default)]
pub(super) struct FleetWatch {
    owners: BTreeMap<MachineId, Ownership>,
    pub(super) whole: u64,
    pub(super) everything: BTreeSet<MachineId>,
}

impl FleetWatch {
    /// After a write.
    pub(super) fn look(
        &mut self,
        state: &FleetState,
        policy: &FleetPolicy,
    ) -> Result<(), FleetInvariant> {
        for (machine, now) in state.owners() {
            let before = self.owners.get(machine).filter(|then| then.owner != now.owner);
            if let Some(then) = before {
                let after = now.since.since(then.since);
                if after < policy.cycles(policy.cooldown_cycles) {
                    return Err(FleetInvariant::MovedTwice { machine: machine.clone(), after });
                }
            }
            self.owners.insert(machine.clone(), now.clone());
        }
        let slices = state.quotas().values().flat_map(BTreeMap::values);
        let (sum, whole) = (slices.map(|it| u64::from(*it)).sum(), self.whole);
        if sum == whole { Ok(()) } else { Err(FleetInvariant::QuotaConserved { sum, whole }) }
    }

    /// Over all shards, which is dear, and so not after every write.
    pub(super) fn look_at_all(
        &mut self,
        state: &FleetState,
        shards: &[SimShard],
    ) -> Result<(), FleetInvariant> {
        let mut users: BTreeMap<&MachineId, &ShardId> = BTreeMap::new();
        let mut held: BTreeSet<&MachineId> = BTreeSet::new();
        for shard in shards {
            held.extend(shard.held());
            for machine in shard.usable() {
                let owner = state.owners().get(machine).map_or(&shard.id, |it| &it.owner);
                let other = users.insert(machine, &shard.id).unwrap_or(owner);
                if *other != shard.id {
                    let (used_by, owner) = (shard.id.clone(), other.clone());
                    let machine = machine.clone();
                    return Err(FleetInvariant::OneOwner { machine, used_by, owner });
                }
            }
        }
        // Whoever owns one that nobody holds is being told so.
        let lost = |machine: &&MachineId| {
            let owner = state.owners().get(*machine).map(|it| &it.owner);
            let pending = owner.and_then(|it| state.shards().get(it)).map(|it| &it.pending);
            !held.contains(machine) && pending.is_none_or(BTreeMap::is_empty)
        };
        if let Some(machine) = self.everything.iter().find(lost) {
            return Err(FleetInvariant::Lost { machine: machine.clone() });
        }
        for machine in held {
            if !self.everything.contains(machine) {
                self.everything.insert(machine.clone());
            }
        }
        let known: u64 = shards.iter().map(|it| u64::from(it.slice)).sum();
        let whole = self.whole;
        if known > whole { Err(FleetInvariant::QuotaDoubled { known, whole }) } else { Ok(()) }
    }
}

/// Of what a pass begins, before it is written.
pub(super) fn judge(
    batch: &[FleetChange],
    state: &FleetState,
    leader: &FleetLeader,
    now: Timestamp,
) -> Result<(), FleetInvariant> {
    for change in batch {
        let (FleetChange::AskMachines { recipient, profile, .. }
        | FleetChange::MoveQuota { recipient, profile, .. }) = change
        else {
            continue;
        };
        let report = leader.reports().get(recipient);
        let Some(need) = report.and_then(|report| report.shortfalls.get(profile)) else {
            return Err(FleetInvariant::Pushed { to: recipient.clone() });
        };
        let FleetChange::AskMachines { kind: TransferKind::Preempt, donor, count, .. } = change
        else {
            continue;
        };
        for (shard, report) in leader.reports().fresh(leader.policy(), now) {
            if shard == recipient || report.is_paused || !report.shortfalls.is_empty() {
                continue;
            }
            for (pool, supply) in &report.supply {
                let may = need.shortfall.accepts.pool(pool)
                    && state.cooldown(pool, shard, recipient, now).is_none();
                let idle = spare(batch, state, leader, (shard, report), (pool, supply.idle));
                let missing = (*count).max(missing(leader.reports(), recipient));
                if may && leader.policy().is_worth(idle.min(missing), missing) {
                    let (donor, while_idle_at) = (donor.clone(), shard.clone());
                    return Err(FleetInvariant::Drained { donor, while_idle_at, idle });
                }
            }
        }
    }
    Ok(())
}

/// How many machines the recipient lacks in all: each is the same here.
fn missing(reports: &Reports, recipient: &ShardId) -> u32 {
    let report = reports.get(recipient);
    let all = report.into_iter().flat_map(|report| report.shortfalls.values());
    let cpus: u64 = all.map(|it| it.shortfall.deficit.cpu.0).sum();
    u32::try_from(cpus.div_ceil(super::shard::MACHINE.cpu.0)).unwrap_or(u32::MAX)
}

/// What a donor has left to give, were everything that was ever asked of it to come to pass.
fn spare(
    batch: &[FleetChange],
    state: &FleetState,
    leader: &FleetLeader,
    (shard, _): (&ShardId, &ShardReport),
    (pool, idle): (&Pool, u32),
) -> u32 {
    let open = state.transfers().values().filter(|it| it.donor == *shard && it.pool == *pool);
    let begun = batch.iter().filter_map(|change| match change {
        FleetChange::AskMachines { donor, pool: of, count, .. } if donor == shard && of == pool => {
            Some(*count)
        }
        _ => None,
    });
    let promised: u32 = open.map(|it| it.count).chain(begun).sum();
    idle.saturating_sub(promised).saturating_sub(leader.policy().kept(idle))
}
