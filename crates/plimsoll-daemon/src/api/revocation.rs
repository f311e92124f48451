//! What becomes of answers under way when the token they were given for is revoked: they end, and say why where they can.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use hyper::body::Body as _;
use hyper::header::CONTENT_TYPE;
use plimsoll_model::access::Digest;
use tokio::time::sleep;

use super::answer::ErrorResponse;
use crate::context::{NodeContext, now, span};
use plimsoll_api::view::{Problem, ProblemCode};

/// How long a stream may go on after its reader's token was revoked here.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The answer to an operator, for as long as their token is good: it may be a stream that has no other end.
pub(super) async fn while_good(
    cell: NodeContext,
    (name, token): (Arc<str>, Digest),
    answer: impl Future<Output = Response>,
) -> Response {
    let response = tokio::select! {
        response = answer => response,
        () = revoked(&cell, &name, &token) => return ErrorResponse::from(notice()).into_response(),
    };
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let last = last_words(kind.unwrap_or_default());
    response.map(|body| {
        let revoked = Box::pin(async move { revoked(&cell, &name, &token).await });
        let pieces = (body.into_data_stream(), revoked, last);
        Body::from_stream(unfold(Some(pieces), async |pieces| {
            let (mut body, mut revoked, last) = pieces?;
            tokio::select! {
                biased;
                () = &mut revoked => Some((last.ok_or_else(|| axum::Error::new(cut())), None)),
                piece = body.next() => Some((piece?, Some((body, revoked, last)))),
            }
        }))
    })
}

/// Returns once this is not the token of that operator any more, or has run out.
async fn revoked(cell: &NodeContext, name: &str, token: &Digest) {
    let machine = cell.engine.machine();
    let mut applied = machine.applied();
    loop {
        let good = machine.read(|state| {
            let operator = state.access().operators.get(name)?;
            let is_good = operator.token == *token && !operator.has_expired(now());
            is_good.then_some(operator.expires_at)
        });
        let Some(expires_at) = good else { return };
        let run_out = async {
            match expires_at {
                Some(expires_at) => sleep(span(expires_at.since(now()))).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = applied.changed() => if changed.is_err() { return },
            () = run_out => {}
        }
        // A busy log must not have every stream look at every entry of it.
        sleep(LOOK_AGAIN).await;
        applied.mark_unchanged();
    }
}

/// What whoever had the token is told.
fn notice() -> Problem {
    Problem::new(ProblemCode::Unauthorized, "this token was revoked or has expired")
        .hint("an admin can give another: `plimsoll token create NAME --role ...`")
}

/// What a stream of this kind says when it is cut; none where nothing can be said in it.
fn last_words(kind: &str) -> Option<Bytes> {
    let text = serde_json::to_string(&notice()).expect("problems have string keys only");
    if kind.starts_with("text/event-stream") {
        Some(format!("data: {text}\n\n").into())
    } else if kind.starts_with("application/x-ndjson") {
        Some((text + "\n").into())
    } else {
        None
    }
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "the token was revoked or has expired")
}
