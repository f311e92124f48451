//! What a client of a published port said first, kept until it is answered. Bytes of unknown purpose can only be carried;
//! but if all that was said is one HTTP request that changes nothing (RFC 9110, 9.2.1), and the upstream is lost before it
//! has answered, it can be said again to another, as a client would have to do itself. A small answer is held until all of
//! it is there, so that half of one is as good as none.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most that is kept. Longer requests are rare, and each kept one takes memory until it is answered.
const LONGEST: usize = 8 << 10;

/// The largest answer that is held until it is whole, with its head.
const HELD: usize = 16 << 10;

/// How every answer begins.
const HTTP: &[u8] = b"HTTP/1.";

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
    /// What was answered, and the client was not given yet.
    answer: Vec<u8>,
    /// There is nobody left to say it for.
    is_gone: bool,
}

impl<'a, S> Opening<'a, S> {
    pub(crate) fn new(client: &'a mut S) -> Self {
        Self { client, said: Some(Vec::new()), told: 0, answer: Vec::new(), is_gone: false }
    }

    /// Whether what was said may be said to another upstream.
    pub(crate) fn may_repeat(&self) -> bool {
        !self.is_gone && self.said.as_deref().is_some_and(is_safe)
    }

    /// The next upstream is told everything from the beginning.
    pub(crate) fn repeat(&mut self) {
        self.told = 0;
        self.answer.clear();
    }

    /// Whether the answer so far is held for the rest of it.
    fn is_holding(&self) -> bool {
        let is_head = self.said.as_deref().is_some_and(|said| said.starts_with(b"HEAD "));
        self.may_repeat() && is_part(&self.answer, is_head)
    }
}

/// Whether more of a small answer is to come. What cannot be told is not.
fn is_part(answer: &[u8], is_head: bool) -> bool {
    let beginning = &answer[..answer.len().min(HTTP.len())];
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else {
        return HTTP.starts_with(beginning) && answer.len() < HELD;
    };
    let length = std::str::from_utf8(&answer[..end]).ok().and_then(body_length);
    let whole = match length {
        Some(_) if is_head => end + 4,
        Some(length) => (end + 4).saturating_add(length),
        None => return false,
    };
    whole <= HELD && answer.len() < whole
}

/// How long the body is that follows a head which says so.
fn body_length(head: &str) -> Option<usize> {
    let mut lines = head.split("\r\n");
    let is_final = lines.next()?.split(' ').nth(1)?.starts_with(['2', '3', '4', '5']);
    let mut length = None;
    for line in lines {
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("content-length") {
            length = Some(value.trim().parse().ok()?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            return None;
        }
    }
    length.filter(|_| is_final)
}

impl<S: AsyncWrite + Unpin> Opening<'_, S> {
    /// Gives the client what was answered.
    fn poll_give(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.said = None;
        while !self.answer.is_empty() {
            let written = ready!(Pin::new(&mut *self.client).poll_write(cx, &self.answer));
            self.is_gone |= written.is_err();
            self.answer.drain(..written?);
        }
        self.answer = Vec::new();
        Poll::Ready(Ok(()))
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
        if this.may_repeat() {
            this.answer.extend_from_slice(buf);
            if !this.is_holding() {
                // What the client does not take at once, it is given when it does.
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
        if !this.answer.is_empty() && !this.is_holding() {
            ready!(this.poll_give(cx))?;
        }
        Pin::new(&mut *this.client).poll_flush(cx)
    }

    /// An end without an answer is none, if it was asked for one.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.may_repeat() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        ready!(this.poll_give(cx))?;
        Pin::new(&mut *this.client).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_answer_is_a_part_until_all_of_it_is_there() {
        let whole = "HTTP/1.1 200 OK\r\nDate: x\r\ncontent-LENGTH: 2\r\n\r\nok";
        for length in 0..whole.len() {
            assert!(is_part(&whole.as_bytes()[..length], false), "{length} bytes of it");
        }
        assert!(!is_part(whole.as_bytes(), false));
        for (case, answer, is_head) in [
            ("one to a question for its head", whole.strip_suffix("ok").unwrap(), true),
            ("a long one", "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", false),
            ("one that does not say how long", "HTTP/1.0 200 OK\r\n\r\n", false),
            ("one in chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false),
            ("no answer yet", "HTTP/1.1 100 Continue\r\n\r\n", false),
            ("another language", "+OK", false),
        ] {
            assert!(!is_part(answer.as_bytes(), is_head), "{case}");
        }
        let endless = [HTTP, &vec![b'x'; HELD]].concat();
        assert!(!is_part(&endless, false), "a head without an end");
    }

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
