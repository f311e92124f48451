//! What a request says, or the problem with it. No value of a body is ever repeated: it may be a secret.

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use futures_util::StreamExt;
use hyper::header::{CONTENT_LENGTH, HeaderMap};
use hyper::http::request::Parts;
use serde::Deserializer;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Track;

use super::MAX_BODY;
use super::answer::ErrorResponse;
use super::requester::Requester;
use super::scope::Within;
use crate::operations::Caller;
use plimsoll_api::view::{Problem, ProblemCode};

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
pub(super) struct QueryParams<T>(pub(super) T);

/// The names in the path.
#[derive(Debug)]
pub(super) struct Named<T>(pub(super) T);

/// Who asks.
#[derive(Debug)]
pub(super) struct By(pub(super) Caller);

impl<S: Send + Sync> FromRequestParts<S> for By {
    type Rejection = ErrorResponse;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ErrorResponse> {
        let peer = parts.extensions.get::<Requester>();
        // Every door says who asks. A request that came by none is nobody's.
        let nobody = || bad(ProblemCode::Bug, "who asks is not known");
        let caller = peer.ok_or_else(nobody)?.caller();
        let within = parts.extensions.get::<Within>().cloned().unwrap_or_default();
        Ok(Self(caller.within(within.0)))
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Named<T> {
    type Rejection = ErrorResponse;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ErrorResponse> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(names)) => Ok(Self(names)),
            Err(rejection) => Err(bad(ProblemCode::BadPath, rejection.body_text())),
        }
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryParams<T> {
    type Rejection = ErrorResponse;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ErrorResponse> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(asked)) => Ok(Self(asked)),
            Err(rejection) => Err(bad(ProblemCode::BadQuery, rejection.body_text())),
        }
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = ErrorResponse;
    async fn from_request(request: Request, _: &S) -> Result<Self, ErrorResponse> {
        Ok(Self(parse(&body(request).await?)?))
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for MaybeJson<T> {
    type Rejection = ErrorResponse;
    async fn from_request(request: Request, _: &S) -> Result<Self, ErrorResponse> {
        let body = body(request).await?;
        if body.is_empty() {
            return Ok(Self(T::default()));
        }
        Ok(Self(parse(&body)?))
    }
}

pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ErrorResponse> {
    let mut source = serde_json::Deserializer::from_slice(body);
    let value = deserialize(&mut source)?;
    source.end().map_err(|error| bad_json("", &error))?;
    Ok(value)
}

pub(super) fn parse_value<T: DeserializeOwned>(value: Value) -> Result<T, ErrorResponse> {
    deserialize(value)
}

/// A field that there is not is refused: whoever misspelt it would wait for what it asks for.
fn deserialize<'de, T: DeserializeOwned>(
    source: impl Deserializer<'de, Error = serde_json::Error>,
) -> Result<T, ErrorResponse> {
    let (mut track, mut unknown) = (Track::new(), None);
    let tracked = serde_path_to_error::Deserializer::new(source, &mut track);
    let read = serde_ignored::deserialize(tracked, |path| {
        unknown.get_or_insert_with(|| path.to_string());
    });
    let value = read.map_err(|error| bad_json(&track.path().to_string(), &error))?;
    match unknown {
        None => Ok(value),
        Some(path) => {
            // A value that may be missing is a step of its own there.
            let path: Vec<&str> = path.split('.').filter(|part| *part != "?").collect();
            let message =
                format!("the body cannot be read: {}: there is no such field", path.join("."));
            Err(bad(ProblemCode::BadJson, message))
        }
    }
}

/// A body as it came.
#[derive(Debug)]
pub(super) struct Whole(pub(super) Vec<u8>);

impl<S: Send + Sync> FromRequest<S> for Whole {
    type Rejection = ErrorResponse;
    async fn from_request(request: Request, _: &S) -> Result<Self, ErrorResponse> {
        body(request).await.map(Self)
    }
}

async fn body(request: Request) -> Result<Vec<u8>, ErrorResponse> {
    let (head, body) = request.into_parts();
    read(&head.headers, body).await
}

/// The whole body, which may not be too large.
pub(super) async fn read(headers: &HeaderMap, body: Body) -> Result<Vec<u8>, ErrorResponse> {
    let length = headers.get(CONTENT_LENGTH);
    let length: Option<u64> = length.and_then(|length| length.to_str().ok()?.parse().ok());
    let is_too_large = length.is_some_and(|length| length > MAX_BODY as u64);
    let mut pieces = body.into_data_stream();
    let mut body = Vec::new();
    let mut seen = 0;
    while let Some(piece) = pieces.next().await {
        let piece = piece
            .map_err(|_| bad(ProblemCode::CutShort, "the request ended before its body did"))?;
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
    Err(bad(ProblemCode::TooLarge, message))
}

fn bad(code: ProblemCode, message: impl Into<String>) -> ErrorResponse {
    Problem::new(code, message).into()
}

fn bad_json(path: &str, error: &serde_json::Error) -> ErrorResponse {
    let text = error.to_string();
    // What serde says of a value it repeats; what it expected it says last, and that is ours.
    let what = if error.is_data() && !text.starts_with("missing field") {
        match text.rsplit_once(", expected ") {
            Some((_, expected)) => format!("expected {expected}"),
            None if error.line() == 0 => "cannot be used here".to_owned(),
            None => {
                format!("cannot be used here, at line {} column {}", error.line(), error.column())
            }
        }
    } else {
        text
    };
    let field = if path.is_empty() || path == "." { String::new() } else { format!("{path}: ") };
    bad(ProblemCode::BadJson, format!("the body cannot be read: {field}{what}"))
}
