//! Heads of requests that were broken at random, as HTTP/1 and as HTTP/2 give them: what an upstream gets is for one host, has one
//! spelling of its path, and nothing in it about the client's connection.

use hyper::http::request::Parts;
use hyper::{Method, Request};
use plimsoll_fuzz::Fuzz;

use super::*;
use crate::table::bare_host;

/// A target, and then fields: one a line.
const CORPUS: &[&str] = &[
    "/a/b?c=d\nhost: shop.example:80\nconnection: close, x-trace\nx-trace: 1\nx-forwarded-for: 10.0.0.9",
    "//a%2Fb///c%61/%2e%2E/;x\nhost: [fd00::1]:8080\nte: gzip, trailers\ntransfer-encoding: chunked\ncontent-length: 5",
    "http://shop.example/x?y=/../z\nhost: other\nupgrade: websocket\nconnection: upgrade",
    "*\nhost: a\nconnection: host, content-length, upgrade\nupgrade: h2c\ncontent-length: 0",
    "/api/x\nhost: A.b.\nconnection: \u{ff}, keep-alive\nx_forwarded_for: 1\nforwarded: for=1\nx-real-ip: 1",
    "shop.example:443\nhost: shop.example\nexpect: 100-continue\nproxy-connection: x",
    "PROXY TCP4 10.0.0.9 10.0.0.1 4444 80\nhost: a",
];

const WORDS: &[&str] = &[
    "%2e",
    "%2F",
    "%5c",
    "%00",
    "%",
    "//",
    "/../",
    "/.",
    "\\",
    ";",
    "?",
    "#",
    "@",
    ":",
    "[",
    "]",
    "\n",
    "host: b\n",
    "connection: ",
    "te: trailers\n",
    "content-length: 1\n",
    "transfer-encoding: chunked\n",
    "http://",
    "*",
];

/// The head, if HTTP has one like this.
fn parts(target: Uri, fields: &[&[u8]]) -> Parts {
    let mut parts =
        Request::builder().method(Method::GET).uri(target).body(()).unwrap().into_parts().0;
    for line in fields {
        let at = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (name, value) = (&line[..at], line.get(at + 1..).unwrap_or_default());
        let name = HeaderName::from_bytes(name.trim_ascii());
        let value = HeaderValue::from_bytes(value.trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            parts.headers.append(name, value);
        }
    }
    parts
}

/// What HTTP/2 calls `:path`, beside an authority.
fn http2_target(target: &[u8]) -> Option<Uri> {
    let path = PathAndQuery::try_from(target).ok()?;
    let mut parts = hyper::http::uri::Parts::default();
    (parts.scheme, parts.path_and_query) = (Some(Scheme::HTTP), Some(path));
    parts.authority = Some(Authority::from_static("shop.example"));
    Uri::from_parts(parts).ok()
}

fn check(mut parts: Parts, prefix: &str) {
    let _ = (wanted_upgrade(parts.version, &parts.headers), is_grpc(&parts));
    if resolve_path(&mut parts.uri).is_err() {
        return;
    }
    let resolved = parts.uri.clone();
    assert_eq!(resolve_path(&mut parts.uri), Ok(()), "{resolved}");
    assert_eq!(parts.uri, resolved, "it has one spelling");
    let is_dots = |segment: &str| matches!(segment, "." | "..");
    assert!(!resolved.path().split(['/', '\\']).any(is_dots), "{resolved}");
    let host = host_value(&parts);
    if let Some(host) = host.as_ref().and_then(|host| host.to_str().ok()).filter(|it| is_host(it)) {
        assert!(host.starts_with(bare_host(host)));
    }
    let had = |parts: &Parts, name: &HeaderName| parts.headers.contains_key(name);
    let (had_host, is_chunked) = (had(&parts, &HOST), had(&parts, &TRANSFER_ENCODING));
    let had_length = had(&parts, &CONTENT_LENGTH);
    strip_hop_by_hop(&mut parts.headers);
    let is_left = |name: &HeaderName| *name != TE && had(&parts, name);
    assert!(!HOP_BY_HOP.iter().any(is_left), "{:?}", parts.headers);
    assert_eq!(had(&parts, &HOST), had_host);
    assert_eq!(had(&parts, &CONTENT_LENGTH), had_length && !is_chunked);
    let address = HeaderValue::from_static("192.0.2.1");
    assert!(forwarded_for(&parts.headers, &address).as_bytes().ends_with(b"192.0.2.1"));
    remove_forwarded(&mut parts.headers);
    assert_eq!(forwarded_for(&parts.headers, &address), address, "what anybody said is dropped");
    strip_path(&mut parts, prefix);
    for is_http2 in [false, true] {
        let mut parts = parts.clone();
        set_target(&mut parts, host.clone(), is_http2);
        assert!(is_http2 || parts.uri.authority().is_none(), "{}", parts.uri);
        assert!(parts.headers.get_all(HOST).iter().count() <= 1 || host.is_none());
    }
}

#[test]
fn no_broken_head_breaks_what_upstreams_are_sent() {
    // Letters beyond ASCII stand for bytes.
    let byte = |letter: char| u8::try_from(u32::from(letter)).unwrap();
    let corpus = CORPUS.iter().map(|text| text.chars().map(byte).collect::<Vec<u8>>());
    let fuzz = corpus.fold(Fuzz::new("head").one_of(2).words(WORDS), Fuzz::input);
    fuzz.run(|input| {
        let mut lines = input.split(|byte| *byte == b'\n');
        let target = lines.next().unwrap_or_default();
        // As many as there may be in a head, and more.
        let fields: Vec<&[u8]> = lines.take(300).collect();
        let targets = [Uri::try_from(target).ok(), http2_target(target)];
        for target in targets.into_iter().flatten() {
            for prefix in ["/", "/api", "/api/"] {
                check(parts(target.clone(), &fields), prefix);
            }
        }
    });
}
