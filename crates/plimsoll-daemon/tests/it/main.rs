//! The daemon as its clients meet it.

// Helpers of tests may unwrap as tests do, and the expectations are written by their tool.
#![allow(clippy::unwrap_used, clippy::needless_raw_string_hashes)]

mod api;
mod modules;
mod node_file;
