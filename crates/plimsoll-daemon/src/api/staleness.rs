//! How fresh an answer is. Every read carries it in its headers: what this node had applied, who leads by its knowledge,
//! and how long ago it last heard so.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use hyper::Method;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use super::context::Context;
use plimsoll_api::view::{Freshness, freshness};

pub(super) async fn stamp(
    State(context): State<Arc<Context>>,
    request: Request,
    next: Next,
) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    // Before the answer is made, so that it is never older than it says.
    let fresh = context.freshness();
    let mut response = next.run(request).await;
    write(&fresh, response.headers_mut());
    response
}

fn write(fresh: &Freshness, headers: &mut HeaderMap) {
    let mut put = |name: &'static str, value: Option<String>| {
        let value = value.and_then(|value| HeaderValue::from_str(&value).ok());
        if let Some(value) = value {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    put(freshness::NODE, Some(fresh.node.clone()));
    put(freshness::LEADER, fresh.leader.clone());
    put(freshness::TERM, Some(fresh.term.to_string()));
    put(freshness::APPLIED, Some(fresh.applied.to_string()));
    put(freshness::LAG, Some(fresh.lag.to_string()));
    put(freshness::HEARD, fresh.heard_ms.map(|heard| heard.to_string()));
}
