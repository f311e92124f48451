//! What replicas printed, as JSON lines. Whose lines are asked for is settled here, how they are read in `follow`.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::unfold;
use plimsoll_model::{DeploymentName, NodeId, ReplicaId, ServiceName};
use plimsoll_runtime::{Logs, Output, Tag};
use tokio::sync::mpsc;

use super::answer::{Answer, with_type};
use super::connections::ended;
use super::context::Context;
use super::extract::{Asked, Named};
use super::follow;
use crate::operations::{Error, find_deployment, find_replica, find_service};
use crate::view::{LogLine, LogQuery, Problem, Time};

/// How many containers' logs one request may read at once.
pub(super) const MAX_LOGS: usize = 1_000;

/// Lines that may wait for a slow reader; beyond it nothing more is read for it.
const LINES_AHEAD: usize = 64;

/// Whose lines are asked for.
#[derive(Debug, Clone)]
pub(super) enum Of {
    Replica(ReplicaId),
    Services { deployment: DeploymentName, service: Option<ServiceName> },
}

/// What one replica printed, as JSON lines
#[utoipa::path(get, path = "/v1/replicas/{id}/logs", tag = "read",
    params(("id" = String, Path), LogQuery),
    responses((status = 200, content_type = "application/x-ndjson", body = LogLine),
        (status = 404, body = Problem)))]
pub(super) async fn of_replica(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
    Asked(query): Asked<LogQuery>,
) -> Answer {
    let of = context.cell.engine.machine().read(|state| {
        let id = find_replica(state, &name)?;
        let held = state.replica(&id).into_iter().flat_map(plimsoll_model::Replica::holds);
        let nodes: Vec<&NodeId> = held.map(|assignment| &assignment.node).collect();
        match nodes.last() {
            Some(last) if !nodes.contains(&&context.cell.node) => {
                Err(Error::Elsewhere { node: NodeId::clone(last), replica: id })
            }
            _ => Ok(Of::Replica(id)),
        }
    })?;
    lines(context, of, &query).await
}

/// What all replicas of a deployment printed, as JSON lines
#[utoipa::path(get, path = "/v1/deployments/{name}/logs", tag = "read",
    params(("name" = String, Path), LogQuery),
    responses((status = 200, content_type = "application/x-ndjson", body = LogLine),
        (status = 404, body = Problem)))]
pub(super) async fn of_deployment(
    State(context): State<Arc<Context>>,
    Named(name): Named<String>,
    Asked(query): Asked<LogQuery>,
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
    let tags = of.tags(&context);
    if tags.len() > MAX_LOGS {
        return Err(Error::TooManyLogs { replicas: tags.len(), max: MAX_LOGS }.into());
    }
    let runtime_query = plimsoll_runtime::LogQuery {
        since: query.since.map(|Time(since)| since),
        tail: query.tail.map(|tail| usize::try_from(tail).unwrap_or(usize::MAX)),
        follow: query.follow,
    };
    let (sender, receiver) = mpsc::channel(LINES_AHEAD);
    let reader = Reader { sender };
    if query.follow {
        tokio::spawn(follow::follow(context, of, runtime_query, reader));
    } else {
        let logs = open(&context, tags, runtime_query).await?;
        tokio::spawn(async move {
            tokio::select! {
                () = ended(context.ending.clone()) => {}
                () = reader.gone() => {}
                () = merge(logs, &reader) => {}
            }
        });
    }
    Ok(streamed(receiver))
}

impl Of {
    /// The containers on this node that are meant, as of now.
    pub(super) fn tags(&self, context: &Context) -> BTreeSet<Tag> {
        context.cell.engine.machine().read(|state| {
            let tags = |id: &ReplicaId| -> Vec<Tag> {
                let held = state.replica(id).into_iter().flat_map(plimsoll_model::Replica::holds);
                held.filter(|assignment| assignment.node == context.cell.node)
                    .map(|assignment| Tag {
                        cluster: state.cluster().clone(),
                        replica: id.clone(),
                        generation: assignment.generation,
                    })
                    .collect()
            };
            match self {
                Self::Replica(id) => tags(id).into_iter().collect(),
                Self::Services { deployment, service } => {
                    let own = state.services().iter().filter(|(key, _)| {
                        key.deployment == *deployment
                            && service.as_ref().is_none_or(|service| key.service == *service)
                    });
                    let ids = own.flat_map(|(key, row)| {
                        row.replicas.keys().map(|slot| ReplicaId::new(key.clone(), slot.clone()))
                    });
                    ids.flat_map(|id| tags(&id)).collect()
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

/// Opens the logs of all of them. One whose container is not there has printed nothing, unless it is the only one.
async fn open(
    context: &Context,
    tags: BTreeSet<Tag>,
    query: plimsoll_runtime::LogQuery,
) -> Result<Vec<(Tag, Logs)>, Error> {
    let mut opened = Vec::with_capacity(tags.len());
    let mut absent = None;
    for tag in tags {
        match context.cell.runtime.logs(&tag, query).await {
            Ok(logs) => opened.push((tag, logs)),
            Err(error @ plimsoll_runtime::Error::Absent { .. }) => absent = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    match absent {
        Some(error) if opened.is_empty() => Err(error.into()),
        _ => Ok(opened),
    }
}

/// Sends the lines of all by the time they were printed.
async fn merge(mut logs: Vec<(Tag, Logs)>, reader: &Reader) {
    let mut heads = BinaryHeap::new();
    let mut lines = vec![None; logs.len()];
    let mut due: Vec<usize> = (0..logs.len()).collect();
    loop {
        for at in due.drain(..) {
            match logs[at].1.next().await {
                None => {}
                Some(Ok(line)) => {
                    heads.push(Reverse((line.at, at)));
                    lines[at] = Some(line);
                }
                Some(Err(error)) => return reader.fail(&Error::Runtime(error)).await,
            }
        }
        let Some(Reverse((_, at))) = heads.pop() else { return };
        let Some(line) = lines[at].take() else { return };
        if !reader.send(&logs[at].0, &line).await {
            return;
        }
        due.push(at);
    }
}

/// The far end of a stream of lines.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    sender: mpsc::Sender<Bytes>,
}

impl Reader {
    /// False once nobody reads any more.
    pub(super) async fn send(&self, tag: &Tag, line: &plimsoll_runtime::LogLine) -> bool {
        let view = LogLine {
            replica: tag.replica.to_string(),
            at: Time(line.at),
            from: match line.from {
                Output::Stdout => "stdout",
                Output::Stderr => "stderr",
            }
            .to_owned(),
            text: String::from_utf8_lossy(&line.text).into_owned(),
        };
        self.put(&view).await
    }

    /// Says what went wrong, as the last line.
    pub(super) async fn fail(&self, error: &Error) {
        self.put(&Problem::from(error)).await;
    }

    pub(super) async fn gone(&self) {
        self.sender.closed().await;
    }

    async fn put(&self, value: &impl serde::Serialize) -> bool {
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
