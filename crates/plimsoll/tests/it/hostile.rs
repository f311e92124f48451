//! Who should get nothing, at each door of a cell. Every test here attacks running daemons.

mod deploy;
