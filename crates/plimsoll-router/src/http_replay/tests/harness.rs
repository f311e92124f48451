//! A connection whose client and upstreams are buffers, relayed as [`tcp`](crate::tcp) relays it, in paused time. After each
//! step it is checked against the [`oracle`](super::oracle).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, advance};

use super::super::ReplayableClient;
use super::oracle::{is_one_safe_request, may_be_held};
use crate::activity::Activity;
use crate::limits::HELD_ANSWER;
use crate::metrics::UpstreamMeter;
use crate::relay::relay;

/// How many upstreams there are.
pub(super) const UPSTREAMS: usize = 3;

/// What happens next on a connection.
#[derive(Clone)]
pub(super) enum Step {
    Client(Vec<u8>),
    /// The client sends no more.
    ClientEnds,
    ClientResets,
    /// The client takes so many bytes from now on, and then none.
    ClientTakes(usize),
    /// The present upstream answers.
    Answer(Vec<u8>),
    /// The present upstream closes its stream regularly.
    End,
    Reset,
    /// So many milliseconds go by.
    Wait(u64),
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(bytes) => write!(f, "Client(b\"{}\")", bytes.escape_ascii()),
            Self::Answer(bytes) => write!(f, "Answer(b\"{}\")", bytes.escape_ascii()),
            Self::ClientTakes(count) => write!(f, "ClientTakes({count})"),
            Self::Wait(ms) => write!(f, "Wait({ms})"),
            Self::ClientEnds => f.write_str("ClientEnds"),
            Self::ClientResets => f.write_str("ClientResets"),
            Self::End => f.write_str("End"),
            Self::Reset => f.write_str("Reset"),
        }
    }
}

/// One end of a stream.
#[derive(Debug, Default)]
struct Buffers {
    incoming: VecDeque<u8>,
    has_ended: bool,
    is_reset: bool,
    /// All that was read from it and written to it.
    read: Vec<u8>,
    written: Vec<u8>,
    /// How much more it takes.
    room: usize,
    is_shut: bool,
}

#[derive(Debug, Clone)]
struct Wire(Rc<RefCell<Buffers>>);

impl Wire {
    fn new() -> Self {
        Self(Rc::new(RefCell::new(Buffers { room: usize::MAX, ..Buffers::default() })))
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut buffers = self.0.borrow_mut();
        let count = buffers.incoming.len().min(buf.remaining());
        if count == 0 && buffers.is_reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if count == 0 && !buffers.has_ended {
            return Poll::Pending;
        }
        let bytes: Vec<u8> = buffers.incoming.drain(..count).collect();
        buf.put_slice(&bytes);
        buffers.read.extend(bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffers = self.0.borrow_mut();
        if buffers.is_reset {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let count = buf.len().min(buffers.room);
        if buffers.room != usize::MAX {
            buffers.room -= count;
        }
        buffers.written.extend_from_slice(&buf[..count]);
        if count == 0 { Poll::Pending } else { Poll::Ready(Ok(count)) }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().is_shut = true;
        Poll::Ready(Ok(()))
    }
}

/// As [`tcp`](crate::tcp) does it.
async fn serve(mut client: Wire, upstreams: Rc<RefCell<Vec<Wire>>>) -> bool {
    let (meter, activity) = (UpstreamMeter::default(), Activity::default());
    let mut client = ReplayableClient::new(&mut client);
    for _ in 0..UPSTREAMS {
        let mut upstream = Wire::new();
        upstreams.borrow_mut().push(upstream.clone());
        if relay(&mut client, &mut upstream, &meter, &activity).await.is_ok() {
            return true;
        }
        if !client.can_replay() {
            return false;
        }
        client.replay();
    }
    client.give_up().await
}

/// A connection, and what was seen of it at the last look.
pub(super) struct Connection {
    client: Wire,
    upstreams: Rc<RefCell<Vec<Wire>>>,
    serving: Pin<Box<dyn Future<Output = bool>>>,
    ended: Option<bool>,
    /// When the present upstream began to answer.
    answered_at: Option<Instant>,
    upstream_count: usize,
    /// How much the client had been given.
    given: usize,
    /// Whether the client took no more.
    was_full: bool,
}

/// Takes each step on a new connection, and looks at it after those that are to be settled and after the last one.
pub(super) fn run(steps: &[(Step, bool)]) -> Connection {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let (client, upstreams) = (Wire::new(), Rc::default());
        let mut connection = Connection {
            serving: Box::pin(serve(client.clone(), Rc::clone(&upstreams))),
            client,
            upstreams,
            ended: None,
            answered_at: None,
            upstream_count: 1,
            given: 0,
            was_full: false,
        };
        connection.settle().await;
        for (step, is_settled) in steps {
            connection.take(step).await;
            if *is_settled {
                connection.settle().await;
            }
        }
        connection.settle().await;
        connection
    })
}

impl Connection {
    /// What each upstream was sent.
    pub(super) fn sent(&self) -> Vec<Vec<u8>> {
        self.upstreams.borrow().iter().map(|one| one.0.borrow().written.clone()).collect()
    }

    /// What the client was given.
    pub(super) fn given(&self) -> Vec<u8> {
        self.client.0.borrow().written.clone()
    }

    /// Whether the connection ended, and then whether regularly.
    pub(super) fn ended(&self) -> Option<bool> {
        self.ended
    }

    fn present(&self) -> Wire {
        self.upstreams.borrow().last().expect("there is always one").clone()
    }

    async fn take(&mut self, step: &Step) {
        if let Step::Wait(ms) = step {
            // What is there by now is not to be late.
            self.settle().await;
            advance(Duration::from_millis(*ms)).await;
            self.settle().await;
        } else {
            take_at(&self.client, &self.present(), step);
        }
    }

    async fn settle(&mut self) {
        if self.ended.is_some() {
            return;
        }
        let serving = &mut self.serving;
        let polled = poll_fn(|cx| Poll::Ready(serving.as_mut().poll(cx))).await;
        if let Poll::Ready(is_regular) = polled {
            self.ended = Some(is_regular);
        }
        self.look();
    }

    fn look(&mut self) {
        self.check_replays();
        let (client, present) = (self.client.clone(), self.present());
        let (client, present) = (client.0.borrow(), present.0.borrow());
        if !present.read.is_empty() {
            self.answered_at.get_or_insert_with(Instant::now);
        }
        if self.ended.is_none() {
            assert!(client.incoming.is_empty(), "the client is not read");
            assert_eq!(present.written, client.read, "the upstream is sent what the client sent");
        }
        assert!(client.read.starts_with(&present.written), "nothing is made up");
        assert!(present.read.starts_with(&client.written), "the answer is the upstream's");
        let is_stuck = client.room == 0 || self.was_full || client.is_reset;
        let is_safe = is_one_safe_request(&client.read);
        if client.written.len() < present.read.len() && !is_stuck {
            assert!(self.ended.is_none(), "an answer is given before the end");
            assert!(
                client.written.is_empty(),
                "an answer is held from its beginning or not at all"
            );
            assert!(is_safe, "only the answer to one safe request is held");
            assert!(may_be_held(&client.read, &present.read), "it is whole, large, or no response");
            let held = self.answered_at.expect("it answered").elapsed();
            assert!(held < HELD_ANSWER, "held for {held:?}");
        }
        let was_last = self.upstream_count == UPSTREAMS;
        let is_untold = client.written.is_empty() && !client.is_shut;
        let is_replayable = is_safe && is_untold && !was_last;
        if (present.has_ended || present.is_reset) && !is_stuck {
            assert!(!is_replayable, "one safe request without an answer is replayed");
            assert!(client.is_shut || self.ended.is_some(), "an end is passed on at once");
        }
        (self.given, self.was_full) = (client.written.len(), client.room == 0);
    }

    /// What was sent to more than one upstream was one safe request, whose answer the client had nothing of.
    fn check_replays(&mut self) {
        let upstreams = self.upstreams.borrow();
        let (count, lost) = (upstreams.len(), &upstreams[..upstreams.len() - 1]);
        if count == self.upstream_count {
            return;
        }
        assert_eq!(self.given, 0, "an answer was begun twice");
        let client = self.client.0.borrow();
        let request = first_head(&client.read);
        let shown = request.escape_ascii();
        assert!(is_one_safe_request(request), "sent twice: {shown}");
        for one in lost.iter().map(|one| one.0.borrow()) {
            assert!(one.has_ended || one.is_reset, "an upstream that is there is waited for");
            assert!(request.starts_with(&one.written), "sent twice and more: {shown}");
        }
        (self.upstream_count, self.answered_at) = (count, None);
    }
}

/// What happens at one end. One that has ended sends nothing more.
fn take_at(client: &Wire, upstream: &Wire, step: &Step) {
    let (mut client, mut upstream) = (client.0.borrow_mut(), upstream.0.borrow_mut());
    let client_sends = !client.has_ended && !client.is_reset;
    let upstream_sends = !upstream.has_ended && !upstream.is_reset;
    match step {
        Step::Client(bytes) if client_sends => client.incoming.extend(bytes),
        Step::ClientEnds => client.has_ended |= client_sends,
        Step::ClientResets => client.is_reset |= client_sends,
        Step::ClientTakes(count) => client.room = *count,
        Step::Answer(bytes) if upstream_sends => upstream.incoming.extend(bytes),
        Step::End => upstream.has_ended |= upstream_sends,
        Step::Reset => upstream.is_reset |= upstream_sends,
        Step::Client(_) | Step::Answer(_) | Step::Wait(_) => {}
    }
}

/// The bytes up to the first empty line.
fn first_head(bytes: &[u8]) -> &[u8] {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    end.map_or(bytes, |end| &bytes[..end + 4])
}
