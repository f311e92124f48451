//! What someone may have meant. The daemon's answers use the same likeness.

pub(crate) use plimsoll_daemon::near::{hint, nearest, or};
