//! The key that a keyring can be kept under. People keep it somewhere else than the disks of the servers, and give it to a
//! server at its start.

use std::fmt;
use std::io;
use std::str::FromStr;

use data_encoding::{BASE32_NOPAD, Encoding};
use hkdf::Hkdf;
use sha2::{Digest, Sha256};
use thiserror::Error;
use zeroize::Zeroizing;

use super::{KEY, Key, random};

const PREFIX: &str = "plu_";

/// So that a mistyped key is told from a wrong one.
const CHECK: usize = 3;

const LETTERS: &Encoding = &BASE32_NOPAD;

#[derive(Clone, PartialEq, Eq)]
pub struct UnlockKey(Key);

/// Why a text is not an unlock key. It never repeats the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidUnlockKey {
    #[error("this is not an unlock key: those begin with {PREFIX}")]
    Prefix,
    #[error("the unlock key is mistyped, or part of it is missing")]
    Mistyped,
}

impl UnlockKey {
    pub fn generate() -> io::Result<Self> {
        Ok(Self(Key::new(random()?)))
    }

    /// What a keyring is sealed with. The unlock key is random, so there is nothing to stretch.
    pub(crate) fn wrapping_key(&self) -> Key {
        let mut key = Key::new([0; KEY]);
        let derived =
            Hkdf::<Sha256>::new(None, &self.0[..]).expand(b"plimsoll keyring", &mut key[..]);
        derived.expect("a hash gives that many bytes");
        key
    }

    fn check(&self) -> [u8; CHECK] {
        let hash = Sha256::new().chain_update(PREFIX).chain_update(&self.0[..]).finalize();
        hash[..CHECK].try_into().expect("a hash is longer")
    }
}

/// The whole key: whoever prints it means to.
impl fmt::Display for UnlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = Zeroizing::new([&self.0[..], &self.check()].concat());
        write!(f, "{PREFIX}{}", LETTERS.encode(&bytes).to_ascii_lowercase())
    }
}

impl fmt::Debug for UnlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnlockKey")
    }
}

impl FromStr for UnlockKey {
    type Err = InvalidUnlockKey;
    fn from_str(text: &str) -> Result<Self, InvalidUnlockKey> {
        let letters = text.trim().strip_prefix(PREFIX).ok_or(InvalidUnlockKey::Prefix)?;
        let bytes = LETTERS.decode(letters.to_ascii_uppercase().as_bytes());
        let bytes = Zeroizing::new(bytes.map_err(|_| InvalidUnlockKey::Mistyped)?);
        let (key, check) = bytes.split_at_checked(KEY).ok_or(InvalidUnlockKey::Mistyped)?;
        let key = Self(Key::new(key.try_into().map_err(|_| InvalidUnlockKey::Mistyped)?));
        if key.check() == check { Ok(key) } else { Err(InvalidUnlockKey::Mistyped) }
    }
}
