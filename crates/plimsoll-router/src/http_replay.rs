//! Replays a safe HTTP request at a TCP port whose upstream was lost before it answered.
//!
//! Bytes of unknown meaning can only be relayed. But if all that a client has sent is one safe HTTP/1 request without a body
//! (see [`heads`]), it can be sent to another upstream, as the client would have to do itself. A small answer is held until
//! all of it is there, for a short time, so that a part of one is as good as none. What a client sends is relayed at once
//! whatever it is, and so is every answer to anything but such a request. The limits are argued in ADR 26.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::{Sleep, sleep};

mod heads;
#[cfg(test)]
mod tests;

use crate::limits::HELD_ANSWER;
use heads::{RequestStage, ResponseLength, request_stage, response_length};

/// The longest request that is replayed. Longer ones are rare, and each takes memory until it is answered.
const MAX_REQUEST: usize = 8 << 10;

/// The largest answer that is held until it is whole, with its head.
const MAX_HELD: usize = 16 << 10;

/// A client whose request may be replayed.
#[derive(Debug)]
pub(crate) struct ReplayableClient<'a, S> {
    client: &'a mut S,
    /// What it sent so far; none once that is not to be replayed any more.
    request: Option<Vec<u8>>,
    stage: RequestStage,
    /// How much of the request the present upstream was sent.
    sent: usize,
    /// What the present upstream answered and the client was not given yet.
    answer: Vec<u8>,
    /// When the answer is given to the client, whole or not.
    hold: Option<Pin<Box<Sleep>>>,
    /// What the upstream that was lost last has answered, and whether it closed its stream regularly.
    lost: Option<(Vec<u8>, bool)>,
    /// Whether the present upstream closed its stream regularly, without a whole answer.
    has_ended: bool,
    /// The client is gone, so there is nobody to replay for.
    is_gone: bool,
}

impl<'a, S> ReplayableClient<'a, S> {
    pub(crate) fn new(client: &'a mut S) -> Self {
        Self {
            client,
            request: Some(Vec::new()),
            stage: RequestStage::Partial,
            sent: 0,
            answer: Vec::new(),
            hold: None,
            lost: None,
            has_ended: false,
            is_gone: false,
        }
    }

    /// Whether what the client sent may be sent to another upstream.
    pub(crate) fn can_replay(&self) -> bool {
        let is_whole = matches!(self.stage, RequestStage::Whole { .. });
        is_whole && self.request.is_some() && !self.is_gone
    }

    /// The next upstream is sent the request from its beginning.
    pub(crate) fn replay(&mut self) {
        self.sent = 0;
        self.hold = None;
        self.lost = Some((std::mem::take(&mut self.answer), std::mem::take(&mut self.has_ended)));
    }

    /// Notes what the client sent.
    fn note(&mut self, new: &[u8]) {
        let Some(request) = &mut self.request else { return };
        if !new.is_empty() {
            request.extend_from_slice(new);
            self.sent = request.len();
            self.stage = request_stage(request);
        }
        if self.stage == RequestStage::Other || request.len() > MAX_REQUEST {
            self.request = None;
        }
    }

    /// Whether the answer is part of a small one.
    fn is_part(&self) -> bool {
        let RequestStage::Whole { is_head } = self.stage else { return false };
        match response_length(&self.answer, is_head) {
            ResponseLength::Unknown => self.answer.len() < MAX_HELD,
            ResponseLength::Known(length) => length <= MAX_HELD && self.answer.len() < length,
            ResponseLength::Unsaid => false,
        }
    }

    /// Whether the answer so far is held for the rest of it.
    fn is_held(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.can_replay() || !self.is_part() {
            return false;
        }
        let hold = self.hold.get_or_insert_with(|| Box::pin(sleep(HELD_ANSWER)));
        hold.as_mut().poll(cx).is_pending()
    }
}

impl<S: AsyncWrite + Unpin> ReplayableClient<'_, S> {
    /// Gives the client what was answered. From then on nothing is replayed.
    fn poll_give(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        (self.request, self.hold, self.lost) = (None, None, None);
        while !self.answer.is_empty() {
            let written = ready!(Pin::new(&mut *self.client).poll_write(cx, &self.answer));
            self.is_gone |= written.is_err();
            match written? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => drop(self.answer.drain(..count)),
            }
        }
        self.answer = Vec::new();
        Poll::Ready(Ok(()))
    }

    /// There is no upstream left: the client gets what the last one answered, as it would have without replays. Says whether
    /// that one closed its stream regularly.
    pub(crate) async fn give_up(&mut self) -> bool {
        let Some((answer, has_ended)) = self.lost.take() else { return false };
        self.client.write_all(&answer).await.is_ok() && has_ended
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReplayableClient<'_, S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(rest) = this.request.as_ref().and_then(|request| request.get(this.sent..))
            && !rest.is_empty()
        {
            let count = rest.len().min(buf.remaining());
            buf.put_slice(&rest[..count]);
            this.sent += count;
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut *this.client).poll_read(cx, buf));
        this.is_gone |= read.is_err();
        this.note(&buf.filled()[before..]);
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReplayableClient<'_, S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.can_replay() {
            this.answer.extend_from_slice(buf);
            if !this.is_held(cx) {
                // What the client does not take at once is written before anything else is.
                let _ = this.poll_give(cx)?;
            }
            return Poll::Ready(Ok(buf.len()));
        }
        ready!(this.poll_give(cx))?;
        let written = ready!(Pin::new(&mut *this.client).poll_write(cx, buf));
        this.is_gone |= written.is_err();
        Poll::Ready(written)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.answer.is_empty() && !this.is_held(cx) {
            ready!(this.poll_give(cx))?;
        }
        Pin::new(&mut *this.client).poll_flush(cx)
    }

    /// The upstream has closed its stream. If it owes an answer, that is a failure.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.can_replay() {
            this.has_ended = true;
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        ready!(this.poll_give(cx))?;
        Pin::new(&mut *this.client).poll_shutdown(cx)
    }
}
