//! The nodes that have what is asked for: this one is read directly, the others over the peer port.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::BoxStream;
use plimsoll_model::NodeId;
use plimsoll_runtime::{LogQuery, Tag};

use super::answer::ErrorResponse;
use super::context::Context;
use crate::attached;
use crate::context::NodeContext;
use crate::log_merge::{self, Lines, MergedLine, Told};
use crate::peer_api::containers;
use plimsoll_api::view::{Executed, MissingLogs, Problem, ProblemCode};
use plimsoll_peer::{Inward, PeerClient, Target};

/// How the nodes of the cell are asked for their containers, on behalf of one request.
#[derive(Debug)]
pub(super) struct FanOut {
    cell: NodeContext,
    /// With connections of its own: whoever does not read what they asked for holds up nobody else.
    client: Option<PeerClient>,
}

/// One node's containers, and their lines or why there are none.
type Answered = (NodeId, Vec<Tag>, Result<Lines, Problem>);

/// The lines of containers on several nodes.
pub(super) struct OpenLogs {
    open: Vec<(NodeId, Vec<Tag>, Lines)>,
    /// Nodes that did not answer.
    pub(super) missing: Vec<MissingLogs>,
    /// What the first of them said.
    failed: Option<Problem>,
    /// What a node said that has none of its containers.
    absent: Option<Problem>,
}

impl FanOut {
    pub(super) fn new(context: &Context) -> Self {
        let client = context.client.get().map(PeerClient::apart);
        Self { cell: context.cell.clone(), client }
    }

    /// Asks all nodes at once for the lines of their containers.
    pub(super) async fn open(&self, held: BTreeMap<Tag, NodeId>, query: LogQuery) -> OpenLogs {
        let mut nodes: BTreeMap<NodeId, Vec<Tag>> = BTreeMap::new();
        for (tag, node) in held {
            nodes.entry(node).or_default().push(tag);
        }
        let answers = nodes.into_iter().map(async |(node, tags)| -> Answered {
            let lines = self.lines(&node, &tags, query).await;
            (node, tags, lines)
        });
        OpenLogs::of(join_all(answers).await)
    }

    /// The lines of these containers, which are all on that node.
    pub(super) async fn lines(
        &self,
        node: &NodeId,
        tags: &[Tag],
        query: LogQuery,
    ) -> Result<Lines, Problem> {
        if *node == self.cell.node {
            let lines = log_merge::here(&self.cell.runtime, tags, query).await;
            return lines.map_err(|error| Problem::from(&error));
        }
        let (client, target) = self.way(node)?;
        containers::read_logs(client, &target, tags, query).await
    }

    /// Runs a command beside a container of that node.
    pub(super) async fn run(
        &self,
        node: &NodeId,
        tag: &Tag,
        command: Vec<String>,
        timeout: std::time::Duration,
        by: &str,
    ) -> Result<Executed, ErrorResponse> {
        if *node == self.cell.node {
            let done = containers::run_here(&self.cell.runtime, tag, command, timeout).await;
            return Ok(done?);
        }
        let (client, target) = self.way(node)?;
        Ok(containers::run(client, &target, tag, command, timeout, by).await?)
    }

    /// Runs a command beside a container of that node with its input and output passed on, as frames of the stream.
    pub(super) async fn attach(
        &self,
        node: &NodeId,
        tag: Tag,
        by: &str,
        stream: Inward,
        ending: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), Problem> {
        if *node == self.cell.node {
            let runtime = Arc::clone(&self.cell.runtime);
            tokio::spawn(attached::while_open(attached::serve(runtime, tag, stream), ending));
            return Ok(());
        }
        let (client, target) = self.way(node)?;
        let far = containers::attach_to(client, &target, &tag, by).await?;
        tokio::spawn(attached::while_open(attached::relay(stream, far), ending));
        Ok(())
    }

    pub(super) fn way(&self, node: &NodeId) -> Result<(&PeerClient, Target), Problem> {
        let machine = self.cell.engine.machine();
        let address =
            machine.read(|state| state.node(node).and_then(|it| it.facts.address.clone()));
        let address = address.filter(|address| !address.is_empty());
        let target = Target { node: node.clone(), address: address.clone().unwrap_or_default() };
        match (&self.client, address) {
            (Some(client), Some(_)) => Ok((client, target)),
            (None, _) => Err(containers::unreachable(&target, "this node speaks to no other")),
            (_, None) => Err(containers::unreachable(&target, "nobody knows its address")),
        }
    }
}

/// That some lines are not to be had.
pub(super) fn missing(node: &NodeId, tags: &[Tag], problem: &Problem) -> MissingLogs {
    let mut replicas: Vec<String> = tags.iter().map(|tag| tag.replica.to_string()).collect();
    replicas.dedup();
    MissingLogs { node: node.to_string(), replicas, why: problem.message.clone() }
}

/// Whether it says only that the containers are not there.
pub(super) fn is_absent(problem: &Problem) -> bool {
    problem.code == ProblemCode::NotHere
}

impl OpenLogs {
    fn of(answers: Vec<Answered>) -> Self {
        let (mut absent, mut failed) = (None, None);
        let (mut open, mut misses) = (Vec::new(), Vec::new());
        for (node, tags, lines) in answers {
            match lines {
                Ok(lines) => open.push((node, tags, lines)),
                Err(problem) if is_absent(&problem) => absent = Some(problem),
                Err(problem) => {
                    misses.push(missing(&node, &tags, &problem));
                    failed = failed.or(Some(problem));
                }
            }
        }
        Self { open, missing: misses, failed, absent }
    }

    /// Refuses when there is nothing at all to be had.
    pub(super) fn check(&self) -> Result<(), ErrorResponse> {
        let problem = self.failed.as_ref().or(self.absent.as_ref());
        match problem {
            Some(problem) if self.open.is_empty() => Err(problem.clone().into()),
            _ => Ok(()),
        }
    }

    /// All lines by time, and each node that ends before its lines do.
    pub(super) fn lines(self) -> BoxStream<'static, Result<Told, MissingLogs>> {
        let (whose, lines): (Vec<_>, Vec<Lines>) =
            self.open.into_iter().map(|(node, tags, lines)| ((node, tags), lines)).unzip();
        let whose = Arc::new(whose);
        let told = log_merge::merge(lines).filter_map(move |(place, line)| {
            let whose = Arc::clone(&whose);
            async move {
                let (node, tags) = &whose[place];
                match line {
                    // A node that speaks of what it was not asked for is not heard.
                    Ok(line) => Some(Ok(attributed(tags, line)?)),
                    Err(problem) => Some(Err(missing(node, tags, &problem))),
                }
            }
        });
        told.boxed()
    }
}

/// The line with whose it is.
pub(super) fn attributed(tags: &[Tag], line: MergedLine) -> Option<Told> {
    Some((tags.get(line.of)?.clone(), line))
}
