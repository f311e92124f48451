//! Answers: JSON, and problems with the status that fits them.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use serde::Serialize;

use crate::operations::Error;
use crate::view::Problem;

/// An answer that is not 2xx.
#[derive(Debug)]
pub(super) struct Failure(pub(super) StatusCode, pub(super) Problem);

/// Says of an answer that nothing was done, because whoever was asked does not lead: it can be asked of another.
pub(super) const UNTAKEN: HeaderName = HeaderName::from_static("plimsoll-untaken");

/// Marks an answer that failed because this node leads and too few others answer it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deserted;

pub(super) type Answer = Result<Response, Failure>;

impl Failure {
    pub(super) fn bad_request(code: &str, message: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, Problem::refusal(code, message))
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self(self.0, self.1.hint(hint))
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let status = match problem.code.as_str() {
            "bad_name" => StatusCode::BAD_REQUEST,
            "no_such_deployment" | "no_such_service" | "no_such_replica" | "no_such_revision" => {
                StatusCode::NOT_FOUND
            }
            "revision_changed"
            | "contended"
            | "changed_meanwhile"
            | "same_revision"
            | "no_earlier_revision"
            | "not_here"
            | "not_running"
            | "not_assigned" => StatusCode::CONFLICT,
            "forbidden" => StatusCode::FORBIDDEN,
            "unauthorized" => StatusCode::UNAUTHORIZED,
            "too_large" => StatusCode::PAYLOAD_TOO_LARGE,
            "disk_full" => StatusCode::INSUFFICIENT_STORAGE,
            "no_leader"
            | "not_leader"
            | "quorum_lost"
            | "superseded"
            | "unsettled"
            | "stopped"
            | "node_unreachable"
            | "runtime_unavailable" => StatusCode::SERVICE_UNAVAILABLE,
            _ if problem.is_refusal => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, problem)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let failure = Self::from(Problem::from(&error));
        if !failure.1.is_refusal {
            tracing::warn!(error = plimsoll_runtime::chain(&error), "a request failed");
        }
        failure
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = json(&self.1);
        *response.status_mut() = self.0;
        match &*self.1.code {
            "quorum_lost" => {
                response.extensions_mut().insert(Deserted);
            }
            // What is asked of the leader is done in one write, and that was not begun.
            "no_leader" | "not_leader" => {
                response.headers_mut().insert(UNTAKEN, HeaderValue::from_static("true"));
            }
            _ => {}
        }
        response
    }
}

pub(super) fn json(value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).expect("views have string keys only");
    with_type("application/json", Body::from(body))
}

pub(super) fn with_type(kind: &'static str, body: Body) -> Response {
    Response::builder().header(CONTENT_TYPE, kind).body(body).expect("the header is valid")
}
