//! Fleets under a virtual clock: the coordinator's own decisions and books, shards that are modelled, and a network that loses,
//! delays, doubles and reorders what they say to each other.
//!
//! Coordinators crash and come back with another leader, shards crash and come back with another epoch, demand rotates. After
//! every write the [`invariants`](FleetInvariant) are checked; once demand and faults settle, so must the fleet. Everything
//! follows from the [`FleetScenario`] and one seed.

mod invariants;
mod shard;
mod world;

#[cfg(test)]
mod tests;

use plimsoll_fleet::FleetPolicy;
use plimsoll_model::Millis;

pub use invariants::FleetInvariant;
pub use world::{FleetOutcome, run_fleet};

/// What a run is made of.
#[derive(Debug, Clone)]
pub struct FleetScenario {
    pub shards: usize,
    /// How many machines each begins with.
    pub machines: u32,
    /// How many each may make, in slices that are equal at first.
    pub quota: u32,
    /// Until when demand rotates and things fail.
    pub restless: Millis,
    /// How long the fleet then has to settle.
    pub settling: Millis,
    /// How often demand changes, for each shard.
    pub rotation: Millis,
    /// The most machines that one shard asks for, in percent of what it begins with.
    pub peak_percent: u64,
    /// Of a hundred messages so many are lost, and as many come twice.
    pub loss_percent: u64,
    /// The longest that a message takes.
    pub delay: Millis,
    /// Of a hundred cycles of a shard, in how many it crashes; of a hundred passes, in how many the coordinator does.
    pub crash_percent: u64,
    /// How long a crash lasts, at least and at most.
    pub outage: (Millis, Millis),
    /// How long a machine takes to join a cell, to be made, and to be drained.
    pub configure: (Millis, Millis),
    pub create: (Millis, Millis),
    pub drain: (Millis, Millis),
    pub policy: FleetPolicy,
}

impl FleetScenario {
    /// A fleet of so many shards in bad weather: a few hours of rotating demand, then an hour to settle.
    pub fn stormy(shards: usize) -> Self {
        let seconds = |least, most| (Millis::seconds(least), Millis::seconds(most));
        Self {
            shards,
            machines: 20,
            quota: 8,
            restless: Millis::minutes(120),
            settling: Millis::minutes(300),
            rotation: Millis::minutes(30),
            peak_percent: 260,
            loss_percent: 5,
            delay: Millis::seconds(25),
            crash_percent: 1,
            outage: seconds(20, 300),
            configure: seconds(20, 120),
            create: seconds(60, 300),
            drain: seconds(20, 120),
            policy: FleetPolicy::default(),
        }
    }
}
