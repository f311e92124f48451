//! Headers of proxied requests and responses: hop-by-hop headers are removed, and forwarding headers added for upstreams.

use std::borrow::Cow;

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::request::Parts;
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use hyper::{Uri, Version};

use super::path::{self, DotSegments};
use super::{ClientConnection, HttpListenerKind};
use crate::table::RouteConfig;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");

/// What others may have said of a client: every field whose name begins so, and two more.
const FORWARDED_FIELDS: &str = "x-forwarded-";
const OTHER_FORWARDED: [&str; 2] = ["forwarded", "x-real-ip"];

/// Fields that belong to the message whatever `Connection` says: without them it would be another one, or for another host.
const NEVER_HOP_BY_HOP: [HeaderName; 2] = [HOST, CONTENT_LENGTH];

/// Hop-by-hop headers: they concern one connection, not the message.
const HOP_BY_HOP: [HeaderName; 7] =
    [CONNECTION, KEEP_ALIVE, PROXY_CONNECTION, TE, TRANSFER_ENCODING, UPGRADE, EXPECT];

/// The protocol that a request asks to upgrade to, if any. HTTP/2 is not offered: what followed would bypass every route
/// (h2c smuggling).
pub(super) fn wanted_upgrade(version: Version, headers: &HeaderMap) -> Option<HeaderValue> {
    let upgrade = headers.get(UPGRADE)?;
    let is_http = upgrade.to_str().is_ok_and(|name| name.to_ascii_lowercase().contains("h2c"));
    let is_asked = version == Version::HTTP_11 && has_token(headers, "upgrade");
    (is_asked && !is_http).then(|| upgrade.clone())
}

/// Whether it is a gRPC call, which only HTTP/2 can carry.
pub(super) fn is_grpc(parts: &Parts) -> bool {
    parts.version == Version::HTTP_2
        && parts
            .headers
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

fn has_token(headers: &HeaderMap, token: &str) -> bool {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case(token))
}

/// Removes hop-by-hop headers, also those that `Connection` names, but for the host and the length.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    // Most messages have none, and one pass is cheaper than a lookup for each.
    if !headers.keys().any(|name| HOP_BY_HOP.contains(name)) {
        return;
    }
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|word| word.trim().parse().ok())
        .filter(|name| !NEVER_HOP_BY_HOP.contains(name))
        .collect();
    // Trailers are forwarded, so that the client accepts them holds for the upstream too.
    let takes_trailers = headers.get_all(TE).iter().any(|value| {
        value.to_str().is_ok_and(|value| value.to_ascii_lowercase().contains("trailers"))
    });
    if headers.contains_key(TRANSFER_ENCODING) {
        // A length beside chunks is a smuggling attempt (RFC 9112, 6.3).
        headers.remove(CONTENT_LENGTH);
    }
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// Adds the headers of an upgrade, which were removed as hop-by-hop headers.
pub(super) fn ask_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// Turns the head of a client's request into that for an upstream.
pub(super) fn forward(
    parts: &mut Parts,
    client: &ClientConnection,
    route: &RouteConfig,
    is_http2: bool,
) {
    let host = host_value(parts);
    strip_hop_by_hop(&mut parts.headers);
    set_forwarded(&mut parts.headers, client, host.as_ref());
    if route.strip_path && route.path != "/" {
        strip_path(parts, &route.path);
    }
    set_target(parts, host, is_http2);
    parts.extensions.clear();
}

/// The host as the client wrote it, port and all.
fn host_value(parts: &Parts) -> Option<HeaderValue> {
    match parts.uri.authority() {
        Some(authority) => HeaderValue::from_str(authority.as_str()).ok(),
        None => parts.headers.get(HOST).cloned(),
    }
}

/// Says who asks, for which host and how. What a trusted proxy has said of that stays, and the proxy joins the list; what
/// anybody else has said is dropped.
fn set_forwarded(headers: &mut HeaderMap, client: &ClientConnection, host: Option<&HeaderValue>) {
    if !client.is_trusted {
        remove_forwarded(headers);
    }
    let from = forwarded_for(headers, &client.address);
    headers.insert(FORWARDED_FOR, from);
    // The proxy knows how the client came; this connection only tells how the proxy did.
    if !(client.is_trusted && headers.contains_key(FORWARDED_PROTO)) {
        let proto = match client.listener {
            HttpListenerKind::Plain { .. } => HeaderValue::from_static("http"),
            HttpListenerKind::Tls => HeaderValue::from_static("https"),
        };
        headers.insert(FORWARDED_PROTO, proto);
    }
    if let Some(host) = host
        && !(client.is_trusted && headers.contains_key(FORWARDED_HOST))
    {
        headers.insert(FORWARDED_HOST, host.clone());
    }
}

/// The list so far, in one field however many it came in, and the address after it.
fn forwarded_for(headers: &HeaderMap, address: &HeaderValue) -> HeaderValue {
    if !headers.contains_key(FORWARDED_FOR) {
        return address.clone();
    }
    let before = headers.get_all(FORWARDED_FOR).iter().map(HeaderValue::as_bytes);
    let all = before.chain([address.as_bytes()]).filter(|part| !part.is_empty());
    let all = all.collect::<Vec<_>>().join(&b", "[..]);
    HeaderValue::from_bytes(&all).unwrap_or_else(|_| address.clone())
}

fn remove_forwarded(headers: &mut HeaderMap) {
    // Most requests have none.
    if !headers.keys().any(is_forwarded) {
        return;
    }
    let named: Vec<HeaderName> =
        headers.keys().filter(|name| is_forwarded(name)).cloned().collect();
    for name in named {
        headers.remove(name);
    }
}

/// Whether a field says something of a client on behalf of another. Servers that turn names into variables take `_` for `-`.
fn is_forwarded(name: &HeaderName) -> bool {
    let is = |name: &[u8], expected: &str| {
        let letters = name.iter().map(|letter| if *letter == b'_' { b'-' } else { *letter });
        letters.eq(expected.bytes())
    };
    let name = name.as_str().as_bytes();
    name.get(..FORWARDED_FIELDS.len()).is_some_and(|start| is(start, FORWARDED_FIELDS))
        || OTHER_FORWARDED.iter().any(|other| is(name, other))
}

/// `/api/x?y` below `/api` is `/x?y`. The upstream gets the prefix in `X-Forwarded-Prefix`.
fn strip_path(parts: &mut Parts, prefix: &str) {
    let Some(whole) = parts.uri.path_and_query().map(PathAndQuery::as_str) else { return };
    let prefix = prefix.trim_end_matches('/');
    let Some(rest) = whole.strip_prefix(prefix) else { return };
    let stripped = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
    if let Ok(path) = stripped.parse::<PathAndQuery>() {
        let mut uri = std::mem::take(&mut parts.uri).into_parts();
        uri.path_and_query = Some(path);
        parts.uri = Uri::from_parts(uri).expect("only its path has changed");
    }
    if let Ok(prefix) = HeaderValue::from_str(prefix) {
        parts.headers.insert(FORWARDED_PREFIX, prefix);
    }
}

/// The request target in the form that the upstream's HTTP version takes. The host is said once, whichever way it came.
fn set_target(parts: &mut Parts, host: Option<HeaderValue>, is_http2: bool) {
    if is_http2 {
        parts.version = Version::HTTP_2;
        let mut uri = std::mem::take(&mut parts.uri).into_parts();
        uri.scheme = Some(Scheme::HTTP);
        if uri.authority.is_none() {
            uri.authority = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
        }
        parts.headers.remove(HOST);
        parts.uri = Uri::from_parts(uri).unwrap_or_default();
        return;
    }
    parts.version = Version::HTTP_11;
    if parts.uri.authority().is_some() {
        let path = std::mem::take(&mut parts.uri).into_parts().path_and_query;
        parts.uri = path.map_or_else(Uri::default, Uri::from);
    }
    if let Some(host) = host {
        parts.headers.insert(HOST, host);
    }
}

/// Brings the path into the spelling that routes are matched against, which is also what the upstream gets.
pub(super) fn resolve_path(uri: &mut Uri) -> Result<(), DotSegments> {
    let Cow::Owned(path) = path::resolved(uri.path())? else { return Ok(()) };
    let whole = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path,
    };
    let whole: PathAndQuery = whole.parse().expect("it is of letters that were in it before");
    let mut parts = std::mem::take(uri).into_parts();
    parts.path_and_query = Some(whole);
    *uri = Uri::from_parts(parts).expect("only its path has changed");
    Ok(())
}

/// Whether this can be a host with or without a port. Whatever else is in it, another reader may take for something else.
pub(super) fn is_host(authority: &str) -> bool {
    authority.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~:[]".contains(&byte))
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    fn stripped(fields: &[(&'static str, &'static str)]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        strip_hop_by_hop(&mut headers);
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect()
    }

    #[test]
    fn hop_by_hop_headers_are_removed() {
        for (case, fields, left) in [
            ("nothing to do", &[("accept", "*/*")][..], &["accept: */*"][..]),
            ("what is known", &[("keep-alive", "5"), ("te", "gzip"), ("upgrade", "x")], &[]),
            ("what is named", &[("connection", "close, X-Mine"), ("x-mine", "1")], &[]),
            ("in several fields", &[("connection", "a"), ("connection", "b"), ("b", "1")], &[]),
            (
                "and a length beside chunks",
                &[("content-length", "4"), ("transfer-encoding", "chunked")],
                &[],
            ),
            (
                "but neither the host nor the length",
                &[("connection", "Host, content-length"), ("host", "a"), ("content-length", "4")],
                &["content-length: 4", "host: a"],
            ),
            ("but not trailers", &[("te", "gzip, Trailers")], &["te: trailers"]),
        ] {
            assert_eq!(stripped(fields), left, "{case}");
        }
    }
}
