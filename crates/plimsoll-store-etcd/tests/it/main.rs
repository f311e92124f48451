//! The engine on real etcd clusters: leading, following, taking over, and everything that goes wrong.

#![expect(clippy::unwrap_used, reason = "what fails here has failed its test")]

mod election;
mod level;
mod log;
mod lost;
mod outage;
mod proxy;
mod refused;
mod sealed;
mod stalled;
mod support;
