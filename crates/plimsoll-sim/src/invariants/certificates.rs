//! No authority is asked too often, whatever leaders do one after the other, and a certificate that was issued is served
//! until another takes its place.

use std::collections::BTreeMap;

use plimsoll_model::acme::{MAX_CELL_ORDERS, MAX_HOST_ORDERS, ORDER_WINDOW};
use plimsoll_model::{Millis, Timestamp};

use super::Invariant;
use crate::world::World;

/// An hour by the clocks of leaders, which chaos sets two minutes wrong in either direction.
const HOUR: Millis = Millis(ORDER_WINDOW.0 - Millis::minutes(5).0);

#[derive(Debug, Default)]
pub(super) struct Certificates {
    /// When each host was ordered, by the clocks of those who led.
    ordered: BTreeMap<String, Vec<Timestamp>>,
    /// What each host's row last had of them.
    seen: BTreeMap<String, Vec<Timestamp>>,
    /// When each host's certificate runs out.
    issued: BTreeMap<String, Timestamp>,
}

impl Invariant for Certificates {
    fn name(&self) -> &'static str {
        "certificates"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        let hosts = &world.state.acme().hosts;
        for (host, row) in hosts {
            // Only a new order changes them, and a step has at most one of a host.
            if self.seen.get(host) != Some(&row.ordered_at) {
                self.seen.insert(host.clone(), row.ordered_at.clone());
                self.ordered.entry(host.clone()).or_default().extend(row.ordered_at.last());
            }
        }
        let mut all: Vec<Timestamp> = Vec::new();
        for (host, times) in &mut self.ordered {
            times.sort();
            busiest(times, MAX_HOST_ORDERS)
                .map_err(|count| format!("{host} ordered {count} times within an hour"))?;
            all.extend(&*times);
        }
        all.sort();
        busiest(&all, MAX_CELL_ORDERS).map_err(|count| format!("{count} orders within an hour"))?;
        for (host, until) in std::mem::take(&mut self.issued) {
            let is_shown = hosts.get(&host).is_some_and(|row| row.issued.is_some());
            let is_wanted = plimsoll_kernel::certificates::hosts(&world.state).contains(&host);
            if is_wanted && !is_shown && until > world.now() {
                return Err(format!("{host} has lost a certificate that was good"));
            }
        }
        let issued = hosts.iter().filter_map(|(host, row)| Some((host, row.issued.as_ref()?)));
        self.issued = issued.map(|(host, issued)| (host.clone(), issued.not_after)).collect();
        Ok(())
    }
}

/// More than so many times within an hour.
fn busiest(times: &[Timestamp], most: usize) -> Result<(), usize> {
    let spans = times.windows(most + 1);
    let is_over = |span: &[Timestamp]| span[most].since(span[0]) < HOUR;
    if spans.into_iter().any(is_over) { Err(most + 1) } else { Ok(()) }
}
