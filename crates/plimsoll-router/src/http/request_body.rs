//! The body of a request that is being proxied. It stays with the router until an upstream begins to read it: until then the
//! request can still be retried on another.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::clock::{self, Moment};
use crate::connection_limit::ConnectionSlot;
use crate::limits::RouterLimits;

/// The body as the client sends it.
#[derive(Debug)]
pub(super) struct RequestBody {
    untouched: Mutex<Option<Incoming>>,
    size: SizeHint,
    is_done: AtomicBool,
    moved: AtomicU64,
    /// The bytes of it so far, and for how many milliseconds an upstream waited for them.
    bytes: AtomicU64,
    waited_ms: AtomicU64,
    /// When an upstream began to wait for more; zero while none does.
    waits_since: AtomicU64,
    client: Arc<ConnectionSlot>,
}

impl RequestBody {
    /// None, if there is no body.
    pub(super) fn of(body: Incoming, client: &Arc<ConnectionSlot>) -> Option<Arc<Self>> {
        if body.is_end_stream() {
            return None;
        }
        Some(Arc::new(Self {
            size: body.size_hint(),
            untouched: Mutex::new(Some(body)),
            is_done: AtomicBool::new(false),
            moved: AtomicU64::new(clock::now().0),
            bytes: AtomicU64::new(0),
            waited_ms: AtomicU64::new(0),
            waits_since: AtomicU64::new(0),
            client: Arc::clone(client),
        }))
    }

    /// Whether it comes at less than the least rate, after its grace. Only the time counts in which an upstream waited for it.
    pub(super) fn is_too_slow(&self, limits: &RouterLimits, now: Moment) -> bool {
        let waits = match self.waits_since.load(Relaxed) {
            0 => 0,
            since => clock::millis(now.since(Moment(since))),
        };
        let waited_ms = self.waited_ms.load(Relaxed).saturating_add(waits);
        let due = waited_ms.saturating_mul(limits.body_rate) / 1_000;
        Duration::from_millis(waited_ms) >= limits.body_grace && self.bytes.load(Relaxed) < due
    }

    /// Notes that an upstream waits for more, or has got it.
    fn note(&self, frame: &Poll<Option<Result<Frame<Bytes>, hyper::Error>>>) {
        let now = clock::now();
        let since = self.waits_since.load(Relaxed);
        let Poll::Ready(frame) = frame else {
            if since == 0 {
                // Zero means that none waits, so the first millisecond counts as the second.
                self.waits_since.store(now.0.max(1), Relaxed);
            }
            return;
        };
        if since != 0 {
            self.waited_ms.fetch_add(clock::millis(now.since(Moment(since))), Relaxed);
            self.waits_since.store(0, Relaxed);
        }
        self.moved.store(now.0, Relaxed);
        self.client.activity.body_moved();
        if let Some(Ok(frame)) = frame
            && let Some(data) = frame.data_ref()
        {
            self.bytes.fetch_add(data.len() as u64, Relaxed);
        }
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
        let frame = Pin::new(&mut *body).poll_frame(cx);
        source.note(&frame);
        let frame = ready!(frame);
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
