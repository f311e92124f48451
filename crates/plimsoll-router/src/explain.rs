//! Where a request is routed: the matching route, and for each upstream whether it gets requests or why not.

use std::time::Duration;

use crate::clock::Moment;
use crate::table::{Pool, RouteConfig, RoutingTable, bare_host};
use crate::upstream::{Upstream, UpstreamKey, UpstreamState, UpstreamTarget};

/// The route of a host and path, with its upstreams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteExplanation {
    pub route: RouteConfig,
    pub upstreams: Vec<(UpstreamKey, UpstreamTarget, UpstreamStatus)>,
}

/// Whether an upstream gets requests, with the numbers that decide it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamStatus {
    /// Its weight is out of 1000.
    Ready {
        weight: u32,
        in_flight: u32,
    },
    /// Connecting to it fails; it is probed after this.
    Ejected {
        left: Duration,
    },
    Joining,
    /// Open connections are cut off after this.
    Draining {
        left: Duration,
        in_flight: u32,
    },
    Gone,
}

/// None if no route matches.
pub fn explain(
    table: &RoutingTable,
    host: &str,
    path: &str,
    now: Moment,
) -> Option<RouteExplanation> {
    let route = table.route(bare_host(host), path)?;
    Some(RouteExplanation { route: route.spec.clone(), upstreams: statuses(&route.pool, now) })
}

fn statuses(pool: &Pool, now: Moment) -> Vec<(UpstreamKey, UpstreamTarget, UpstreamStatus)> {
    let all = pool.all().iter();
    all.map(|(one, _)| (one.key().clone(), one.target().clone(), status(one, now))).collect()
}

fn status(upstream: &Upstream, now: Moment) -> UpstreamStatus {
    let in_flight = upstream.in_flight();
    match upstream.state() {
        UpstreamState::Ready if upstream.is_suspect() => {
            UpstreamStatus::Ejected { left: upstream.ejected_until().since(now) }
        }
        UpstreamState::Ready => UpstreamStatus::Ready { weight: upstream.weight(now), in_flight },
        UpstreamState::Joining => UpstreamStatus::Joining,
        UpstreamState::Draining { until } => {
            UpstreamStatus::Draining { left: until.since(now), in_flight }
        }
        UpstreamState::Gone => UpstreamStatus::Gone,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::table::{PoolKey, PoolMember, RouteTls, RouterConfig};
    use crate::upstream::{MemberState, SLOW_START};

    #[test]
    fn each_upstream_is_shown_with_its_state() {
        let pool = PoolKey::new("shop/web", 80);
        let grace = SLOW_START;
        let states = [
            MemberState::Ready,
            MemberState::Ready,
            MemberState::Ready,
            MemberState::Joining,
            MemberState::Draining { grace },
        ];
        let member = |(number, state)| PoolMember {
            replica: format!("web-{number}").into(),
            generation: 1,
            target: UpstreamTarget::Via { node: "ash".into() },
            state,
            proxied: Arc::default(),
        };
        let members: Arc<[PoolMember]> = states.into_iter().enumerate().map(member).collect();
        let route = RouteConfig {
            host: Some("a.example".to_owned()),
            path: "/".to_owned(),
            strip_path: false,
            pool: pool.clone(),
            tls: RouteTls::Off,
        };
        let wanted = RouterConfig {
            pools: [(pool, members)].into(),
            routes: vec![route],
            ..RouterConfig::default()
        };
        let (before, start) = (RoutingTable::default(), Moment(1_000));
        let table = before.next(&wanted);
        table.set_states(&before, start);
        let now = start.after(SLOW_START / 2);
        let upstreams: Vec<_> = table.upstreams().collect();
        let _busy = upstreams[0].begin();
        upstreams[1].note_failure(now);

        assert_eq!(explain(&table, "b.example", "/", now), None);
        let found = explain(&table, "a.example:80", "/x", now).unwrap();
        let statuses: Vec<_> = found.upstreams.into_iter().map(|(_, _, status)| status).collect();
        assert_eq!(
            statuses,
            [
                UpstreamStatus::Ready { weight: 550, in_flight: 1 },
                UpstreamStatus::Ejected { left: Duration::from_millis(250) },
                UpstreamStatus::Ready { weight: 550, in_flight: 0 },
                UpstreamStatus::Joining,
                UpstreamStatus::Draining { left: SLOW_START / 2, in_flight: 0 },
            ]
        );
    }
}
