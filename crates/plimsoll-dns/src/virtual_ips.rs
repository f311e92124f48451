//! The virtual IPs of services, by network. They are kept in a file: programs resolve a name once and use the address for
//! as long as they run, and their network outlives the daemon.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_files::modes;

/// Offsets into the network's block, by network and service.
type Assignments = BTreeMap<String, BTreeMap<Arc<str>, u32>>;

#[derive(Debug, Default)]
pub(crate) struct VirtualIps {
    file: PathBuf,
    assigned: Assignments,
}

impl VirtualIps {
    /// A file that cannot be read counts as empty: addresses are assigned anew then.
    pub(crate) fn read(file: &Path) -> Self {
        let text = std::fs::read(file).unwrap_or_default();
        let assigned: BTreeMap<String, BTreeMap<String, u32>> =
            serde_json::from_slice(&text).unwrap_or_default();
        let assigned = assigned.into_iter().map(|(network, services)| {
            let services = services.into_iter().map(|(name, offset)| (name.into(), offset));
            (network, services.collect())
        });
        Self { file: file.to_owned(), assigned: assigned.collect() }
    }

    /// The address of a service, which is assigned one of the range if it has none. Addresses of deleted services are
    /// reused once all of the range have been assigned. None if every address is in use.
    pub(crate) fn assign(
        &mut self,
        network: &str,
        service: &str,
        range: RangeInclusive<u32>,
        is_known: impl Fn(&str) -> bool,
    ) -> Option<u32> {
        let known = self.assigned.entry(network.to_owned()).or_default();
        if let Some(offset) = known.get(service) {
            return Some(*offset);
        }
        let (first, last) = range.into_inner();
        let next = known.values().max().map_or(first, |offset| offset + 1);
        let offset = if next <= last {
            next
        } else {
            let old = known.iter().find(|(other, _)| !is_known(other));
            let (old, offset) = old.map(|(old, offset)| (Arc::clone(old), *offset))?;
            known.remove(&old);
            offset
        };
        known.insert(service.into(), offset);
        self.write();
        Some(offset)
    }

    /// The service that an address is assigned to.
    pub(crate) fn service_at(&self, network: &str, offset: u32) -> Option<Arc<str>> {
        let known = self.assigned.get(network)?;
        known.iter().find(|(_, at)| **at == offset).map(|(service, _)| Arc::clone(service))
    }

    /// The network was removed, and with it every client that cached an address.
    pub(crate) fn forget(&mut self, network: &str) {
        if self.assigned.remove(network).is_some() {
            self.write();
        }
    }

    fn write(&self) {
        let plain: BTreeMap<&String, BTreeMap<&str, u32>> = self
            .assigned
            .iter()
            .map(|(network, services)| {
                (network, services.iter().map(|(service, offset)| (&**service, *offset)).collect())
            })
            .collect();
        let written = serde_json::to_vec_pretty(&plain)
            .map_err(std::io::Error::other)
            .and_then(|text| plimsoll_files::write(&self.file, &text, modes::FILE));
        if let Err(error) = written {
            let file = self.file.display();
            tracing::warn!(%file, %error, "cannot write virtual IPs: they may change when this daemon restarts");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_keeps_its_address_when_others_are_added_and_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("names.json");
        let mut virtual_ips = VirtualIps::read(&file);
        let mut assign = |network, service| virtual_ips.assign(network, service, 4..=6, |_| true);
        assert_eq!(assign("shop", "shop/db"), Some(4));
        assert_eq!(assign("shop", "shop/api"), Some(5));
        assert_eq!(assign("shop", "shop/db"), Some(4));
        assert_eq!(assign("blog", "blog/db"), Some(4));
        let mut again = VirtualIps::read(&file);
        assert_eq!(again.assign("shop", "shop/api", 4..=6, |_| true), Some(5));
        assert_eq!(again.service_at("shop", 5).as_deref(), Some("shop/api"));
        assert_eq!(again.service_at("blog", 5), None);
        again.forget("shop");
        assert_eq!(VirtualIps::read(&file).service_at("shop", 5), None);
    }

    #[test]
    fn an_address_is_reused_only_when_all_are_assigned_and_its_service_was_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let mut virtual_ips = VirtualIps::read(&dir.path().join("names.json"));
        let mut assign = |service: &str, gone: &str| {
            virtual_ips.assign("n", service, 4..=5, |other| other != gone)
        };
        assert_eq!((assign("a", "a"), assign("b", "a")), (Some(4), Some(5)));
        assert_eq!(assign("c", ""), None, "all are in use");
        assert_eq!(assign("c", "a"), Some(4));
        assert_eq!(assign("c", ""), Some(4));
    }
}
