//! Credentials for registries, as they are told and given.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Time;

/// What the cell shows a registry, without the password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RegistryLogin {
    /// `registry.example.org:5000`
    pub registry: String,
    pub user: String,
    pub logged_in_at: Time,
}

/// What it is to show one from now on.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewRegistryLogin {
    /// A host, with its port where it is not the usual one.
    pub registry: String,
    pub user: String,
    /// Or a token in its place.
    pub password: String,
}

/// A password stays out of every log and debug print.
impl fmt::Debug for NewRegistryLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NewRegistryLogin for {}", self.registry)
    }
}
