//! The only way the coordinator's state changes: [`FleetState::apply`] makes all changes of a command or none, reads no clock, and
//! never panics. Whatever it is given, a machine has one owner and slices of quota sum to the quota.

use std::collections::BTreeSet;

use crate::access::{Digest, MAX_TOKENS, TOKEN_MEMORY};
use crate::{Millis, Timestamp};

use crate::fleet::command::{FleetChange, FleetCommand, FleetRefusal, Machines, TransferEnd};
use crate::fleet::event::{FleetEvent, MAX_NAMED};
use crate::fleet::ids::{InstructionId, MachineId, Pool, ShardId, TransferId};
use crate::fleet::instruction::{Ack, Order, PendingInstruction};
use crate::fleet::report::{MAX_POOLS, Registration, ReportOrder};
use crate::fleet::state::{
    FleetState, Ownership, ShardToken, Transfer, TransferKind, TransferStep, pair,
};

#[cfg(test)]
mod tests;

/// The most instructions that wait for one shard. A pass begins nothing with a shard that has as many; it cannot be reached by a
/// shard that answers.
pub const MAX_PENDING: usize = 256;

/// The most shards of a fleet: a pass over as many takes milliseconds, and each is a cell of up to thousands of nodes.
pub const MAX_SHARDS: usize = 1_000;

/// The most machines of which it is kept that they have changed hands. One that is not kept is its holder's; beyond this no
/// further one changes hands. A row is some hundred bytes, and every server of the coordinator holds all of them.
pub const MAX_MOVED: usize = 100_000;

impl FleetState {
    /// Makes every change of the command, in order, or none of them. Returns the transfers that ended.
    pub fn apply(
        &mut self,
        command: &FleetCommand,
    ) -> Result<Vec<(TransferId, TransferEnd)>, FleetRefusal> {
        // A copy: the coordinator's state is some thousand rows, and it is written a few times a minute.
        let mut next = self.clone();
        let mut events = Vec::new();
        for change in &command.batch {
            next.make(change, command.at, &mut events)?;
        }
        *self = next;
        let ended = |event| match event {
            FleetEvent::TransferEnded { transfer, end } => Some((transfer, end)),
            _ => None,
        };
        Ok(events.into_iter().filter_map(ended).collect())
    }

    /// Makes one change. One that is refused may be made in part: whoever calls this keeps a copy.
    pub(crate) fn make(
        &mut self,
        change: &FleetChange,
        at: Timestamp,
        events: &mut Vec<FleetEvent>,
    ) -> Result<(), FleetRefusal> {
        self.cooldowns.retain(|_, until| *until > at);
        match change {
            FleetChange::Begin => events.push(FleetEvent::Began),
            FleetChange::CreateToken { shard, token, expires_at } => {
                self.create_token(shard, *token, (at, *expires_at))?;
                let (shard, expires_at) = (shard.clone(), *expires_at);
                events.push(FleetEvent::TokenCreated { shard, expires_at });
            }
            FleetChange::Enrol { token, shard, key } => {
                let is_new = self.shards.get(shard).and_then(|it| it.key) != Some(*key);
                self.enrol(token, shard, *key, at)?;
                if is_new {
                    events.push(FleetEvent::Enrolled { shard: shard.clone() });
                }
            }
            FleetChange::Register { shard, registration } => {
                self.known(shard)?;
                full("types of machines", registration.types.len(), MAX_POOLS + 1)?;
                self.register(shard, registration);
            }
            FleetChange::Expel { shard } => {
                self.expel(shard, events)?;
                events.push(FleetEvent::Expelled { shard: shard.clone() });
            }
            FleetChange::Pause { is_paused } => {
                if self.is_paused != *is_paused {
                    self.is_paused = *is_paused;
                    events.push(FleetEvent::Paused { is_paused: *is_paused });
                }
            }
            FleetChange::SetQuota { pool, shard, slice } => {
                self.known(shard)?;
                if !self.quotas.contains_key(pool) {
                    full("kinds of machines with a quota", self.quotas.len(), MAX_POOLS)?;
                }
                self.quotas.entry(pool.clone()).or_default().insert(shard.clone(), *slice);
                let (of, to, slice) = (pool.clone(), shard.clone(), *slice);
                events.push(FleetEvent::QuotaSet { pool: of, shard: to, slice });
                let id = TransferId(self.number());
                self.tell(shard, id, Order::SetQuota { pool: pool.clone(), slice })?;
            }
            FleetChange::AskMachines { .. } => {
                let id = self.ask(change, at)?;
                self.started(id, events);
            }
            FleetChange::MoveQuota { .. } => {
                let id = self.move_quota(change, at)?;
                self.started(id, events);
            }
            FleetChange::Acknowledge { shard, id, order, ack, max_failures, cooldown } => {
                let waits = self.shards.get(shard).and_then(|it| it.pending.get(id)).cloned();
                // Said again, or of something that was given up: it changes nothing.
                let Some(pending) = waits else { return Ok(()) };
                let limits = AckLimits { max_failures: *max_failures, cooldown: *cooldown };
                self.acknowledge((shard, *id), &pending, (*order, ack), (at, limits), events)?;
            }
            FleetChange::Expire { transfer } => {
                let found =
                    self.transfers.get(transfer).filter(|it| it.step == TransferStep::Asked);
                let Some(found) = found else {
                    return Err(FleetRefusal::NoTransfer { transfer: *transfer });
                };
                if at <= found.deadline {
                    let until = found.deadline;
                    return Err(FleetRefusal::NotExpired { transfer: *transfer, until });
                }
                self.end(*transfer, TransferEnd::Expired, events);
            }
        }
        Ok(())
    }

    /// The newest token for a shard is the one that is good.
    fn create_token(
        &mut self,
        shard: &ShardId,
        token: Digest,
        (at, expires_at): (Timestamp, Timestamp),
    ) -> Result<(), FleetRefusal> {
        self.tokens.retain(|_, it| {
            let is_void = it.used_by.is_none() && it.shard == *shard;
            !is_void && at.since(it.expires_at) < TOKEN_MEMORY
        });
        full("tokens", self.tokens.len(), MAX_TOKENS)?;
        let made = ShardToken { shard: shard.clone(), expires_at, used_by: None };
        self.tokens.insert(token, made);
        Ok(())
    }

    /// Whether a cell may join with the token under this name and key.
    pub fn may_enrol(
        &self,
        token: &Digest,
        shard: &ShardId,
        key: Digest,
        at: Timestamp,
    ) -> Result<(), FleetRefusal> {
        let Some(known) = self.tokens.get(token) else { return Err(FleetRefusal::TokenUnknown) };
        if known.shard != *shard {
            let (named, shard) = (known.shard.clone(), shard.clone());
            return Err(FleetRefusal::TokenForAnother { named, shard });
        }
        match known.used_by {
            // It asks again, since the answer was lost. Once it was expelled, the token is spent.
            Some(by) if by == key && self.shard_of(&key) == Some(shard) => return Ok(()),
            Some(_) => return Err(FleetRefusal::TokenUsed { by: shard.clone() }),
            None => {}
        }
        if at >= known.expires_at {
            return Err(FleetRefusal::TokenExpired { ago: at.since(known.expires_at) });
        }
        if let Some(by) = self.shard_of(&key).filter(|by| *by != shard) {
            return Err(FleetRefusal::KeyTaken { by: by.clone() });
        }
        if !self.shards.contains_key(shard) {
            full("shards", self.shards.len(), MAX_SHARDS)?;
        }
        Ok(())
    }

    /// A shard that is known gets another key: an operator gave out a token for it.
    fn enrol(
        &mut self,
        token: &Digest,
        shard: &ShardId,
        key: Digest,
        at: Timestamp,
    ) -> Result<(), FleetRefusal> {
        self.may_enrol(token, shard, key, at)?;
        if let Some(token) = self.tokens.get_mut(token) {
            token.used_by = Some(key);
        }
        let row = self.shards.entry(shard.clone()).or_default();
        (row.key, row.joined_at) = (Some(key), Some(row.joined_at.unwrap_or(at)));
        Ok(())
    }

    fn register(&mut self, shard: &ShardId, registration: &Registration) {
        let types = registration.types.keys().cloned().collect();
        if let Some(row) = self.shards.get_mut(shard) {
            row.types = types;
        }
        for (machine_type, capacity) in &registration.types {
            // What a machine of a type has is not for one shard to say anew while others have such machines.
            let others = self.shards.iter().filter(|(name, _)| *name != shard);
            let is_others = others.map(|(_, it)| &it.types).any(|it| it.contains(machine_type));
            if !is_others || !self.types.contains_key(machine_type) {
                self.types.insert(machine_type.clone(), *capacity);
            }
        }
        self.forget_types();
    }

    /// What no shard has is no type of the fleet any more.
    fn forget_types(&mut self) {
        let used: BTreeSet<_> = self.shards.values().flat_map(|it| it.types.clone()).collect();
        self.types.retain(|machine_type, _| used.contains(machine_type));
    }

    /// It is gone at once: nobody waits for its word any more, and its word counts no more.
    fn expel(&mut self, shard: &ShardId, events: &mut Vec<FleetEvent>) -> Result<(), FleetRefusal> {
        self.known(shard)?;
        let with_it = |it: &Transfer| it.donor == *shard || it.recipient == *shard;
        let bound: Vec<TransferId> =
            self.transfers.iter().filter(|(_, it)| with_it(it)).map(|(id, _)| *id).collect();
        for id in bound {
            let Some(transfer) = self.transfers.get(&id).cloned() else { continue };
            let Transfer { donor, recipient, pool, count, step, .. } = &transfer;
            let is_donor = donor == shard;
            match step {
                // What changed hands has: only the other one is waited for.
                TransferStep::Moved { .. } => {
                    let who = if is_donor { Told::Donor } else { Told::Recipient };
                    self.told(id, who, events);
                }
                // Whether the donor uses what it was to give up is not known: it goes with the donor.
                TransferStep::Shrinking => {
                    self.cut(pool, (recipient, donor), *count);
                    if !is_donor {
                        let slice = self.slice(pool, donor);
                        self.tell(donor, id, Order::SetQuota { pool: pool.clone(), slice })?;
                    }
                    self.end(id, TransferEnd::Expelled, events);
                }
                // The donor has given it up. A recipient that is told later has what the books say.
                TransferStep::Growing if is_donor => {}
                TransferStep::Asked | TransferStep::Growing => {
                    self.end(id, TransferEnd::Expelled, events);
                }
            }
        }
        self.shards.remove(shard);
        for slices in self.quotas.values_mut() {
            slices.remove(shard);
        }
        self.cooldowns.retain(|(_, a, b), _| a != shard && b != shard);
        self.forget_types();
        Ok(())
    }

    fn started(&self, id: Option<TransferId>, events: &mut Vec<FleetEvent>) {
        let begun = id.and_then(|id| Some((id, self.transfers.get(&id)?)));
        events.extend(begun.map(|(transfer, it)| FleetEvent::TransferStarted {
            transfer,
            kind: it.kind,
            donor: it.donor.clone(),
            recipient: it.recipient.clone(),
            pool: it.pool.clone(),
            count: it.count,
            profile: it.profile.clone(),
        }));
    }

    fn ask(
        &mut self,
        change: &FleetChange,
        at: Timestamp,
    ) -> Result<Option<TransferId>, FleetRefusal> {
        let FleetChange::AskMachines {
            kind,
            donor,
            recipient,
            pool,
            count,
            profile,
            priority,
            patience,
            ttl,
            cooldown,
        } = change
        else {
            return Ok(None);
        };
        self.may_exchange(donor, recipient, pool, *count, at)?;
        let id = TransferId(self.number());
        let (pool, count, ttl) = (pool.clone(), *count, *ttl);
        let order = match kind {
            TransferKind::Preempt => {
                Order::Drain { pool: pool.clone(), count, below_priority: *priority, ttl }
            }
            TransferKind::Idle | TransferKind::Quota => {
                Order::Reserve { pool: pool.clone(), count, ttl }
            }
        };
        self.tell(donor, id, order)?;
        self.cool(&pool, (donor, recipient), at.plus(*cooldown));
        let transfer = Transfer {
            kind: *kind,
            donor: donor.clone(),
            recipient: recipient.clone(),
            pool,
            count,
            profile: profile.clone(),
            step: TransferStep::Asked,
            since: at,
            deadline: at.plus(*patience),
            answered: None,
        };
        self.transfers.insert(id, transfer);
        Ok(Some(id))
    }

    fn move_quota(
        &mut self,
        change: &FleetChange,
        at: Timestamp,
    ) -> Result<Option<TransferId>, FleetRefusal> {
        let FleetChange::MoveQuota { donor, recipient, pool, count, profile, cooldown } = change
        else {
            return Ok(None);
        };
        self.may_exchange(donor, recipient, pool, *count, at)?;
        let slice = self.slice(pool, donor);
        let Some(left) = slice.checked_sub(*count) else {
            let (shard, pool) = (donor.clone(), pool.clone());
            return Err(FleetRefusal::Quota { shard, pool, slice, count: *count });
        };
        let id = TransferId(self.number());
        self.cut(pool, (donor, recipient), *count);
        // The recipient is told when the donor uses no more than its new slice: until then both could use the same part.
        self.tell(donor, id, Order::SetQuota { pool: pool.clone(), slice: left })?;
        self.cool(pool, (donor, recipient), at.plus(*cooldown));
        let transfer = Transfer {
            kind: TransferKind::Quota,
            donor: donor.clone(),
            recipient: recipient.clone(),
            pool: pool.clone(),
            count: *count,
            profile: profile.clone(),
            step: TransferStep::Shrinking,
            since: at,
            deadline: at,
            answered: None,
        };
        self.transfers.insert(id, transfer);
        Ok(Some(id))
    }

    fn may_exchange(
        &self,
        donor: &ShardId,
        recipient: &ShardId,
        pool: &Pool,
        count: u32,
        at: Timestamp,
    ) -> Result<(), FleetRefusal> {
        self.known(donor)?;
        self.known(recipient)?;
        if donor == recipient {
            return Err(FleetRefusal::SameShard { shard: donor.clone() });
        }
        if count == 0 {
            return Err(FleetRefusal::Nothing);
        }
        match self.cooldown(pool, donor, recipient, at) {
            Some(left) => {
                let (pool, a, b) = (pool.clone(), donor.clone(), recipient.clone());
                Err(FleetRefusal::Cooldown { pool, a, b, left })
            }
            None => Ok(()),
        }
    }

    /// What follows from the answer of a shard.
    fn acknowledge(
        &mut self,
        (shard, id): (&ShardId, InstructionId),
        pending: &PendingInstruction,
        (order, ack): (ReportOrder, &Ack),
        (at, limits): (Timestamp, AckLimits),
        events: &mut Vec<FleetEvent>,
    ) -> Result<(), FleetRefusal> {
        // What says whose a machine is must be carried out some time; anything else is given up.
        let failures = pending.failures.saturating_add(1);
        if matches!(ack, Ack::Failed { .. })
            && (pending.order.is_about_ownership() || failures < limits.max_failures)
        {
            let waits = self.shards.get_mut(shard).and_then(|it| it.pending.get_mut(&id));
            if let Some(waits) = waits {
                waits.failures = failures;
            }
            return Ok(());
        }
        self.done(shard, id);
        let transfer = pending.transfer;
        match (&pending.order, ack) {
            (Order::Reserve { .. } | Order::Drain { .. }, Ack::Reserved { machines }) => {
                self.reserved(transfer, (shard, machines), (order, at, limits.cooldown), events)?;
            }
            (Order::Reserve { .. } | Order::Drain { .. }, Ack::Done) => {
                self.end(transfer, TransferEnd::Refused, events);
            }
            (Order::Reserve { .. } | Order::Drain { .. }, ack) => {
                let why = if matches!(ack, Ack::Refused { .. }) {
                    TransferEnd::Refused
                } else {
                    TransferEnd::GivenUp
                };
                self.end(transfer, why, events);
            }
            (Order::Forget { .. }, _) => self.told(transfer, Told::Donor, events),
            (Order::Adopt { .. }, _) => self.told(transfer, Told::Recipient, events),
            (Order::SetQuota { .. }, ack) => self.quota_told(transfer, ack, events)?,
            (Order::Release { .. }, _) => {}
        }
        Ok(())
    }

    /// The donor has set machines aside: they change hands here, all in one entry. Those that may not are given back.
    fn reserved(
        &mut self,
        id: TransferId,
        (donor, machines): (&ShardId, &Machines),
        (order, at, cooldown): (ReportOrder, Timestamp, Millis),
        events: &mut Vec<FleetEvent>,
    ) -> Result<(), FleetRefusal> {
        let open = self.transfers.get(&id).filter(|it| it.step == TransferStep::Asked);
        let Some(transfer) = open.filter(|it| at <= it.deadline).cloned() else {
            // Too late: whoever was to get them looks elsewhere by now.
            let is_open = open.is_some();
            self.tell(donor, id, Order::Release { machines: machines.clone() })?;
            if is_open {
                self.end(id, TransferEnd::Expired, events);
            }
            return Ok(());
        };
        let most = usize::try_from(transfer.count).unwrap_or(usize::MAX);
        // Room for those that are not in the books yet.
        let mut room = MAX_MOVED.saturating_sub(self.owners.len());
        let may_go = |machine: &&MachineId| {
            let is_known = self.owners.contains_key(*machine);
            let may = self.may_go(machine, donor, at, cooldown) && (is_known || room > 0);
            room -= usize::from(may && !is_known);
            may
        };
        let moved: Machines = machines.iter().filter(may_go).take(most).cloned().collect();
        let back: Machines = machines.difference(&moved).cloned().collect();
        if !back.is_empty() {
            self.tell(donor, id, Order::Release { machines: back })?;
        }
        if moved.is_empty() {
            self.end(id, TransferEnd::Refused, events);
            return Ok(());
        }
        let mut adopted = Vec::new();
        for machine in &moved {
            let epoch = self.owners.get(machine).map_or(1, |it| it.epoch + 1);
            let owner = Ownership { owner: transfer.recipient.clone(), epoch, since: at };
            self.owners.insert(machine.clone(), owner);
            adopted.push((machine.clone(), epoch));
        }
        events.push(FleetEvent::MachinesMoved {
            transfer: id,
            recipient: transfer.recipient.clone(),
            count: moved.len(),
            named: moved.iter().take(MAX_NAMED).cloned().collect(),
        });
        self.tell(donor, id, Order::Forget { machines: moved.clone() })?;
        self.tell(&transfer.recipient, id, Order::Adopt { machines: adopted })?;
        self.cool(&transfer.pool, (donor, &transfer.recipient), at.plus(cooldown));
        if let Some(transfer) = self.transfers.get_mut(&id) {
            transfer.answered = Some(order);
            transfer.step =
                TransferStep::Moved { machines: moved, is_forgotten: false, is_adopted: false };
        }
        Ok(())
    }

    /// Whether the machine is the donor's to give: nobody else's, and not one that has only just been moved.
    fn may_go(&self, machine: &MachineId, donor: &ShardId, at: Timestamp, rest: Millis) -> bool {
        let owned = self.owners.get(machine);
        owned.is_none_or(|it| it.owner == *donor && at.since(it.since) >= rest)
    }

    fn told(&mut self, id: TransferId, who: Told, events: &mut Vec<FleetEvent>) {
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        let TransferStep::Moved { is_forgotten, is_adopted, .. } = &mut transfer.step else {
            return;
        };
        match who {
            Told::Donor => *is_forgotten = true,
            Told::Recipient => *is_adopted = true,
        }
        if *is_forgotten && *is_adopted {
            self.end(id, TransferEnd::Done, events);
        }
    }

    /// The donor has shrunk: the recipient may grow. A donor that cannot shrink gets its slice back.
    fn quota_told(
        &mut self,
        id: TransferId,
        ack: &Ack,
        events: &mut Vec<FleetEvent>,
    ) -> Result<(), FleetRefusal> {
        let Some(transfer) = self.transfers.get(&id).cloned() else { return Ok(()) };
        let Transfer { donor, recipient, pool, count, .. } = &transfer;
        match (&transfer.step, ack) {
            (TransferStep::Shrinking, Ack::Done | Ack::Reserved { .. }) => {
                let slice = self.slice(pool, recipient);
                self.tell(recipient, id, Order::SetQuota { pool: pool.clone(), slice })?;
                if let Some(transfer) = self.transfers.get_mut(&id) {
                    transfer.step = TransferStep::Growing;
                }
            }
            (TransferStep::Shrinking, Ack::Refused { .. } | Ack::Failed { .. }) => {
                self.cut(pool, (recipient, donor), *count);
                let slice = self.slice(pool, donor);
                self.tell(donor, id, Order::SetQuota { pool: pool.clone(), slice })?;
                let is_refused = matches!(ack, Ack::Refused { .. });
                let why = if is_refused { TransferEnd::Refused } else { TransferEnd::GivenUp };
                self.end(id, why, events);
            }
            (TransferStep::Growing, _) => self.end(id, TransferEnd::Done, events),
            (TransferStep::Asked | TransferStep::Moved { .. }, _) => {}
        }
        Ok(())
    }

    fn end(&mut self, id: TransferId, why: TransferEnd, events: &mut Vec<FleetEvent>) {
        if let Some(transfer) = self.transfers.remove(&id) {
            events.push(FleetEvent::TransferEnded { transfer: id, end: why });
            // A donor that is not to answer any more is not asked any more.
            if transfer.step == TransferStep::Asked
                && let Some(donor) = self.shards.get_mut(&transfer.donor)
            {
                let asks = |it: &PendingInstruction| {
                    matches!(it.order, Order::Reserve { .. } | Order::Drain { .. })
                };
                // One that was sent may be carried out yet. Its answer comes to nothing, and what was set aside is released.
                if why != TransferEnd::Expired {
                    donor.pending.retain(|_, it| it.transfer != id || !asks(it));
                }
            }
        }
    }

    fn slice(&self, pool: &Pool, shard: &ShardId) -> u32 {
        self.quotas.get(pool).and_then(|slices| slices.get(shard)).copied().unwrap_or(0)
    }

    /// The one loses what the other gains.
    fn cut(&mut self, pool: &Pool, (from, to): (&ShardId, &ShardId), count: u32) {
        let slices = self.quotas.entry(pool.clone()).or_default();
        let less = slices.get(from).copied().unwrap_or(0).min(count);
        *slices.entry(from.clone()).or_default() -= less;
        *slices.entry(to.clone()).or_default() += less;
    }

    fn cool(&mut self, pool: &Pool, (a, b): (&ShardId, &ShardId), until: Timestamp) {
        self.cooldowns.insert(pair(pool, a, b), until);
    }

    fn tell(
        &mut self,
        shard: &ShardId,
        transfer: TransferId,
        order: Order,
    ) -> Result<(), FleetRefusal> {
        let id = InstructionId(self.number());
        let Some(row) = self.shards.get_mut(shard) else {
            return Err(FleetRefusal::UnknownShard { shard: shard.clone() });
        };
        let found = row.pending.len();
        // Whoever is owed a word about a machine gets it, however many wait: only what is begun has a limit.
        let is_begun = matches!(order, Order::Reserve { .. } | Order::Drain { .. });
        if is_begun && found >= MAX_PENDING {
            let (shard, max) = (shard.clone(), MAX_PENDING);
            return Err(FleetRefusal::TooMany { shard, found, max });
        }
        row.pending.insert(id, PendingInstruction { transfer, order, failures: 0 });
        Ok(())
    }

    fn done(&mut self, shard: &ShardId, id: InstructionId) {
        if let Some(row) = self.shards.get_mut(shard) {
            row.pending.remove(&id);
        }
    }

    fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    fn known(&self, shard: &ShardId) -> Result<(), FleetRefusal> {
        if self.shards.contains_key(shard) {
            return Ok(());
        }
        Err(FleetRefusal::UnknownShard { shard: shard.clone() })
    }
}

/// Refused where there are as many as may be.
fn full(what: &str, found: usize, max: usize) -> Result<(), FleetRefusal> {
    if found < max {
        return Ok(());
    }
    Err(FleetRefusal::Full { what: what.to_owned(), found, max })
}

#[derive(Debug, Clone, Copy)]
struct AckLimits {
    max_failures: u32,
    cooldown: Millis,
}

/// Who of the two has carried out its part.
#[derive(Debug, Clone, Copy)]
enum Told {
    Donor,
    Recipient,
}
