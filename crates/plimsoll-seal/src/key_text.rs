//! How a key is written for people: what kind it is, its bytes, and a check, so that a mistyped key is told from a wrong one.

use data_encoding::{BASE32_NOPAD, Encoding};
use sha2::{Digest, Sha256};
use thiserror::Error;
use zeroize::Zeroizing;

use super::{KEY, Key};

const CHECK: usize = 3;

const LETTERS: &Encoding = &BASE32_NOPAD;

/// A kind of key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyForm {
    /// With its article, as in "this is not *an unlock key*".
    pub(crate) name: &'static str,
    pub(crate) prefix: &'static str,
}

/// Why a text is not such a key. It never repeats the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidKey {
    #[error("this is not {name}: those begin with {prefix}")]
    Prefix { name: &'static str, prefix: &'static str },
    #[error("this is {name} that is mistyped, or part of it is missing")]
    Mistyped { name: &'static str },
}

impl KeyForm {
    pub(crate) fn write(&self, key: &Key) -> String {
        let bytes = Zeroizing::new([&key[..], &self.check(key)].concat());
        format!("{}{}", self.prefix, LETTERS.encode(&bytes).to_ascii_lowercase())
    }

    pub(crate) fn read(&self, text: &str) -> Result<Key, InvalidKey> {
        let Self { name, prefix } = *self;
        let mistyped = InvalidKey::Mistyped { name };
        let letters =
            text.trim().strip_prefix(prefix).ok_or(InvalidKey::Prefix { name, prefix })?;
        let bytes = LETTERS.decode(letters.to_ascii_uppercase().as_bytes());
        let bytes = Zeroizing::new(bytes.map_err(|_| mistyped)?);
        let (key, check) = bytes.split_at_checked(KEY).ok_or(mistyped)?;
        let key = Key::new(key.try_into().map_err(|_| mistyped)?);
        if self.check(&key) == check { Ok(key) } else { Err(mistyped) }
    }

    fn check(&self, key: &Key) -> [u8; CHECK] {
        let hash = Sha256::new().chain_update(self.prefix).chain_update(&key[..]).finalize();
        hash[..CHECK].try_into().expect("a hash is longer")
    }
}
