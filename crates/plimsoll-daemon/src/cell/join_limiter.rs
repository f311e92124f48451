//! How often strangers may ask to join: each address a few times a minute, counted until it is taken in. What is remembered
//! of them is bounded, so that many addresses cost no more than a few.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use tokio::time::Instant;

/// How many requests of one source may be refused within a [`WINDOW`]. Whoever mistypes a token needs two or three.
pub const MAX_REFUSED: u32 = 20;

const WINDOW: Duration = Duration::from_mins(1);

/// How many sources are remembered; beyond it the one that has been quiet longest is forgotten.
const MAX_SOURCES: usize = 4_096;

/// Requests to join, by where they come from.
#[derive(Debug, Default)]
pub struct JoinLimiter {
    sources: BTreeMap<IpAddr, Source>,
}

#[derive(Debug, Clone, Copy)]
struct Source {
    refused: u32,
    since: Instant,
}

/// A request that counts against its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charge {
    source: IpAddr,
    since: Instant,
}

/// The source has used up what it may ask for, for so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limited {
    pub wait: Duration,
}

impl JoinLimiter {
    /// Counts a request before anything is done for it.
    pub fn charge(&mut self, from: IpAddr, now: Instant) -> Result<Charge, Limited> {
        let source = source(from);
        let known = self.sources.get(&source).copied();
        let known = known.filter(|known| now.duration_since(known.since) < WINDOW);
        if known.is_none() {
            self.make_room(now);
        }
        let Source { refused, since } = known.unwrap_or(Source { refused: 0, since: now });
        if refused >= MAX_REFUSED {
            return Err(Limited { wait: WINDOW.saturating_sub(now.duration_since(since)) });
        }
        self.sources.insert(source, Source { refused: refused + 1, since });
        Ok(Charge { source, since })
    }

    /// Gives a request back that came to something.
    pub fn refund(&mut self, Charge { source, since }: Charge) {
        if let Some(known) = self.sources.get_mut(&source)
            && known.since == since
        {
            known.refused = known.refused.saturating_sub(1);
        }
    }

    fn make_room(&mut self, now: Instant) {
        if self.sources.len() < MAX_SOURCES {
            return;
        }
        self.sources.retain(|_, known| now.duration_since(known.since) < WINDOW);
        if self.sources.len() >= MAX_SOURCES
            && let Some((oldest, _)) = self.sources.iter().min_by_key(|(_, known)| known.since)
        {
            let oldest = *oldest;
            self.sources.remove(&oldest);
        }
    }
}

/// A host that is given addresses of IPv6 is given a network of them.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(network))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_source_is_heard_so_often_a_minute_and_who_is_taken_in_is_not_counted() {
        let (mut limiter, start) = (JoinLimiter::default(), Instant::now());
        let (one, other): (IpAddr, IpAddr) =
            ("10.0.0.1".parse().unwrap(), "::ffff:10.0.0.2".parse().unwrap());
        for _ in 0..100 {
            let charge = limiter.charge(one, start).unwrap();
            limiter.refund(charge);
        }
        for nth in 0..MAX_REFUSED {
            limiter.charge(one, start + Duration::from_secs(u64::from(nth))).unwrap();
        }
        let Limited { wait } = limiter.charge(one, start + Duration::from_secs(50)).unwrap_err();
        assert_eq!(wait, Duration::from_secs(10));
        assert!(limiter.charge(other, start).is_ok(), "others are heard");
        assert!(limiter.charge(one, start + WINDOW).is_ok(), "a minute later it is too");
    }

    #[test]
    fn a_host_cannot_change_its_address_for_another_of_its_network() {
        let (mut limiter, now) = (JoinLimiter::default(), Instant::now());
        let mut heard = 0;
        for host in 0..1_000_u128 {
            let address = Ipv6Addr::from((0x2001_0db8_u128 << 96) | host);
            heard += u32::from(limiter.charge(address.into(), now).is_ok());
        }
        assert_eq!(heard, MAX_REFUSED);
    }

    #[test]
    fn what_is_remembered_of_sources_is_bounded() {
        let (mut limiter, start) = (JoinLimiter::default(), Instant::now());
        for nth in 0..u32::try_from(MAX_SOURCES).unwrap() + 100 {
            let address = Ipv4Addr::from(nth).into();
            let at = start + Duration::from_millis(u64::from(nth));
            limiter.charge(address, at).unwrap();
            assert!(limiter.sources.len() <= MAX_SOURCES);
        }
    }
}
