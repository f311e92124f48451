//! A cell on hosts of a lab, whose wires are cut and whose machines fail while clients write: what was acknowledged is
//! there, in an order that the clients can have seen, and the servers agree on it.
//!
//! Takes root and `/dev/net/tun`; where there is none, tests say so and pass.

mod campaign;
mod deaths;
mod engines;
mod fault;
mod handover;
mod load;
mod misdated;
mod names;
mod partitions;
mod pauses;
mod refill;
mod relief;
pub(crate) mod routed;
mod severed;
mod strain;
mod unled;
mod verdict;
mod volumes;

use plimsoll_lab::{Lab, missing};

use crate::harness::{Cell, Site};

/// What wires lose is drawn from this.
pub(crate) const SEED: u64 = 4;

/// Three nodes that vote, on a host each; none where there can be no hosts.
fn cell_of_three() -> Option<Cell> {
    Some(Cell::of_three(site(3)?))
}

/// Hosts without nodes yet.
fn site(count: usize) -> Option<Site> {
    can_be().then(|| Site::Hosts(Lab::new(count, SEED).unwrap()))
}

/// Whether there can be hosts here; says why not.
pub(crate) fn can_be() -> bool {
    let missing = missing();
    if let Some(missing) = &missing {
        println!("not tested: {missing}");
    }
    missing.is_none()
}
