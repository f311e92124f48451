//! Which path leads where. The description in `/openapi.json` is made of the same handlers, so it lacks none.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Body;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use bytes::Bytes;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::with_type;
use super::context::Context;
use super::{
    backup, cell, dashboard, examples, exec, files, fleet, forward, health, logs, metrics,
    operators, optimize, read, registries, reschedule, rotation, scope, staleness, statuses,
    volume_holds, volumes, watching, write,
};

#[derive(OpenApi)]
#[openapi(
    info(title = "Plimsoll", description = "The API of a Plimsoll cell"),
    tags(
        (name = "read", description = "How things are"),
        (name = "write", description = "What people ask for"),
        (name = "health", description = "Whether the daemon can serve"),
    )
)]
struct Document;

pub(super) fn router(context: Arc<Context>) -> Router {
    let (router, _) = described().split_for_parts();
    router
        .route(dashboard::ROUTE, axum::routing::get(dashboard::file))
        .fallback(health::no_such_path)
        .method_not_allowed_fallback(health::no_such_method)
        .layer(from_fn_with_state(Arc::clone(&context), scope::bound))
        .layer(from_fn_with_state(Arc::clone(&context), staleness::stamp))
        .layer(from_fn_with_state(Arc::clone(&context), forward::pass_on))
        .with_state(context)
}

/// What other nodes pass on to this one, under the same paths.
pub(super) fn for_peers(context: Arc<Context>) -> Router {
    router(Arc::clone(&context)).layer(from_fn_with_state(context, forward::by_peer))
}

/// This description
#[utoipa::path(get, path = "/openapi.json", tag = "health",
    responses((status = 200, body = serde_json::Value)))]
async fn openapi() -> Response {
    static WRITTEN: OnceLock<Bytes> = OnceLock::new();
    let written = WRITTEN.get_or_init(|| {
        let mut document = described().split_for_parts().1;
        statuses::describe(&mut document);
        examples::describe(&mut document);
        serde_json::to_vec(&document).expect("a document has string keys only").into()
    });
    with_type("application/json", Body::from(written.clone()))
}

fn described() -> OpenApiRouter<Arc<Context>> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(openapi))
        .routes(routes!(health::index))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(metrics::metrics))
        .routes(routes!(read::status))
        .routes(routes!(read::nodes))
        .routes(routes!(write::remove_node))
        .routes(routes!(write::cordon))
        .routes(routes!(write::uncordon))
        .routes(routes!(write::drain))
        .routes(routes!(read::deployments))
        .routes(routes!(read::deployment, write::apply, write::delete))
        .routes(routes!(write::scale))
        .routes(routes!(write::rollback))
        .routes(routes!(write::restart))
        .routes(routes!(write::rollout))
        .routes(routes!(read::history))
        .routes(routes!(read::revision))
        .routes(routes!(logs::of_deployment))
        .routes(routes!(read::replicas))
        .routes(routes!(read::replica))
        .routes(routes!(logs::of_replica))
        .routes(routes!(exec::exec))
        .routes(routes!(read::explain))
        .routes(routes!(read::explain_node))
        .routes(routes!(read::pressure))
        .routes(routes!(read::snapshot))
        .routes(routes!(read::what_if))
        .routes(routes!(read::routes))
        .routes(routes!(read::explain_route))
        .routes(routes!(read::certificates))
        .routes(routes!(read::audit))
        .routes(routes!(watching::watch))
        .routes(routes!(backup::backup))
        .routes(routes!(backup::key, backup::rotate_key))
        .routes(routes!(cell::cell))
        .routes(routes!(operators::whoami))
        .routes(routes!(operators::authority))
        .routes(routes!(operators::join_tokens, cell::create_join))
        .routes(routes!(operators::revoke_join))
        .routes(routes!(rotation::rotate, rotation::abort))
        .routes(routes!(reschedule::status, reschedule::set))
        .routes(routes!(optimize::search))
        .routes(routes!(optimize::apply))
        .routes(routes!(fleet::status, fleet::set))
        .routes(routes!(fleet::set_quota))
        .routes(routes!(fleet::create_token))
        .routes(routes!(fleet::expel))
        .routes(routes!(fleet::join, fleet::leave))
        .routes(routes!(cell::operators, cell::add_operator))
        .routes(routes!(cell::revoke_operator))
        .routes(routes!(files::secrets, files::create_secret))
        .routes(routes!(files::secret, files::remove_secret))
        .routes(routes!(files::rotate_secret))
        .routes(routes!(files::configs, files::create_config))
        .routes(routes!(files::config, files::remove_config))
        .routes(routes!(files::rotate_config))
        .routes(routes!(registries::registries, registries::login))
        .routes(routes!(registries::logout))
        .routes(routes!(volumes::volumes))
        .routes(routes!(volumes::volume, volumes::remove))
        .routes(routes!(volumes::move_to))
        .routes(routes!(
            volume_holds::look,
            volume_holds::hold,
            volume_holds::renew,
            volume_holds::end
        ))
        .routes(routes!(volume_holds::content, volume_holds::restore))
}
