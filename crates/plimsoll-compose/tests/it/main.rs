//! Compose files as people write them, from text to spec or to the message they read.

// Helpers of tests may unwrap and build texts plainly; `UPDATE_EXPECT` writes texts with hashes.
#![allow(clippy::unwrap_used, clippy::format_collect, clippy::needless_raw_string_hashes)]

mod assembly;
mod bad_input;
mod case;
mod ceilings;
mod diagnostics;
mod environment;
mod field_table;
mod fixtures;
mod fuzz;
mod hash;
mod layers;
mod lifecycle;
mod messages;
mod names;
mod placement;
mod random;
mod schedule;
mod services;
mod whole;
