//! Counters of each route, pool and upstream. They are written with one relaxed addition and read one by one, so
//! that nobody waits, and a reading is not from a single instant.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::table::{PoolKey, RouteConfig, RoutingTable};
use crate::upstream::UpstreamKey;

/// Upper bounds of the latency buckets in microseconds; one more bucket holds the rest.
pub const BUCKETS_US: [u64; 14] = [
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    5_000_000, 30_000_000,
];

/// A number that only increases.
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

/// A distribution of latencies.
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

/// A reading of a [`Histogram`]: the count of each bucket, and the sum.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Latencies {
    pub counts: [u64; BUCKETS_US.len() + 1],
    pub sum_us: u64,
}

/// Responses by status class: 1xx to 5xx.
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

/// Counters of a route.
#[derive(Debug, Default)]
pub struct RouteMeter {
    pub classes: Classes,
    pub latency: Histogram,
    /// Requests that no upstream answered.
    pub unserved: Counter,
    pub retries: Counter,
    pub tunnels: Counter,
}

/// Counters of an upstream.
#[derive(Debug, Default)]
pub struct UpstreamMeter {
    pub classes: Classes,
    pub latency: Histogram,
    /// Connections made to it.
    pub connections: Counter,
    pub connect_errors: Counter,
    /// Bytes sent to it and received from it.
    pub sent: Counter,
    pub received: Counter,
}

/// Counters of a pool.
#[derive(Debug, Default)]
pub struct PoolMeter {
    /// Requests on TCP connections that were sent to another upstream as well.
    pub replays: Counter,
}

/// The counters of one route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteReading {
    pub route: RouteConfig,
    /// Responses 1xx to 5xx.
    pub classes: [u64; 5],
    pub latency: Latencies,
    pub unserved: u64,
    pub retries: u64,
    pub tunnels: u64,
}

/// The counters of one upstream.
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

/// The counters of one pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolReading {
    pub pool: PoolKey,
    pub replays: u64,
}

/// The counters of everything in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouterReading {
    pub routes: Vec<RouteReading>,
    pub pools: Vec<PoolReading>,
    pub upstreams: Vec<UpstreamReading>,
}

/// Reads all counters.
pub fn read(table: &RoutingTable) -> RouterReading {
    let routes = table.routes().map(|route| RouteReading {
        route: route.spec.clone(),
        classes: route.meter.classes.read(),
        latency: route.meter.latency.read(),
        unserved: route.meter.unserved.get(),
        retries: route.meter.retries.get(),
        tunnels: route.meter.tunnels.get(),
    });
    let pools = table
        .pools()
        .map(|pool| PoolReading { pool: pool.key().clone(), replays: pool.meter.replays.get() });
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
    RouterReading {
        routes: routes.collect(),
        pools: pools.collect(),
        upstreams: upstreams.collect(),
    }
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
    fn responses_are_counted_by_status_class() {
        let classes = Classes::default();
        for status in [101, 200, 204, 301, 404, 503, 999] {
            classes.note(status);
        }
        assert_eq!(classes.read(), [1, 2, 1, 1, 2]);
    }
}
