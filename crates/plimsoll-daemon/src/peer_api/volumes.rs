//! A node's volumes, for others: what is in one, for the node that is to have it from now on; and how much, for a server that
//! answers somebody who asks. Which node may read what, the leader has told this one.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use plimsoll_model::access::Digest;
use plimsoll_runtime::{VolumeRef, chain};

use super::containers::{asked, no_server, unreachable};
use super::{PeerApi, answer};
use crate::attached::MAX_PATIENCE;
use crate::cell::ANSWER;
use crate::volume_archive::VolumeTotals;
use crate::volume_copy::{self, AskedContent, CONTENT, SIZE};
use crate::volume_restore::UNTOLD;
use crate::{problem, volume_restore, volume_stream};
use plimsoll_api::view::Problem;
use plimsoll_peer::pki::Caller;
use plimsoll_peer::{Key, KnownCaller, PeerClient, Target, read_whole};

pub(super) fn router(gate: Arc<PeerApi>) -> Router {
    let routes = Router::new().route(CONTENT, post(content)).route(SIZE, post(size));
    let routes = routes.route(BACKUP, post(backup)).route(RESTORE, post(restore));
    routes.with_state(gate)
}

/// Where a server reads a volume that is held for a backup.
const BACKUP: &str = "/peer/volume/backup";

/// Where a server sends what is to be in a volume from now on.
const RESTORE: &str = "/peer/volume/restore";

/// Which volume, by which hold. The body is the backup.
const ASKED: HeaderName = HeaderName::from_static("plimsoll-volume");

/// Reads a volume of another node that is held for a backup.
pub(crate) async fn read_held(
    client: &PeerClient,
    to: &Target,
    asked: &AskedContent,
) -> Result<Body, Problem> {
    let answer = send(client, to, BACKUP, asked, Body::empty(), UNTOLD + ANSWER).await?;
    Ok(Body::new(answer.into_body()))
}

/// Has another node replace what is in a volume of it.
pub(crate) async fn restore_on(
    client: &PeerClient,
    to: &Target,
    asked: &AskedContent,
    body: Body,
) -> Result<VolumeTotals, Problem> {
    // As long as the client sends; a node that is gone, the connection notices.
    let answer = send(client, to, RESTORE, asked, body, MAX_PATIENCE).await?;
    let body = read_whole(answer.into_body(), MAX_TOLD).await.unwrap_or_default();
    serde_json::from_slice(&body).map_err(|_| unreachable(to, "it answered something else"))
}

/// The most bytes that an answer other than a volume may have.
const MAX_TOLD: usize = 64 << 10;

async fn send(
    client: &PeerClient,
    to: &Target,
    path: &str,
    asked: &AskedContent,
    body: Body,
    within: Duration,
) -> Result<Response, Problem> {
    let asked = serde_json::to_string(asked).expect("a question has string keys only");
    let asked = HeaderValue::try_from(asked);
    let asked = asked.map_err(|_| unreachable(to, "the volume has an odd name"))?;
    let mut request = Request::new(body);
    *request.method_mut() = Method::POST;
    *request.uri_mut() = path.parse().expect("the endpoints have good paths");
    request.headers_mut().insert(ASKED, asked);
    let answer = client.forward(to, request, within).await;
    let answer = answer.map_err(|error| unreachable(to, &chain(&error)))?;
    if answer.status().is_success() {
        return Ok(answer);
    }
    let status = answer.status();
    let body = read_whole(answer.into_body(), MAX_TOLD).await.unwrap_or_default();
    Err(serde_json::from_slice(&body)
        .unwrap_or_else(|_| unreachable(to, &format!("it answered with status {status}"))))
}

/// What a server asks for, if it is one and says so well.
fn held(
    gate: &PeerApi,
    caller: &Caller,
    key: &Digest,
    request: &Request,
) -> Result<AskedContent, Box<Response>> {
    if !gate.may_ask(caller, key) {
        return Err(Box::new(no_server(caller)));
    }
    let asked = request.headers().get(ASKED).and_then(|asked| asked.to_str().ok());
    let asked = asked.and_then(|asked| serde_json::from_str(asked).ok());
    asked.ok_or_else(|| Box::new(StatusCode::BAD_REQUEST.into_response()))
}

async fn backup(
    State(gate): State<Arc<PeerApi>>,
    KnownCaller(caller): KnownCaller,
    Key(key): Key,
    request: Request,
) -> Response {
    let asked = match held(&gate, &caller, &key, &request) {
        Ok(asked) => asked,
        Err(refused) => return *refused,
    };
    match volume_restore::content(&gate.cell, &asked).await {
        Ok(body) => Response::new(body),
        Err(problem) => answer(&problem),
    }
}

async fn restore(
    State(gate): State<Arc<PeerApi>>,
    KnownCaller(caller): KnownCaller,
    Key(key): Key,
    request: Request,
) -> Response {
    let asked = match held(&gate, &caller, &key, &request) {
        Ok(asked) => asked,
        Err(refused) => return *refused,
    };
    match volume_restore::restore(&gate.cell, &asked, request.into_body()).await {
        Ok(totals) => axum::Json(totals).into_response(),
        Err(problem) => answer(&problem),
    }
}

/// For the destination of a move that the leader has told this node of, and nobody else.
async fn content(
    State(gate): State<Arc<PeerApi>>,
    KnownCaller(caller): KnownCaller,
    Key(key): Key,
    request: Request,
) -> Response {
    if !gate.may_reach(&caller, &key) {
        return answer(&problem::no_member(&caller.node));
    }
    let AskedContent { volume, order } = match asked(request).await {
        Ok(asked) => asked,
        Err(status) => return status.into_response(),
    };
    let may = gate.cell.volume_exports.lock().get(&order).is_some_and(|export| {
        export.dst == caller.node
            && export.deployment == volume.deployment
            && export.volumes.contains(&volume.name)
    });
    if !may {
        return StatusCode::FORBIDDEN.into_response();
    }
    match gate.cell.runtime.volume_dir(&volume).await {
        Ok(Some(dir)) => {
            tracing::info!(%volume, to = %caller.node, "a volume is read by another node");
            Response::new(volume_stream::content(dir, false))
        }
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        Err(error) => answer(&problem::runtime(&error)),
    }
}

async fn size(
    State(gate): State<Arc<PeerApi>>,
    KnownCaller(caller): KnownCaller,
    Key(key): Key,
    request: Request,
) -> Response {
    if !gate.may_ask(&caller, &key) {
        return no_server(&caller);
    }
    let volume: VolumeRef = match asked(request).await {
        Ok(volume) => volume,
        Err(status) => return status.into_response(),
    };
    axum::Json(volume_copy::size(&gate.cell.runtime, &volume).await).into_response()
}
