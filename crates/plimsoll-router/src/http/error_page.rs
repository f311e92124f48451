//! Error responses of the router itself, when no upstream answers: a line of text, or a problem document (RFC 9457) if the
//! client accepts JSON.

use std::fmt::Write as _;

use bytes::Bytes;
use hyper::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};

use super::response_body::{ActiveRequest, ResponseBody};

/// Why the router answers itself, instead of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ErrorPage {
    /// The request has no host, or an invalid one.
    NoHost,
    /// The path has `.` or `..` in it.
    DotSegments {
        path: String,
    },
    MethodNotSupported {
        method: String,
    },
    NoRoute {
        host: String,
        path: String,
    },
    NoReplica {
        service: String,
    },
    Unreachable {
        service: String,
        tried: usize,
    },
    ConnectionLost {
        service: String,
    },
    Timeout {
        service: String,
        seconds: u64,
    },
    /// The body of the request comes at less than the least rate.
    SlowBody,
}

impl ErrorPage {
    fn status(&self) -> StatusCode {
        match self {
            Self::NoHost | Self::DotSegments { .. } => StatusCode::BAD_REQUEST,
            Self::MethodNotSupported { .. } => StatusCode::NOT_IMPLEMENTED,
            Self::NoRoute { .. } => StatusCode::NOT_FOUND,
            Self::NoReplica { .. } | Self::Unreachable { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::ConnectionLost { .. } => StatusCode::BAD_GATEWAY,
            Self::Timeout { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::SlowBody => StatusCode::REQUEST_TIMEOUT,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::NoHost => "no_host",
            Self::DotSegments { .. } => "dot_segments",
            Self::MethodNotSupported { .. } => "not_here",
            Self::NoRoute { .. } => "no_route",
            Self::NoReplica { .. } => "no_healthy_replica",
            Self::Unreachable { .. } => "replicas_unreachable",
            Self::ConnectionLost { .. } => "replica_failed",
            Self::Timeout { .. } => "replica_late",
            Self::SlowBody => "slow_body",
        }
    }

    fn text(&self) -> String {
        match self {
            Self::NoHost => "the request has no valid Host header".to_owned(),
            Self::DotSegments { path } => format!("the path {path} has dot segments"),
            Self::MethodNotSupported { method } => format!("method {method} is not supported"),
            Self::NoRoute { host, path } => format!("no route for {host}{path}"),
            Self::NoReplica { service } => format!("no replica of {service} is healthy"),
            Self::Unreachable { service, tried } => {
                format!("cannot connect to any replica of {service} ({tried} tried)")
            }
            Self::ConnectionLost { service } => {
                format!("the replica of {service} closed the connection without a response")
            }
            Self::Timeout { service, seconds } => {
                format!("the replica of {service} sent no response within {seconds} s")
            }
            Self::SlowBody => "the request body was sent too slowly".to_owned(),
        }
    }

    /// The response. `accept` is the client's `Accept` header.
    pub(super) fn answer(
        &self,
        accept: Option<&HeaderValue>,
        busy: ActiveRequest,
    ) -> Response<ResponseBody> {
        let status = self.status();
        let is_json = accept.is_some_and(|kinds| contains(kinds.as_bytes(), b"json"));
        let (kind, body) = if is_json {
            ("application/problem+json", self.document())
        } else {
            ("text/plain; charset=utf-8", format!("{} {}\n", status.as_u16(), self.text()))
        };
        let mut response = Response::new(ResponseBody::page(Bytes::from(body), busy));
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

/// The client's `Accept` header.
pub(super) fn accepted(headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get(ACCEPT).cloned()
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

/// As a JSON string: what a client sent may contain anything.
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
