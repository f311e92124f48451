//! What a client is told when no upstream answers: a line of text, or the same as a problem document (RFC 9457) where
//! JSON is asked for.

use std::fmt::Write as _;

use bytes::Bytes;
use hyper::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};

use super::answer::{Answer, Busy};

/// Why the router answers itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Problem {
    /// The request has no host, or one that is none.
    NoHost,
    NotHere {
        method: String,
    },
    NoRoute {
        host: String,
        path: String,
    },
    NoReplica {
        service: String,
    },
    Unreached {
        service: String,
        tried: usize,
    },
    Broken {
        service: String,
    },
    Late {
        service: String,
        seconds: u64,
    },
}

impl Problem {
    fn status(&self) -> StatusCode {
        match self {
            Self::NoHost => StatusCode::BAD_REQUEST,
            Self::NotHere { .. } => StatusCode::NOT_IMPLEMENTED,
            Self::NoRoute { .. } => StatusCode::NOT_FOUND,
            Self::NoReplica { .. } | Self::Unreached { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::Broken { .. } => StatusCode::BAD_GATEWAY,
            Self::Late { .. } => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::NoHost => "no_host",
            Self::NotHere { .. } => "not_here",
            Self::NoRoute { .. } => "no_route",
            Self::NoReplica { .. } => "no_healthy_replica",
            Self::Unreached { .. } => "replicas_unreachable",
            Self::Broken { .. } => "replica_failed",
            Self::Late { .. } => "replica_late",
        }
    }

    fn text(&self) -> String {
        match self {
            Self::NoHost => "the request names no host".to_owned(),
            Self::NotHere { method } => format!("{method} is not served here"),
            Self::NoRoute { host, path } => format!("no route for {host}{path}"),
            Self::NoReplica { service } => format!("no replica of {service} is healthy"),
            Self::Unreached { service, tried } => {
                format!("no replica of {service} could be connected to ({tried} tried)")
            }
            Self::Broken { service } => format!("the replica of {service} ended without an answer"),
            Self::Late { service, seconds } => {
                format!("the replica of {service} did not begin to answer within {seconds} s")
            }
        }
    }

    /// The whole answer. `accept` is what the client said it can read.
    pub(super) fn answer(&self, accept: Option<&HeaderValue>, busy: Busy) -> Response<Answer> {
        let status = self.status();
        let is_json = accept.is_some_and(|kinds| contains(kinds.as_bytes(), b"json"));
        let (kind, body) = if is_json {
            ("application/problem+json", self.document())
        } else {
            ("text/plain; charset=utf-8", format!("{} {}\n", status.as_u16(), self.text()))
        };
        let mut response = Response::new(Answer::page(Bytes::from(body), busy));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }

    fn document(&self) -> String {
        let status = self.status();
        let title = status.canonical_reason().unwrap_or_default();
        let detail = quoted(&self.text());
        let (status, code) = (status.as_u16(), self.code());
        format!(
            "{{\"type\":\"about:blank\",\"title\":\"{title}\",\"status\":{status},\"code\":\"{code}\",\"detail\":{detail}}}\n"
        )
    }
}

/// What the client said that it can read.
pub(super) fn accepted(headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get(ACCEPT).cloned()
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

/// As a string of JSON: what a client sent may hold anything.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_sent_cannot_break_out_of_a_string() {
        assert_eq!(quoted("a\"b\\c\n"), r#""a\"b\\c\u000a""#);
    }
}
