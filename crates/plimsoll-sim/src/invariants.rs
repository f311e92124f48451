//! What must hold at every step, one promise a file. Each sees only what the step changed, and remembers what it
//! must; [`settled`] is asked once, at the end.

use std::fmt;

use crate::world::World;

mod alone;
mod capacity;
mod certificates;
mod data;
mod declared;
mod files;
mod identity;
mod jobs;
mod ledger;
mod lint;
mod machines;
mod make_before_break;
mod networks;
mod one_at_a_time;
mod one_writer;
mod orphans;
mod outages;
mod pace;
mod ports;
mod preemption;
mod reasons;
mod restless;
mod routing;
mod schedules;
pub mod settled;
mod start_order;
mod trust;
mod volume_holds;
mod volume_moves;
mod volumes;

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    pub invariant: &'static str,
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

/// One promise, with what it needs to remember.
pub trait Invariant: fmt::Debug {
    fn name(&self) -> &'static str;
    /// Looks at what the last step applied; says what is wrong.
    fn check(&mut self, world: &World<'_>) -> Result<(), String>;
}

/// All of them, fresh.
pub fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::<lint::Lint>::default(),
        Box::<alone::Alone>::default(),
        Box::<capacity::Capacity>::default(),
        Box::<certificates::Certificates>::default(),
        Box::<data::DataStays>::default(),
        Box::<declared::DeclaredData>::default(),
        Box::<files::Files>::default(),
        Box::<identity::Identity>::default(),
        Box::<jobs::Jobs>::default(),
        Box::<ledger::Ledger>::default(),
        Box::<machines::OwnedMachines>::default(),
        Box::<make_before_break::MakeBeforeBreak>::default(),
        Box::<networks::Networks>::default(),
        Box::<one_at_a_time::OneAtATime>::default(),
        Box::<one_writer::OneWriter>::default(),
        Box::<orphans::Orphans>::default(),
        Box::<outages::Outages>::default(),
        Box::<pace::Pace>::default(),
        Box::<ports::Ports>::default(),
        Box::<preemption::Preemption>::default(),
        Box::<reasons::Reasons>::default(),
        Box::<restless::Restless>::default(),
        Box::<routing::Routing>::default(),
        Box::<schedules::Schedules>::default(),
        Box::<start_order::StartOrder>::default(),
        Box::<trust::MutualTrust>::default(),
        Box::<volume_holds::HeldVolumesRest>::default(),
        Box::<volume_moves::VolumesChangeHandsWhole>::default(),
        Box::<volumes::OneVolume>::default(),
    ]
}

/// Checks every invariant and returns the first that is broken.
pub fn check(invariants: &mut [Box<dyn Invariant>], world: &World<'_>) -> Result<(), Broken> {
    for invariant in invariants {
        invariant.check(world).map_err(|what| Broken { invariant: invariant.name(), what })?;
    }
    Ok(())
}
