//! What a request may not bring in: at every door but the peer port, headers of ours are taken out before anybody looks at
//! them. Between nodes they say who asked and what they may; from outside they would be anybody's claim to be anyone.

use axum::response::{IntoResponse, Response};
use hyper::header::HeaderMap;

use super::answer::ErrorResponse;
use plimsoll_api::view::{Problem, ProblemCode};
use plimsoll_peer::{misnamed, strip_hops, strip_ours};

/// Takes out what is ours and what is about the connection. A request that would have the next node lose its token, or
/// what this one says of it, is no honest one and is refused.
pub(super) fn clean(headers: &mut HeaderMap) -> Result<(), Box<Response>> {
    if let Some(name) = misnamed(headers) {
        let message = format!("the header Connection must not name {name}");
        let problem = Problem::new(ProblemCode::BadHeader, message);
        return Err(Box::new(ErrorResponse(problem).into_response()));
    }
    strip_hops(headers);
    strip_ours(headers);
    Ok(())
}

#[cfg(test)]
mod tests {
    use hyper::header::{AUTHORIZATION, CONNECTION, HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn a_request_comes_in_with_its_token_and_nothing_of_ours() {
        let header = |name: &'static str, value: &'static str| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let sent = [
            header("authorization", "Bearer abc"),
            header("plimsoll-identity", "unix:root"),
            header("plimsoll-role", "admin"),
            header("plimsoll-anything", "x"),
            header("connection", "close, x-trace"),
            header("x-trace", "1"),
            header("accept", "*/*"),
        ];
        let mut headers = HeaderMap::from_iter(sent);
        headers.append("plimsoll-role", HeaderValue::from_static("read"));
        clean(&mut headers).unwrap();
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["accept", "authorization"]);
        for named in ["authorization", "close,Plimsoll-Role"] {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer abc"));
            headers.insert(CONNECTION, HeaderValue::from_static(named));
            assert_eq!(clean(&mut headers).unwrap_err().status(), 400, "{named}");
        }
    }
}
