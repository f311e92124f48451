//! Containers and those who answer for names: which networks they answer on, and which resolvers a container is given.

use std::path::Path;

use bollard::Docker;
use plimsoll_model::ContainerSpec;

use super::engine_error::EngineError;
use super::networks::{self, NetworkEndpoint};
use super::{DockerInner, Naming};
use crate::bridge::{Bridge, name_servers};

/// How many of this host's own name servers a container is given, for when nobody else answers. An engine takes three.
const SPARE: usize = 2;

impl DockerInner {
    /// Has names answered on the networks before a container is in them. Where nobody does, the engine's own stay.
    pub(super) async fn open_names(
        &self,
        docker: &Docker,
        endpoints: &mut [NetworkEndpoint],
    ) -> Result<Option<Bridge>, EngineError> {
        let Some(Naming { names, .. }) = &self.settings.naming else { return Ok(None) };
        let mut first = None;
        for endpoint in endpoints {
            let Some(bridge) = networks::bridge(docker, endpoint).await? else { continue };
            match names.open(&bridge).await {
                Ok(()) => {
                    endpoint.leave_names();
                    first.get_or_insert(bridge);
                }
                Err(why) => {
                    let network = &bridge.name;
                    tracing::warn!(
                        network,
                        why,
                        "services on other nodes do not resolve on this network"
                    );
                }
            }
        }
        Ok(first)
    }

    pub(super) async fn close_names(&self, gone: &[Bridge]) {
        let Some(Naming { names, .. }) = &self.settings.naming else { return };
        for bridge in gone {
            names.close(bridge).await;
        }
    }

    /// Has names answered for the containers that run already.
    pub(super) async fn open_all_names(&self) -> Result<(), EngineError> {
        let Some(Naming { names, .. }) = &self.settings.naming else { return Ok(()) };
        let docker = self.engine.client().await?;
        for bridge in networks::bridges(&docker, &self.settings.cell_id).await? {
            if let Err(why) = names.open(&bridge).await {
                let network = &bridge.name;
                tracing::warn!(
                    network,
                    why,
                    "services on other nodes do not resolve on this network"
                );
            }
        }
        Ok(())
    }
}

/// The name servers of a container: ours first, then its own or else this host's. None to leave that to the engine.
pub(super) fn resolvers(spec: &ContainerSpec, bridge: Option<&Bridge>) -> Vec<String> {
    match bridge {
        Some(bridge) if spec.dns.is_empty() => {
            let own = bridge.resolver().to_string();
            std::iter::once(own).chain(servers(Path::new("/"))).collect()
        }
        Some(bridge) => {
            std::iter::once(bridge.strict_resolver().to_string()).chain(spec.dns.clone()).collect()
        }
        None => spec.dns.clone(),
    }
}

/// This host's name servers that a container can reach: one on the host's loopback it cannot.
fn servers(root: &Path) -> Vec<String> {
    let reached = name_servers(root).into_iter().filter(|address| !address.is_loopback());
    reached.take(SPARE).map(|address| address.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_asks_for_names_here_first_and_then_where_it_always_would() {
        let bridge = Bridge {
            id: "0".to_owned(),
            name: "shop_default".to_owned(),
            interface: "br-0".to_owned(),
            gateway: [10, 208, 0, 1].into(),
            virtual_block: "10.208.1.0/24".parse().unwrap(),
            is_asked_from_host: false,
        };
        let mut spec = ContainerSpec::default();
        assert_eq!(resolvers(&spec, Some(&bridge))[0], "10.208.1.1");
        assert!(resolvers(&spec, None).is_empty(), "the engine's own");
        spec.dns = vec!["9.9.9.9".to_owned()];
        assert_eq!(resolvers(&spec, Some(&bridge)), ["10.208.1.2", "9.9.9.9"]);
        assert_eq!(resolvers(&spec, None), ["9.9.9.9"]);
    }

    #[test]
    fn of_this_hosts_name_servers_those_count_that_a_container_reaches() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("etc")).unwrap();
        let text = "search lan\nnameserver 127.0.0.53\nnameserver 10.0.0.2\n#nameserver 1.1.1.1\n";
        std::fs::write(dir.path().join("etc/resolv.conf"), text).unwrap();
        assert_eq!(servers(dir.path()), ["10.0.0.2"]);
        assert!(servers(Path::new("/nonexistent")).is_empty());
    }
}
