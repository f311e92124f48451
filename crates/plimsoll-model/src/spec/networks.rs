//! The networks a container joins, and what each is called on an engine.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::ContainerSpec;
use crate::DeploymentName;

/// What Compose calls the network of services that name none.
const DEFAULT: &str = "default";

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NetworkAttachment {
    /// The network's name on the engine where the file sets one.
    pub name: Option<String>,
    pub external: bool,
    pub internal: bool,
    pub aliases: BTreeSet<String>,
    pub ipv4_address: Option<String>,
    pub ipv6_address: Option<String>,
}

impl NetworkAttachment {
    /// What the network is called on an engine. Containers whose networks are called alike are in one.
    fn called(&self, deployment: &DeploymentName, key: &str) -> String {
        match self {
            Self { name: Some(given), .. } => given.clone(),
            Self { external: true, .. } => key.to_owned(),
            _ => format!("{deployment}_{key}"),
        }
    }
}

impl ContainerSpec {
    /// The networks it joins and what they are called, its deployment's own first. None for one that shares or forgoes
    /// a network.
    pub fn joins(&self, deployment: &DeploymentName) -> Vec<(String, NetworkAttachment)> {
        if self.network_mode.is_some() {
            return Vec::new();
        }
        let own = NetworkAttachment::default();
        let default = own.called(deployment, DEFAULT);
        if self.networks.is_empty() {
            return vec![(default, own)];
        }
        let named = self.networks.iter();
        let mut joined: Vec<_> =
            named.map(|(key, how)| (how.called(deployment, key), how.clone())).collect();
        joined.sort_by_key(|(name, _)| *name != default);
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_called_as_the_file_says_and_else_after_its_deployment() {
        let shop = DeploymentName::new("shop").unwrap();
        let names = |spec: &ContainerSpec| -> Vec<String> {
            spec.joins(&shop).into_iter().map(|(name, _)| name).collect()
        };
        let mut spec = ContainerSpec::default();
        assert_eq!(names(&spec), ["shop_default"]);
        let network = NetworkAttachment::default;
        spec.networks = [
            ("back".to_owned(), network()),
            ("default".to_owned(), network()),
            ("given".to_owned(), NetworkAttachment { name: Some("lan".to_owned()), ..network() }),
            ("theirs".to_owned(), NetworkAttachment { external: true, ..network() }),
        ]
        .into();
        assert_eq!(names(&spec), ["shop_default", "shop_back", "lan", "theirs"]);
        spec.network_mode = Some("host".to_owned());
        assert!(names(&spec).is_empty());
    }
}
