//! One file a command: its arguments, and what it does with them.

pub(crate) mod completion;
pub(crate) mod decide;
pub(crate) mod demo;
pub(crate) mod explain;
pub(crate) mod sim;
pub(crate) mod validate;
