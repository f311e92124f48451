//! Commands run beside a replica.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plimsoll_runtime::{Exec, Outcome, Tag};

use super::answer::{Answer, json};
use super::connections::ended;
use super::context::Context;
use super::extract::{By, Json, Named};
use crate::operations::{Error, find_replica};
use crate::view::{self, Problem};

/// How long a command may take when nobody says, and at most.
const DEFAULT_PATIENCE: Duration = Duration::from_hours(1);
const MAX_PATIENCE: Duration = Duration::from_hours(24);

/// Run a command beside a replica, and wait for it
#[utoipa::path(post, path = "/v1/replicas/{id}/exec", tag = "write", params(("id" = String, Path)),
    request_body = view::Exec,
    responses((status = 200, body = view::Executed), (status = 409, body = Problem)))]
pub(super) async fn exec(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
    By(caller): By,
    Json(asked): Json<view::Exec>,
) -> Answer {
    if asked.command.is_empty() {
        return Err(Error::NoCommand.into());
    }
    let tag = tag(&context, &name)?;
    // The command itself may hold a secret, and is nobody else's business.
    tracing::info!(by = %caller.0, replica = %tag.replica, "a command is run");
    let patience = asked.timeout_seconds.map_or(DEFAULT_PATIENCE, Duration::from_secs);
    let exec = Exec::new(asked.command).timeout(patience.min(MAX_PATIENCE));
    let executed = tokio::select! {
        executed = context.cell.runtime.exec(&tag, &exec) => executed.map_err(Error::Runtime)?,
        () = ended(context.ending.clone()) => {
            return Err(Problem::failure("stopped", "the daemon is going down").into());
        }
    };
    Ok(json(&view::Executed {
        status: match executed.outcome {
            Outcome::Done { status } => Some(status),
            Outcome::TimedOut => None,
        },
        stdout: STANDARD.encode(&executed.stdout),
        stderr: STANDARD.encode(&executed.stderr),
        is_cut: executed.is_cut,
    }))
}

/// The replica's container on this node.
fn tag(context: &Context, name: &str) -> Result<Tag, Error> {
    context.cell.engine.machine().read(|state| {
        let replica = find_replica(state, name)?;
        let held = state.replica(&replica).and_then(|held| held.assignment.as_ref());
        let Some(assignment) = held else { return Err(Error::NotAssigned { replica }) };
        if assignment.node != context.cell.node {
            return Err(Error::Elsewhere { node: assignment.node.clone(), replica });
        }
        let (cluster, generation) = (state.cluster().clone(), assignment.generation);
        Ok(Tag { cluster, replica, generation })
    })
}
