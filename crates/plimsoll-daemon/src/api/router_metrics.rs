//! What this node's router has counted, as Prometheus reads it: by route, and by upstream. Both are there as long as the
//! table has them; a counter that begins anew is one that was gone.

use std::fmt::Write as _;

use plimsoll_router::metrics::{
    BUCKETS_US, Latencies, PoolReading, RouteReading, RouterReading, UpstreamReading,
};

use plimsoll_router::PoolKey;

use super::metrics::MetricsPage;

/// Answers by the first digit of their status.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

pub(super) fn routed(page: &mut MetricsPage, reading: &RouterReading) {
    let RouterReading { routes, pools, upstreams } = reading;
    let routes: Vec<(String, &RouteReading)> =
        routes.iter().map(|route| (of_route(route), route)).collect();
    let pools: Vec<(String, &PoolReading)> =
        pools.iter().map(|reading| (of_pool(&reading.pool), reading)).collect();
    let upstreams: Vec<(String, &UpstreamReading)> =
        upstreams.iter().map(|upstream| (of_upstream(upstream), upstream)).collect();

    let classes = |one: &RouteReading| one.classes;
    page.classes("plimsoll_route_requests_total", "Answers on a route", &routes, classes);
    let what = "How long answers on a route took";
    page.histogram("plimsoll_route_seconds", what, &routes, |one| &one.latency);
    let what = "Requests that no upstream answered";
    page.counter("plimsoll_route_unserved_total", what, &routes, |one| one.unserved);
    let what = "Requests that were sent to another upstream as well";
    page.counter("plimsoll_route_retries_total", what, &routes, |one| one.retries);
    let what = "Connections on a route that became something else, such as WebSockets";
    page.counter("plimsoll_route_tunnels_total", what, &routes, |one| one.tunnels);

    let what = "Requests on TCP connections that were replayed on another upstream";
    page.counter("plimsoll_service_replays_total", what, &pools, |one| one.replays);

    let classes = |one: &UpstreamReading| one.classes;
    page.classes("plimsoll_upstream_requests_total", "Answers of an upstream", &upstreams, classes);
    let what = "Requests and connections in flight to an upstream";
    page.numbers("plimsoll_upstream_in_flight", "gauge", what, &upstreams, |one| {
        one.in_flight.into()
    });
    let what = "Connections made to an upstream";
    page.counter("plimsoll_upstream_connections_total", what, &upstreams, |one| one.connections);
    let what = "Connections to an upstream that could not be made";
    let errors = |one: &UpstreamReading| one.connect_errors;
    page.counter("plimsoll_upstream_connect_errors_total", what, &upstreams, errors);
    let what = "Bytes sent to an upstream";
    page.counter("plimsoll_upstream_sent_bytes_total", what, &upstreams, |one| one.sent);
    let what = "Bytes received from an upstream";
    page.counter("plimsoll_upstream_received_bytes_total", what, &upstreams, |one| one.received);
}

fn of_route(reading: &RouteReading) -> String {
    let route = &reading.route;
    let host = route.host.as_deref().unwrap_or("*");
    format!("host=\"{}\",path=\"{}\",{}", escaped(host), escaped(&route.path), of_pool(&route.pool))
}

fn of_upstream(reading: &UpstreamReading) -> String {
    let (pool, key) = (of_pool(&reading.pool), &reading.upstream);
    let (replica, generation) = (&key.replica, key.generation);
    format!("{pool},replica=\"{replica}\",generation=\"{generation}\"")
}

fn of_pool(PoolKey { service, port }: &PoolKey) -> String {
    format!("service=\"{service}\",port=\"{port}\"")
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// What was counted for some things, each with its labels.
type Counted<'r, T> = [(String, &'r T)];

impl MetricsPage {
    fn numbers<T>(
        &mut self,
        name: &str,
        kind: &str,
        what: &str,
        all: &Counted<'_, T>,
        value: impl Fn(&T) -> u64,
    ) {
        if all.is_empty() {
            return;
        }
        self.head(name, kind, what);
        for (labels, one) in all {
            let _ = writeln!(self.0, "{name}{{{labels}}} {}", value(one));
        }
    }

    fn counter<T>(
        &mut self,
        name: &str,
        what: &str,
        all: &Counted<'_, T>,
        value: impl Fn(&T) -> u64,
    ) {
        self.numbers(name, "counter", what, all, value);
    }

    fn classes<T>(
        &mut self,
        name: &str,
        what: &str,
        all: &Counted<'_, T>,
        classes: impl Fn(&T) -> [u64; 5],
    ) {
        if all.is_empty() {
            return;
        }
        self.head(name, "counter", what);
        for (labels, one) in all {
            for (class, count) in CLASSES.iter().zip(classes(one)) {
                let _ = writeln!(self.0, "{name}{{{labels},class=\"{class}\"}} {count}");
            }
        }
    }

    fn histogram<T>(
        &mut self,
        name: &str,
        what: &str,
        all: &Counted<'_, T>,
        latencies: impl Fn(&T) -> &Latencies,
    ) {
        if all.is_empty() {
            return;
        }
        self.head(name, "histogram", what);
        for (labels, one) in all {
            let Latencies { counts, sum_us } = latencies(one);
            let mut sum = 0;
            let ends = BUCKETS_US.iter().map(|end| seconds(*end)).chain(["+Inf".to_owned()]);
            for (end, count) in ends.zip(counts) {
                sum += count;
                let _ = writeln!(self.0, "{name}_bucket{{{labels},le=\"{end}\"}} {sum}");
            }
            let _ = writeln!(self.0, "{name}_sum{{{labels}}} {}", seconds(*sum_us));
            let _ = writeln!(self.0, "{name}_count{{{labels}}} {sum}");
        }
    }
}

/// Microseconds as seconds, without noughts at the end: `0.00025`, `5`.
fn seconds(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use plimsoll_router::{RouteConfig, RouteTls, UpstreamKey};

    use super::*;

    #[test]
    fn what_was_counted_is_said_for_each_route_and_upstream() {
        let pool = PoolKey::new("shop/web", 80);
        let mut latency = Latencies { sum_us: 1_250_250, ..Latencies::default() };
        (latency.counts[0], latency.counts[12]) = (1, 1);
        let route = RouteConfig {
            host: None,
            path: "/a\"b".to_owned(),
            strip_path: false,
            pool: pool.clone(),
            tls: RouteTls::Off,
        };
        let route = RouteReading {
            route,
            classes: [0, 1, 0, 0, 1],
            latency: latency.clone(),
            unserved: 1,
            retries: 2,
            tunnels: 3,
        };
        let replayed = PoolReading { pool: pool.clone(), replays: 10 };
        let upstream = UpstreamReading {
            pool,
            upstream: UpstreamKey { replica: "shop-web-1".into(), generation: 7, port: 80 },
            in_flight: 4,
            classes: [0, 1, 0, 0, 0],
            latency,
            connections: 5,
            connect_errors: 6,
            sent: 8,
            received: 9,
        };
        let mut page = MetricsPage::default();
        let (routes, pools, upstreams) = (vec![route], vec![replayed], vec![upstream]);
        routed(&mut page, &RouterReading { routes, pools, upstreams });
        let shown: Vec<&str> = page.0.lines().filter(|line| !line.starts_with('#')).collect();
        let shown =
            shown.iter().filter(|line| !line.contains("_bucket") || line.contains("le=\"5\""));
        let shown = shown.filter(|line| !line.ends_with("xx\"} 0"));
        expect![[r#"
            plimsoll_route_requests_total{host="*",path="/a\"b",service="shop/web",port="80",class="2xx"} 1
            plimsoll_route_requests_total{host="*",path="/a\"b",service="shop/web",port="80",class="5xx"} 1
            plimsoll_route_seconds_bucket{host="*",path="/a\"b",service="shop/web",port="80",le="5"} 2
            plimsoll_route_seconds_sum{host="*",path="/a\"b",service="shop/web",port="80"} 1.25025
            plimsoll_route_seconds_count{host="*",path="/a\"b",service="shop/web",port="80"} 2
            plimsoll_route_unserved_total{host="*",path="/a\"b",service="shop/web",port="80"} 1
            plimsoll_route_retries_total{host="*",path="/a\"b",service="shop/web",port="80"} 2
            plimsoll_route_tunnels_total{host="*",path="/a\"b",service="shop/web",port="80"} 3
            plimsoll_service_replays_total{service="shop/web",port="80"} 10
            plimsoll_upstream_requests_total{service="shop/web",port="80",replica="shop-web-1",generation="7",class="2xx"} 1
            plimsoll_upstream_in_flight{service="shop/web",port="80",replica="shop-web-1",generation="7"} 4
            plimsoll_upstream_connections_total{service="shop/web",port="80",replica="shop-web-1",generation="7"} 5
            plimsoll_upstream_connect_errors_total{service="shop/web",port="80",replica="shop-web-1",generation="7"} 6
            plimsoll_upstream_sent_bytes_total{service="shop/web",port="80",replica="shop-web-1",generation="7"} 8
            plimsoll_upstream_received_bytes_total{service="shop/web",port="80",replica="shop-web-1",generation="7"} 9
        "#]].assert_eq(&(shown.copied().collect::<Vec<_>>().join("\n") + "\n"));
    }

    #[test]
    fn a_node_that_routes_nothing_says_nothing() {
        let mut page = MetricsPage::default();
        routed(
            &mut page,
            &RouterReading { routes: Vec::new(), pools: Vec::new(), upstreams: Vec::new() },
        );
        assert_eq!(page.0, "");
    }
}
