//! Seals what is too large to be in memory twice: pieces of one size, each with its place and the last one marked, so that
//! none can be left out, doubled or moved.

use std::io::{self, Read, Write};

use aead_stream::{DecryptorBE32, EncryptorBE32};
use chacha20poly1305::XChaCha20Poly1305;
use chacha20poly1305::aead::{KeyInit, Payload};

use super::cipher::{SEALED, TAG};
use super::{Keyring, OpenError, random};

/// What is sealed at a time.
const PIECE: usize = 64 << 10;

/// The nonce of a stream; the place of a piece and whether it is the last make the rest of each piece's.
const NONCE: usize = 19;

const HEADER: usize = 1 + 4 + NONCE;

/// Seals what is written to it. What was not [finished](Self::finish) does not open.
pub struct SealWriter<W> {
    to: W,
    context: String,
    cipher: EncryptorBE32<XChaCha20Poly1305>,
    piece: Vec<u8>,
}

impl<W> std::fmt::Debug for SealWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SealWriter").field("context", &self.context).finish_non_exhaustive()
    }
}

impl<W: Write> SealWriter<W> {
    pub fn new(keys: &Keyring, context: &str, mut to: W) -> io::Result<Self> {
        let (number, key) = keys.newest();
        let nonce = random::<NONCE>()?;
        to.write_all(&[SEALED])?;
        to.write_all(&number.to_le_bytes())?;
        to.write_all(&nonce)?;
        let cipher = XChaCha20Poly1305::new((&**key).into());
        let cipher = EncryptorBE32::from_aead(cipher, &nonce.into());
        Ok(Self { to, context: context.to_owned(), cipher, piece: Vec::with_capacity(PIECE) })
    }

    /// Seals the last piece.
    pub fn finish(mut self) -> io::Result<W> {
        let payload = Payload { msg: &self.piece, aad: self.context.as_bytes() };
        let sealed = self.cipher.encrypt_last(payload).map_err(|_| too_long())?;
        self.to.write_all(&sealed)?;
        Ok(self.to)
    }
}

impl<W: Write> Write for SealWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A full piece is held until more comes: it may be the last.
        if self.piece.len() == PIECE {
            let payload = Payload { msg: &self.piece, aad: self.context.as_bytes() };
            let sealed = self.cipher.encrypt_next(payload).map_err(|_| too_long())?;
            self.to.write_all(&sealed)?;
            self.piece.clear();
        }
        let taken = bytes.len().min(PIECE - self.piece.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Gives what a [`SealWriter`] sealed, each piece once it is known to be right.
pub struct SealReader<R> {
    from: R,
    context: String,
    /// None once the last piece was opened.
    cipher: Option<DecryptorBE32<XChaCha20Poly1305>>,
    sealed: Vec<u8>,
    open: Vec<u8>,
    at: usize,
}

impl<R> std::fmt::Debug for SealReader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SealReader").field("context", &self.context).finish_non_exhaustive()
    }
}

impl<R: Read> SealReader<R> {
    pub fn new(keys: &Keyring, context: &str, mut from: R) -> io::Result<Self> {
        let mut header = [0; HEADER];
        from.read_exact(&mut header).map_err(|_| OpenError::Foreign)?;
        let key = keys.key(super::cipher::number(&header)?)?;
        let nonce: [u8; NONCE] = header[5..].try_into().expect("the rest of the header");
        let cipher = XChaCha20Poly1305::new((&**key).into());
        let cipher = Some(DecryptorBE32::from_aead(cipher, &nonce.into()));
        let (sealed, open) = (Vec::with_capacity(PIECE + TAG + 1), Vec::new());
        let mut reader = Self { from, context: context.to_owned(), cipher, sealed, open, at: 0 };
        reader.fill()?;
        Ok(reader)
    }

    /// Reads until there is one byte more than a piece, or no more: so it is known whether the piece is the last.
    fn fill(&mut self) -> io::Result<()> {
        let wanted = (PIECE + TAG + 1 - self.sealed.len()) as u64;
        self.from.by_ref().take(wanted).read_to_end(&mut self.sealed)?;
        Ok(())
    }

    fn next_piece(&mut self) -> io::Result<()> {
        let Some(mut cipher) = self.cipher.take() else { return Ok(()) };
        let aad = self.context.as_bytes();
        if self.sealed.len() <= PIECE + TAG {
            let payload = Payload { msg: &self.sealed, aad };
            self.open = cipher.decrypt_last(payload).map_err(|_| OpenError::Changed)?;
            self.sealed.clear();
        } else {
            let payload = Payload { msg: &self.sealed[..PIECE + TAG], aad };
            self.open = cipher.decrypt_next(payload).map_err(|_| OpenError::Changed)?;
            self.cipher = Some(cipher);
            self.sealed.drain(..PIECE + TAG);
            self.fill()?;
        }
        self.at = 0;
        Ok(())
    }
}

impl<R: Read> Read for SealReader<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.at == self.open.len() {
            self.next_piece()?;
        }
        let given = to.len().min(self.open.len() - self.at);
        to[..given].copy_from_slice(&self.open[self.at..self.at + given]);
        self.at += given;
        Ok(given)
    }
}

fn too_long() -> io::Error {
    io::Error::other("too long to be sealed with one nonce")
}
