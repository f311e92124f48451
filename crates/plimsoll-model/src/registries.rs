//! Who the cell is to registries: a user and a password for each, which an admin gave it with `plimsoll registry login`.
//!
//! Changes to them are made in [`apply`](crate::apply). A password leaves the state with the order to run a replica of an
//! image of that registry, for the node that is to pull it; no view, audit event or log has a place for it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::InvalidName;
pub use crate::ids::RegistryHost;
use crate::spec::{ContainerSpec, ImageReference};
use crate::state::State;
use crate::units::Timestamp;

/// The most registries a cell knows credentials of.
pub const MAX_REGISTRIES: usize = 1_000;

/// The most bytes a user's name or a password may have. Tokens of large registries have some thousands.
pub const MAX_CREDENTIAL: usize = 16 << 10;

/// What Docker Hub goes by, and what an image comes from that names no registry.
pub const DOCKER_HUB: &str = "docker.io";

/// Other names of Docker Hub: what its clients have been told to log in to over the years.
const HUB_NAMES: [&str; 3] = ["index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"];

impl RegistryHost {
    /// As a person writes it, perhaps as an address: `registry.example.org:5000`, `https://index.docker.io/v1/`.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        let text = text.trim();
        let text = text.split_once("://").map_or(text, |(_, rest)| rest);
        let host = text.split('/').next().unwrap_or(text).to_ascii_lowercase();
        Self::new(if HUB_NAMES.contains(&host.as_str()) { DOCKER_HUB } else { &host })
    }

    /// Where an image comes from. None where its name is not one that a registry could have.
    pub fn of_image(image: &str) -> Option<Self> {
        Self::parse(ImageReference::parse(image).registry.unwrap_or(DOCKER_HUB)).ok()
    }
}

/// A password, or a token in its place. It is in no message, log or answer.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistryPassword(Arc<str>);

impl RegistryPassword {
    pub fn new(password: &str) -> Self {
        Self(Arc::from(password))
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for RegistryPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RegistryPassword")
    }
}

/// What the cell shows a registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistryLogin {
    pub user: String,
    pub password: RegistryPassword,
    pub at: Timestamp,
}

/// The same for whoever pulls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistryAuth {
    pub registry: RegistryHost,
    pub user: String,
    pub password: RegistryPassword,
}

impl State {
    pub fn registries(&self) -> &BTreeMap<RegistryHost, RegistryLogin> {
        &self.registries
    }

    /// What to show the registry of a container's image; none to ask it without.
    pub fn registry_auth(&self, container: &ContainerSpec) -> Option<RegistryAuth> {
        // The usual cell has none, and its orders need not look at every image.
        if self.registries.is_empty() {
            return None;
        }
        let registry = container.registry()?;
        let RegistryLogin { user, password, .. } = self.registries.get(&registry)?.clone();
        Some(RegistryAuth { registry, user, password })
    }
}

#[cfg(test)]
mod tests;
