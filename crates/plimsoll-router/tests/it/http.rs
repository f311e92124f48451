//! HTTP routes.

mod abuse;
mod basics;
mod bodies;
mod kit;
mod retries;
mod rolling;
mod second;
mod secure;
mod tunnels;
