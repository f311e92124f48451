//! What this leader of the coordinator has heard: the newest report of each shard, and for how long it has known each shortfall.
//!
//! It is soft. A new leader begins with nothing and counts ages anew, so that half an hour without a coordinator is not followed
//! by a burst of moves for needs that have grown old meanwhile.

use std::collections::BTreeMap;

use plimsoll_model::Timestamp;

use crate::policy::FleetPolicy;
use plimsoll_model::fleet::Pool;
use plimsoll_model::fleet::{Preemptible, Report, ReportError, ReportOrder, Shortfall, Supply};
use plimsoll_model::fleet::{Profile, ShardId};

#[derive(Debug, Clone, Default)]
pub struct Reports {
    shards: BTreeMap<ShardId, ShardReport>,
}

/// The newest word of one shard.
#[derive(Debug, Clone)]
pub struct ShardReport {
    pub order: ReportOrder,
    pub heard_at: Timestamp,
    pub is_paused: bool,
    pub supply: BTreeMap<Pool, Supply>,
    pub shortfalls: BTreeMap<Profile, KnownShortfall>,
    pub preemptible: Vec<Preemptible>,
}

#[derive(Debug, Clone)]
pub struct KnownShortfall {
    pub shortfall: Shortfall,
    /// When this leader first heard of it, without a report in between that did not name it.
    pub since: Timestamp,
}

impl KnownShortfall {
    /// For how many cycles it is missing, as far as this leader can tell: no longer than the shard says, and no longer than it
    /// has itself heard of it.
    pub fn age(&self, policy: &FleetPolicy, now: Timestamp) -> u64 {
        (now.since(self.since).0 / policy.cycle.0.max(1)).min(self.shortfall.age)
    }
}

impl Reports {
    /// Takes a report. False: it is older than what is known, and changes nothing.
    pub fn take(&mut self, report: Report, now: Timestamp) -> Result<bool, ReportError> {
        report.check()?;
        let known = self.shards.get(&report.shard);
        if known.is_some_and(|known| report.order <= known.order) {
            return Ok(false);
        }
        let since = |profile: &Profile| {
            let known = known.and_then(|known| known.shortfalls.get(profile));
            known.map_or(now, |known| known.since)
        };
        let shortfalls = report.shortfalls.into_iter().map(|shortfall| {
            let since = since(&shortfall.profile);
            (shortfall.profile.clone(), KnownShortfall { shortfall, since })
        });
        let taken = ShardReport {
            order: report.order,
            heard_at: now,
            is_paused: report.is_paused,
            supply: report.supply,
            shortfalls: shortfalls.collect(),
            preemptible: report.preemptible,
        };
        self.shards.insert(report.shard, taken);
        Ok(true)
    }

    /// Nothing is known of it any more: it was expelled.
    pub fn forget(&mut self, shard: &ShardId) {
        self.shards.remove(shard);
    }

    pub fn get(&self, shard: &ShardId) -> Option<&ShardReport> {
        self.shards.get(shard)
    }

    /// Those who were heard lately; the others are silent, and silence is not data.
    pub fn fresh<'r>(
        &'r self,
        policy: &FleetPolicy,
        now: Timestamp,
    ) -> impl Iterator<Item = (&'r ShardId, &'r ShardReport)> {
        let patience = policy.cycles(policy.stale_cycles);
        self.shards.iter().filter(move |(_, report)| now.since(report.heard_at) <= patience)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&ShardId, &ShardReport)> {
        self.shards.iter()
    }
}
