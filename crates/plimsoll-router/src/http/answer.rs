//! The body of an answer on its way to a client: an upstream's, or a page of our own. While it lasts, the request is under
//! way; when all of it was read, the connection it came on can serve the next.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::Guest;
use super::links::{self, First};
use super::source::Source;
use crate::upstream::InFlight;

/// A request under way at a client's seat.
#[derive(Debug)]
pub(super) struct Busy(pub(super) Arc<Guest>);

impl Busy {
    pub(super) fn new(guest: Arc<Guest>) -> Self {
        guest.seat.activity.begin();
        Self(guest)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.seat.activity.end();
    }
}

/// What an answer holds on to until it is over.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) in_flight: InFlight,
    /// What it came on, if another request can follow there.
    pub(super) link: Option<First>,
    pub(super) source: Option<Arc<Source>>,
}

#[derive(Debug)]
enum Content {
    Page(Option<Bytes>),
    /// What was read of it before, and the rest.
    Streamed {
        first: Bytes,
        body: Incoming,
        held: Held,
    },
}

/// See the module's own words.
#[derive(Debug)]
pub(crate) struct Answer {
    content: Content,
    busy: Busy,
}

impl Answer {
    pub(super) fn page(text: Bytes, busy: Busy) -> Self {
        Self { content: Content::Page((!text.is_empty()).then_some(text)), busy }
    }

    pub(super) fn streamed(first: Bytes, body: Incoming, held: Held, busy: Busy) -> Self {
        Self { content: Content::Streamed { first, body, held }, busy }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let Content::Streamed { body, held, .. } = &mut self.content else { return };
        // A request whose body the upstream has not read to its end leaves the connection in the middle of it.
        let is_free = held.source.as_ref().is_none_or(|source| source.is_done());
        if let Some(link) = held.link.take()
            && is_free
            && body.is_end_stream()
        {
            links::keep(&self.busy.0.core.limits, held.in_flight.upstream(), link);
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.content {
            Content::Page(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Content::Streamed { first, .. } if !first.is_empty() => {
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(first)))))
            }
            Content::Streamed { body, .. } => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Page(text) => text.is_none(),
            Content::Streamed { first, body, .. } => first.is_empty() && body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Page(text) => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
            Content::Streamed { first, body, .. } => {
                let rest = body.size_hint();
                let mut size = SizeHint::new();
                size.set_lower(rest.lower() + first.len() as u64);
                if let Some(upper) = rest.upper() {
                    size.set_upper(upper + first.len() as u64);
                }
                size
            }
        }
    }
}
