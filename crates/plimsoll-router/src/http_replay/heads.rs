//! Recognises the heads of HTTP/1 requests and responses, as far as a replay needs to know them. Whatever is in doubt is not
//! recognised: that costs a replay, and never a request that is sent twice by mistake.

use httparse::{EMPTY_HEADER, Header, Request, Response, Status};

/// The most header fields of a request or response that is recognised: as many as most servers take.
pub(super) const MAX_FIELDS: usize = 64;

/// Safe methods (RFC 9110, 9.2.1): a request that is sent twice changes no more than one that is sent once.
const SAFE: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

/// Fields of requests that are more than their head, or that turn the connection into something else. A `Content-Length` of
/// zero is among them: who is told two lengths, or reads another one than we do, sees a body.
const MORE: [&str; 4] = ["content-length", "transfer-encoding", "upgrade", "expect"];

/// How every response begins.
const HTTP: &[u8; 7] = b"HTTP/1.";

/// How every head ends.
const END: &[u8] = b"\r\n\r\n";

/// What the bytes of a client are so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestStage {
    /// They may become one safe request.
    Partial,
    /// One safe request without a body: no more and no less.
    Whole { is_head: bool },
    /// They are something else, and stay so.
    Other,
}

pub(super) fn request_stage(bytes: &[u8]) -> RequestStage {
    if !SAFE.iter().any(|method| may_begin_with(bytes, method.bytes().chain([b' ']))) {
        return RequestStage::Other;
    }
    // Only what may be whole is parsed: a head that comes byte by byte is not parsed as often.
    if !bytes.ends_with(END) {
        return RequestStage::Partial;
    }
    let mut fields = [EMPTY_HEADER; MAX_FIELDS];
    let mut head = Request::new(&mut fields);
    match head.parse(bytes) {
        Ok(Status::Complete(length)) if length == bytes.len() && is_safe(&head, bytes) => {
            RequestStage::Whole { is_head: head.method == Some("HEAD") }
        }
        _ => RequestStage::Other,
    }
}

/// Whether the bytes begin so, or may once there are more. The parser would skip empty lines before that.
fn may_begin_with(bytes: &[u8], beginning: impl IntoIterator<Item = u8>) -> bool {
    beginning.into_iter().zip(bytes).all(|(expected, found)| expected == *found)
}

fn is_safe(head: &Request<'_, '_>, bytes: &[u8]) -> bool {
    // The parser also takes these; another one may find other lines in them, or another target.
    let has_bare_feed = bytes.windows(2).any(|two| two[1] == b'\n' && two[0] != b'\r');
    let is_plain = head.path.is_some_and(|path| path.bytes().all(|byte| byte.is_ascii_graphic()));
    !has_bare_feed
        && is_plain
        && head.method.is_some_and(|method| SAFE.contains(&method))
        && !head.headers.iter().any(|field| MORE.iter().any(|more| is_named(field, more)))
}

fn is_named(field: &Header<'_>, name: &str) -> bool {
    field.name.eq_ignore_ascii_case(name)
}

/// How many bytes the whole response has, as far as its beginning says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseLength {
    /// Its head is not complete.
    Unknown,
    Known(usize),
    /// It does not say so in its head, is not final, or is no HTTP.
    Unsaid,
}

pub(super) fn response_length(bytes: &[u8], is_head: bool) -> ResponseLength {
    let mut fields = [EMPTY_HEADER; MAX_FIELDS];
    let mut head = Response::new(&mut fields);
    if !may_begin_with(bytes, *HTTP) {
        return ResponseLength::Unsaid;
    }
    let body = match head.parse(bytes) {
        Ok(Status::Partial) => return ResponseLength::Unknown,
        Ok(Status::Complete(begin)) => body_length(&head, is_head).map(|body| (begin, body)),
        Err(_) => None,
    };
    body.map_or(ResponseLength::Unsaid, |(begin, body)| {
        ResponseLength::Known(begin.saturating_add(body))
    })
}

fn body_length(head: &Response<'_, '_>, is_head: bool) -> Option<usize> {
    let is_final = head.code? >= 200;
    // A length in these is that of the body they do without (RFC 9112, 6.3).
    let has_no_body = is_head || matches!(head.code, Some(204 | 304));
    let mut lengths = head.headers.iter().filter(|field| is_named(field, "content-length"));
    let length = match (lengths.next(), lengths.next()) {
        (Some(field), None) => std::str::from_utf8(field.value).ok()?.parse().ok(),
        _ => None,
    };
    let is_coded = head.headers.iter().any(|field| is_named(field, "transfer-encoding"));
    let length = if has_no_body { Some(0) } else { length.filter(|_| !is_coded) };
    length.filter(|_| is_final)
}

#[cfg(test)]
mod tests {
    use plimsoll_fuzz::Fuzz;

    use super::*;

    /// Openings of connections that a published port carries.
    const OPENINGS: &[&[u8]] = &[
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"HEAD /x?y HTTP/1.0\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok",
        b"PROXY TCP4 10.0.0.9 10.0.0.1 4444 80\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"PROXY UNKNOWN\r\nGET / HTTP/1.1\r\n\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x0a\0\0\x09\x0a\0\0\x01\x11\x5c\0\x50GET / HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 304 x\r\nContent-Length: 18446744073709551615\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
    ];

    #[test]
    fn no_broken_opening_is_taken_for_a_request_that_it_is_not() {
        let words = [
            "\r\n",
            "\n",
            "\r\n\r\n",
            "GET ",
            " HTTP/1.1",
            "Content-Length: 9\r\n",
            "Upgrade: x\r\n",
            "PROXY ",
        ];
        let fuzz = Fuzz::new("opening").one_of(2).words(&words);
        OPENINGS.iter().fold(fuzz, |fuzz, it| fuzz.input(*it)).run(|input| {
            if let RequestStage::Whole { is_head } = request_stage(input) {
                assert_eq!(is_head, input.starts_with(b"HEAD "));
                let begins = SAFE.iter().any(|safe| input.starts_with(safe.as_bytes()));
                assert!(begins && input.ends_with(END), "{}", input.escape_ascii());
                let ends = input.windows(END.len()).filter(|part| *part == END).count();
                assert_eq!(ends, 1, "one request: {}", input.escape_ascii());
                // What comes byte by byte is never taken for something else before it is whole.
                let early = (0..input.len())
                    .find(|end| request_stage(&input[..*end]) != RequestStage::Partial);
                assert_eq!(early, None, "{}", input.escape_ascii());
            }
            for is_head in [false, true] {
                if let ResponseLength::Known(length) = response_length(input, is_head) {
                    assert!(length >= END.len() && input.starts_with(HTTP));
                }
            }
        });
    }

    #[test]
    fn a_response_tells_its_length_once_its_head_is_there() {
        let whole = "HTTP/1.1 200 OK\r\nDate: x\r\ncontent-LENGTH: 2\r\n\r\nok";
        let head = whole.len() - 2;
        for length in 0..head {
            let part = &whole.as_bytes()[..length];
            assert_eq!(response_length(part, false), ResponseLength::Unknown, "{length} bytes");
        }
        let (unsaid, known) = (ResponseLength::Unsaid, ResponseLength::Known);
        for (case, response, is_head, expected) in [
            ("head and body", whole, false, known(whole.len())),
            ("the answer to HEAD", &whole[..head], true, known(head)),
            ("not modified", "HTTP/1.1 304 x\r\nContent-Length: 9\r\n\r\n", false, known(37)),
            (
                "a long one",
                "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
                false,
                known(100_043),
            ),
            ("no length", "HTTP/1.0 200 OK\r\n\r\n", false, unsaid),
            (
                "two lengths",
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n",
                false,
                unsaid,
            ),
            (
                "chunked",
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
                false,
                unsaid,
            ),
            ("not final", "HTTP/1.1 100 Continue\r\n\r\n", false, unsaid),
            ("an empty line first", "\r\n", false, unsaid),
            ("another protocol", "+OK", false, unsaid),
        ] {
            assert_eq!(response_length(response.as_bytes(), is_head), expected, "{case}");
        }
    }

    #[test]
    fn only_one_whole_safe_request_is_recognised() {
        let whole = RequestStage::Whole { is_head: false };
        let (partial, other) = (RequestStage::Partial, RequestStage::Other);
        for (case, bytes, expected) in [
            ("nothing", "", partial),
            ("a request", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", whole),
            ("HTTP/1.0", "HEAD / HTTP/1.0\r\n\r\n", RequestStage::Whole { is_head: true }),
            ("half of one", "GET / HTTP/1.1\r\nHost: a\r\n", partial),
            ("two", "GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n", other),
            ("one that changes something", "POST / HTTP/1.1\r\nHost: a\r\n\r\n", other),
            ("a body", "GET / HTTP/1.1\r\nContent-Length: 4\r\n\r\n", other),
            ("an empty body", "GET / HTTP/1.1\r\ncontent-length: 0\r\n\r\n", other),
            ("an upgrade", "GET / HTTP/1.1\r\nUPGRADE: websocket\r\n\r\n", other),
            ("an empty line first", "\r\nGET / HTTP/1.1\r\n\r\n", other),
            ("a line that only feeds", "GET / HTTP/1.1\nHost: a\r\n\r\n", other),
            ("a target that is not ASCII", "GET /ö HTTP/1.1\r\n\r\n", other),
            ("a folded field", "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", other),
            ("HTTP/2", "GET / HTTP/2.0\r\n\r\n", other),
            ("no request", "GET \r\n\r\n", other),
            ("another protocol", "\u{16}\u{3}\u{1}", other),
        ] {
            assert_eq!(request_stage(bytes.as_bytes()), expected, "{case}");
        }
    }
}
