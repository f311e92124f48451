//! A stream between two nodes as bytes in both directions, for whoever carries connections: each direction ends by
//! itself, and a stream that is dropped before its end is reset, so that nobody takes a cut for an end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::{Buf, Bytes};
use hyper::body::{Body as HttpBody, Frame, Incoming};
use thiserror::Error as ThisError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::PollSender;

/// How many pieces may wait to be sent. Few, since there are many streams; a piece is what was written at once.
pub(super) const AHEAD: usize = 2;

/// The longest piece.
const PIECE: usize = 64 << 10;

/// Our end of a stream, on either side.
#[derive(Debug)]
pub struct Duplex<B> {
    // Dropped in this order: that nobody listens is known before that nobody speaks, and so a cut is no end.
    ending: Ending,
    reading: InwardHalf<B>,
    writing: Writing,
}

/// The end of who asked.
pub type Outward = Duplex<Incoming>;

/// The end of who answers.
pub type Inward = Duplex<Body>;

/// Says whether our direction ended as it should. It does not if this is dropped first.
#[derive(Debug)]
enum Ending {
    Asked(Option<oneshot::Sender<()>>),
    Answered(Arc<AtomicBool>),
}

impl Ending {
    fn ends_well(&mut self) {
        match self {
            Self::Asked(well) => {
                // Without a listener the stream is gone, which is an end as well.
                let _ = well.take().map(|well| well.send(()));
            }
            Self::Answered(well) => well.store(true, Ordering::Release),
        }
    }
}

impl Outward {
    pub(super) fn asked(
        pieces: mpsc::Sender<Bytes>,
        listening: oneshot::Sender<()>,
        body: Incoming,
    ) -> Self {
        let ending = Ending::Asked(Some(listening));
        Self { ending, reading: InwardHalf::new(body), writing: Writing::new(pieces) }
    }
}

/// The end of who answers, and the body of the answer.
pub fn answer_stream(asked: Body) -> (Inward, StreamBody) {
    let (sender, pieces) = mpsc::channel(AHEAD);
    let well = Arc::new(AtomicBool::new(false));
    let ending = Ending::Answered(Arc::clone(&well));
    let stream = Duplex { ending, reading: InwardHalf::new(asked), writing: Writing::new(sender) };
    (stream, StreamBody { pieces, well })
}

/// What is written to an [`Inward`].
#[derive(Debug)]
pub struct StreamBody {
    pieces: mpsc::Receiver<Bytes>,
    well: Arc<AtomicBool>,
}

/// Why an answer ends in the middle.
#[derive(Debug, ThisError)]
#[error("what was carried was cut")]
pub struct Cut;

impl HttpBody for StreamBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match ready!(self.pieces.poll_recv(cx)) {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            None if self.well.load(Ordering::Acquire) => Poll::Ready(None),
            None => Poll::Ready(Some(Err(Cut))),
        }
    }
}

/// The direction towards us.
#[derive(Debug)]
struct InwardHalf<B> {
    body: B,
    rest: Bytes,
}

impl<B> InwardHalf<B> {
    fn new(body: B) -> Self {
        Self { body, rest: Bytes::new() }
    }
}

impl<B> InwardHalf<B>
where
    B: HttpBody<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Unpin,
{
    fn poll(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                None => return Poll::Ready(Ok(())),
                Some(Err(error)) => {
                    let error = io::Error::new(io::ErrorKind::ConnectionReset, error);
                    return Poll::Ready(Err(error));
                }
                // Trailers say nothing that we would ask for.
                Some(Ok(frame)) => self.rest = frame.into_data().unwrap_or_default(),
            }
        }
        let count = self.rest.len().min(buf.remaining());
        buf.put_slice(&self.rest[..count]);
        self.rest.advance(count);
        Poll::Ready(Ok(()))
    }
}

/// The direction away from us.
#[derive(Debug)]
struct Writing(Option<PollSender<Bytes>>);

impl Writing {
    fn new(pieces: mpsc::Sender<Bytes>) -> Self {
        Self(Some(PollSender::new(pieces)))
    }

    fn poll(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let Some(pieces) = &mut self.0 else { return Poll::Ready(Err(gone())) };
        // An empty piece would be a frame that says nothing.
        let count = bytes.len().min(PIECE);
        if count == 0 {
            return Poll::Ready(Ok(0));
        }
        ready!(pieces.poll_reserve(cx)).map_err(|_| gone())?;
        let piece = Bytes::copy_from_slice(&bytes[..count]);
        pieces.send_item(piece).map_err(|_| gone())?;
        Poll::Ready(Ok(count))
    }
}

impl<B> AsyncRead for Duplex<B>
where
    B: HttpBody<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Unpin,
{
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.reading.poll(cx, buf)
    }
}

impl<B: Unpin> AsyncWrite for Duplex<B> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writing.poll(cx, buf)
    }

    /// What was written is on its way already.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.ending.ends_well();
        self.writing.0 = None;
        Poll::Ready(Ok(()))
    }
}
