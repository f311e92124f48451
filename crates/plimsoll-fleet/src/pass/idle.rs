//! The first tier: idle machines of another shard, from whoever has most of them to spare.

use plimsoll_model::Millis;

use super::donors::{Donors, largest, take};
use super::{FleetDecision, MAX_TRANSFERS, Need, Tier, TierSkip, WaitsFor, wanted};
use plimsoll_model::fleet::FleetChange;
use plimsoll_model::fleet::TransferKind;
use plimsoll_model::fleet::{Pool, ShardId};

/// Asks for as much as is worth a move. Says what stands in the way, where something is left.
pub(super) fn serve(
    need: &mut Need<'_>,
    donors: &mut Donors<'_>,
    decision: &mut FleetDecision,
) -> Option<TierSkip> {
    let skip = |waits_for| Some(TierSkip { tier: Tier::Idle, waits_for });
    for _ in 0..MAX_TRANSFERS {
        if need.is_met() {
            return None;
        }
        let offer = match best(need, donors) {
            Ok(offer) => offer,
            Err(waits_for) => return skip(waits_for),
        };
        let (policy, cooldown) = (donors.policy, donors.policy.cooldown_cycles);
        decision.batch.push(FleetChange::AskMachines {
            kind: TransferKind::Idle,
            donor: offer.donor.clone(),
            recipient: need.shard.clone(),
            pool: offer.pool.clone(),
            count: offer.count,
            profile: need.shortfall.profile.clone(),
            priority: need.shortfall.priority,
            patience: policy.reservation(Millis(0)),
            ttl: Millis(policy.reservation(Millis(0)).0.saturating_mul(2)),
            cooldown: policy.cycles(cooldown),
        });
        need.meet(offer.count, offer.capacity);
        take(&mut donors.idle, offer.pool, offer.donor, offer.count);
        donors.meet(offer.pool, offer.donor, need.shard);
    }
    if need.is_met() { None } else { skip(WaitsFor::Donor) }
}

struct Offer<'r> {
    pool: &'r Pool,
    donor: &'r ShardId,
    count: u32,
    capacity: plimsoll_model::Resources,
}

/// The donor with the largest surplus among the pools that would do: of equals, the first by name, then the pool of which the
/// fewest machines are needed.
fn best<'r>(need: &Need<'_>, donors: &Donors<'r>) -> Result<Offer<'r>, WaitsFor> {
    let mut why = WaitsFor::Donor;
    let mut found: Option<(u32, Offer<'r>)> = None;
    for (pool, capacity, missing) in wanted(need, donors.state, donors.idle.keys().copied()) {
        let given = &donors.idle[pool];
        let resting = |shard: &ShardId| donors.rest(pool, shard, need.shard);
        let may = |shard: &ShardId| shard != need.shard && resting(shard).is_none();
        let Some((donor, surplus)) = largest(given, may) else { continue };
        let count = surplus.min(missing);
        if !donors.policy.is_worth(count, missing) {
            let (donor, pool) = (donor.clone(), pool.clone());
            why = WaitsFor::Benefit { donor, pool, given: count, missing };
            continue;
        }
        let is_better = found.as_ref().is_none_or(|(most, offer)| {
            (surplus, offer.donor, offer.count) > (*most, donor, count)
        });
        if is_better {
            found = Some((surplus, Offer { pool, donor, count, capacity }));
        }
    }
    found.map(|(_, offer)| offer).ok_or_else(|| donors.resting(&donors.idle, need).unwrap_or(why))
}
