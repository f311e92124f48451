//! Commands run beside a replica, on whichever node it is.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request, State};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use plimsoll_model::{AuditEntry, Change, NodeId, Writer};
use plimsoll_runtime::Tag;

use super::answer::{Answer, json, with_type};
use super::connections::ended;
use super::context::Context;
use super::extract::{By, Json, Named};
use super::fan_out::FanOut;
use crate::attached::{DEFAULT_PATIENCE, MAX_PATIENCE};
use crate::operations::{Caller, Error, find_replica};
use plimsoll_api::exec_stream::EXEC_STREAM;
use plimsoll_api::view::{self, Problem, ProblemCode};
use plimsoll_peer::answer_stream;

/// Run a command in a replica, and wait for it
///
/// With the content type `application/vnd.plimsoll.exec` both bodies are streams of frames instead: the command's input, the
/// size of its terminal and signals go one way, what it prints and its exit status come the other, as they happen. A frame is
/// one byte for its kind, four bytes for a length and that many bytes. The first frame of a request is kind 0 and holds JSON:
/// `command`, `timeout_seconds`, `has_input` and `terminal` (`rows`, `columns`, or null). Then follow 1 for input, 2 for its
/// end, 3 for another size, 4 for a signal by name. Answers are 16 and 17 for the two outputs, and last 18 with the exit
/// status, null where it timed out, or 19 with a problem.
#[utoipa::path(post, path = "/v1/replicas/{id}/exec", tag = "write", params(("id" = String, Path)),
    request_body = view::Exec,
    responses((status = 200, body = view::Executed), (status = 404, body = Problem),
        (status = 409, body = Problem), (status = 422, body = Problem)))]
pub(super) async fn exec(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
    By(caller): By,
    request: Request,
) -> Answer {
    let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    if kind == Some(EXEC_STREAM.as_bytes()) {
        return attach(&context, &caller, &name, request).await;
    }
    let Json(asked): Json<view::Exec> = Json::from_request(request, &()).await?;
    if asked.command.is_empty() {
        return Err(Error::NoCommand.into());
    }
    let (tag, node) = held(&context, &caller, &name)?;
    note(&context, &caller, &tag).await;
    let patience = asked.timeout_seconds.map_or(DEFAULT_PATIENCE, Duration::from_secs);
    let (places, patience) = (FanOut::new(&context), patience.min(MAX_PATIENCE));
    tokio::select! {
        done = places.run(&node, &tag, asked.command, patience, &caller.identity) => Ok(json(&done?)),
        () = ended(context.ending.clone()) => {
            Err(Problem::new(ProblemCode::Stopped, "the daemon is shutting down").into())
        }
    }
}

/// Runs a command whose input and output are the frames of the request and its answer.
async fn attach(context: &Context, caller: &Caller, name: &str, request: Request) -> Answer {
    let (tag, node) = held(context, caller, name)?;
    note(context, caller, &tag).await;
    let (stream, body) = answer_stream(request.into_body());
    let (places, ending) = (FanOut::new(context), ended(context.ending.clone()));
    places.attach(&node, tag, &caller.identity, stream, ending).await?;
    Ok(with_type(EXEC_STREAM, Body::new(body)))
}

/// Every command is audited, but for what it is: it may hold a secret. Without a leader it is run all the same, since
/// whoever looks for what is wrong must be able to.
async fn note(context: &Context, caller: &Caller, tag: &Tag) {
    let (by, replica) = (&caller.identity, &tag.replica);
    tracing::info!(%by, %replica, "a command is run");
    let entry = Change::Record { entry: AuditEntry::Exec { replica: replica.clone() } };
    if let Err(error) = context.cell.write(Writer::Operator, by, vec![entry.free()]).await {
        tracing::warn!(%by, %replica, %error, "cannot write the command to the audit log");
    }
}

/// The replica's container, and the node that has it. A container that reaches beyond itself is for admins.
fn held(context: &Context, caller: &Caller, name: &str) -> Result<(Tag, NodeId), Error> {
    context.cell.engine.machine().read(|state| {
        let replica = find_replica(state, name)?;
        let held = state.replica(&replica).and_then(|held| held.assignment.as_ref());
        let Some(assignment) = held else { return Err(Error::NotAssigned { replica }) };
        let service = state.service(&replica.service);
        if let Some(spec) = service.and_then(|service| service.spec_of(assignment)) {
            caller.check_entry(&replica.service.service, spec, state)?;
        }
        let (cell_id, generation) = (state.cell_id().clone(), assignment.generation);
        Ok((Tag { cell_id, replica, generation }, assignment.node.clone()))
    })
}
