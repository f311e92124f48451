//! How fresh an answer is. Every read carries it in its headers: what this node had applied, who leads by its knowledge,
//! and how long ago it last heard so. And every answer says which authorities the cell has, so that whoever recognises its nodes
//! by one of them learns of another while both are good.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use hyper::Method;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use plimsoll_model::access::Authority as StoredAuthority;

use super::context::Context;
use plimsoll_api::view::{AUTHORITIES, AuthorityNotice, Freshness, freshness};
use plimsoll_peer::pki::{Authority, AuthorityParts, Fingerprint};

pub(super) async fn stamp(
    State(context): State<Arc<Context>>,
    request: Request,
    next: Next,
) -> Response {
    // Before the answer is made, so that it is never older than it says.
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let fresh = is_read.then(|| context.freshness());
    let mut response = next.run(request).await;
    if let Some(fresh) = fresh {
        write(&fresh, response.headers_mut());
    }
    // After it: what was just begun is what its asker must hear of.
    if let Some(notice) = authorities(&context)
        && let Ok(value) = HeaderValue::from_str(&notice.to_string())
    {
        response.headers_mut().insert(HeaderName::from_static(AUTHORITIES), value);
    }
    response
}

/// None before the cell has one, and on a node without the log, which has others answer.
fn authorities(context: &Context) -> Option<Arc<AuthorityNotice>> {
    let (cell_id, epoch, all) = context.cell.engine.machine().read(|state| {
        let access = state.access();
        let other = access.rotation.as_ref().map(|rotation| &rotation.other);
        let all: Vec<StoredAuthority> = access.authority.iter().chain(other).cloned().collect();
        (state.cell_id().clone(), access.authority_epoch, all)
    });
    let fingerprints: Vec<String> =
        all.iter().map(|it| Fingerprint::of(&it.certificate).to_string()).collect();
    let mut known = context.notice.lock();
    if let Some(known) = known.as_ref()
        && (known.epoch, &known.fingerprints) == (epoch, &fingerprints)
    {
        return Some(Arc::clone(known));
    }
    // Signed once for each change, and by each: whoever knows one of them has its word.
    let text = AuthorityNotice::text(epoch, &fingerprints);
    let signatures = all.into_iter().map(|StoredAuthority { certificate, key }| {
        let parts = AuthorityParts { cell_id: cell_id.clone(), certificate, key };
        Authority::from_parts(&parts).ok()?.sign(text.as_bytes()).ok()
    });
    let signatures = signatures.collect::<Option<Vec<_>>>().filter(|all| !all.is_empty())?;
    let notice = Arc::new(AuthorityNotice { epoch, fingerprints, signatures });
    *known = Some(Arc::clone(&notice));
    Some(notice)
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
