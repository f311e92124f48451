//! A node's engine, for a server that has none and wants to know which images tags stand for. Credentials come with the
//! question and are forgotten with the answer.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use tokio::time::Instant;

use super::PeerApi;
use super::containers::{asked, no_server};
use crate::image_lookup::{self, ImageQuestion, LOOKUP_WAIT, RESOLVE};
use plimsoll_peer::{Key, KnownCaller};

/// The endpoint, for servers.
pub(super) fn router(gate: Arc<PeerApi>) -> Router {
    Router::new().route(RESOLVE, post(resolve)).with_state(gate)
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
