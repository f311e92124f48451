//! Why a request goes where it goes: the route that is found, and for each upstream whether it takes requests or why not.

use std::time::Duration;

use crate::clock::Moment;
use crate::table::{Pool, RouteSpec, Table, bare_host};
use crate::upstream::{Standing, Target, Upstream, UpstreamKey};

/// What becomes of a request for a host and path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    pub route: RouteSpec,
    pub upstreams: Vec<(UpstreamKey, Target, Verdict)>,
}

/// Whether an upstream takes requests, with the numbers that decide it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Out of a thousand, how much of a whole share it gets.
    In {
        weight: u32,
        in_flight: u32,
    },
    /// Connections to it fail; it is tried again after this.
    Ejected {
        left: Duration,
    },
    Joining,
    /// What is under way there is cut off after this.
    Draining {
        left: Duration,
        in_flight: u32,
    },
    Gone,
}

/// None, if no route is found.
pub fn explain(table: &Table, host: &str, path: &str, now: Moment) -> Option<Explanation> {
    let route = table.route(bare_host(host), path)?;
    Some(Explanation { route: route.spec.clone(), upstreams: verdicts(&route.pool, now) })
}

fn verdicts(pool: &Pool, now: Moment) -> Vec<(UpstreamKey, Target, Verdict)> {
    let all = pool.all().iter();
    all.map(|(one, _)| (one.key().clone(), one.target().clone(), verdict(one, now))).collect()
}

fn verdict(upstream: &Upstream, now: Moment) -> Verdict {
    let in_flight = upstream.in_flight();
    match upstream.standing() {
        Standing::In if upstream.is_suspect() => {
            Verdict::Ejected { left: upstream.ejected_until().since(now) }
        }
        Standing::In => Verdict::In { weight: upstream.weight(now), in_flight },
        Standing::Joining => Verdict::Joining,
        Standing::Draining { until } => Verdict::Draining { left: until.since(now), in_flight },
        Standing::Gone => Verdict::Gone,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::table::{Member, PoolKey, Tls, Wanted};
    use crate::upstream::{SLOW_START, State};

    #[test]
    fn each_upstream_is_said_to_take_requests_or_why_not() {
        let pool = PoolKey::new("shop/web", 80);
        let grace = SLOW_START;
        let states = [State::In, State::In, State::In, State::Joining, State::Draining { grace }];
        let member = |(number, state)| Member {
            replica: format!("web-{number}").into(),
            generation: 1,
            target: Target::Via { node: "ash".into() },
            state,
        };
        let members: Arc<[Member]> = states.into_iter().enumerate().map(member).collect();
        let route = RouteSpec {
            host: Some("a.example".to_owned()),
            path: "/".to_owned(),
            strip_path: false,
            pool: pool.clone(),
            tls: Tls::Off,
        };
        let wanted =
            Wanted { pools: [(pool, members)].into(), routes: vec![route], ..Wanted::default() };
        let (before, start) = (Table::default(), Moment(1_000));
        let table = before.next(&wanted);
        table.settle(&before, start);
        let now = start.after(SLOW_START / 2);
        let upstreams: Vec<_> = table.upstreams().collect();
        let _busy = upstreams[0].begin();
        upstreams[1].note_failure(now);

        assert_eq!(explain(&table, "b.example", "/", now), None);
        let found = explain(&table, "a.example:80", "/x", now).unwrap();
        let verdicts: Vec<_> = found.upstreams.into_iter().map(|(_, _, verdict)| verdict).collect();
        assert_eq!(
            verdicts,
            [
                Verdict::In { weight: 550, in_flight: 1 },
                Verdict::Ejected { left: Duration::from_millis(250) },
                Verdict::In { weight: 550, in_flight: 0 },
                Verdict::Joining,
                Verdict::Draining { left: SLOW_START / 2, in_flight: 0 },
            ]
        );
    }
}
