//! The body of a response on its way to a client: an upstream's, or an error page of our own. While it lasts, the request is
//! in flight; when all of it was read, its connection to the upstream can be reused.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::ClientConnection;
use super::request_body::RequestBody;
use super::upstream_connections::{self, Http1Sender};
use crate::upstream::InFlight;

/// Counts a request as in flight on the client's connection until it is dropped.
#[derive(Debug)]
pub(super) struct ActiveRequest {
    pub(super) client: Arc<ClientConnection>,
    /// Whether there is a response. If it is dropped before, the client has reset it.
    is_answered: bool,
}

impl ActiveRequest {
    pub(super) fn new(client: Arc<ClientConnection>) -> Self {
        client.slot.activity.begin();
        client.resets.begin();
        Self { client, is_answered: false }
    }

    pub(super) fn answered(mut self) -> Self {
        self.is_answered = true;
        self
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.client.slot.activity.end();
        if !self.is_answered {
            self.client.resets.reset(self.client.core.limits.resets);
        }
    }
}

/// What a response holds until it has ended.
#[derive(Debug)]
pub(super) struct ResponseResources {
    pub(super) in_flight: InFlight,
    /// The connection it came on, if that can be reused.
    pub(super) link: Option<Http1Sender>,
    pub(super) source: Option<Arc<RequestBody>>,
}

#[derive(Debug)]
enum BodyContent {
    Page(Option<Bytes>),
    /// What was read of it already, and the rest.
    Streamed {
        first: Bytes,
        body: Incoming,
        held: ResponseResources,
    },
}

/// The body of a response.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    content: BodyContent,
    busy: ActiveRequest,
}

impl ResponseBody {
    pub(super) fn page(text: Bytes, busy: ActiveRequest) -> Self {
        let content = BodyContent::Page((!text.is_empty()).then_some(text));
        Self { content, busy: busy.answered() }
    }

    pub(super) fn streamed(
        first: Bytes,
        body: Incoming,
        held: ResponseResources,
        busy: ActiveRequest,
    ) -> Self {
        Self { content: BodyContent::Streamed { first, body, held }, busy: busy.answered() }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        let BodyContent::Streamed { body, held, .. } = &mut self.content else { return };
        // If the upstream has not read all of the request's body, the connection cannot be reused.
        let is_free = held.source.as_ref().is_none_or(|source| source.is_done());
        if let Some(link) = held.link.take()
            && is_free
            && body.is_end_stream()
        {
            upstream_connections::keep(
                &self.busy.client.core.limits,
                held.in_flight.upstream(),
                link,
            );
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = match &mut self.content {
            BodyContent::Page(text) => text.take().map(|text| Ok(Frame::data(text))),
            BodyContent::Streamed { first, .. } if !first.is_empty() => {
                Some(Ok(Frame::data(std::mem::take(first))))
            }
            BodyContent::Streamed { body, .. } => ready!(Pin::new(body).poll_frame(cx)),
        };
        self.busy.client.slot.activity.body_moved();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            BodyContent::Page(text) => text.is_none(),
            BodyContent::Streamed { first, body, .. } => first.is_empty() && body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            BodyContent::Page(text) => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
            BodyContent::Streamed { first, body, .. } => {
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
