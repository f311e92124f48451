//! The names of services on each network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// The names that the resolver answers, made by whoever knows the cell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Directory {
    pub networks: BTreeMap<String, Arc<NetworkNames>>,
    /// The networks that were open when it was made, whether or not they have any services.
    pub meant_for: BTreeSet<String>,
    /// The addresses of this node's containers.
    pub placed: BTreeSet<Ipv4Addr>,
    /// The networks of containers that are in several.
    pub joined: BTreeMap<Ipv4Addr, Vec<String>>,
}

/// The services of one network and their names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetworkNames {
    /// The services by name, in lower case.
    names: BTreeMap<String, Arc<str>>,
    services: BTreeSet<Arc<str>>,
}

impl NetworkNames {
    /// Adds a name of a service. Where two services share a name, the first keeps it.
    pub fn add(&mut self, name: &str, service: &Arc<str>) {
        self.services.insert(Arc::clone(service));
        self.names.entry(name.to_ascii_lowercase()).or_insert_with(|| Arc::clone(service));
    }
}

impl Directory {
    /// The service of that name, and the network on which a client with that address on this network reaches it.
    pub fn find<'a>(
        &'a self,
        network: &'a str,
        name: &str,
        from: Ipv4Addr,
    ) -> Option<(&'a str, &'a Arc<str>)> {
        let on = |network: &'a str| Some((network, self.networks.get(network)?.names.get(name)?));
        let others = self.joined.get(&from).into_iter().flatten();
        on(network).or_else(|| others.map(String::as_str).find_map(on))
    }

    /// Whether any network has the name.
    pub fn has_name(&self, name: &str) -> bool {
        self.networks.values().any(|names| names.names.contains_key(name))
    }

    /// Whether a service is on the network.
    pub fn has(&self, network: &str, service: &str) -> bool {
        self.networks.get(network).is_some_and(|names| names.services.contains(service))
    }

    /// Whether this network was open when it was made.
    pub fn is_for(&self, network: &str) -> bool {
        self.meant_for.contains(network)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: Ipv4Addr = Ipv4Addr::new(10, 208, 2, 2);
    const BOTH: Ipv4Addr = Ipv4Addr::new(10, 208, 2, 3);

    fn directory() -> Directory {
        let mut networks = BTreeMap::new();
        for (network, services) in [
            ("shop_front", [("web", "shop/web"), ("api", "shop/api")]),
            ("shop_back", [("api", "shop/api"), ("DB", "shop/db")]),
        ] {
            let mut names = NetworkNames::default();
            for (name, service) in services {
                names.add(name, &service.into());
            }
            networks.insert(network.to_owned(), Arc::new(names));
        }
        let joined = [(BOTH, vec!["shop_back".to_owned(), "shop_front".to_owned()])].into();
        Directory { networks, joined, ..Directory::default() }
    }

    #[test]
    fn a_name_is_known_to_those_who_share_a_network_with_it() {
        let directory = directory();
        let find = |name, from| {
            let found = directory.find("shop_front", name, from);
            found.map(|(network, service)| (network, &**service))
        };
        assert_eq!(find("api", WEB), Some(("shop_front", "shop/api")));
        assert_eq!(find("db", WEB), None, "they share no network");
        assert_eq!(find("db", BOTH), Some(("shop_back", "shop/db")));
        assert_eq!(find("nobody", BOTH), None);
        assert_eq!(directory.find("other_default", "web", WEB), None);
    }

    #[test]
    fn of_two_that_have_one_name_the_first_keeps_it_and_both_are_there() {
        let mut names = NetworkNames::default();
        for service in ["a/web", "b/web"] {
            names.add("web", &service.into());
        }
        let networks = [("lan".to_owned(), Arc::new(names))].into();
        let directory = Directory { networks, ..Directory::default() };
        assert_eq!(&**directory.find("lan", "web", WEB).unwrap().1, "a/web");
        assert!(directory.has("lan", "a/web") && directory.has("lan", "b/web"));
    }
}
