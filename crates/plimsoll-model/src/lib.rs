//! Plimsoll's words as types.
//!
//! Ids and units that cannot be mixed up, specs as people wrote them, closed enums for every state and reason,
//! and the one replicated [`State`](state::State) with the one function that changes it. Nothing here reads a
//! clock, a file or a random number, and nothing here decides: decisions are made in `plimsoll-kernel`.

pub mod ids;
pub mod spec;
pub mod units;
