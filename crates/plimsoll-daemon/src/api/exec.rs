//! Commands run beside a replica, on whichever node it is.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use plimsoll_model::{AuditEntry, Change, NodeId, Writer};
use plimsoll_runtime::Tag;

use super::answer::{Answer, json};
use super::connections::ended;
use super::context::Context;
use super::extract::{By, Json, Named};
use super::fan_out::FanOut;
use crate::operations::{Caller, Error, find_replica};
use plimsoll_api::view::{self, Problem, ProblemCode};

/// How long a command may take when nobody says, and at most.
const DEFAULT_PATIENCE: Duration = Duration::from_hours(1);
pub(super) const MAX_PATIENCE: Duration = Duration::from_hours(24);

/// Run a command in a replica, and wait for it
#[utoipa::path(post, path = "/v1/replicas/{id}/exec", tag = "write", params(("id" = String, Path)),
    request_body = view::Exec,
    responses((status = 200, body = view::Executed), (status = 404, body = Problem),
        (status = 409, body = Problem), (status = 422, body = Problem)))]
pub(super) async fn exec(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
    By(caller): By,
    Json(asked): Json<view::Exec>,
) -> Answer {
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
