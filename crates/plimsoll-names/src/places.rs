//! Which address of a network stands for which service. It is kept in a file: programs ask for a name once and go on with
//! the address for as long as they run, and so does their network, whatever becomes of the daemon.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// By network and service, counted within the network's block.
type Kept = BTreeMap<String, BTreeMap<Arc<str>, u32>>;

#[derive(Debug, Default)]
pub(crate) struct Places {
    file: PathBuf,
    kept: Kept,
}

impl Places {
    /// What cannot be read is nothing: names are given anew then.
    pub(crate) fn read(file: &Path) -> Self {
        let text = std::fs::read(file).unwrap_or_default();
        let kept: BTreeMap<String, BTreeMap<String, u32>> =
            serde_json::from_slice(&text).unwrap_or_default();
        let kept = kept.into_iter().map(|(network, services)| {
            let services = services.into_iter().map(|(name, place)| (name.into(), place));
            (network, services.collect())
        });
        Self { file: file.to_owned(), kept: kept.collect() }
    }

    /// The place of a service, which is given one of the range if it has none. Those of services that are no more are
    /// given away again once all were given once. None if every place is taken.
    pub(crate) fn of(
        &mut self,
        network: &str,
        service: &str,
        range: RangeInclusive<u32>,
        is_known: impl Fn(&str) -> bool,
    ) -> Option<u32> {
        let known = self.kept.entry(network.to_owned()).or_default();
        if let Some(place) = known.get(service) {
            return Some(*place);
        }
        let (first, last) = range.into_inner();
        let next = known.values().max().map_or(first, |place| place + 1);
        let place = if next <= last {
            next
        } else {
            let old = known.iter().find(|(other, _)| !is_known(other));
            let (old, place) = old.map(|(old, place)| (Arc::clone(old), *place))?;
            known.remove(&old);
            place
        };
        known.insert(service.into(), place);
        self.write();
        Some(place)
    }

    /// Whose the place is.
    pub(crate) fn at(&self, network: &str, place: u32) -> Option<Arc<str>> {
        let known = self.kept.get(network)?;
        known.iter().find(|(_, at)| **at == place).map(|(service, _)| Arc::clone(service))
    }

    /// The network is gone, and with it everybody who remembers.
    pub(crate) fn forget(&mut self, network: &str) {
        if self.kept.remove(network).is_some() {
            self.write();
        }
    }

    fn write(&self) {
        let plain: BTreeMap<&String, BTreeMap<&str, u32>> = self
            .kept
            .iter()
            .map(|(network, places)| {
                (network, places.iter().map(|(service, place)| (&**service, *place)).collect())
            })
            .collect();
        let next = self.file.with_extension("new");
        let written = serde_json::to_vec_pretty(&plain)
            .map_err(std::io::Error::other)
            .and_then(|text| std::fs::write(&next, text))
            .and_then(|()| std::fs::rename(&next, &self.file));
        if let Err(error) = written {
            let file = self.file.display();
            tracing::warn!(%file, %error, "addresses of services change if this daemon restarts");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_keeps_its_place_whatever_else_comes_and_whoever_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("names.json");
        let mut places = Places::read(&file);
        let mut of = |network, service| places.of(network, service, 4..=6, |_| true);
        assert_eq!(of("shop", "shop/db"), Some(4));
        assert_eq!(of("shop", "shop/api"), Some(5));
        assert_eq!(of("shop", "shop/db"), Some(4));
        assert_eq!(of("blog", "blog/db"), Some(4));
        let mut again = Places::read(&file);
        assert_eq!(again.of("shop", "shop/api", 4..=6, |_| true), Some(5));
        assert_eq!(again.at("shop", 5).as_deref(), Some("shop/api"));
        assert_eq!(again.at("blog", 5), None);
        again.forget("shop");
        assert_eq!(Places::read(&file).at("shop", 5), None);
    }

    #[test]
    fn a_place_is_given_away_only_when_all_were_given_and_its_service_is_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let mut places = Places::read(&dir.path().join("names.json"));
        let mut of =
            |service: &str, gone: &str| places.of("n", service, 4..=5, |other| other != gone);
        assert_eq!((of("a", "a"), of("b", "a")), (Some(4), Some(5)));
        assert_eq!(of("c", ""), None, "all are in use");
        assert_eq!(of("c", "a"), Some(4));
        assert_eq!(of("c", ""), Some(4));
    }
}
