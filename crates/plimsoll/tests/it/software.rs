//! PostgreSQL, Redis and nginx from a compose file on three nodes with an engine each, while clients write all the time:
//! whatever happens to the nodes and to the deployment, no row is missing that a client was told is there.
//!
//! Takes hosts of the lab, an engine and the images of `lab/software`; where something is missing, tests say so and pass.

mod again;
mod crashes;
mod engine_restarts;
mod postgres;
mod redis;
mod stack;
mod updates;
mod writer;
