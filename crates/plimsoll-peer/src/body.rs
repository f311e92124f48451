//! Bodies: what goes out whole, piece by piece or as it came from somebody else, and what comes in, never more of it
//! than somebody allowed for.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::{HeaderMap, StatusCode};
use thiserror::Error as ThisError;
use tokio::sync::{mpsc, oneshot};

use super::error::Error;

/// How many pieces may wait to be sent. Beyond it the sender waits: a peer that does not read holds nobody's memory.
pub(super) const QUEUED: usize = 16;

/// The most memory set aside for a body before its bytes are there.
const MAX_ROOM: usize = 2 << 20;

/// The body of a request.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// `None` once it is sent.
    Whole(Option<Bytes>),
    /// Until the other half is dropped: only then does HTTP/2 take a stream for given up. Once that has sent its word
    /// instead, what is left to send is sent.
    Fed(mpsc::Receiver<Bytes>, Option<oneshot::Receiver<()>>),
    Passed(Body),
}

impl Outgoing {
    pub(super) fn whole(bytes: Bytes) -> Self {
        Self::Whole(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }
}

impl HttpBody for Outgoing {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let data = |bytes: Option<Bytes>| bytes.map(|bytes| Ok(Frame::data(bytes)));
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(data(bytes.take())),
            Self::Fed(pieces, unheard) => {
                let word = unheard.as_mut().map(|unheard| Pin::new(unheard).poll(cx));
                match word {
                    Some(Poll::Ready(Err(_))) => {
                        return Poll::Ready(Some(Err(axum::Error::new(Unheard))));
                    }
                    Some(Poll::Ready(Ok(()))) => *unheard = None,
                    Some(Poll::Pending) | None => {}
                }
                Poll::Ready(data(ready!(pieces.poll_recv(cx))))
            }
            Self::Passed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Fed(..) => false,
            Self::Passed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Fed(..) => SizeHint::default(),
            Self::Passed(body) => body.size_hint(),
        }
    }
}

/// Why a request ends in the middle.
#[derive(Debug, ThisError)]
#[error("the client closed the connection")]
struct Unheard;

/// An open stream in both directions.
#[derive(Debug)]
pub struct Exchange {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub sender: Sender,
    pub receiver: Receiver,
}

/// Our half of a stream. Dropped, it says that no more will come.
#[derive(Debug, Clone)]
pub struct Sender(pub(super) mpsc::Sender<Bytes>);

impl Sender {
    /// Waits while the other side does not read. False once the stream is gone.
    pub async fn send(&self, bytes: Bytes) -> bool {
        // An empty piece would be a frame that says nothing.
        bytes.is_empty() || self.0.send(bytes).await.is_ok()
    }

    /// Returns once the stream is gone.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}

/// Their half of a stream. Dropped, it ends the stream in both directions, and the other side is told.
#[derive(Debug)]
pub struct Receiver {
    pub(super) to: Arc<str>,
    pub(super) body: Incoming,
    /// Never sent on: that it is dropped is the message.
    pub(super) _listening: oneshot::Sender<()>,
}

impl Receiver {
    /// The next bytes, as they come; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(Error::closed(&self.to, error)),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.is_empty() => {}
                    Ok(data) => return Ok(Some(data)),
                    // Trailers say nothing that we would ask for.
                    Err(_) => {}
                },
            }
        }
    }
}

/// Why a body could not be read.
#[derive(Debug)]
pub(super) enum Unread<E> {
    TooLong,
    Broken(E),
}

/// All of a body, without a copy where it comes in one piece.
pub(super) async fn collect<B>(mut body: B, limit: usize) -> Result<Bytes, Unread<B::Error>>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    let announced = body.size_hint().lower();
    if announced > limit as u64 {
        return Err(Unread::TooLong);
    }
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(Unread::Broken)?.into_data() else { continue };
        if first.len().max(rest.len()) + data.len() > limit {
            return Err(Unread::TooLong);
        }
        if first.is_empty() && rest.is_empty() {
            first = data;
            continue;
        }
        if rest.is_empty() {
            // Room for what was announced, since it is within the limit, but no more on anybody's word alone.
            let room = usize::try_from(announced).unwrap_or(limit).min(MAX_ROOM);
            rest.reserve(room.max(first.len() + data.len()));
            rest.extend_from_slice(&first);
            first = Bytes::new();
        }
        rest.extend_from_slice(&data);
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

/// All of a request's body, or the status to refuse it with. Handlers state their own limit.
pub async fn read_whole(body: Body, limit: usize) -> Result<Bytes, StatusCode> {
    collect(body, limit).await.map_err(|unread| match unread {
        Unread::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
        Unread::Broken(_) => StatusCode::BAD_REQUEST,
    })
}
