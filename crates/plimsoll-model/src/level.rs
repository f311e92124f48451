//! Which forms of commands and state a build can read, and which a cell may use: one number for all of them.
//!
//! A build reads every level up to [`Level::BUILD`]. A cell has the level that all its servers can read, and nothing is
//! written in a newer form before the cell has its level: so builds of two levels run together, node by node.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The version of this program, as people know it.
#[cfg(not(feature = "next-level"))]
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The build that tests upgrade to.
#[cfg(feature = "next-level")]
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "+next");

/// A set of written forms; each contains those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Level(pub u32);

impl Level {
    pub const FIRST: Self = Self(1);

    /// The newest that this build reads.
    pub const BUILD: Self =
        if cfg!(feature = "next-level") { Self(Self::FIRST.0 + 1) } else { Self::FIRST };

    /// Whether this build reads what is written at the level.
    pub fn is_readable(self) -> bool {
        self <= Self::BUILD
    }
}

/// A node that says nothing of levels is of the first.
impl Default for Level {
    fn default() -> Self {
        Self::FIRST
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "level {}", self.0)
    }
}

/// What is said of a node that cannot read what its cell writes.
pub fn outdated(version: &str, cell: Level) -> String {
    format!("this node runs plimsoll {version}, the cell speaks {cell}")
}

/// What to do about it; `example` is a node that can.
pub fn remedy(example: Option<&str>) -> String {
    format!("install the same plimsoll as {}", example.unwrap_or("the other nodes"))
}
