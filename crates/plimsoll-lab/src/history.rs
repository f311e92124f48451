//! Whether what clients saw could have happened: given who wrote and read what and when, and the log that the cell has in
//! the end, names everything that no single, lossless register could have done.
//!
//! A register is anything that numbers its revisions. Every write has a value of its own, so what a revision holds says
//! which write it was. The revisions give the order, and one pass over them is enough: an operation may not come before
//! one that was over when it began. How values are written and read is left to tests.

use std::collections::BTreeMap;
use std::time::Duration;

mod anomaly;

#[cfg(test)]
mod tests;

pub use anomaly::{Anomaly, HistoryOp};

/// When something happened, from any moment on that all clients share.
pub type Moment = Duration;

/// What one client asked for, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub register: String,
    /// No other write has it.
    pub value: String,
    pub invoked: Moment,
    pub outcome: WriteOutcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It was promised to be there for good.
    Acknowledged {
        at: Moment,
        revision: u64,
        /// Its place in the log of all registers.
        index: u64,
    },
    /// It was promised not to have been done.
    Refused,
    /// Nobody knows: the answer did not come, or said so.
    Unknown,
}

/// What one client was told when it asked for the newest value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    pub register: String,
    pub invoked: Moment,
    pub answered: Moment,
    /// The revision and its value; none: there was nothing yet.
    pub seen: Option<(u64, String)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    pub writes: Vec<Write>,
    pub reads: Vec<Read>,
}

/// What each register holds in the end: every revision of it, and its value.
pub type Log = BTreeMap<String, BTreeMap<u64, String>>;

impl History {
    pub fn acknowledged(&self) -> usize {
        self.count(|outcome| matches!(outcome, WriteOutcome::Acknowledged { .. }))
    }

    pub fn unknown(&self) -> usize {
        self.count(|outcome| matches!(outcome, WriteOutcome::Unknown))
    }

    fn count(&self, is_so: impl Fn(&WriteOutcome) -> bool) -> usize {
        self.writes.iter().filter(|write| is_so(&write.outcome)).count()
    }

    /// Puts another client's part to this one.
    pub fn append(&mut self, other: Self) {
        self.writes.extend(other.writes);
        self.reads.extend(other.reads);
    }

    /// All that cannot have happened; nothing: it can.
    pub fn check(&self, log: &Log) -> Vec<Anomaly> {
        let mut faults = Vec::new();
        let places = places(log, &mut faults);
        self.check_writes(&places, &mut faults);
        self.check_values(log, &mut faults);
        for name in log.keys() {
            let mut ops = self.ops(name, &places);
            faults.extend(order(&mut ops));
        }
        faults.extend(order(&mut self.by_index()));
        faults
    }

    /// Every promise was kept.
    fn check_writes(&self, places: &Places<'_>, faults: &mut Vec<Anomaly>) {
        for write in &self.writes {
            let found = places.get(write.value.as_str());
            let found = found.filter(|place| place.register == write.register);
            match (write.outcome, found) {
                (WriteOutcome::Acknowledged { .. }, None) => {
                    faults.push(Anomaly::Lost { write: write.clone() });
                }
                (WriteOutcome::Acknowledged { revision, .. }, Some(place))
                    if place.revision != revision =>
                {
                    let found = place.revision;
                    faults.push(Anomaly::OtherRevision { write: write.clone(), found });
                }
                (WriteOutcome::Refused, Some(place)) => {
                    let found = place.revision;
                    faults.push(Anomaly::RefusedAndDone { write: write.clone(), found });
                }
                _ => {}
            }
        }
    }

    /// What is there was written by somebody, and what was read is there.
    fn check_values(&self, log: &Log, faults: &mut Vec<Anomaly>) {
        let written: BTreeMap<&str, &str> =
            self.writes.iter().map(|write| (&*write.value, &*write.register)).collect();
        for (register, revisions) in log {
            for (revision, value) in revisions {
                if written.get(value.as_str()) != Some(&register.as_str()) {
                    let (register, value) = (register.clone(), value.clone());
                    faults.push(Anomaly::Invented { register, revision: *revision, value });
                }
            }
        }
        for read in &self.reads {
            let Some((revision, value)) = &read.seen else { continue };
            let kept = log.get(&read.register).and_then(|revisions| revisions.get(revision));
            if kept != Some(value) {
                faults.push(Anomaly::ReadOther { read: read.clone(), kept: kept.cloned() });
            }
        }
    }

    /// What was done to one register, with its place in the order.
    fn ops(&self, register: &str, places: &Places<'_>) -> Vec<Timed> {
        let writes = self.writes.iter().filter(|write| write.register == register);
        let writes = writes.filter_map(|write| {
            let place = places.get(write.value.as_str())?;
            let over = match write.outcome {
                WriteOutcome::Acknowledged { at, .. } => at,
                WriteOutcome::Refused | WriteOutcome::Unknown => Moment::MAX,
            };
            let op = HistoryOp::Write(write.clone());
            Some(Timed { place: (place.revision, 0), began: write.invoked, over, op })
        });
        let reads = self.reads.iter().filter(|read| read.register == register);
        let reads = reads.map(|read| {
            let revision = read.seen.as_ref().map_or(0, |(revision, _)| *revision);
            let op = HistoryOp::Read(read.clone());
            Timed { place: (revision, 1), began: read.invoked, over: read.answered, op }
        });
        writes.chain(reads).collect()
    }

    /// Acknowledged writes of all registers, by their place in the one log.
    fn by_index(&self) -> Vec<Timed> {
        let writes = self.writes.iter().filter_map(|write| match write.outcome {
            WriteOutcome::Acknowledged { at, index, .. } => {
                let op = HistoryOp::Write(write.clone());
                Some(Timed { place: (index, 0), began: write.invoked, over: at, op })
            }
            WriteOutcome::Refused | WriteOutcome::Unknown => None,
        });
        writes.collect()
    }
}

#[derive(Debug, Clone, Copy)]
struct RegisterPosition<'l> {
    register: &'l str,
    revision: u64,
}

/// Where each value is.
type Places<'l> = BTreeMap<&'l str, RegisterPosition<'l>>;

/// Finds each value's place, and what is there twice or missing between two revisions.
fn places<'l>(log: &'l Log, faults: &mut Vec<Anomaly>) -> Places<'l> {
    let mut places = Places::new();
    for (register, revisions) in log {
        for (expected, (revision, value)) in (1..).zip(revisions) {
            if expected != *revision {
                let register = register.clone();
                faults.push(Anomaly::Gap { register, expected, found: *revision });
                break;
            }
            let place = RegisterPosition { register, revision: *revision };
            if let Some(first) = places.insert(value, place) {
                let value = value.clone();
                faults.push(Anomaly::Twice { value, revisions: (first.revision, *revision) });
            }
        }
    }
    places
}

/// An operation with its place in the order that the revisions give, and when it was under way.
#[derive(Debug)]
struct Timed {
    /// The revision, and whether it only looked at it: those come between it and the next, in any order.
    place: (u64, u8),
    began: Moment,
    over: Moment,
    op: HistoryOp,
}

/// An operation that comes before another must not have begun after that one was over. For each only the one behind it
/// that was over first need be looked at.
fn order(ops: &mut [Timed]) -> Vec<Anomaly> {
    ops.sort_by_key(|timed| timed.place);
    let mut faults = Vec::new();
    let mut soonest: Option<&Timed> = None;
    for group in ops.chunk_by(|a, b| a.place == b.place).rev() {
        let late = group.iter().max_by_key(|timed| timed.began);
        if let (Some(first), Some(then)) = (late, soonest)
            && then.over < first.began
        {
            let (first, then) = (first.op.clone(), then.op.clone());
            faults.push(Anomaly::OutOfOrder { first: Box::new(first), then: Box::new(then) });
        }
        soonest = group.iter().chain(soonest).min_by_key(|timed| timed.over);
    }
    faults
}
