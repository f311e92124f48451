//! A map by host: an exact name, a wildcard (`*.` and a suffix), or any host. Hosts are compared without case, port or
//! trailing dot.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// Values by host pattern.
#[derive(Debug)]
pub(super) struct HostMap<T> {
    exact: BTreeMap<String, T>,
    /// By the suffix after `*.`.
    wildcard: BTreeMap<String, T>,
    any: Option<T>,
}

impl<T> Default for HostMap<T> {
    fn default() -> Self {
        Self { exact: BTreeMap::new(), wildcard: BTreeMap::new(), any: None }
    }
}

impl<T> HostMap<T> {
    /// The match of the most specific pattern: the host itself, then `*.` with ever shorter suffixes, then any host.
    pub(super) fn find<'a, R>(&'a self, host: &str, has: impl Fn(&'a T) -> Option<R>) -> Option<R> {
        let host = lower(host);
        if let Some(found) = self.exact.get(&*host).and_then(&has) {
            return Some(found);
        }
        let mut rest = &*host;
        while !self.wildcard.is_empty()
            && let Some((_, suffix)) = rest.split_once('.')
        {
            if let Some(found) = self.wildcard.get(suffix).and_then(&has) {
                return Some(found);
            }
            rest = suffix;
        }
        self.any.as_ref().and_then(has)
    }

    /// The value of exactly this pattern.
    pub(super) fn get(&self, pattern: Option<&str>) -> Option<&T> {
        let Some(pattern) = pattern else { return self.any.as_ref() };
        match lower(pattern).strip_prefix("*.") {
            Some(suffix) => self.wildcard.get(suffix),
            None => self.exact.get(&*lower(pattern)),
        }
    }

    pub(super) fn entry(&mut self, pattern: Option<&str>) -> &mut T
    where
        T: Default,
    {
        let Some(pattern) = pattern else { return self.any.get_or_insert_default() };
        let pattern = lower(pattern);
        match pattern.strip_prefix("*.") {
            Some(suffix) => self.wildcard.entry(suffix.to_owned()).or_default(),
            None => self.exact.entry(pattern.into_owned()).or_default(),
        }
    }

    pub(super) fn each(&mut self, mut change: impl FnMut(&mut T)) {
        let named = self.exact.values_mut().chain(self.wildcard.values_mut());
        named.chain(&mut self.any).for_each(&mut change);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.exact.values().chain(self.wildcard.values()).chain(&self.any)
    }
}

impl<'a, T> FromIterator<(Option<&'a str>, T)> for HostMap<T> {
    fn from_iter<I: IntoIterator<Item = (Option<&'a str>, T)>>(all: I) -> Self {
        let mut hosts = Self::default();
        for (pattern, value) in all {
            let pattern = pattern.map(lower);
            match pattern.as_deref() {
                None => hosts.any = Some(value),
                Some(name) => {
                    match name.strip_prefix("*.") {
                        Some(suffix) => hosts.wildcard.insert(suffix.to_owned(), value),
                        None => hosts.exact.insert(name.to_owned(), value),
                    };
                }
            }
        }
        hosts
    }
}

fn lower(host: &str) -> Cow<'_, str> {
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

/// The host without its port: `[::1]:80` is `[::1]`.
pub fn bare_host(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}
