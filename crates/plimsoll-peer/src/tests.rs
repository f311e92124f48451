//! Real connections on the loopback, one concern a file.

mod abuse;
mod calls;
mod certificates;
mod joining;
mod kit;
mod operators;
mod tunnels;
