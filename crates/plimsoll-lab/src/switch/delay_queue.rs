//! Packets on a slow wire, each until its time has come.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a slow wire holds; beyond it packets are lost, as in a router.
const MAX_LATE: usize = 16_384;

#[derive(Debug, Default)]
pub(super) struct DelayQueue {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    /// By when they are due, then in the order they came.
    waiting: BinaryHeap<Reverse<Packet>>,
    came: u64,
    is_ended: bool,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Packet {
    due: Instant,
    nth: u64,
    to: usize,
    bytes: Vec<u8>,
}

impl DelayQueue {
    pub(super) fn push(&self, to: usize, packet: &[u8], delay: Duration) {
        let mut queue = self.lock();
        if queue.waiting.len() < MAX_LATE {
            let nth = queue.came;
            queue.came += 1;
            let (due, bytes) = (Instant::now() + delay, packet.to_vec());
            queue.waiting.push(Reverse(Packet { due, nth, to, bytes }));
            self.changed.notify_one();
        }
    }

    /// Hands over each packet when it is due, until the end.
    pub(super) fn carry(&self, mut put: impl FnMut(usize, &[u8])) {
        let mut queue = self.lock();
        while !queue.is_ended {
            let now = Instant::now();
            let due = queue.waiting.peek().map(|Reverse(packet)| packet.due);
            match due {
                None => queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(due) if due > now => {
                    let woken = self.changed.wait_timeout(queue, due - now);
                    queue = woken.unwrap_or_else(PoisonError::into_inner).0;
                }
                Some(_) => {
                    let Some(Reverse(packet)) = queue.waiting.pop() else { continue };
                    drop(queue);
                    put(packet.to, &packet.bytes);
                    queue = self.lock();
                }
            }
        }
    }

    pub(super) fn end(&self) {
        self.lock().is_ended = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing that holds it can panic half-way.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_when_they_are_due_and_in_order_where_they_are_due_together() {
        let late = DelayQueue::default();
        late.push(0, &[2], Duration::from_millis(40));
        late.push(0, &[0], Duration::from_millis(5));
        late.push(0, &[1], Duration::from_millis(6));
        let begun = Instant::now();
        let mut came = Vec::new();
        late.carry(|_, packet| {
            came.push(packet[0]);
            if came.len() == 3 {
                late.end();
            }
        });
        assert_eq!(came, [0, 1, 2]);
        assert!(begun.elapsed() >= Duration::from_millis(30));
    }
}
