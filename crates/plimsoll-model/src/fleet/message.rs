//! What a shard and its coordinator say to each other: one request and one answer every cycle. Whose request it is says the key
//! that it came with, and nothing in it: no shard can speak for another.

use serde::{Deserialize, Serialize};

use crate::Term;
use crate::fleet::ids::{InstructionId, Pool, ShardId};
use crate::fleet::instruction::{Ack, Instruction};
use crate::fleet::report::{
    MAX_POOLS, Preemptible, Registration, Report, ReportError, ReportOrder, Shortfall,
};
use crate::fleet::summary::{SummaryError, decode_summary, encode_summary};

/// The most acknowledgements in one message: as many as instructions may wait for a shard.
pub(crate) const MAX_ACKS: usize = crate::fleet::MAX_PENDING;

/// The kinds of machines of a shard, in the order in which summaries count them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ShardKinds {
    pub registration: Registration,
    pub pools: Vec<Pool>,
}

impl ShardKinds {
    /// Those of a report.
    pub fn of(registration: Registration, report: &Report) -> Self {
        Self { registration, pools: report.supply.keys().cloned().collect() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardMessage {
    pub order: ReportOrder,
    pub is_paused: bool,
    /// Said first, whenever they change, and whenever the coordinator asks.
    pub kinds: Option<ShardKinds>,
    /// What it has of each, see [`encode_summary`].
    pub summary: Vec<u8>,
    pub shortfalls: Vec<Shortfall>,
    pub preemptible: Vec<Preemptible>,
    pub acks: Vec<(InstructionId, Ack)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoordinatorAnswer {
    /// Of the leader that answers. A shard takes nothing of an older one.
    pub term: Term,
    pub instructions: Vec<Instruction>,
    /// This leader does not know the kinds of machines yet: the next message is to say them.
    pub wants_kinds: bool,
}

impl ShardMessage {
    /// `kinds` are those that the coordinator knows, or is told with this.
    pub fn new(
        report: Report,
        kinds: &ShardKinds,
        says_kinds: bool,
        acks: Vec<(InstructionId, Ack)>,
    ) -> Result<Self, SummaryError> {
        let Report { order, is_paused, supply, shortfalls, preemptible, .. } = report;
        let summary = encode_summary(&kinds.pools, &supply)?;
        let kinds = says_kinds.then(|| kinds.clone());
        Ok(Self { order, is_paused, kinds, summary, shortfalls, preemptible, acks })
    }

    /// Refuses what no shard would say, whatever its kinds of machines are.
    pub fn check(&self, shard: &ShardId) -> Result<(), ReportError> {
        let many = |what, found, max| {
            if found > max {
                return Err(ReportError::TooMany { shard: shard.clone(), what, found, max });
            }
            Ok(())
        };
        let pools = self.kinds.as_ref().map_or(0, |kinds| kinds.pools.len());
        many("types and zones", pools, MAX_POOLS)?;
        many("acknowledgements", self.acks.len(), MAX_ACKS)
    }

    /// The report in it, of a shard whose kinds of machines are these.
    pub fn report(&self, shard: &ShardId, pools: &[Pool]) -> Result<Report, ReportError> {
        self.check(shard)?;
        let supply = decode_summary(pools, &self.summary)
            .map_err(|source| ReportError::Summary { shard: shard.clone(), source })?;
        let report = Report {
            shard: shard.clone(),
            order: self.order,
            is_paused: self.is_paused,
            supply,
            shortfalls: self.shortfalls.clone(),
            preemptible: self.preemptible.clone(),
        };
        report.check()?;
        Ok(report)
    }
}
