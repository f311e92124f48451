//! A node's engine, for a server that has none and wants to know which images tags stand for. Credentials come with the
//! question and are forgotten with the answer.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use hyper::Method;
use plimsoll_runtime::chain;
use tokio::time::Instant;

use super::PeerApi;
use super::containers::{asked, no_server, unreachable};
use crate::image_lookup::{self, ImageQuestion, LOOKUP_WAIT};
use crate::operations::ResolvedImage;
use plimsoll_api::view::{Problem, ProblemCode};
use plimsoll_peer::{Key, KnownCaller, PeerClient, Target};

const RESOLVE: &str = "/peer/resolve";

/// The endpoint, for servers.
pub(super) fn router(gate: Arc<PeerApi>) -> Router {
    Router::new().route(RESOLVE, post(resolve)).with_state(gate)
}

/// Asks a node, which has an answer for each question.
pub async fn ask(
    client: &PeerClient,
    to: &Target,
    questions: &[ImageQuestion],
) -> Result<Vec<ResolvedImage>, Problem> {
    let body = serde_json::to_vec(questions).expect("a question has string keys only").into();
    let answer = client.call(to, Method::POST, RESOLVE, body, LOOKUP_WAIT).await;
    let answer = answer.map_err(|error| unreachable(to, &chain(&error)))?;
    let found: Option<Vec<ResolvedImage>> = serde_json::from_slice(&answer.body).ok();
    let found = found.filter(|found| {
        answer.status.is_success()
            && found.len() == questions.len()
            && found.iter().all(image_lookup::is_plausible)
    });
    found.ok_or_else(|| {
        Problem::new(ProblemCode::BadAnswer, format!("{to} answered something else"))
    })
}

async fn resolve(
    State(gate): State<Arc<PeerApi>>,
    KnownCaller(caller): KnownCaller,
    Key(key): Key,
    request: Request,
) -> Response {
    if !gate.may_ask(&caller, &key) {
        return no_server(&caller);
    }
    let questions: Vec<ImageQuestion> = match asked(request).await {
        Ok(questions) => questions,
        Err(status) => return status.into_response(),
    };
    let deadline = Instant::now() + LOOKUP_WAIT;
    let found = image_lookup::ask(&gate.cell.runtime, &questions, deadline).await;
    axum::Json(found).into_response()
}
