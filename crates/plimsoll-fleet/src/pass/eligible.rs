//! Which shortfalls may be served now, the most important first, and what of each is on its way already.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use plimsoll_model::Timestamp;

use super::{Gate, Need, NeedKey, Unserved, less, unserved};
use crate::policy::FleetPolicy;
use crate::reports::Reports;
use plimsoll_model::fleet::{FleetState, Transfer};

/// By priority, then age, both descending; then by name, so that every leader takes the same order.
pub(super) fn needs<'r>(
    state: &FleetState,
    reports: &'r Reports,
    policy: &FleetPolicy,
    now: Timestamp,
) -> (Vec<Need<'r>>, Vec<Unserved>) {
    let mut on_the_way: BTreeMap<NeedKey<'_>, Vec<&Transfer>> = BTreeMap::new();
    for transfer in state.transfers().values() {
        on_the_way.entry((&transfer.recipient, &transfer.profile)).or_default().push(transfer);
    }
    let (mut needs, mut refused) = (Vec::new(), Vec::new());
    for (shard, report) in reports.fresh(policy, now) {
        if !state.shards().contains_key(shard) {
            continue;
        }
        for known in report.shortfalls.values() {
            let shortfall = &known.shortfall;
            let age = known.age(policy, now);
            let coming = on_the_way.get(&(shard, &shortfall.profile));
            let (deficit, is_under_way) = (shortfall.deficit, coming.is_some());
            let mut need = Need { shard, shortfall, age, deficit, is_under_way };
            for transfer in coming.into_iter().flatten() {
                let capacity = state.capacity(&transfer.pool.machine_type).unwrap_or_default();
                need.deficit = less(need.deficit, transfer.count, capacity);
            }
            let accepted = state.types().iter().filter(|(machine_type, capacity)| {
                let types = &shortfall.accepts.types;
                (types.is_empty() || types.contains(*machine_type))
                    && shortfall.min_unit.fits_in(**capacity)
            });
            let why = if state.is_paused() {
                Some(Gate::FleetPaused)
            } else if report.is_paused {
                Some(Gate::ShardPaused)
            } else if shortfall.is_topology_constrained {
                Some(Gate::TopologyConstrained)
            } else if age <= policy.eligible_age {
                Some(Gate::TooYoung { age, above: policy.eligible_age })
            } else if accepted.count() == 0 {
                Some(Gate::NoMachineFits)
            } else if need.is_met() {
                Some(Gate::OnItsWay { transfers: coming.map_or(0, Vec::len) })
            } else {
                None
            };
            match why {
                Some(why) => refused.push(unserved(&need, why)),
                None => needs.push(need),
            }
        }
    }
    needs.sort_by_key(|need| {
        let profile = &need.shortfall.profile;
        (Reverse(need.shortfall.priority), Reverse(need.age), need.shard, profile)
    });
    (needs, refused)
}
