//! Networks on which somebody else has services find each other by name: what a runtime says of each, and whom it tells.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::str::FromStr;

use crate::runtime::BoxFuture;

/// Addresses that share their first bits: `10.208.1.0/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    first: u32,
    bits: u8,
}

impl Block {
    /// The block that an address is in. At most 32 bits.
    pub fn new(address: Ipv4Addr, bits: u8) -> Self {
        let bits = bits.min(32);
        Self { first: address.to_bits() & mask(bits), bits }
    }

    pub fn contains(&self, address: Ipv4Addr) -> bool {
        address.to_bits() & mask(self.bits) == self.first
    }

    pub fn overlaps(&self, other: &Self) -> bool {
        let wider = mask(self.bits.min(other.bits));
        self.first & wider == other.first & wider
    }

    /// How many addresses there are, less one.
    pub fn last(&self) -> u32 {
        !mask(self.bits)
    }

    /// The address at that place, counted from zero.
    pub fn at(&self, place: u32) -> Option<Ipv4Addr> {
        (place <= self.last()).then(|| Ipv4Addr::from_bits(self.first + place))
    }

    /// The blocks of so many bits that it is made of.
    pub fn split(self, bits: u8) -> impl Iterator<Item = Self> {
        let step = 1_u64 << (32 - u32::from(bits.clamp(self.bits, 32)));
        let firsts = (0..).map(move |number| u64::from(self.first) + number * step);
        let end = u64::from(self.first) + u64::from(self.last());
        firsts.take_while(move |first| *first <= end).map(move |first| {
            let first = u32::try_from(first).expect("it is within the block");
            Self { first, bits }
        })
    }
}

fn mask(bits: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0)
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from_bits(self.first), self.bits)
    }
}

/// Why a text is no block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a block of addresses such as 10.208.0.0/12")]
pub struct BlockError;

impl FromStr for Block {
    type Err = BlockError;

    fn from_str(text: &str) -> Result<Self, BlockError> {
        let (address, bits) = text.split_once('/').ok_or(BlockError)?;
        let (address, bits) = (address.parse().ok(), bits.parse().ok());
        let (address, bits): (Ipv4Addr, u8) = address.zip(bits).ok_or(BlockError)?;
        let block = Self::new(address, bits);
        if bits <= 32 && block.first == address.to_bits() { Ok(block) } else { Err(BlockError) }
    }
}

/// A network of a deployment on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bridge {
    /// The engine's own id for it, which no other network ever has: one that is made again under its name, or with its
    /// addresses, is another.
    pub id: String,
    /// What specs call it: see [`joins`](plimsoll_model::ContainerSpec::joins).
    pub name: String,
    /// The host's side of it.
    pub interface: String,
    pub gateway: Ipv4Addr,
    /// Addresses that no container is given. Its first three are nobody's and the two resolvers; the others stand for
    /// services.
    pub virtual_block: Block,
    /// Whether the engine passes on what containers ask, from this host itself and not from where they are.
    pub is_asked_from_host: bool,
}

impl Bridge {
    /// The first address that may stand for a service.
    pub const FIRST_SERVICE: u32 = 4;

    /// Answers for names of services, and asks this host's own name servers for all others.
    pub fn resolver(&self) -> Ipv4Addr {
        self.virtual_block.at(1).expect("a block is large enough")
    }

    /// Answers for names of services and for no others, which are asked elsewhere.
    pub fn strict_resolver(&self) -> Ipv4Addr {
        self.virtual_block.at(2).expect("a block is large enough")
    }
}

/// Who has services find each other by name.
pub trait Names: Send + Sync + fmt::Debug {
    /// A container is about to be in this network. When this returns, names are answered on it; an error says in a
    /// sentence why they are not.
    fn open<'a>(&'a self, bridge: &'a Bridge) -> BoxFuture<'a, Result<(), String>>;

    /// This very network is gone. Another may have its name or its addresses by now.
    fn close<'a>(&'a self, bridge: &'a Bridge) -> BoxFuture<'a, ()>;
}

/// A host's name servers, as they are written down now. What cannot be read is none.
pub fn name_servers(root: &Path) -> Vec<IpAddr> {
    let text = std::fs::read_to_string(root.join("etc/resolv.conf")).unwrap_or_default();
    let words = text.lines().filter_map(|line| line.strip_prefix("nameserver"));
    words.filter_map(|word| word.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> Block {
        text.parse().expect("a block")
    }

    #[test]
    fn a_block_is_written_and_read_as_it_is_and_knows_its_own() {
        let small = block("10.208.4.0/22");
        assert_eq!(small.to_string(), "10.208.4.0/22");
        assert!(
            small.contains([10, 208, 7, 255].into()) && !small.contains([10, 208, 8, 0].into())
        );
        assert_eq!(small.at(257), Some([10, 208, 5, 1].into()));
        assert_eq!((small.at(1_023), small.at(1_024)), (Some([10, 208, 7, 255].into()), None));
        assert!(small.overlaps(&block("10.208.0.0/12")) && block("0.0.0.0/0").overlaps(&small));
        assert!(!small.overlaps(&block("10.208.8.0/22")));
        for text in ["10.208.0.0", "10.208.0.1/12", "10.208.0.0/33", "x/8", "10.0.0.0/-1"] {
            assert_eq!(text.parse::<Block>(), Err(BlockError), "{text}");
        }
    }

    #[test]
    fn a_block_is_split_into_all_of_its_parts() {
        let parts: Vec<String> =
            block("10.208.0.0/21").split(22).map(|part| part.to_string()).collect();
        assert_eq!(parts, ["10.208.0.0/22", "10.208.4.0/22"]);
        assert_eq!(block("10.208.0.0/12").split(22).count(), 1_024);
        assert_eq!(block("255.255.252.0/22").split(24).count(), 4);
    }
}
