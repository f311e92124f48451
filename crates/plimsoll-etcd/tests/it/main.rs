//! The client against real etcd clusters.

#![expect(clippy::unwrap_used, reason = "what fails here has failed its test")]

mod auth;
mod keys;
mod leases;
mod members;
mod script;
mod tls;
mod watches;
