//! The background rescheduler: what it does, and whether it may.

use std::sync::Arc;

use axum::extract::State;

use super::answer::Answer;
use super::context::Context;
use super::extract::{By, Json};
use crate::operations;
use crate::views;
use plimsoll_api::view::{self, Problem};

/// What the rescheduler does or would do, what held it back, and what automatic moves were worth
#[utoipa::path(get, path = "/v1/reschedule", tag = "read", operation_id = "reschedule_status",
    responses((status = 200, body = view::RescheduleStatus)))]
pub(super) async fn status(State(context): State<Arc<Context>>) -> Answer {
    told(&context).await
}

/// Pause or resume the rescheduler, or give it another target
#[utoipa::path(post, path = "/v1/reschedule", tag = "write", operation_id = "set_rescheduling",
    request_body = view::SetRescheduling,
    responses((status = 200, body = view::RescheduleStatus), (status = 422, body = Problem)))]
pub(super) async fn set(
    State(context): State<Arc<Context>>,
    By(caller): By,
    Json(asked): Json<view::SetRescheduling>,
) -> Answer {
    operations::set_rescheduling(&context.cell, &caller, &asked).await?;
    told(&context).await
}

async fn told(context: &Arc<Context>) -> Answer {
    let leader = context.cell.leader.clone();
    context
        .look(move |source| {
            let leader = leader.lock();
            let rescheduler = leader.as_ref().map(plimsoll_kernel::Leader::rescheduler);
            Ok(views::reschedule_status(source, rescheduler))
        })
        .await
}
