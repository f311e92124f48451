//! The daemon of a node: what ties the decisions of `plimsoll-kernel` to the log of `plimsoll-store` and to whatever
//! runs containers.
//!
//! The leader loop decides for the cell while this node leads it; the agent loop carries out what was decided for this node,
//! and reports; the API takes what people ask for. Each knows the others only through the replicated state in the
//! [`Cell`] and the measurements in [`Soft`].

pub mod agent;
pub mod api;
pub mod cell;
pub mod client;
pub mod clock;
pub mod cluster;
pub mod handover;
pub mod leader;
pub mod lines;
pub mod link;
pub mod near;
pub mod node;
pub mod operations;
pub mod orders;
pub mod peer;
pub mod pki;
pub mod relief;
pub mod renewal;
pub mod routing;
pub mod sampler;
pub mod soft;
pub mod view;

pub use cell::Cell;
pub use soft::Soft;
