//! What a server writes to its disk is sealed: encrypted, and refused when it was changed.
//!
//! A server has data keys of its own in a [`Keyring`], which is a file beside what it seals. Under an [`UnlockKey`] that
//! file is sealed too, and the disk alone gives nothing away. What leaves the server, backups and values in etcd, is sealed
//! with a [`CellKey`]. Nothing here knows what is sealed; who does names it by a *context*, so that a sealed thing cannot pass
//! for another.

use std::io;

use hkdf::Hkdf;
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::Sha256;
use thiserror::Error;
use zeroize::Zeroizing;

mod cell_key;
mod cipher;
mod key_text;
mod keyring;
mod stream;
mod unlock;

#[cfg(test)]
mod tests;

pub use cell_key::{CellKey, KeyId};
pub use key_text::InvalidKey;
pub use keyring::{Keyring, KeyringError};
pub use stream::{STREAM_HEADER, SealWriter, SealedStream};
pub use unlock::UnlockKey;

/// How many bytes a key has.
const KEY: usize = 32;

/// It is overwritten when it is dropped.
type Key = Zeroizing<[u8; KEY]>;

/// How much longer a sealed text is than what it holds.
pub const OVERHEAD: usize = cipher::HEADER + cipher::TAG;

/// The number of the key that the bytes are sealed with; none where they are not sealed.
pub fn key_of(bytes: &[u8]) -> Option<u32> {
    cipher::number(bytes).ok()
}

/// Why something sealed cannot be opened. Nothing of it was believed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OpenError {
    #[error("it is not sealed, or cut short")]
    Foreign,
    #[error("it is sealed with data key {key}, which is not in the keyring")]
    UnknownKey { key: u32 },
    #[error("it was changed after it was sealed, or sealed by another server")]
    Changed,
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// A key for one purpose. What it is made of is random, so there is nothing to stretch.
fn derive(from: &Key, purpose: &str) -> Key {
    let mut key = Key::new([0; KEY]);
    let derived = Hkdf::<Sha256>::new(None, &from[..]).expand(purpose.as_bytes(), &mut key[..]);
    derived.expect("a hash gives that many bytes");
    key
}

/// Keys and nonces come from the system's generator, never from a seed.
fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}
