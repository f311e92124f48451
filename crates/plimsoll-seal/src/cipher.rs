//! The form of one sealed text: a byte that says so, the key's number, a nonce, then what XChaCha20-Poly1305 made of it. A
//! nonce of 24 random bytes never comes twice, however often a key is used.

use std::io;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use super::{Key, OpenError, random};

/// What sealed bytes begin with, so that others are told from damaged ones.
pub(crate) const SEALED: u8 = 0xa7;

const NONCE: usize = 24;
pub(crate) const TAG: usize = 16;

/// The mark, the number of the key, the nonce.
pub(crate) const HEADER: usize = 1 + 4 + NONCE;

pub(crate) fn seal(key: &Key, number: u32, context: &str, plain: &[u8]) -> io::Result<Vec<u8>> {
    let nonce = random::<NONCE>()?;
    let payload = Payload { msg: plain, aad: context.as_bytes() };
    let sealed = XChaCha20Poly1305::new((&**key).into()).encrypt(&XNonce::from(nonce), payload);
    let sealed = sealed.map_err(|_| io::Error::other("too long to be sealed at once"))?;
    let mut bytes = Vec::with_capacity(HEADER + sealed.len());
    bytes.push(SEALED);
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&nonce);
    bytes.extend_from_slice(&sealed);
    Ok(bytes)
}

/// Which key a sealed text takes.
pub(crate) fn number(bytes: &[u8]) -> Result<u32, OpenError> {
    match bytes {
        [SEALED, a, b, c, d, ..] => Ok(u32::from_le_bytes([*a, *b, *c, *d])),
        _ => Err(OpenError::Foreign),
    }
}

pub(crate) fn open(key: &Key, context: &str, bytes: &[u8]) -> Result<Vec<u8>, OpenError> {
    let (header, sealed) = bytes.split_at_checked(HEADER).ok_or(OpenError::Foreign)?;
    let nonce: [u8; NONCE] = header[5..].try_into().map_err(|_| OpenError::Foreign)?;
    let payload = Payload { msg: sealed, aad: context.as_bytes() };
    let cipher = XChaCha20Poly1305::new((&**key).into());
    cipher.decrypt(&XNonce::from(nonce), payload).map_err(|_| OpenError::Changed)
}
