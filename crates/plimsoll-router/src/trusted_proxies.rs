//! Proxies in front of this router, by the addresses they connect from: what they say of a client is believed. Everybody else
//! is a client, and what it says of another is dropped.

use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

/// A block of addresses: `10.0.0.0/8`, `fd00::/8`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressBlock {
    /// IPv4 addresses as IPv4-mapped ones, so that both are compared alike.
    first: u128,
    bits: u32,
}

/// Why a text is no block of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a block of addresses, such as 10.0.0.0/8, fd00::/8 or 192.0.2.7")]
pub struct AddressBlockError;

/// The bits before an IPv4 address that is written as an IPv6 one.
const MAPPED_BITS: u32 = 96;

/// The network of one IPv6 subscriber, who has all addresses in it.
const SUBSCRIBER_BITS: u32 = 64;

fn mapped(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn network(address: u128, bits: u32) -> u128 {
    address & u128::MAX.checked_shl(u128::BITS - bits).unwrap_or(0)
}

impl AddressBlock {
    pub fn contains(&self, address: IpAddr) -> bool {
        network(mapped(address), self.bits) == self.first
    }
}

impl FromStr for AddressBlock {
    type Err = AddressBlockError;

    fn from_str(text: &str) -> Result<Self, AddressBlockError> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().map_err(|_| AddressBlockError)?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| AddressBlockError)?;
        let before = if address.is_ipv4() { MAPPED_BITS } else { 0 };
        let bits = bits.map_or(Some(u128::BITS), |bits: u32| bits.checked_add(before));
        let bits = bits.filter(|bits| *bits <= u128::BITS).ok_or(AddressBlockError)?;
        let first = mapped(address);
        if network(first, bits) == first {
            Ok(Self { first, bits })
        } else {
            Err(AddressBlockError)
        }
    }
}

/// The blocks that proxies in front of this router connect from; none by default.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies(Arc<[AddressBlock]>);

impl TrustedProxies {
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|block| block.contains(address))
    }
}

impl FromIterator<AddressBlock> for TrustedProxies {
    fn from_iter<I: IntoIterator<Item = AddressBlock>>(blocks: I) -> Self {
        Self(blocks.into_iter().collect())
    }
}

/// Whom a connection counts for: an IPv4 address, or the network of an IPv6 subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Source(Ipv6Addr);

impl Source {
    pub(crate) fn of(address: IpAddr) -> Self {
        let bits = if address.to_canonical().is_ipv4() { u128::BITS } else { SUBSCRIBER_BITS };
        Self(Ipv6Addr::from_bits(network(mapped(address), bits)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_holds_the_addresses_of_its_network() {
        for (block, address, is_in) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.1.1.1", true),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.8", false),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "10.0.0.1", false),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("::/0", "2001:db8::1", true),
        ] {
            let proxies: TrustedProxies =
                [block.parse::<AddressBlock>().unwrap()].into_iter().collect();
            assert_eq!(proxies.contains(address.parse().unwrap()), is_in, "{address} in {block}");
        }
    }

    #[test]
    fn what_is_no_block_is_refused() {
        for text in ["", "10.0.0.0/33", "10.0.0.1/8", "10.0.0/8", "fd00::/129", "a", "10.0.0.0/-1"]
        {
            assert_eq!(text.parse::<AddressBlock>(), Err(AddressBlockError), "{text}");
        }
    }

    #[test]
    fn a_source_is_an_address_or_the_network_of_a_subscriber() {
        let source = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(source("10.0.0.1"), source("::ffff:10.0.0.1"));
        assert_ne!(source("10.0.0.1"), source("10.0.0.2"));
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:0:0:1"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
    }
}
