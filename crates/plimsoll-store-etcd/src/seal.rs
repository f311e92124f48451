//! Commands and states are sealed before they go to etcd: whoever reads its values, its disks or its backups learns nothing of
//! them. Each is bound to the key it is stored under and to what it is part of, so that none can be put in another's place.

use std::sync::Arc;

use bytes::Bytes;
use plimsoll_seal::{CellKey, KeyId, Keyring, OpenError};

/// What the key of a cell seals for here.
const PURPOSE: &str = "plimsoll etcd";

#[derive(Debug, Clone)]
pub(crate) struct ValueSeal {
    keys: Arc<Keyring>,
    id: KeyId,
}

impl ValueSeal {
    pub(crate) fn new(key: &CellKey) -> Self {
        let keys = Keyring::of_cell([key], PURPOSE).expect("one key is given");
        Self { keys: Arc::new(keys), id: key.id() }
    }

    /// What tells the key from others, as it stands beside the cell's name.
    pub(crate) fn id(&self) -> String {
        self.id.to_string()
    }

    /// As it is stored under a key. `of` says what it is part of.
    pub(crate) fn seal(&self, key: &[u8], of: &str, plain: &[u8]) -> Bytes {
        let sealed = self.keys.seal(&context(key, of), plain);
        // The alternative to random bytes would be to write in the clear.
        sealed.expect("a kernel that runs gives random bytes, and a value has a megabyte").into()
    }

    pub(crate) fn open(&self, key: &[u8], of: &str, sealed: &[u8]) -> Result<Bytes, OpenError> {
        self.keys.open(&context(key, of), sealed).map(Bytes::from)
    }
}

fn context(key: &[u8], of: &str) -> String {
    format!("{} {of}", String::from_utf8_lossy(key))
}

/// What a part of something that has so many bytes is sealed as.
pub(crate) fn part_of(bytes: u64) -> String {
    format!("part of {bytes}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_opens_under_its_own_key_and_as_what_it_is_part_of() {
        let seal = ValueSeal::new(&CellKey::generate().unwrap());
        let value = seal.seal(b"/p/entry/1", "1 7", b"hush");
        assert!(!value.windows(4).any(|part| part == b"hush"));
        assert_eq!(seal.open(b"/p/entry/1", "1 7", &value).unwrap(), "hush");
        let other = ValueSeal::new(&CellKey::generate().unwrap());
        for (case, opened) in [
            ("under another key", seal.open(b"/p/entry/2", "1 7", &value)),
            ("of another term", seal.open(b"/p/entry/1", "1 8", &value)),
            ("with the key of another cell", other.open(b"/p/entry/1", "1 7", &value)),
        ] {
            assert!(opened.is_err(), "{case}");
        }
    }
}
