//! What happens when: a queue in order of time, and of arrival where times are equal.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use plimsoll_model::{Millis, Timestamp};

#[derive(Debug)]
pub(crate) struct SimClock<T> {
    pub(crate) now: Timestamp,
    queue: BinaryHeap<Reverse<Due<T>>>,
    arrivals: u64,
}

#[derive(Debug)]
struct Due<T> {
    at: Timestamp,
    arrival: u64,
    what: T,
}

impl<T> PartialEq for Due<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl<T> Eq for Due<T> {}
impl<T> PartialOrd for Due<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Due<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.arrival).cmp(&(other.at, other.arrival))
    }
}

impl<T> SimClock<T> {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { now, queue: BinaryHeap::new(), arrivals: 0 }
    }

    pub(crate) fn after(&mut self, span: Millis, what: T) {
        self.at(self.now.plus(span), what);
    }

    pub(crate) fn at(&mut self, at: Timestamp, what: T) {
        self.arrivals += 1;
        self.queue.push(Reverse(Due { at: at.max(self.now), arrival: self.arrivals, what }));
    }

    /// The next thing to happen, if it does by `end`; the clock moves to it.
    pub(crate) fn next(&mut self, end: Timestamp) -> Option<T> {
        if self.queue.peek().is_none_or(|Reverse(due)| due.at > end) {
            self.now = end;
            return None;
        }
        let Reverse(due) = self.queue.pop()?;
        self.now = due.at;
        Some(due.what)
    }
}
