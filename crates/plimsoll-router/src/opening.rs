//! What a client of a published port said first, kept until it is answered. Bytes of unknown purpose can only be carried;
//! but if all that was said is one HTTP request that changes nothing (RFC 9110, 9.2.1), and the upstream is lost before a
//! byte of its answer came, it can be said again to another, as a client would have to do itself.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most that is kept. Longer requests are rare, and each kept one takes memory until it is answered.
const LONGEST: usize = 8 << 10;

/// Requests that change nothing.
const SAFE: [&str; 3] = ["GET ", "HEAD ", "OPTIONS "];

/// Fields of requests that are more than their head, or lead to something else.
const MORE: [&str; 4] = ["content-length:", "transfer-encoding:", "upgrade:", "expect:"];

/// A client, and what it has said so far.
#[derive(Debug)]
pub(crate) struct Opening<'a, S> {
    client: &'a mut S,
    /// None once it was answered, or has said too much.
    said: Option<Vec<u8>>,
    /// How much of it the upstream of now was told.
    told: usize,
    /// There is nobody left to say it for.
    is_gone: bool,
}

impl<'a, S> Opening<'a, S> {
    pub(crate) fn new(client: &'a mut S) -> Self {
        Self { client, said: Some(Vec::new()), told: 0, is_gone: false }
    }

    /// Whether what was said may be said to another upstream.
    pub(crate) fn may_repeat(&self) -> bool {
        !self.is_gone && self.said.as_deref().is_some_and(is_safe)
    }

    /// The next upstream is told everything from the beginning.
    pub(crate) fn repeat(&mut self) {
        self.told = 0;
    }
}

/// Whether this is the head of one request that changes nothing, and no more and no less.
fn is_safe(said: &[u8]) -> bool {
    let Some(head) = said.strip_suffix(b"\r\n\r\n") else { return false };
    let Ok(head) = std::str::from_utf8(head) else { return false };
    let mut lines = head.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let is_http = first.ends_with(" HTTP/1.1") || first.ends_with(" HTTP/1.0");
    let has_more = |line: &str| {
        let line = line.to_ascii_lowercase();
        // An empty line is an end, and another request after it.
        line.is_empty() || MORE.iter().any(|field| line.starts_with(field))
    };
    is_http && SAFE.iter().any(|verb| first.starts_with(verb)) && !lines.any(has_more)
}

impl<S: AsyncRead + Unpin> AsyncRead for Opening<'_, S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(rest) = this.said.as_ref().and_then(|said| said.get(this.told..))
            && !rest.is_empty()
        {
            let count = rest.len().min(buf.remaining());
            buf.put_slice(&rest[..count]);
            this.told += count;
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut *this.client).poll_read(cx, buf));
        this.is_gone |= read.is_err();
        if let Some(said) = &mut this.said {
            let new = &buf.filled()[before..];
            if said.len() + new.len() > LONGEST {
                this.said = None;
            } else {
                said.extend_from_slice(new);
                this.told = said.len();
            }
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Opening<'_, S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut *this.client).poll_write(cx, buf));
        this.is_gone |= written.is_err();
        this.said = None;
        Poll::Ready(written)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().client).poll_flush(cx)
    }

    /// An end without an answer is none, if it was asked for one.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.may_repeat() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut *this.client).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_request_that_changes_nothing_may_be_said_twice() {
        for (case, said, expected) in [
            ("nothing", "", false),
            ("a request", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", true),
            ("an old one", "HEAD / HTTP/1.0\r\n\r\n", true),
            ("half of one", "GET / HTTP/1.1\r\nHost: a\r\n", false),
            ("two", "GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n", false),
            ("one that changes something", "POST / HTTP/1.1\r\nHost: a\r\n\r\n", false),
            ("one with a body", "GET / HTTP/1.1\r\nContent-Length: 4\r\n\r\n", false),
            ("one that becomes another", "GET / HTTP/1.1\r\nUPGRADE: websocket\r\n\r\n", false),
            ("another language", "GET \r\n\r\n", false),
            ("no language", "\u{16}\u{3}\u{1}\r\n\r\n", false),
        ] {
            assert_eq!(is_safe(said.as_bytes()), expected, "{case}");
        }
    }
}
