//! Keys that a whole cell has, unlike the data keys of a server: one for its backups, one for what it keeps in etcd. People
//! keep them elsewhere too, and give them to whoever has to open the one or the other.

use std::fmt;
use std::io;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use super::key_text::KeyForm;
use super::keyring;
use super::{InvalidKey, KEY, Key, KeyringError, UnlockKey, derive, random};

const FORM: KeyForm = KeyForm { name: "a key of a cell", prefix: "plk_" };

/// What a key that is locked is sealed as.
const CONTEXT: &str = "key of a cell";

#[derive(Clone, PartialEq, Eq)]
pub struct CellKey(Key);

/// What tells one key of a cell from another. It says nothing of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyId(pub u32);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl CellKey {
    pub fn generate() -> io::Result<Self> {
        Ok(Self(Key::new(random()?)))
    }

    /// None: no key is so long.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(|bytes: [u8; KEY]| Self(Key::new(bytes)))
    }

    pub fn expose(&self) -> &[u8] {
        &self.0[..]
    }

    pub fn id(&self) -> KeyId {
        let hash = Sha256::new().chain_update("plimsoll key id").chain_update(&self.0[..]);
        let [a, b, c, d, ..] = <[u8; 32]>::from(hash.finalize());
        KeyId(u32::from_be_bytes([a, b, c, d]))
    }

    /// As a server keeps it: under the unlock key where there is one.
    pub fn to_file(&self, unlock: Option<&UnlockKey>) -> io::Result<Vec<u8>> {
        keyring::lock(CONTEXT, &self.0[..], unlock)
    }

    /// What [`to_file`](Self::to_file) wrote. One that is not locked takes any unlock key.
    pub fn from_file(bytes: &[u8], unlock: Option<&UnlockKey>) -> Result<Self, KeyringError> {
        let plain = keyring::open(CONTEXT, bytes, unlock)?;
        Self::from_bytes(&plain).ok_or(KeyringError::Damaged)
    }

    /// What seals for one purpose. It opens nothing that was sealed for another.
    pub(crate) fn sealing_key(&self, purpose: &str) -> Key {
        derive(&self.0, purpose)
    }
}

/// The whole key: whoever prints it means to.
impl fmt::Display for CellKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&FORM.write(&self.0))
    }
}

impl fmt::Debug for CellKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CellKey {}", self.id())
    }
}

impl FromStr for CellKey {
    type Err = InvalidKey;
    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        FORM.read(text).map(Self)
    }
}
