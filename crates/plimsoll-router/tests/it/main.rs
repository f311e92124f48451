//! The router on real sockets: one file for each promise.

mod kit;
mod tcp;
mod udp;
mod via;
