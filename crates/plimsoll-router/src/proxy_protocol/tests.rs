use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

/// Who is named, by a second reading of the specification: field by field from a stream, as a server reads it.
#[derive(Debug, PartialEq, Eq)]
enum Named {
    Nobody,
    Client { src: SocketAddr, dst: SocketAddr },
}

struct Stream<'a>(&'a [u8]);

impl Stream<'_> {
    fn number(&mut self, bytes: usize) -> u128 {
        let (now, rest) = self.0.split_at(bytes);
        self.0 = rest;
        now.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
    }

    fn address(&mut self, bits: u128) -> IpAddr {
        match bits {
            32 => Ipv4Addr::from_bits(u32::try_from(self.number(4)).unwrap()).into(),
            _ => Ipv6Addr::from_bits(self.number(16)).into(),
        }
    }

    fn port(&mut self) -> u16 {
        u16::try_from(self.number(2)).unwrap()
    }
}

/// Reads one header and what comes after it.
fn read(bytes: &[u8]) -> (Named, &[u8]) {
    let mut stream = Stream(bytes);
    assert_eq!(stream.number(12), 0x0D0A_0D0A_000D_0A51_5549_540A, "the signature");
    let (command, family, length) = (stream.number(1), stream.number(1), stream.number(2));
    let (mut inner, rest) = stream.0.split_at(usize::try_from(length).unwrap());
    let named = match (command, family) {
        (0x20, 0) => Named::Nobody,
        (0x21, 0x11 | 0x21) => {
            let bits = if family == 0x11 { 32 } else { 128 };
            let mut stream = Stream(inner);
            let (src, dst) = (stream.address(bits), stream.address(bits));
            let (src, dst) = ((src, stream.port()).into(), (dst, stream.port()).into());
            inner = stream.0;
            Named::Client { src, dst }
        }
        other => panic!("command and family {other:x?}"),
    };
    assert!(inner.is_empty(), "no bytes beyond the addresses");
    (named, rest)
}

fn v4() -> impl Strategy<Value = SocketAddr> {
    (any::<Ipv4Addr>(), any::<u16>()).prop_map(SocketAddr::from)
}

fn v6() -> impl Strategy<Value = SocketAddr> {
    (any::<Ipv6Addr>(), any::<u16>()).prop_map(SocketAddr::from)
}

/// As a listener for both kinds sees an IPv4 address.
fn mapped(end: SocketAddr) -> SocketAddr {
    match end.ip() {
        IpAddr::V4(ip) => (ip.to_ipv6_mapped(), end.port()).into(),
        IpAddr::V6(_) => end,
    }
}

proptest! {
    #[test]
    fn a_server_reads_the_clients_own_address_and_then_its_bytes(
        (src, dst) in prop_oneof![(v4(), v4()), (v6(), v6())],
        bytes: Vec<u8>,
    ) {
        for seen in [(src, dst), (mapped(src), mapped(dst))] {
            let sent = [ClientEnds::new(seen.0, seen.1).header(), bytes.clone()].concat();
            let (named, rest) = read(&sent);
            // An address that stands for another is that one.
            let plain = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
            let (src, dst) = (plain(src), plain(dst));
            let same = |(src, dst)| Named::Client { src, dst };
            let kinds = (src.is_ipv4(), dst.is_ipv4());
            if kinds.0 == kinds.1 {
                prop_assert_eq!(named, same((src, dst)));
            } else {
                prop_assert_eq!(named, same((mapped(src), mapped(dst))));
            }
            prop_assert_eq!(rest, bytes.as_slice());
        }
    }
}

#[test]
fn headers_are_those_of_the_specification() {
    let ends = |src: &str, dst: &str| ClientEnds::new(src.parse().unwrap(), dst.parse().unwrap());
    let digit = |half: u8| char::from_digit(half.into(), 16).unwrap();
    let hex = |bytes: &[u8]| -> String {
        bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(digit).collect()
    };
    for (case, header, expected) in [
        (
            "IPv4",
            ends("192.0.2.1:56324", "198.51.100.9:443").header(),
            "0d0a0d0a000d0a515549540a 2111 000c c0000201 c6336409 dc04 01bb",
        ),
        (
            "IPv4 at a listener for both",
            ends("[::ffff:192.0.2.1]:56324", "[::ffff:198.51.100.9]:443").header(),
            "0d0a0d0a000d0a515549540a 2111 000c c0000201 c6336409 dc04 01bb",
        ),
        (
            "IPv6",
            ends("[2001:db8::1]:1", "[2001:db8::2]:80").header(),
            "0d0a0d0a000d0a515549540a 2121 0024 20010db8000000000000000000000001 20010db8000000000000000000000002 0001 0050",
        ),
        ("nobody's", LOCAL.to_vec(), "0d0a0d0a000d0a515549540a 2000 0000"),
    ] {
        assert_eq!(hex(&header), expected.replace(' ', ""), "{case}");
    }
    assert_eq!(read(&LOCAL), (Named::Nobody, &[][..]));
}
