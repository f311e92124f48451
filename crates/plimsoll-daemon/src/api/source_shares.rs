//! How many connections one address may have open: nobody keeps operators out alone by doing nothing on all there are.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::shared::Shared;

/// The connections of each address that has any.
#[derive(Debug, Clone)]
pub(super) struct SourceShares {
    most: usize,
    open: Shared<BTreeMap<IpAddr, usize>>,
}

/// One connection of an address, until it is dropped.
#[derive(Debug)]
pub(super) struct SourceShare {
    from: IpAddr,
    open: Shared<BTreeMap<IpAddr, usize>>,
}

impl SourceShares {
    pub(super) fn new(most: usize) -> Self {
        Self { most, open: Shared::default() }
    }

    /// None where this address has as many as it may.
    pub(super) fn take(&self, from: IpAddr) -> Option<SourceShare> {
        let from = from.to_canonical();
        let mut open = self.open.lock();
        let held = open.entry(from).or_default();
        if *held >= self.most {
            return None;
        }
        *held += 1;
        Some(SourceShare { from, open: self.open.clone() })
    }
}

impl Drop for SourceShare {
    fn drop(&mut self) {
        let mut open = self.open.lock();
        if let Some(held) = open.get_mut(&self.from) {
            *held -= 1;
            if *held == 0 {
                open.remove(&self.from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_at_once_however_it_is_written_and_others_have_their_own() {
        let shares = SourceShares::new(2);
        let (one, mapped): (IpAddr, IpAddr) =
            ("10.0.0.1".parse().unwrap(), "::ffff:10.0.0.1".parse().unwrap());
        let first = shares.take(one).unwrap();
        let _second = shares.take(mapped).unwrap();
        assert!(shares.take(one).is_none());
        assert!(shares.take("10.0.0.2".parse().unwrap()).is_some());
        drop(first);
        assert!(shares.take(one).is_some());
        assert_eq!(shares.open.lock().len(), 1, "nothing is kept of who is gone");
    }
}
