//! Copies bytes both ways between two streams until both have ended. An idle stream holds no buffer: each thread has one to
//! read into, and only what the other side does not take at once is kept, at most one buffer of it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::activity::Activity;
use crate::clock;
use crate::metrics::UpstreamMeter;

/// The size of one read: large enough to save system calls, small enough to be kept for a slow reader.
const CHUNK: usize = 64 << 10;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; CHUNK].into_boxed_slice());
}

/// Copies until both sides have closed, or one fails. Each chunk is counted for the upstream, which is `far`, and noted as
/// activity.
pub(crate) async fn relay(
    near: &mut (impl AsyncRead + AsyncWrite + Unpin),
    far: &mut (impl AsyncRead + AsyncWrite + Unpin),
    meter: &UpstreamMeter,
    activity: &Activity,
) -> io::Result<()> {
    let (mut out, mut back) = (Half::default(), Half::default());
    poll_fn(|cx| {
        let there = out.poll(cx, near, far, |count| {
            meter.sent.add(count);
            activity.moved(clock::now());
        })?;
        let here = back.poll(cx, far, near, |count| {
            meter.received.add(count);
            activity.moved(clock::now());
        })?;
        if there.is_ready() && here.is_ready() { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}

/// One direction.
#[derive(Debug, Default)]
struct Half {
    /// Read, but not yet written.
    held: Vec<u8>,
    has_ended: bool,
    is_done: bool,
}

impl Half {
    fn poll<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
        mut moved: impl FnMut(u64),
    ) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        loop {
            if self.is_done {
                return Poll::Ready(Ok(()));
            }
            while !self.held.is_empty() {
                let count = ready!(Pin::new(&mut *to).poll_write(cx, &self.held))?;
                if count == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.held.drain(..count);
                moved(count as u64);
            }
            // Frees what was buffered while the other side was slow.
            self.held = Vec::new();
            if self.has_ended {
                ready!(Pin::new(&mut *to).poll_shutdown(cx))?;
                self.is_done = true;
                continue;
            }
            match self.poll_chunk(cx, from, to, &mut moved)? {
                Poll::Ready(()) => {}
                Poll::Pending => {
                    // Streams that buffer writes send them before we wait.
                    ready!(Pin::new(&mut *to).poll_flush(cx))?;
                    return Poll::Pending;
                }
            }
        }
    }

    /// Reads once, and writes as much of it as is taken at once.
    fn poll_chunk<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
        moved: &mut impl FnMut(u64),
    ) -> io::Result<Poll<()>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            match Pin::new(from).poll_read(cx, &mut buffer) {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(read) => read?,
            }
            let mut rest = buffer.filled();
            self.has_ended = rest.is_empty();
            while !rest.is_empty() {
                match Pin::new(&mut *to).poll_write(cx, rest) {
                    Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                    Poll::Ready(count) => {
                        let count = count?;
                        moved(count as u64);
                        rest = &rest[count..];
                    }
                    Poll::Pending => break,
                }
            }
            self.held.extend_from_slice(rest);
            Ok(Poll::Ready(()))
        })
    }
}
