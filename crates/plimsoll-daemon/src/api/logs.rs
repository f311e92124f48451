//! What replicas printed, as JSON lines. Whose lines are asked for is settled here; `places` fetches them from the nodes
//! that have them, and `follow` goes on with what comes.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use plimsoll_model::{DeploymentName, NodeId, ReplicaId, ServiceName};
use plimsoll_runtime::Tag;
use tokio::sync::mpsc;

use super::answer::{Answer, with_type};
use super::connections::ended;
use super::context::Context;
use super::extract::{Named, QueryParams};
use super::fan_out::{FanOut, OpenLogs};
use super::follow;
use crate::operations::{Error, find_deployment, find_replica, find_service};
use plimsoll_api::view::{LogLine, LogPiece, LogQuery, MissingLogs, Problem, Time};

/// How many containers' logs one request may read at once.
pub(super) const MAX_LOGS: usize = 1_000;

/// Lines that may wait for a slow reader; beyond it nothing more is read for it.
pub(super) const LINES_AHEAD: usize = 64;

/// Whose lines are asked for.
#[derive(Debug, Clone)]
pub(super) enum Of {
    Replica(ReplicaId),
    Services { deployment: DeploymentName, service: Option<ServiceName> },
}

/// What one replica printed, as JSON lines
#[utoipa::path(get, path = "/v1/replicas/{id}/logs", tag = "read",
    params(("id" = String, Path), LogQuery),
    responses((status = 200, content_type = "application/x-ndjson", body = LogPiece),
        (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn of_replica(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
    QueryParams(query): QueryParams<LogQuery>,
) -> Answer {
    let replica = context.cell.engine.machine().read(|state| find_replica(state, &name))?;
    lines(context, Of::Replica(replica), &query).await
}

/// What all replicas of a deployment printed, as JSON lines
#[utoipa::path(get, path = "/v1/deployments/{name}/logs", tag = "read",
    params(("name" = String, Path), LogQuery),
    responses((status = 200, content_type = "application/x-ndjson", body = LogPiece),
        (status = 404, body = Problem), (status = 409, body = Problem), (status = 422, body = Problem)))]
pub(super) async fn of_deployment(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
    QueryParams(query): QueryParams<LogQuery>,
) -> Answer {
    let of = context.cell.engine.machine().read(|state| {
        let deployment = find_deployment(state, &name)?;
        let own = state.services().iter().filter(|(key, _)| key.deployment == deployment);
        let services = own.map(|(key, row)| (key.service.clone(), row)).collect();
        let service = query.service.as_deref();
        let service = service.map(|name| find_service(&deployment, &services, name)).transpose()?;
        Ok::<_, Error>(Of::Services { deployment, service })
    })?;
    lines(context, of, &query).await
}

async fn lines(context: Arc<Context>, of: Of, query: &LogQuery) -> Answer {
    let held = of.held(&context);
    if held.len() > MAX_LOGS {
        return Err(Error::TooManyLogs { replicas: held.len(), max: MAX_LOGS }.into());
    }
    let runtime_query = plimsoll_runtime::LogQuery {
        since: query.since.map(|Time(since)| since),
        tail: query.tail.map(|tail| usize::try_from(tail).unwrap_or(usize::MAX)),
        follow: false,
    };
    let places = Arc::new(FanOut::new(&context));
    let opened = places.open(held, runtime_query).await;
    let (sender, receiver) = mpsc::channel(LINES_AHEAD);
    let reader = Reader { sender };
    if query.follow {
        let query = plimsoll_runtime::LogQuery { follow: true, ..runtime_query };
        tokio::spawn(follow::follow(context, places, opened, of, query, reader));
    } else {
        opened.check()?;
        tokio::spawn(async move {
            tokio::select! {
                () = ended(context.ending.clone()) => {}
                () = reader.gone() => {}
                () = opened.tell(&reader, |_, _| {}) => {}
            }
        });
    }
    Ok(streamed(receiver))
}

impl Of {
    /// The containers that are meant as of now, and the nodes that have them.
    pub(super) fn held(&self, context: &Context) -> BTreeMap<Tag, NodeId> {
        context.cell.engine.machine().read(|state| {
            let held = |id: &ReplicaId| -> Vec<(Tag, NodeId)> {
                let held = state.replica(id).into_iter().flat_map(plimsoll_model::Replica::holds);
                held.map(|assignment| {
                    let (cell_id, replica) = (state.cell_id().clone(), id.clone());
                    let tag = Tag { cell_id, replica, generation: assignment.generation };
                    (tag, assignment.node.clone())
                })
                .collect()
            };
            match self {
                Self::Replica(id) => held(id).into_iter().collect(),
                Self::Services { deployment, service } => {
                    let own = state.services().iter().filter(|(key, _)| {
                        key.deployment == *deployment
                            && service.as_ref().is_none_or(|service| key.service == *service)
                    });
                    let ids = own.flat_map(|(key, row)| {
                        row.replicas.keys().map(|slot| ReplicaId::new(key.clone(), slot.clone()))
                    });
                    ids.flat_map(|id| held(&id)).collect()
                }
            }
        })
    }

    /// Whether there is anything that could print still.
    pub(super) fn exists(&self, context: &Context) -> bool {
        context.cell.engine.machine().read(|state| match self {
            Self::Replica(id) => state.replica(id).is_some(),
            Self::Services { deployment, .. } => {
                state.deployments().contains_key(deployment)
                    || state.services().keys().any(|key| key.deployment == *deployment)
            }
        })
    }
}

impl OpenLogs {
    /// Sends what could not be opened, then all lines by time. `seen` hears of each that was sent.
    pub(super) async fn tell(
        mut self,
        reader: &Reader,
        mut seen: impl FnMut(&Tag, &crate::log_merge::MergedLine),
    ) {
        for missing in std::mem::take(&mut self.missing) {
            if !reader.miss(missing).await {
                return;
            }
        }
        let mut lines = self.lines();
        while let Some(next) = lines.next().await {
            let is_heard = match next {
                Ok((tag, line)) => {
                    seen(&tag, &line);
                    reader.send(line.view(&tag)).await
                }
                Err(missing) => reader.miss(missing).await,
            };
            if !is_heard {
                return;
            }
        }
    }
}

/// The far end of a stream of lines.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    sender: mpsc::Sender<Bytes>,
}

impl Reader {
    /// False once nobody reads any more.
    pub(super) async fn send(&self, line: LogLine) -> bool {
        self.put(&LogPiece::Line(line)).await
    }

    /// Says whose lines are not among those sent.
    pub(super) async fn miss(&self, missing: MissingLogs) -> bool {
        self.put(&LogPiece::Missing(missing)).await
    }

    pub(super) async fn gone(&self) {
        self.sender.closed().await;
    }

    async fn put(&self, value: &LogPiece) -> bool {
        let mut line = serde_json::to_vec(value).expect("views have string keys only");
        line.push(b'\n');
        self.sender.send(Bytes::from(line)).await.is_ok()
    }
}

fn streamed(receiver: mpsc::Receiver<Bytes>) -> Response {
    let lines = unfold(receiver, async |mut receiver| {
        let line = receiver.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(line), receiver))
    });
    with_type("application/x-ndjson", Body::from_stream(lines))
}
