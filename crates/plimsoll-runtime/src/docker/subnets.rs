//! Which addresses a network gets where services are to find each other on it: some for its containers, and some that
//! no container is given.
//!
//! ```text
//! 10.208.4.0/22   the network
//! 10.208.4.1      the gateway, which is this host
//! 10.208.5.0/24   resolvers and services
//! 10.208.6.0/23   containers
//! ```

use std::net::Ipv4Addr;
use std::path::Path;

use bollard::models::{Ipam, IpamConfig, Network};

use crate::bridge::{Block, Bridge};

/// Where networks are taken from unless somebody says otherwise: nobody's default, and out of the way of engines' own.
pub const POOL: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 208, 0, 0), 12);

/// Of a network, in bits.
const NETWORK: u8 = 22;
const SERVICES: u8 = 24;
const CONTAINERS: u8 = 23;

/// Says which addresses of a network are no container's.
pub(super) const VIRTUAL: &str = "plimsoll.virtual";

/// The host's side of a network whose engine does not name it after the network's id. Podman is one: it makes that side with the
/// first container, and answers for names itself, passing on what it does not know.
pub(super) const INTERFACE: &str = "plimsoll.interface";

/// What specs call the network, which the engine may know by another name.
pub(super) const NETWORK_NAME: &str = "plimsoll.network";

/// The first network of the pool that is nobody's yet.
pub(super) fn free(pool: Block, taken: &[Block]) -> Option<Block> {
    pool.split(NETWORK).find(|one| !taken.iter().any(|other| other.overlaps(one)))
}

pub(super) fn virtual_block(network: Block) -> Option<Block> {
    network.split(SERVICES).nth(1)
}

/// What the engine is told of a network's addresses.
pub(super) fn ipam(network: Block) -> Ipam {
    let config = IpamConfig {
        subnet: Some(network.to_string()),
        gateway: network.at(1).map(|address| address.to_string()),
        ip_range: network.split(CONTAINERS).nth(1).map(|block| block.to_string()),
        ..IpamConfig::default()
    };
    Ipam { config: Some(vec![config]), ..Ipam::default() }
}

/// A name for the host's side of a network, which no other on this host has, since none has its addresses.
pub(super) fn interface(network: Block) -> Option<String> {
    Some(format!("plim{:08x}", network.at(0)?.to_bits()))
}

/// The blocks that networks of the engine have.
pub(super) fn of(networks: &[Network]) -> Vec<Block> {
    let configs = networks.iter().filter_map(|network| network.ipam.as_ref()?.config.as_ref());
    configs.flatten().filter_map(|config| config.subnet.as_ref()?.parse().ok()).collect()
}

/// The blocks that this host has ways to, besides the one to everywhere. What cannot be read is none.
pub(super) fn routed(root: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(root.join("proc/net/route")).unwrap_or_default();
    text.lines().skip(1).filter_map(route).collect()
}

/// One line of the kernel's table: numbers in hexadecimal, as they lie in memory.
fn route(line: &str) -> Option<Block> {
    let mut words = line.split_whitespace();
    let number = |word: &str| Some(u32::from_str_radix(word, 16).ok()?.swap_bytes());
    let (address, mask) = (number(words.nth(1)?)?, number(words.nth(5)?)?);
    let bits = u8::try_from(mask.leading_ones()).ok()?;
    (bits > 0).then(|| Block::new(Ipv4Addr::from_bits(address), bits))
}

/// The network as those know it who answer for names on it; none for one that was not made for that.
pub(super) fn bridge(network: &Network) -> Option<Bridge> {
    let labels = network.labels.as_ref()?;
    let gateway = network.ipam.as_ref()?.config.as_ref()?.first()?.gateway.as_ref()?;
    Some(Bridge {
        id: network.id.clone()?,
        name: labels.get(NETWORK_NAME)?.clone(),
        interface: match labels.get(INTERFACE) {
            Some(interface) => interface.clone(),
            None => format!("br-{}", network.id.as_ref()?.get(..12)?),
        },
        is_asked_from_host: labels.contains_key(INTERFACE),
        gateway: gateway.parse().ok()?,
        virtual_block: labels.get(VIRTUAL)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Block {
        Block::new(POOL.0, POOL.1)
    }

    #[test]
    fn a_network_takes_the_first_place_that_neither_engine_nor_host_has() {
        assert_eq!(free(pool(), &[]).unwrap().to_string(), "10.208.0.0/22");
        let taken = ["10.208.0.0/22", "10.208.6.0/24", "172.17.0.0/16"];
        let taken = taken.map(|text| text.parse().unwrap());
        assert_eq!(free(pool(), &taken).unwrap().to_string(), "10.208.8.0/22");
        assert_eq!(free(pool(), &["10.0.0.0/8".parse().unwrap()]), None);
    }

    #[test]
    fn gateway_services_and_containers_have_addresses_of_their_own() {
        let network: Block = "10.208.4.0/22".parse().unwrap();
        let config = ipam(network).config.unwrap().remove(0);
        let services = virtual_block(network).unwrap();
        let containers: Block = config.ip_range.unwrap().parse().unwrap();
        let gateway = config.gateway.unwrap().parse().unwrap();
        assert!(network.overlaps(&services) && network.overlaps(&containers));
        assert!(!services.overlaps(&containers));
        assert!(!services.contains(gateway) && !containers.contains(gateway));
    }

    #[test]
    fn ways_are_read_as_the_kernel_writes_them() {
        let text = "eth0\t00000000\t0100A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n";
        assert_eq!(route(text), None, "the way to everywhere says nothing");
        let text = "br0\t0004D00A\t00000000\t0001\t0\t0\t0\t00FCFFFF\t0\t0\t0\n";
        assert_eq!(route(text).unwrap().to_string(), "10.208.4.0/22");
    }
}
