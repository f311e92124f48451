//! HTTP routes.

mod abuse;
mod acme;
mod basics;
mod bodies;
pub(crate) mod kit;
mod retries;
mod rolling;
mod second;
mod secure;
mod tunnels;
