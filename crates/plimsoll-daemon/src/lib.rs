//! The daemon of a node: what ties the decisions of `plimsoll-kernel` to the log of `plimsoll-store` and to whatever
//! runs containers.
//!
//! The leader loop decides for the cell while this node leads it; the agent loop carries out what was decided for this node,
//! and reports; the API takes what people ask for. Each knows the others only through the replicated state in the
//! [`NodeContext`] and the measurements beside it.

pub mod acme;
pub mod agent;
pub mod api;
pub mod attached;
pub mod authorities;
pub mod cell;
pub mod clock;
pub mod context;
pub mod dispatcher;
pub mod endpoint_feed;
pub mod fleet;
pub mod fleet_link;
pub mod handover;
pub mod heartbeat;
pub mod image_lookup;
pub mod ingress_status;
pub mod leader;
pub mod link;
pub mod log_merge;
pub mod log_writer;
pub mod measurements;
pub mod node;
pub mod operations;
pub mod peer_api;
pub mod peer_levels;
pub mod pressure_history;
pub mod problem;
pub mod quorum;
pub mod renewal;
pub mod restarts;
pub mod route_certificates;
pub mod routing;
pub mod sampler;
pub mod servers;
pub mod shared;
pub mod views;
pub mod volume_archive;
pub mod volume_backup;
mod volume_copy;
pub mod volume_door;
pub mod volume_orders;
pub mod volume_restore;
pub mod volume_stream;
pub mod write_latency;

pub use context::NodeContext;
