//! Plimsoll without a daemon: reads case and scenario files and measured traces, asks the kernel and the simulator what
//! they make of them, and returns the answers as values. Arguments, tables and exit codes are the command line's.
//!
//! Nothing here opens a connection: no HTTP server, no replicated log and no container engine is among its
//! dependencies, which `tests/dependencies.rs` holds.

pub mod case;
pub mod decide;
pub mod decided;
mod entries;
mod error;
pub mod explain;
pub mod input;
mod mistake;
pub mod optimize;
pub mod packing;
pub mod project;
pub mod reassignment;
pub mod report;
pub mod scenario;
pub mod sim;
pub mod text;
pub mod trace;
pub mod what_if;

pub use error::{Error, PlanError, Result};
pub use mistake::{InputText, LocatedMistake, Mistake};
