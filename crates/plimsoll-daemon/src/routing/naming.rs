//! The names of services on the networks of this node, read off the endpoints: the directory of [`plimsoll_dns`].

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use plimsoll_dns::{Directory, NetworkNames};
use plimsoll_model::NodeId;
use plimsoll_router::{PoolKey, Protocol, PublishedPort};

use super::router_config::{Addresses, NodeRouterConfig, Open};
use plimsoll_kernel::endpoints::Endpoints;

/// The services of the open networks by their names, and which networks this node's containers are in.
pub fn directory(
    endpoints: &Endpoints,
    node: &NodeId,
    addresses: &Addresses,
    open: &Open,
) -> Directory {
    let mut networks: BTreeMap<String, NetworkNames> = BTreeMap::new();
    let mut directory =
        Directory { meant_for: open.keys().cloned().collect(), ..Directory::default() };
    for (key, listing) in &endpoints.services {
        let mut joined =
            listing.networks.iter().filter(|(name, _)| open.contains_key(*name)).peekable();
        if joined.peek().is_none() {
            continue;
        }
        let service: Arc<str> = key.to_string().into();
        for (network, aliases) in joined {
            let names = networks.entry(network.clone()).or_default();
            names.add(key.service.as_str(), &service);
            for alias in aliases {
                names.add(alias, &service);
            }
        }
        for container in listing.replicas.iter().filter(|one| one.node == *node) {
            let held = (container.replica.clone(), container.generation);
            let Some(IpAddr::V4(address)) = addresses.get(&held) else { continue };
            directory.placed.insert(*address);
            if listing.networks.len() > 1 {
                let names = listing.networks.keys().cloned().collect();
                directory.joined.insert(*address, names);
            }
        }
    }
    let shared = networks.into_iter().map(|(network, names)| (network, Arc::new(names)));
    directory.networks = shared.collect();
    directory
}

/// Has the router listen for datagrams at the virtual IPs of services that expose UDP ports.
pub fn listen_for_datagrams(
    endpoints: &Endpoints,
    open: &Open,
    virtual_ip: impl Fn(&str, &str) -> Option<Ipv4Addr>,
    asked: &mut NodeRouterConfig,
) {
    for (key, listing) in endpoints.services.iter().filter(|(_, it)| !it.datagrams.is_empty()) {
        let service = key.to_string();
        for network in listing.networks.keys().filter(|name| open.contains_key(*name)) {
            let Some(address) = virtual_ip(network, &service) else { continue };
            for port in &listing.datagrams {
                let at =
                    PublishedPort { address: (address, *port).into(), protocol: Protocol::Udp };
                asked.owners.insert(at, key.clone());
                asked.wanted.published.insert(at, PoolKey::new(&service, *port));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::ServiceSpec;
    use plimsoll_model::spec::NetworkAttachment;
    use plimsoll_model::testkit::{cell, cpus, node_id, spread};

    use super::*;

    fn on(networks: &[&str], alias: &str) -> ServiceSpec {
        let mut spec = spread(1);
        let how = NetworkAttachment { aliases: [alias.to_owned()].into(), ..Default::default() };
        spec.container.networks =
            networks.iter().map(|name| ((*name).to_owned(), how.clone())).collect();
        spec
    }

    fn opened(network: &str) -> Open {
        [(network.to_owned(), "10.208.1.0/24".parse().unwrap())].into()
    }

    fn endpoints() -> Endpoints {
        let mut dns = on(&["back"], "ns");
        dns.container.expose = ["53/udp".to_owned(), "80".to_owned()].into();
        let services =
            [("web", on(&["front"], "www")), ("api", on(&["front", "back"], "rpc")), ("dns", dns)];
        let cell = cell().node("ash", cpus(4)).deploy("shop", services);
        Endpoints::of(&cell.state, None)
    }

    #[test]
    fn services_are_called_by_name_and_alias_on_networks_that_are_open() {
        let open = opened("shop_front");
        let directory = directory(&endpoints(), &node_id("ash"), &Addresses::default(), &open);
        let find = |network, name| {
            let found = directory.find(network, name, Ipv4Addr::LOCALHOST);
            found.map(|(_, service)| service.to_string())
        };
        assert_eq!(find("shop_front", "www").as_deref(), Some("shop/web"));
        assert_eq!(find("shop_front", "api").as_deref(), Some("shop/api"));
        assert_eq!(find("shop_front", "dns"), None, "it is on another network");
        assert_eq!(find("shop_back", "dns"), None, "nobody here is on it");
        assert!(directory.is_for("shop_front") && !directory.is_for("shop_back"));
    }

    #[test]
    fn datagrams_are_listened_for_where_a_service_says_it_takes_them() {
        let open = opened("shop_back");
        let mut asked = NodeRouterConfig::default();
        let virtual_ip = |_: &str, _: &str| Some(Ipv4Addr::new(10, 208, 1, 4));
        listen_for_datagrams(&endpoints(), &open, virtual_ip, &mut asked);
        let listens: Vec<_> = asked.wanted.published.iter().collect();
        let at = PublishedPort { address: ([10, 208, 1, 4], 53).into(), protocol: Protocol::Udp };
        assert_eq!(listens, [(&at, &PoolKey::new("shop/dns", 53))]);
    }
}
