//! Secrets and configs that the cell keeps, as they are told and asked for.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Time;

/// A secret or config of the cell, without its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CellFile {
    pub name: String,
    /// Counts from 1; each rotation adds one.
    pub version: u32,
    pub bytes: u64,
    pub created_at: Time,
    pub rotated_at: Time,
    /// The services that use it: `shop/web`.
    pub services: Vec<String>,
}

/// A config of the cell.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigFile {
    #[serde(flatten)]
    pub file: CellFile,
    /// Its bytes, as numbers.
    #[schema(value_type = Vec<u16>)]
    pub content: Vec<u8>,
}

/// One that is to be kept.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewFile {
    pub name: String,
    /// Its bytes, as numbers.
    #[schema(value_type = Vec<u16>)]
    pub content: Vec<u8>,
}

/// What one is to have instead.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewContent {
    /// Its bytes, as numbers.
    #[schema(value_type = Vec<u16>)]
    pub content: Vec<u8>,
}

/// What came of a rotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RotatedFile {
    pub name: String,
    pub version: u32,
    /// Whether it had other content before.
    pub is_changed: bool,
    /// The services that are rolled to it.
    pub services: Vec<String>,
    pub index: u64,
}

/// Content stays out of every log and debug print.
macro_rules! hides_content {
    ($($type:ident),*) => {$(
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($type), " of {} bytes"), self.content.len())
            }
        }
    )*};
}

hides_content!(ConfigFile, NewFile, NewContent);
