//! Writing entries: one guarded transaction for as many proposals as fit, tried until it is known what became of it.

use std::time::Duration;

use bytes::Bytes;
use plimsoll_etcd::{Client, Error, Keys, Op, Range, Txn, TxnReply, When};

use crate::layout::{Body, Entry, Layout};
use crate::rules::{self, MAX_BYTES, Verdict};

/// A command larger than this is kept in parts. Half a transaction, so that a page of entries is not too much to read.
pub(crate) const MAX_WHOLE: usize = MAX_BYTES / 2;

/// About what a key, its length and its guard add to a command.
const OVERHEAD: usize = 160;

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// What became of a batch.
#[derive(Debug)]
pub(crate) enum Appended {
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
pub(crate) struct Writer {
    pub(crate) client: Client,
    pub(crate) layout: Layout,
    pub(crate) term: i64,
}

impl Writer {
    /// Holds for as long as we lead.
    pub(crate) fn guard(&self) -> When {
        When::created_at(self.layout.leader(), self.term)
    }

    /// Writes commands from an index on. It ends only when it is known what became of them, or that it cannot be.
    pub(crate) async fn append(&self, first: u64, commands: &[Bytes]) -> Appended {
        for (index, command) in (first..).zip(commands) {
            if command.len() > MAX_WHOLE {
                match self.write_parts(index, command).await {
                    Appended::Committed => {}
                    // Parts without their entry are nothing: the entry is what counts, and it was not sent.
                    Appended::Unsure | Appended::Deposed => return Appended::Deposed,
                    refused @ Appended::Refused(_) => return refused,
                }
            }
        }
        let entries = (first..).zip(commands).map(|(index, command)| {
            Op::put(self.layout.entry(index), self.entry(command).encode())
        });
        let found = [
            Op::get(Range::of(Keys::one(self.layout.leader()))),
            Op::get(Range::of(Keys::one(self.layout.entry(first)))),
        ];
        let txn = Txn::when([self.guard(), When::absent(self.layout.entry(first))])
            .then(entries)
            .otherwise(found)
            .repeatable();
        self.settle(txn, |reply| self.judge(reply)).await
    }

    fn entry(&self, command: &Bytes) -> Entry {
        let body = if command.len() > MAX_WHOLE {
            Body::Split { bytes: command.len() as u64 }
        } else {
            Body::Whole(command.clone())
        };
        Entry { term: self.term.cast_unsigned(), body }
    }

    fn judge(&self, reply: TxnReply) -> Verdict {
        let held = reply.held;
        let mut reads = reply.reads();
        let mut found = || reads.next().and_then(|mut found| found.pairs.pop());
        let leader = found().map(|pair| pair.create_revision);
        let first = found().and_then(|pair| Entry::decode(&pair.value)).map(|entry| entry.term);
        rules::verdict(self.term, held, leader, first)
    }

    async fn write_parts(&self, index: u64, command: &Bytes) -> Appended {
        for (nth, at) in (0..command.len()).step_by(MAX_BYTES).enumerate() {
            let part = command.slice(at..command.len().min(at + MAX_BYTES));
            let written =
                self.write([Op::put(self.layout.part(index, self.term, nth), part)]).await;
            if !matches!(written, Appended::Committed) {
                return written;
            }
        }
        Appended::Committed
    }

    /// Does something that may be done twice, as long as we lead.
    pub(crate) async fn write(&self, ops: impl IntoIterator<Item = Op>) -> Appended {
        let txn = Txn::when([self.guard()]).then(ops).repeatable();
        let judge =
            |reply: TxnReply| if reply.held { Verdict::Committed } else { Verdict::Deposed };
        self.settle(txn, judge).await
    }

    async fn settle(&self, txn: Txn, judge: impl Fn(TxnReply) -> Verdict) -> Appended {
        let mut doubt = false;
        loop {
            match self.client.txn(txn.clone()).await {
                Ok(reply) => {
                    return match judge(reply) {
                        Verdict::Committed => Appended::Committed,
                        Verdict::Deposed => Appended::Deposed,
                        Verdict::Broken => Appended::Unsure,
                    };
                }
                Err(error) if error.may_have_happened() || error.is_passing() => {
                    doubt |= error.may_have_happened();
                    tokio::time::sleep(PAUSE).await;
                }
                // What was sent before may still arrive.
                Err(_) if doubt => return Appended::Unsure,
                Err(error) => return Appended::Refused(error),
            }
        }
    }
}
