//! The names of the fleet. A name is checked once, where it enters.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest name: one of a provider's instance types, zones or machines fits twice over.
const MAX: usize = 63;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    #[error("a {kind} name cannot be empty")]
    Empty { kind: &'static str },
    #[error("a {kind} name has {len} bytes; at most {MAX} are allowed")]
    TooLong { kind: &'static str, len: usize },
    #[error("{kind} name {name:?} has {found:?}; use letters, digits, '-', '_' and '.'")]
    Character { kind: &'static str, name: String, found: char },
}

macro_rules! names {
    ($($(#[$doc:meta])* $type:ident($text:ty) $kind:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $type($text);

        impl $type {
            pub fn new(name: impl AsRef<str>) -> Result<Self, NameError> {
                let name = name.as_ref();
                let kind = $kind;
                if name.is_empty() {
                    return Err(NameError::Empty { kind });
                }
                if name.len() > MAX {
                    return Err(NameError::TooLong { kind, len: name.len() });
                }
                let is_wrong = |c: &char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_' | '.');
                match name.chars().find(is_wrong) {
                    Some(found) => Err(NameError::Character { kind, name: name.to_owned(), found }),
                    None => Ok(Self(<$text>::from(name))),
                }
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;
            fn try_from(name: String) -> Result<Self, NameError> {
                Self::new(name)
            }
        }

        impl FromStr for $type {
            type Err = NameError;
            fn from_str(name: &str) -> Result<Self, NameError> {
                Self::new(name)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    )*};
}

names! {
    /// A cell, seen from the fleet.
    ShardId(Arc<str>) "shard";
    /// A host that the fleet can give to a cell, by its provider's name for it. Boxed and not counted: a cell has half a million of
    /// them and shares none, and the counters would take a fifth of what it may spend on a machine.
    MachineId(Box<str>) "machine";
    /// What a provider calls a kind of machine.
    MachineType(Arc<str>) "machine type";
    /// Where a machine is.
    Zone(Arc<str>) "zone";
    /// Needs that are alike: what one replica asks for and where it may run. The shard that has the need names it.
    Profile(Arc<str>) "profile";
}

/// Machines of one type in one zone, which can stand for each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Pool {
    pub machine_type: MachineType,
    pub zone: Zone,
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.machine_type, self.zone)
    }
}

/// One move of capacity between two shards, under the same number in the audit of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TransferId(pub u64);

impl fmt::Display for TransferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", self.0)
    }
}

/// What one shard was told to do. It keeps its number however often it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InstructionId(pub u64);

impl fmt::Display for InstructionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "i{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_plain() {
        assert!(Zone::new("eu-west-1a").is_ok());
        assert_eq!(Zone::new("").unwrap_err().to_string(), "a zone name cannot be empty");
        let long = "x".repeat(64);
        let error = MachineType::new(long).unwrap_err().to_string();
        assert_eq!(error, "a machine type name has 64 bytes; at most 63 are allowed");
        assert_eq!(
            ShardId::new("a/b").unwrap_err().to_string(),
            "shard name \"a/b\" has '/'; use letters, digits, '-', '_' and '.'"
        );
    }
}
