//! A hash table that answers one question: what is filed under this key. It cannot be walked, so its order can
//! reach no decision, and its hash has no seed, so equal histories cost the same everywhere.

use std::borrow::Borrow;
use std::hash::{BuildHasherDefault, Hash};

use rustc_hash::FxHasher;

#[expect(clippy::disallowed_types, reason = "never iterated: this type has no way to do it")]
type Table<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<FxHasher>>;

/// Constant-time look-ups by key, and nothing else.
#[derive(Debug, Clone)]
pub struct Lookup<K, V>(Table<K, V>);

impl<K, V> Default for Lookup<K, V> {
    fn default() -> Self {
        Self(Table::default())
    }
}

impl<K: Eq + Hash, V: Copy> Lookup<K, V> {
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key).copied()
    }
}

impl<K: Eq + Hash, V> FromIterator<(K, V)> for Lookup<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}
