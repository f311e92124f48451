//! Plimsoll's model and kernel, unchanged, under a virtual clock.
//!
//! Machines are modelled: pulling, starting, becoming healthy and stopping all take time; machines crash, are cut off
//! and come back; leaders change and lose what they had not committed. After every step the
//! [`invariants`] are checked, and once faults stop the cell must settle. Everything follows from the scenario and
//! one seed, so a failing run is replayed by its seed.

pub mod chaos;
mod clock;
pub mod fleet;
pub mod invariants;
pub mod machine;
pub mod packing;
pub mod report;
pub mod rng;
mod run;
pub mod scenario;
pub mod shrink;
pub mod trace;
pub mod usage;
pub mod world;

#[cfg(test)]
mod tests;

pub use report::Report;
pub use run::{InvariantFailure, RunOutcome, SETTLING, run};
pub use scenario::{Action, Scenario};
