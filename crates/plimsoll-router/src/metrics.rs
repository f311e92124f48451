//! What is counted for each route and upstream. Counters are written with one relaxed addition and read as they are:
//! nobody waits for anybody, and a reading is a moment's blur.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::table::{PoolKey, RouteSpec, Table};
use crate::upstream::UpstreamKey;

/// Upper ends of the latency buckets in microseconds; what is above the last falls into one more.
pub const BUCKETS_US: [u64; 14] = [
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    5_000_000, 30_000_000,
];

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// How many took how long.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [Counter; BUCKETS_US.len() + 1],
    sum_us: Counter,
}

impl Histogram {
    pub fn note(&self, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = BUCKETS_US.partition_point(|end| *end < took_us);
        self.counts[at].add(1);
        self.sum_us.add(took_us);
    }

    pub fn read(&self) -> Latencies {
        Latencies {
            counts: std::array::from_fn(|at| self.counts[at].get()),
            sum_us: self.sum_us.get(),
        }
    }
}

/// A reading of a [`Histogram`]: how many fell into each bucket, and the sum of all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Latencies {
    pub counts: [u64; BUCKETS_US.len() + 1],
    pub sum_us: u64,
}

/// Answers by the first digit of their status: 1xx to 5xx.
#[derive(Debug, Default)]
pub struct Classes([Counter; 5]);

impl Classes {
    pub fn note(&self, status: u16) {
        let at = usize::from((status / 100).clamp(1, 5) - 1);
        self.0[at].add(1);
    }

    pub fn read(&self) -> [u64; 5] {
        std::array::from_fn(|at| self.0[at].get())
    }
}

/// Of a route.
#[derive(Debug, Default)]
pub struct RouteMeter {
    pub classes: Classes,
    pub latency: Histogram,
    /// Answers that the router gave itself, because no upstream did.
    pub unserved: Counter,
    pub retries: Counter,
    pub tunnels: Counter,
}

/// Of an upstream.
#[derive(Debug, Default)]
pub struct UpstreamMeter {
    pub classes: Classes,
    pub latency: Histogram,
    /// Connections made to it.
    pub connections: Counter,
    pub connect_errors: Counter,
    /// Bytes to it and from it.
    pub sent: Counter,
    pub received: Counter,
}

/// What was counted for one route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteReading {
    pub route: RouteSpec,
    /// Answers 1xx to 5xx.
    pub classes: [u64; 5],
    pub latency: Latencies,
    pub unserved: u64,
    pub retries: u64,
    pub tunnels: u64,
}

/// What was counted for one upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamReading {
    pub pool: PoolKey,
    pub upstream: UpstreamKey,
    pub in_flight: u32,
    pub classes: [u64; 5],
    pub latency: Latencies,
    pub connections: u64,
    pub connect_errors: u64,
    pub sent: u64,
    pub received: u64,
}

/// What was counted for all that a table has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    pub routes: Vec<RouteReading>,
    pub upstreams: Vec<UpstreamReading>,
}

/// Reads everything. Nobody who counts waits for it.
pub fn read(table: &Table) -> Reading {
    let routes = table.routes().map(|route| RouteReading {
        route: route.spec.clone(),
        classes: route.meter.classes.read(),
        latency: route.meter.latency.read(),
        unserved: route.meter.unserved.get(),
        retries: route.meter.retries.get(),
        tunnels: route.meter.tunnels.get(),
    });
    let all = table.pools().flat_map(|pool| pool.all().iter().map(move |(one, _)| (pool, one)));
    let upstreams = all.map(|(pool, upstream)| UpstreamReading {
        pool: pool.key().clone(),
        upstream: upstream.key().clone(),
        in_flight: upstream.in_flight(),
        classes: upstream.meter.classes.read(),
        latency: upstream.meter.latency.read(),
        connections: upstream.meter.connections.get(),
        connect_errors: upstream.meter.connect_errors.get(),
        sent: upstream.meter.sent.get(),
        received: upstream.meter.received.get(),
    });
    Reading { routes: routes.collect(), upstreams: upstreams.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_falls_into_the_bucket_that_ends_at_or_above_it() {
        let histogram = Histogram::default();
        for took_us in [0, 250, 251, 30_000_000, 30_000_001] {
            histogram.note(Duration::from_micros(took_us));
        }
        let read = histogram.read();
        assert_eq!((read.counts[0], read.counts[1]), (2, 1));
        assert_eq!(read.counts[BUCKETS_US.len() - 1..], [1, 1]);
        assert_eq!(read.sum_us, 60_000_502);
    }

    #[test]
    fn answers_are_counted_by_the_first_digit_of_their_status() {
        let classes = Classes::default();
        for status in [101, 200, 204, 301, 404, 503, 999] {
            classes.note(status);
        }
        assert_eq!(classes.read(), [1, 2, 1, 1, 2]);
    }
}
