//! The streams that hyper is given: a client's, whose activity is noted, and an upstream's, whose bytes are counted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::clock;
use crate::connect::UpstreamStream;
use crate::connection_limit::ConnectionSlot;
use crate::upstream::Upstream;

/// A client's stream.
#[derive(Debug)]
pub(super) struct MonitoredStream<S> {
    stream: S,
    slot: Arc<ConnectionSlot>,
    /// What was read to find out the HTTP version.
    early: Bytes,
    /// Whether bytes need not be of a request or response: HTTP/2 has control frames, so that its bodies note what moves.
    has_frames: bool,
}

impl<S> MonitoredStream<S> {
    pub(super) fn new(
        stream: S,
        slot: Arc<ConnectionSlot>,
        early: Bytes,
        has_frames: bool,
    ) -> Self {
        Self { stream, slot, early, has_frames }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MonitoredStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.early.is_empty() {
            let count = self.early.len().min(buf.remaining());
            buf.put_slice(&self.early.split_to(count));
            if self.early.is_empty() {
                self.early = Bytes::new();
            }
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before && !self.has_frames {
            self.slot.activity.received(clock::now());
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> MonitoredStream<S> {
    fn noted(&self, written: io::Result<usize>) -> Poll<io::Result<usize>> {
        if !self.has_frames {
            self.slot.activity.moved(clock::now());
        }
        Poll::Ready(written)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MonitoredStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, buf));
        self.noted(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(write_parts(Pin::new(&mut self.stream), cx, bufs));
        self.noted(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// An upstream's stream.
pub(super) struct MeteredStream {
    link: UpstreamStream,
    upstream: Arc<Upstream>,
}

impl MeteredStream {
    pub(super) fn new(link: UpstreamStream, upstream: Arc<Upstream>) -> Self {
        Self { link, upstream }
    }

    fn sent(&self, written: io::Result<usize>) -> Poll<io::Result<usize>> {
        if let Ok(count) = &written {
            self.upstream.meter.sent.add(*count as u64);
        }
        Poll::Ready(written)
    }
}

impl AsyncRead for MeteredStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.link).poll_read(cx, buf))?;
        self.upstream.meter.received.add((buf.filled().len() - before) as u64);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for MeteredStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.link).poll_write(cx, buf));
        self.sent(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(write_parts(Pin::new(&mut self.link), cx, bufs));
        self.sent(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.link.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.link).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.link).poll_shutdown(cx)
    }
}

/// Parts of up to this many bytes are copied into one buffer, which is cheaper than a vectored write.
const COALESCED: usize = 2 << 10;

/// Writes several buffers at once. Most messages are one buffer, or a head with a small body.
fn write_parts<S: AsyncWrite>(
    stream: Pin<&mut S>,
    cx: &mut Context<'_>,
    parts: &[io::IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    if let [one] = parts {
        return stream.poll_write(cx, one);
    }
    if parts.iter().map(|part| part.len()).sum::<usize>() > COALESCED {
        return stream.poll_write_vectored(cx, parts);
    }
    let (mut together, mut length) = ([0; COALESCED], 0);
    for part in parts {
        together[length..][..part.len()].copy_from_slice(part);
        length += part.len();
    }
    stream.poll_write(cx, &together[..length])
}
