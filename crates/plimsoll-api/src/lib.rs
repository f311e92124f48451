//! The API of a node: the types it answers with ([`view`]), a `client` for it, and what was probably meant where a name
//! is unknown ([`suggest`]). What a command in a replica reads and prints is in [`exec_stream`]. What is meant by a question about the future is found out in [`mod@what_if`]. Every reason and problem is a word of a closed list ([`reason`], [`problem`]). Nothing here
//! decides anything.

#[cfg(feature = "client")]
pub mod client;
mod codes;
pub mod exec_stream;
pub mod problem;
pub mod reason;
pub mod suggest;
pub mod view;
pub mod what_if;
