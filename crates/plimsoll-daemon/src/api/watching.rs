//! Server-sent events: what changes, and what happens. A reader goes at its own pace through rings that are kept anyway, so
//! a slow one costs nothing; one that falls behind is told so.

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use futures_util::stream::unfold;
use plimsoll_model::DeploymentName;
use plimsoll_model::access::Scope;
use plimsoll_store::{Lagged, Machine, Watcher};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::answer::Answer;
use super::connections::ended;
use super::context::Context;
use super::extract::QueryParams;
use super::scope::{self, Within};
use crate::operations;
use crate::views;
use plimsoll_api::view::{AuditEvent, Changed, Time};

/// Often enough that nobody on the way takes the connection for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct WatchQuery {
    /// Begin with what changed after this index of the log; from now on where it is left out.
    after: Option<u64>,
    /// Only what changes of this deployment, or of a node that holds some of it.
    deployment: Option<String>,
}

/// What changes, as server-sent events; `Last-Event-ID` resumes behind that index of the log
#[utoipa::path(get, path = "/v1/watch", tag = "read", params(WatchQuery),
    responses((status = 200, content_type = "text/event-stream", body = Changed)))]
pub(super) async fn watch(
    State(context): State<Arc<Context>>,
    QueryParams(query): QueryParams<WatchQuery>,
    within: Within,
    headers: HeaderMap,
) -> Answer {
    if let Some(deployment) = &query.deployment {
        scope::check(&within, deployment)?;
    }
    let only = query.deployment.map(DeploymentName::new).transpose();
    let only = only.map_err(operations::Error::Name)?;
    let machine = context.cell.engine.machine();
    let after = last_event_id(&headers).or(query.after);
    let after = after.unwrap_or_else(|| *machine.applied().borrow());
    let (machine, ending) = (Arc::clone(machine), context.ending.clone());
    let watcher = machine.watch(after.saturating_add(1));
    let changes = unfold((watcher, only), move |(mut watcher, only)| {
        let (machine, ending) = (Arc::clone(&machine), ending.clone());
        let Within(scope) = within.clone();
        async move {
            let changed = tokio::select! {
                biased;
                () = ended(ending) => return None,
                changed = next_of(&machine, &mut watcher, only.as_ref(), &scope) => changed,
            };
            Some((event("changed", changed.index, &changed), (watcher, only)))
        }
    });
    Ok(events(changes))
}

/// The next change of what is watched: everything that may be seen, or one deployment.
async fn next_of(
    machine: &Machine,
    watcher: &mut Watcher,
    only: Option<&DeploymentName>,
    scope: &Scope,
) -> Changed {
    loop {
        let applied = match watcher.next().await {
            Ok(applied) => applied,
            Err(lagged) => return missed(lagged),
        };
        let changed = match only {
            None if scope.is_bound() => views::changed_within(scope, &applied),
            None => Some(views::changed(&applied)),
            Some(name) => machine.read(|state| views::changed_of(state, name, &applied)),
        };
        if let Some(changed) = changed {
            return changed;
        }
    }
}

fn missed(lagged: Lagged) -> Changed {
    Changed {
        index: lagged.resume.saturating_sub(1),
        nodes: Vec::new(),
        deployments: Vec::new(),
        replicas: Vec::new(),
        lagged: true,
    }
}

/// The events asked for, and then those to come. `Last-Event-ID` resumes behind that number.
pub(super) fn follow_audit(
    context: &Arc<Context>,
    since: Option<Time>,
    kinds: BTreeSet<String>,
    limit: usize,
    headers: &HeaderMap,
) -> Response {
    let machine = Arc::clone(context.cell.engine.machine());
    let applied = machine.applied();
    let (ready, next) = machine.read(|state| match last_event_id(headers) {
        None => {
            let span = views::AuditSpan { since, before: None };
            (views::audit(state, span, &kinds, limit).into(), state.audit().next_seq())
        }
        Some(seen) => (VecDeque::new(), seen.saturating_add(1)),
    });
    let tail = Tail { context: Arc::clone(context), applied, kinds, ready, next };
    let audit_events = unfold(tail, async |mut tail| {
        let told = tail.next().await?;
        Some((event("audit", told.seq, &told), tail))
    });
    events(audit_events)
}

/// A reader of the audit at its end.
struct Tail {
    context: Arc<Context>,
    applied: watch::Receiver<u64>,
    kinds: BTreeSet<String>,
    ready: VecDeque<AuditEvent>,
    next: u64,
}

impl Tail {
    /// The next event of a kind that is asked for; none once the daemon ends.
    async fn next(&mut self) -> Option<AuditEvent> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(ready);
            }
            self.applied.mark_unchanged();
            self.read();
            if !self.ready.is_empty() {
                continue;
            }
            tokio::select! {
                biased;
                () = ended(self.context.ending.clone()) => return None,
                changed = self.applied.changed() => changed.ok()?,
            }
        }
    }

    fn read(&mut self) {
        let Self { context, kinds, ready, next, .. } = self;
        context.cell.engine.machine().read(|state| {
            let new = state.audit().since(*next);
            let asked = new.filter(|new| kinds.is_empty() || kinds.contains(new.what.word()));
            ready.extend(asked.map(views::event));
            *next = state.audit().next_seq();
        });
    }
}

fn last_event_id(headers: &HeaderMap) -> Option<u64> {
    headers.get("last-event-id")?.to_str().ok()?.trim().parse().ok()
}

fn event(kind: &str, id: u64, data: &impl Serialize) -> Event {
    let text = serde_json::to_string(data).expect("views have string keys only");
    Event::default().event(kind).id(id.to_string()).data(text)
}

fn events(stream: impl Stream<Item = Event> + Send + 'static) -> Response {
    use futures_util::StreamExt;
    let stream = stream.map(Ok::<Event, Infallible>);
    Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}
