//! Writing entries: one guarded transaction for as many proposals as fit, tried until it is known what became of it.

use std::time::Duration;

use bytes::Bytes;
use plimsoll_etcd::{Error, EtcdClient, Keys, Op, Range, Txn, TxnReply, When};

use crate::layout::{Body, Layout, LogEntry};
use crate::rules::{self, AppendVerdict, MAX_BYTES};
use crate::seal::{ValueSeal, part_of};
use crate::tip::KnownTip;

/// A command larger than this is kept in parts. Half a transaction, so that a page of entries is not too much to read.
pub(crate) const MAX_WHOLE: usize = MAX_BYTES / 2;

/// About what a key, its length, its guard and its seal add to a command.
const OVERHEAD: usize = 210;

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// What became of a batch.
#[derive(Debug)]
pub(crate) enum AppendOutcome {
    Committed,
    /// It was not written, and will not be; we lead no longer.
    Deposed,
    /// It was not written, and etcd says why; we still lead.
    Refused(Error),
    /// It may have been written, and we cannot go on as if we knew.
    Unsure,
}

/// What a command takes of a transaction.
pub(crate) fn cost(command: usize) -> usize {
    OVERHEAD + if command > MAX_WHOLE { 0 } else { command }
}

/// Who writes: a leader at its term.
#[derive(Debug, Clone)]
pub(crate) struct EtcdWriter {
    pub(crate) client: EtcdClient,
    pub(crate) layout: Layout,
    pub(crate) term: i64,
    /// Whose prefix it is, as it is written there.
    pub(crate) owner: Bytes,
    pub(crate) tip: KnownTip,
    pub(crate) seal: ValueSeal,
}

impl EtcdWriter {
    /// Holds for as long as we lead a cell that lost nothing.
    fn guards(&self) -> Vec<When> {
        vec![
            When::created_at(self.layout.leader(), self.term),
            When::has_value(self.layout.cell_id(), self.owner.clone()),
            When::absent(self.layout.lost()),
        ]
    }

    /// Writes commands from an index on. It ends only when it is known what became of them, or that it cannot be.
    pub(crate) async fn append(&self, first: u64, commands: &[Bytes]) -> AppendOutcome {
        for (index, command) in (first..).zip(commands) {
            if command.len() > MAX_WHOLE {
                match self.write_parts(index, command).await {
                    AppendOutcome::Committed => {}
                    // Parts without their entry are nothing: the entry is what counts, and it was not sent.
                    AppendOutcome::Unsure | AppendOutcome::Deposed => {
                        return AppendOutcome::Deposed;
                    }
                    refused @ AppendOutcome::Refused(_) => return refused,
                }
            }
        }
        let entries: Vec<(u64, Bytes)> = (first..)
            .zip(commands)
            .map(|(index, command)| (index, self.entry(index, command)))
            .collect();
        let last = entries.last().cloned();
        let entries =
            entries.into_iter().map(|(index, entry)| Op::put(self.layout.entry(index), entry));
        let found = [
            Op::get(Range::of(Keys::one(self.layout.leader()))),
            Op::get(Range::of(Keys::one(self.layout.entry(first)))),
        ];
        // The last entry must be there too: nothing is written above a hole.
        let mut guards = self.guards();
        guards.push(When::absent(self.layout.entry(first)));
        guards.extend(self.tip.guard(&self.layout));
        let txn = Txn::when(guards).then(entries).otherwise(found).repeatable();
        let mut written = 0;
        let outcome = self.settle(txn, |reply| self.judge(reply, &mut written)).await;
        if let (AppendOutcome::Committed, Some((index, value))) = (&outcome, last) {
            self.tip.reach(index, written, value);
        }
        outcome
    }

    /// Sealed once: what is tried again is the same.
    fn entry(&self, index: u64, command: &Bytes) -> Bytes {
        let body = if command.len() > MAX_WHOLE {
            Body::Split { bytes: command.len() as u64 }
        } else {
            Body::Whole(command.clone())
        };
        let key = self.layout.entry(index);
        LogEntry::encode(&self.seal, &key, self.term.cast_unsigned(), &body)
    }

    /// Also finds at which revision the batch was written, if it was.
    fn judge(&self, reply: TxnReply, written: &mut i64) -> AppendVerdict {
        let held = reply.held;
        *written = reply.revision;
        let mut reads = reply.reads();
        let mut found = || reads.next().and_then(|mut found| found.pairs.pop());
        let leader = found().map(|pair| pair.create_revision);
        let first = found();
        if let Some(first) = &first {
            *written = first.create_revision;
        }
        let first = first.and_then(|pair| LogEntry::decode(&pair.value)).map(|entry| entry.term);
        rules::verdict(self.term, held, leader, first)
    }

    async fn write_parts(&self, index: u64, command: &Bytes) -> AppendOutcome {
        for (nth, at) in (0..command.len()).step_by(MAX_BYTES).enumerate() {
            let part = &command[at..command.len().min(at + MAX_BYTES)];
            let key = self.layout.part(index, self.term, nth);
            let part = self.seal.seal(&key, &part_of(command.len() as u64), part);
            let written = self.write([Op::put(key, part)]).await;
            if !matches!(written, AppendOutcome::Committed) {
                return written;
            }
        }
        AppendOutcome::Committed
    }

    /// Does something that may be done twice, as long as we lead.
    pub(crate) async fn write(&self, ops: impl IntoIterator<Item = Op>) -> AppendOutcome {
        let txn = Txn::when(self.guards()).then(ops).repeatable();
        let judge = |reply: TxnReply| {
            if reply.held { AppendVerdict::Committed } else { AppendVerdict::Deposed }
        };
        self.settle(txn, judge).await
    }

    async fn settle(
        &self,
        txn: Txn,
        mut judge: impl FnMut(TxnReply) -> AppendVerdict,
    ) -> AppendOutcome {
        let mut doubt = false;
        loop {
            match self.client.txn(txn.clone()).await {
                Ok(reply) => {
                    return match judge(reply) {
                        AppendVerdict::Committed => AppendOutcome::Committed,
                        AppendVerdict::Hole if doubt => AppendOutcome::Unsure,
                        AppendVerdict::Hole | AppendVerdict::Deposed => AppendOutcome::Deposed,
                        AppendVerdict::Broken => AppendOutcome::Unsure,
                    };
                }
                Err(error) if error.may_have_happened() || error.is_passing() => {
                    doubt |= error.may_have_happened();
                    tokio::time::sleep(PAUSE).await;
                }
                // What was sent before may still arrive.
                Err(_) if doubt => return AppendOutcome::Unsure,
                Err(error) => return AppendOutcome::Refused(error),
            }
        }
    }
}
