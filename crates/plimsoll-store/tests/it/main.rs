//! The store from outside: starting, stopping, crashing, replicating, backing up.

#![expect(clippy::unwrap_used, reason = "what fails here has failed its test")]

mod backup;
mod cell;
mod founding;
mod fuzz;
mod kill;
mod recovery;
mod restart;
mod sealed;
mod support;
