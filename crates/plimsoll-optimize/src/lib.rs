//! Searches for a better layout of what already runs: given machines, processes and where each is, returns where each
//! should be, within hard constraints and paying for every move.
//!
//! The problem is the machine reassignment of the ROADEF/EURO challenge of 2012, which [`problem`] states as types and
//! [`referee`] judges by brute force. [`layout`] keeps the cost of a layout exact while processes shift and swap, and
//! [`search`] looks for a cheaper one until its caller says that the time is up. Where a problem comes from and what
//! becomes of an answer is left to the callers.

mod annealing;
pub mod layout;
pub mod problem;
mod random;
pub mod referee;
pub mod search;
mod steps;

#[cfg(test)]
mod tests;

pub use layout::MAX_RESOURCES;
pub use problem::{Problem, ProblemError};
pub use referee::{Cost, Violation};
pub use search::{Found, Limits, search};
