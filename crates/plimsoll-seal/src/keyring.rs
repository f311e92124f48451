//! The data keys of one server. The newest seals; the others open what was sealed before it was made, until nothing is left
//! of that.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use thiserror::Error;
use zeroize::Zeroizing;

use super::cipher;
use super::{CellKey, KEY, Key, OpenError, UnlockKey, random};

/// What a keyring's file begins with: as it is, or under an unlock key.
const OPEN: u8 = 1;
const LOCKED: u8 = 2;

/// What a locked keyring is sealed as.
const CONTEXT: &str = "keyring";

/// A number and a key.
const ENTRY: usize = 4 + KEY;

pub struct Keyring {
    keys: BTreeMap<u32, Key>,
}

/// Why a keyring cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KeyringError {
    #[error("the store is locked: start it with its unlock key")]
    Locked,
    #[error("this is not the unlock key of the store")]
    WrongKey,
    #[error("the keyring is damaged")]
    Damaged,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

impl Keyring {
    /// With one new key.
    pub fn generate() -> io::Result<Self> {
        Ok(Self { keys: BTreeMap::from([(1, Key::new(random()?))]) })
    }

    /// What the keys of a cell open for one purpose; none where no key is given. Of several none may seal.
    pub fn of_cell<'k>(keys: impl IntoIterator<Item = &'k CellKey>, purpose: &str) -> Option<Self> {
        let keys = keys.into_iter().map(|key| (key.id().0, key.sealing_key(purpose)));
        Some(Self { keys: keys.collect() }).filter(|it| !it.keys.is_empty())
    }

    /// This keyring with a new key that seals from now on, if the newest has sealed something, and without those older than
    /// the oldest that is still needed. `in_use` are the numbers of the keys of all that is sealed.
    pub fn renewed(&self, in_use: impl Iterator<Item = u32>) -> io::Result<Self> {
        let mut numbers: Vec<u32> = in_use.collect();
        numbers.sort_unstable();
        let newest = self.newest().0;
        let oldest = numbers.first().copied().unwrap_or(newest);
        let kept = self.keys.range(oldest.min(newest)..);
        let mut keys: BTreeMap<u32, Key> =
            kept.map(|(number, key)| (*number, key.clone())).collect();
        if numbers.last() == Some(&newest) {
            keys.insert(newest + 1, Key::new(random()?));
        }
        Ok(Self { keys })
    }

    /// The numbers of its keys; the last one seals.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        self.keys.keys().copied()
    }

    pub(crate) fn newest(&self) -> (u32, &Key) {
        let (number, key) = self.keys.last_key_value().expect("a keyring is made with a key");
        (*number, key)
    }

    pub(crate) fn key(&self, number: u32) -> Result<&Key, OpenError> {
        self.keys.get(&number).ok_or(OpenError::UnknownKey { key: number })
    }

    pub fn seal(&self, context: &str, plain: &[u8]) -> io::Result<Vec<u8>> {
        let (number, key) = self.newest();
        cipher::seal(key, number, context, plain)
    }

    /// What was sealed in this context.
    pub fn open(&self, context: &str, sealed: &[u8]) -> Result<Vec<u8>, OpenError> {
        cipher::open(self.key(cipher::number(sealed)?)?, context, sealed)
    }

    /// As it is kept in a file: under the unlock key where there is one. Without, who reads the file has the keys.
    pub fn to_bytes(&self, unlock: Option<&UnlockKey>) -> io::Result<Vec<u8>> {
        let mut plain = Zeroizing::new(Vec::with_capacity(self.keys.len() * ENTRY));
        for (number, key) in &self.keys {
            plain.extend_from_slice(&number.to_le_bytes());
            plain.extend_from_slice(&key[..]);
        }
        lock(CONTEXT, &plain, unlock)
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote. A keyring that is not locked takes any unlock key, which says nothing:
    /// ask [`is_locked`](Self::is_locked).
    pub fn from_bytes(bytes: &[u8], unlock: Option<&UnlockKey>) -> Result<Self, KeyringError> {
        Self::read(&open(CONTEXT, bytes, unlock)?)
    }

    pub fn is_locked(bytes: &[u8]) -> bool {
        bytes.first() == Some(&LOCKED)
    }

    fn read(plain: &[u8]) -> Result<Self, KeyringError> {
        if plain.is_empty() || !plain.len().is_multiple_of(ENTRY) {
            return Err(KeyringError::Damaged);
        }
        let entry = |entry: &[u8]| {
            let (number, key) = entry.split_at(4);
            let number = u32::from_le_bytes(number.try_into().expect("four bytes"));
            (number, Key::new(key.try_into().expect("the rest of an entry is a key")))
        };
        Ok(Self { keys: plain.chunks(ENTRY).map(entry).collect() })
    }
}

/// What is kept in a file, under the unlock key where there is one.
pub(crate) fn lock(context: &str, plain: &[u8], unlock: Option<&UnlockKey>) -> io::Result<Vec<u8>> {
    let (form, body) = match unlock {
        None => (OPEN, plain.to_vec()),
        Some(unlock) => (LOCKED, cipher::seal(&unlock.wrapping_key(), 0, context, plain)?),
    };
    Ok([&[form][..], &body].concat())
}

/// What [`lock`] wrote. It takes any unlock key where none is needed.
pub(crate) fn open(
    context: &str,
    bytes: &[u8],
    unlock: Option<&UnlockKey>,
) -> Result<Zeroizing<Vec<u8>>, KeyringError> {
    match (bytes.split_first(), unlock) {
        (Some((&OPEN, plain)), _) => Ok(Zeroizing::new(plain.to_vec())),
        (Some((&LOCKED, _)), None) => Err(KeyringError::Locked),
        (Some((&LOCKED, sealed)), Some(unlock)) => {
            match cipher::open(&unlock.wrapping_key(), context, sealed) {
                Ok(plain) => Ok(Zeroizing::new(plain)),
                Err(OpenError::Changed) => Err(KeyringError::WrongKey),
                Err(_) => Err(KeyringError::Damaged),
            }
        }
        _ => Err(KeyringError::Damaged),
    }
}
