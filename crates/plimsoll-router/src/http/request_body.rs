//! The body of a request that is being proxied. It stays with the router until an upstream begins to read it: until then the
//! request can still be retried on another.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::clock::{self, Moment};

/// The body as the client sends it.
#[derive(Debug)]
pub(super) struct RequestBody {
    untouched: Mutex<Option<Incoming>>,
    size: SizeHint,
    is_done: AtomicBool,
    moved: AtomicU64,
}

impl RequestBody {
    /// None, if there is no body.
    pub(super) fn of(body: Incoming) -> Option<Arc<Self>> {
        if body.is_end_stream() {
            return None;
        }
        let size = body.size_hint();
        let moved = AtomicU64::new(clock::now().0);
        let untouched = Mutex::new(Some(body));
        Some(Arc::new(Self { untouched, size, is_done: AtomicBool::new(false), moved }))
    }

    /// Whether no upstream has begun to read it.
    pub(super) fn is_untouched(&self) -> bool {
        self.untouched.lock().expect("no holder panics").is_some()
    }

    /// Whether all of it was read.
    pub(super) fn is_done(&self) -> bool {
        self.is_done.load(Relaxed)
    }

    /// When a part of it was last read.
    pub(super) fn moved(&self) -> Moment {
        Moment(self.moved.load(Relaxed))
    }
}

/// The body as an upstream is given it.
#[derive(Debug)]
pub(super) enum OutgoingBody {
    Empty,
    Untouched(Arc<RequestBody>),
    Begun(Arc<RequestBody>, Incoming),
}

impl OutgoingBody {
    pub(super) fn of(source: Option<&Arc<RequestBody>>) -> Self {
        source.map_or(Self::Empty, |source| Self::Untouched(Arc::clone(source)))
    }

    fn begin(&mut self) {
        if let Self::Untouched(source) = self {
            let body = source.untouched.lock().expect("no holder panics").take();
            let body = body.expect("one upstream at a time is given a body");
            *self = Self::Begun(Arc::clone(source), body);
        }
    }
}

impl Body for OutgoingBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.begin();
        let Self::Begun(source, body) = &mut *self else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        source.moved.store(clock::now().0, Relaxed);
        if frame.is_none() || body.is_end_stream() {
            source.is_done.store(true, Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Untouched(_) => false,
            Self::Begun(_, body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Untouched(source) => source.size,
            Self::Begun(_, body) => body.size_hint(),
        }
    }
}
