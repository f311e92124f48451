//! What a request says, or the problem with it. No value of a body is ever repeated: it may be a secret.

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use futures_util::StreamExt;
use hyper::StatusCode;
use hyper::header::{CONTENT_LENGTH, HeaderMap};
use hyper::http::request::Parts;
use serde::de::DeserializeOwned;

use super::MAX_BODY;
use super::answer::Failure;
use super::peer::Peer;
use crate::operations::Caller;
use crate::view::Problem;

/// How much of a body that is too large is read all the same, so that its sender gets to hear why.
const MAX_DRAINED: usize = 16 * MAX_BODY;

/// A JSON body.
#[derive(Debug)]
pub(super) struct Json<T>(pub(super) T);

/// A JSON body, or none at all: that asks for nothing in particular.
#[derive(Debug)]
pub(super) struct MaybeJson<T>(pub(super) T);

/// The part behind the question mark.
#[derive(Debug)]
pub(super) struct Asked<T>(pub(super) T);

/// The names in the path.
#[derive(Debug)]
pub(super) struct Named<T>(pub(super) T);

/// Who asks.
#[derive(Debug)]
pub(super) struct By(pub(super) Caller);

impl<S: Send + Sync> FromRequestParts<S> for By {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let peer = parts.extensions.get::<Peer>().cloned();
        Ok(Self(peer.unwrap_or(Peer::Local { uid: None }).caller()))
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Named<T> {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(names)) => Ok(Self(names)),
            Err(rejection) => Err(Failure::bad_request("bad_path", rejection.body_text())
                .hint("see /openapi.json for the paths there are")),
        }
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(asked)) => Ok(Self(asked)),
            Err(rejection) => Err(Failure::bad_request("bad_query", rejection.body_text())
                .hint("times are written like 2026-11-16T00:30:00Z, switches are true or false")),
        }
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Failure;
    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        Ok(Self(parse(&body(request).await?)?))
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for MaybeJson<T> {
    type Rejection = Failure;
    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        let body = body(request).await?;
        if body.is_empty() {
            return Ok(Self(T::default()));
        }
        Ok(Self(parse(&body)?))
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    let mut source = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut source)
        .map_err(|error| bad_json(&error.path().to_string(), error.inner()))?;
    source.end().map_err(|error| bad_json("", &error))?;
    Ok(value)
}

async fn body(request: Request) -> Result<Vec<u8>, Failure> {
    let (head, body) = request.into_parts();
    read(&head.headers, body).await
}

/// The whole body, which may not be too large.
pub(super) async fn read(headers: &HeaderMap, body: Body) -> Result<Vec<u8>, Failure> {
    let length = headers.get(CONTENT_LENGTH);
    let length: Option<u64> = length.and_then(|length| length.to_str().ok()?.parse().ok());
    let is_too_large = length.is_some_and(|length| length > MAX_BODY as u64);
    let mut pieces = body.into_data_stream();
    let mut body = Vec::new();
    let mut seen = 0;
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| {
            Failure::bad_request("cut_short", "the request ended before its body did")
        })?;
        seen += piece.len();
        if seen <= MAX_BODY && !is_too_large {
            body.extend_from_slice(&piece);
        } else if seen > MAX_DRAINED {
            break;
        } else {
            body.clear();
        }
    }
    if seen <= MAX_BODY && !is_too_large {
        return Ok(body);
    }
    let size = length.map_or_else(|| format!("more than {MAX_BODY}"), |size| size.to_string());
    let message = format!("the request has {size} bytes, at most {MAX_BODY} are allowed");
    let problem = Problem::refusal("too_large", message)
        .hint("keep large files out of configs and secrets: mount them from a volume");
    Err(Failure(StatusCode::PAYLOAD_TOO_LARGE, problem))
}

fn bad_json(path: &str, error: &serde_json::Error) -> Failure {
    let text = error.to_string();
    // What serde says of a value it repeats; what it expected it says last, and that is ours.
    let what = if error.is_data() && !text.starts_with("missing field") {
        match text.rsplit_once(", expected ") {
            Some((_, expected)) => format!("expected {expected}"),
            None => {
                format!("cannot be used here, at line {} column {}", error.line(), error.column())
            }
        }
    } else {
        text
    };
    let field = if path.is_empty() || path == "." { String::new() } else { format!("{path}: ") };
    Failure::bad_request("bad_json", format!("the body cannot be read: {field}{what}"))
        .hint("see /openapi.json for what is expected here")
}
