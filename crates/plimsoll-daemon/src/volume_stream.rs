//! What is in a volume on its way between the network and a disk, which is read and written by threads that may wait. A few
//! pieces are in memory, however large the volume is.

use std::io::{self, BufWriter, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use plimsoll_runtime::chain;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::volume_archive;

/// How long the other side may be silent while it sends.
const SILENCE: Duration = Duration::from_mins(1);

/// Pieces on their way between the disk and the network.
const PIECES_AHEAD: usize = 8;

/// How much is sent at once.
const PIECE: usize = 256 << 10;

/// A piece of a stream, or why there is no more.
pub type Piece = Result<Bytes, String>;

/// A stream that comes in pieces, for whoever reads it and may wait.
#[derive(Debug)]
pub struct PieceReader {
    pieces: mpsc::Receiver<Piece>,
    rest: Bytes,
}

impl PieceReader {
    /// Where its pieces are put.
    pub fn new() -> (mpsc::Sender<Piece>, Self) {
        let (sender, pieces) = mpsc::channel(PIECES_AHEAD);
        (sender, Self { pieces, rest: Bytes::new() })
    }
}

impl Read for PieceReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.pieces.blocking_recv() {
                Some(Ok(piece)) => self.rest = piece,
                Some(Err(error)) => return Err(io::Error::other(error)),
                None => return Ok(0),
            }
        }
        let most = into.len().min(self.rest.len());
        into[..most].copy_from_slice(&self.rest.split_to(most));
        Ok(most)
    }
}

/// Passes a body on, piece by piece, until it ends or nobody reads any more.
pub(crate) async fn feed(body: Body, sender: &str, pieces: mpsc::Sender<Piece>) {
    let mut body = body.into_data_stream();
    loop {
        let piece = match timeout(SILENCE, body.next()).await {
            Ok(Some(Ok(piece))) => Ok(piece),
            Ok(Some(Err(error))) => Err(chain(&error)),
            Ok(None) => break,
            Err(_) => Err(format!("{sender} sent nothing for {} s", SILENCE.as_secs())),
        };
        let is_end = piece.is_err();
        // Who does not read any more says why.
        if pieces.send(piece).await.is_err() || is_end {
            break;
        }
    }
}

/// What is in a volume of this node, as a body; `is_live`: while something writes to it.
pub(crate) fn content(dir: PathBuf, is_live: bool) -> Body {
    let (pieces, reader) = mpsc::channel::<Piece>(PIECES_AHEAD);
    tokio::task::spawn_blocking(move || {
        let writer = PieceWriter { pieces: pieces.clone() };
        let writer = BufWriter::with_capacity(PIECE, writer);
        let write = if is_live { volume_archive::write_live } else { volume_archive::write };
        if let Err(error) = write(&dir, writer) {
            tracing::warn!(dir = %dir.display(), %error, "cannot send a volume");
            // The stream is cut, and whoever reads it sees that its end is missing.
            let _ = pieces.blocking_send(Err(error.to_string()));
        }
    });
    Body::from_stream(unfold(reader, |mut reader| async move {
        let piece = reader.recv().await?;
        Some((piece.map_err(io::Error::other), reader))
    }))
}

struct PieceWriter {
    pieces: mpsc::Sender<Piece>,
}

impl Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.pieces.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
