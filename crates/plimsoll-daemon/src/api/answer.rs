//! Answers: JSON, and problems with the status that fits them.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use serde::Serialize;

use crate::operations::Error;
use plimsoll_api::view::page::TOTAL;
use plimsoll_api::view::{Page, Problem, ProblemCode};

/// An answer that is not 2xx.
#[derive(Debug)]
pub(super) struct ErrorResponse(pub(super) Problem);

/// Says of an answer that nothing was done, because whoever was asked does not lead: it can be asked of another.
pub(super) const UNTAKEN: HeaderName = HeaderName::from_static("plimsoll-untaken");

/// Marks an answer that failed because this node leads and too few others answer it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deserted;

pub(super) type Answer = Result<Response, ErrorResponse>;

impl From<Problem> for ErrorResponse {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl From<Error> for ErrorResponse {
    fn from(error: Error) -> Self {
        let failure = Self::from(Problem::from(&error));
        if !failure.0.is_refusal {
            tracing::warn!(error = plimsoll_runtime::chain(&error), "a request failed");
        }
        failure
    }
}

impl IntoResponse for ErrorResponse {
    fn into_response(self) -> Response {
        let Self(problem) = self;
        let mut response = json(&problem);
        *response.status_mut() =
            StatusCode::from_u16(problem.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if problem.code == ProblemCode::QuorumLost {
            response.extensions_mut().insert(Deserted);
        }
        // What is asked of the leader is done in one write, and that was not begun.
        if matches!(problem.code, ProblemCode::NoLeader | ProblemCode::NotLeader) {
            response.headers_mut().insert(UNTAKEN, HeaderValue::from_static("true"));
        }
        response
    }
}

pub(super) fn json(value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).expect("views have string keys only");
    with_type("application/json", Body::from(body))
}

/// A part of a list, and how long the list is.
pub(super) fn part<T: Serialize>(page: Page, all: &[T]) -> Response {
    let mut response = json(&page.of(all));
    response.headers_mut().insert(TOTAL, HeaderValue::from(all.len()));
    response
}

pub(super) fn with_type(kind: &'static str, body: Body) -> Response {
    Response::builder().header(CONTENT_TYPE, kind).body(body).expect("the header is valid")
}
