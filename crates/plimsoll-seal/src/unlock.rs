//! The key that a keyring can be kept under. People keep it somewhere else than the disks of the servers, and give it to a
//! server at its start.

use std::fmt;
use std::io;
use std::str::FromStr;

use super::key_text::KeyForm;
use super::{InvalidKey, Key, derive, random};

const FORM: KeyForm = KeyForm { name: "an unlock key", prefix: "plu_" };

#[derive(Clone, PartialEq, Eq)]
pub struct UnlockKey(Key);

impl UnlockKey {
    pub fn generate() -> io::Result<Self> {
        Ok(Self(Key::new(random()?)))
    }

    /// What a keyring is sealed with.
    pub(crate) fn wrapping_key(&self) -> Key {
        derive(&self.0, "plimsoll keyring")
    }
}

/// The whole key: whoever prints it means to.
impl fmt::Display for UnlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&FORM.write(&self.0))
    }
}

impl fmt::Debug for UnlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnlockKey")
    }
}

impl FromStr for UnlockKey {
    type Err = InvalidKey;
    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        FORM.read(text).map(Self)
    }
}
