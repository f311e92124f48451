//! Seals what is too large to be in memory twice: pieces of one size, each with its place and the last one marked, so that
//! none can be left out, doubled or moved. A piece is opened by itself, so that a large thing is read where it is wanted.

use std::fmt;
use std::io::{self, Write};

use aead_stream::{NewStream, StreamBE32, StreamPrimitive};
use chacha20poly1305::XChaCha20Poly1305;
use chacha20poly1305::aead::{KeyInit, Payload};

use super::cipher::{self, SEALED, TAG};
use super::{Key, Keyring, OpenError, random};

/// What is sealed at a time.
const PIECE: usize = 64 << 10;

/// What a piece takes once it is sealed.
const SEALED_PIECE: u64 = (PIECE + TAG) as u64;

/// The nonce of a stream; the place of a piece and whether it is the last make the rest of each piece's.
const NONCE: usize = 19;

/// What a sealed stream begins with.
pub const STREAM_HEADER: usize = 1 + 4 + NONCE;

/// Opens the pieces of one sealed stream.
#[derive(Clone)]
pub struct SealedStream {
    context: String,
    key: Key,
    nonce: [u8; NONCE],
}

impl fmt::Debug for SealedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedStream").field("context", &self.context).finish_non_exhaustive()
    }
}

impl SealedStream {
    /// The stream that begins with these bytes.
    pub fn new(
        keys: &Keyring,
        context: &str,
        header: [u8; STREAM_HEADER],
    ) -> Result<Self, OpenError> {
        let key = keys.key(cipher::number(&header)?)?.clone();
        let nonce = header[5..].try_into().expect("the rest of the header");
        Ok(Self { context: context.to_owned(), key, nonce })
    }

    fn cipher(&self) -> StreamBE32<XChaCha20Poly1305> {
        let cipher = XChaCha20Poly1305::new((&*self.key).into());
        StreamBE32::from_aead(cipher, &self.nonce.into())
    }

    // Neither of the two takes a type: what does is built with the crate that calls it, and in tests that is not optimised.

    fn seal(&self, place: u32, is_last: bool, plain: &[u8]) -> io::Result<Vec<u8>> {
        let payload = Payload { msg: plain, aad: self.context.as_bytes() };
        self.cipher().encrypt(place, is_last, payload).map_err(|_| too_long())
    }

    fn open(&self, place: u32, is_last: bool, sealed: &[u8]) -> Result<Vec<u8>, OpenError> {
        let payload = Payload { msg: sealed, aad: self.context.as_bytes() };
        self.cipher().decrypt(place, is_last, payload).map_err(|_| OpenError::Changed)
    }

    /// How many bytes a stream holds that is so long, without its header. None: no stream is.
    pub fn plain_length(sealed: u64) -> Option<u64> {
        let count = pieces(sealed);
        // Only the one piece of an empty stream holds nothing. Any other such was cut off, and nobody would open it.
        let last = sealed - (count - 1) * SEALED_PIECE;
        let minimum = if count == 1 { TAG } else { TAG + 1 };
        (last >= minimum as u64).then(|| sealed - count * TAG as u64)
    }

    /// So many bytes of what a stream holds, from one on, or as many as there are. `sealed` is its length without its
    /// header, and `read` gives bytes of it from a place on.
    pub fn read(
        &self,
        sealed: u64,
        from: u64,
        most: usize,
        mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<Vec<u8>> {
        let plain = Self::plain_length(sealed).ok_or(OpenError::Foreign)?;
        let from = from.min(plain);
        let end = from.saturating_add(most as u64).min(plain);
        let last = pieces(sealed) - 1;
        let mut found = Vec::with_capacity(to_usize(end.saturating_sub(from))?);
        let (mut at, mut buffer) = (from, Vec::new());
        // Of an empty stream too the one piece is opened, so that nothing is believed that was not sealed.
        let mut is_first = plain == 0;
        while at < end || is_first {
            is_first = false;
            let nth = at / PIECE as u64;
            let start = nth * SEALED_PIECE;
            buffer.resize(to_usize((sealed - start).min(SEALED_PIECE))?, 0);
            read(start, &mut buffer)?;
            let place = u32::try_from(nth).map_err(|_| too_long())?;
            let piece = self.open(place, nth == last, &buffer)?;
            let begins = nth * PIECE as u64;
            let wanted = to_usize(at - begins)?..to_usize((end - begins).min(piece.len() as u64))?;
            found.extend_from_slice(piece.get(wanted).ok_or(OpenError::Changed)?);
            at = begins + piece.len() as u64;
        }
        Ok(found)
    }
}

/// How many pieces a stream of that length has. There is always a last one.
fn pieces(sealed: u64) -> u64 {
    sealed.div_ceil(SEALED_PIECE).max(1)
}

/// Seals what is written to it. What was not [finished](Self::finish) does not open.
pub struct SealWriter<W> {
    to: W,
    stream: SealedStream,
    piece: Vec<u8>,
    place: u32,
}

impl<W> fmt::Debug for SealWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealWriter").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl<W: Write> SealWriter<W> {
    pub fn new(keys: &Keyring, context: &str, mut to: W) -> io::Result<Self> {
        let (number, key) = keys.newest();
        let nonce = random::<NONCE>()?;
        to.write_all(&[SEALED])?;
        to.write_all(&number.to_le_bytes())?;
        to.write_all(&nonce)?;
        let stream = SealedStream { context: context.to_owned(), key: key.clone(), nonce };
        Ok(Self { to, stream, piece: Vec::with_capacity(PIECE), place: 0 })
    }

    fn seal(&mut self, is_last: bool) -> io::Result<()> {
        let sealed = self.stream.seal(self.place, is_last, &self.piece)?;
        self.to.write_all(&sealed)?;
        self.piece.clear();
        self.place = self.place.checked_add(1).ok_or_else(too_long)?;
        Ok(())
    }

    /// Seals the last piece. Returns what opens the stream.
    pub fn finish(mut self) -> io::Result<(W, SealedStream)> {
        self.seal(true)?;
        Ok((self.to, self.stream))
    }
}

impl<W: Write> Write for SealWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A full piece is held until more comes: it may be the last.
        if self.piece.len() == PIECE {
            self.seal(false)?;
        }
        let taken = bytes.len().min(PIECE - self.piece.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn to_usize(length: u64) -> io::Result<usize> {
    usize::try_from(length).map_err(|_| too_long())
}

fn too_long() -> io::Error {
    io::Error::other("too long to be sealed with one nonce")
}
