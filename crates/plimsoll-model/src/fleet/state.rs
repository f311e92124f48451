//! What the coordinator must not forget: who is in the fleet, who owns what was moved, how quota is cut, and every transfer under
//! way with the instructions that carry it out.

use std::collections::{BTreeMap, BTreeSet};

use crate::access::Digest;
use crate::{Millis, Resources, Timestamp};
use serde::{Deserialize, Serialize};

use crate::fleet::ids::{
    InstructionId, MachineId, MachineType, Pool, Profile, ShardId, TransferId,
};
use crate::fleet::instruction::PendingInstruction;
use crate::fleet::report::ReportOrder;

/// Changed only by [`apply`](Self::apply).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FleetState {
    pub(crate) is_paused: bool,
    pub(crate) shards: BTreeMap<ShardId, Shard>,
    /// What a machine of each type has, as the shards that have them say.
    pub(crate) types: BTreeMap<MachineType, Resources>,
    /// Machines that have changed hands. One that is not here belongs to whoever has it.
    pub(crate) owners: BTreeMap<MachineId, Ownership>,
    /// How the quota of each kind of machine is cut. The sum of the slices never changes but by an operator.
    #[serde(with = "super::pairs")]
    pub(crate) quotas: BTreeMap<Pool, BTreeMap<ShardId, u32>>,
    pub(crate) transfers: BTreeMap<TransferId, Transfer>,
    /// Until when two shards exchange nothing of a pool, the smaller name first.
    #[serde(with = "super::pairs")]
    pub(crate) cooldowns: BTreeMap<(Pool, ShardId, ShardId), Timestamp>,
    pub(crate) next: u64,
    /// What cells may join with, or have joined with.
    pub(crate) tokens: BTreeMap<Digest, ShardToken>,
}

/// A secret that one cell may join the fleet with, once, as one shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardToken {
    pub shard: ShardId,
    pub expires_at: Timestamp,
    /// The key of the cell that has.
    pub used_by: Option<Digest>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Shard {
    /// Whoever shows this key speaks for the shard, and nobody else does.
    pub key: Option<Digest>,
    pub joined_at: Option<Timestamp>,
    pub types: BTreeSet<MachineType>,
    /// What it has not carried out yet, in the order in which it is told.
    pub pending: BTreeMap<InstructionId, PendingInstruction>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ownership {
    pub owner: ShardId,
    /// It grows with each owner. A provider takes nothing of an older one.
    pub epoch: u64,
    pub since: Timestamp,
}

/// Capacity on its way from one shard to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    pub kind: TransferKind,
    pub donor: ShardId,
    pub recipient: ShardId,
    pub pool: Pool,
    pub count: u32,
    /// The need it serves.
    pub profile: Profile,
    pub step: TransferStep,
    pub since: Timestamp,
    /// The latest time at which the donor's answer still counts. What it has set aside it keeps for longer.
    pub deadline: Timestamp,
    /// The donor's report that came with its answer: later ones count without the machines.
    pub answered: Option<ReportOrder>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferKind {
    Idle,
    Quota,
    /// Machines that are drained first.
    Preempt,
}

/// Idle machines: asked, then moved. Quota: shrinking at the donor, then growing at the recipient.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferStep {
    /// The donor is to set machines aside, after a drain if it must.
    Asked,
    /// They belong to the recipient; both are told.
    Moved { machines: BTreeSet<MachineId>, is_forgotten: bool, is_adopted: bool },
    /// The donor is to use no more than its new slice.
    Shrinking,
    /// The recipient may use its new slice.
    Growing,
}

impl FleetState {
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    pub fn shards(&self) -> &BTreeMap<ShardId, Shard> {
        &self.shards
    }

    /// What a machine of each type has.
    pub fn types(&self) -> &BTreeMap<MachineType, Resources> {
        &self.types
    }

    pub fn capacity(&self, machine_type: &MachineType) -> Option<Resources> {
        self.types.get(machine_type).copied()
    }

    pub fn owners(&self) -> &BTreeMap<MachineId, Ownership> {
        &self.owners
    }

    pub fn quotas(&self) -> &BTreeMap<Pool, BTreeMap<ShardId, u32>> {
        &self.quotas
    }

    pub fn transfers(&self) -> &BTreeMap<TransferId, Transfer> {
        &self.transfers
    }

    /// How long the two exchange nothing of the pool, from now on.
    pub fn cooldown(
        &self,
        pool: &Pool,
        a: &ShardId,
        b: &ShardId,
        now: Timestamp,
    ) -> Option<Millis> {
        let until = self.cooldowns.get(&pair(pool, a, b))?;
        Some(until.since(now)).filter(|left| left.0 > 0)
    }

    /// What cells may join with, or have joined with.
    pub fn tokens(&self) -> &BTreeMap<Digest, ShardToken> {
        &self.tokens
    }

    /// The shard that whoever shows this key speaks for.
    pub fn shard_of(&self, key: &Digest) -> Option<&ShardId> {
        let enrolled = |(_, it): &(&ShardId, &Shard)| it.key.as_ref() == Some(key);
        self.shards.iter().find(enrolled).map(|(shard, _)| shard)
    }

    /// The next number of a transfer or an instruction.
    pub fn next_transfer(&self) -> TransferId {
        TransferId(self.next)
    }
}

/// Both directions are one.
pub fn pair(pool: &Pool, a: &ShardId, b: &ShardId) -> (Pool, ShardId, ShardId) {
    let (a, b) = if a <= b { (a, b) } else { (b, a) };
    (pool.clone(), a.clone(), b.clone())
}
