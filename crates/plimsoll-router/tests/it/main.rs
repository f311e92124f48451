//! The router on real sockets: one file for each promise.

#![expect(clippy::unwrap_used, reason = "what fails here has failed its test")]

mod hostile;
mod http;
mod kit;
mod proxied;
mod tcp;
mod udp;
mod via;
