//! Builds of two levels in one cell: what each node can read, when the leader raises the cell's level, and what a node is
//! told that cannot follow. Why one number is enough is in ADR 16.

use std::collections::BTreeMap;

use axum::response::{IntoResponse, Response};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use plimsoll_kernel::level;
use plimsoll_model::level::{VERSION, outdated, remedy};
use plimsoll_model::{Change, Level, NodeId, State, Writer};
use plimsoll_store::{Engine, Member};

use super::reach;
use crate::context::NodeContext;
use plimsoll_api::view::{Problem, ProblemCode};

/// What a node can read, said when it opens its link. In a header, since also who shares no frame with it must read it.
const LEVEL: HeaderName = HeaderName::from_static("plimsoll-level");

/// The version of its program.
const PROGRAM: HeaderName = HeaderName::from_static("plimsoll-version");

/// Why a node is turned away. Not in the body, for the reason that `reach::LEADER` gives.
const REASON: HeaderName = HeaderName::from_static("plimsoll-outdated");

/// Who the audit says it was.
const IDENTITY: &str = "leader";

/// What this build says of itself.
pub fn announcement() -> HeaderMap {
    let level = (LEVEL, HeaderValue::from(Level::BUILD.0));
    HeaderMap::from_iter([level, (PROGRAM, HeaderValue::from_static(VERSION))])
}

/// What a caller can read, and its version. One that does not say is of the first level.
pub fn announced(headers: &HeaderMap) -> (Level, String) {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let level = text(LEVEL).and_then(|text| text.parse().ok()).map_or(Level::FIRST, Level);
    (level, text(PROGRAM).unwrap_or("unknown").to_owned())
}

/// Why a node of this version cannot be of the cell; none if it can.
pub fn refusal(cell: &NodeContext, reads: Level, version: &str) -> Option<Problem> {
    let speaks = cell.engine.machine().level();
    (reads < speaks).then(|| problem(version, speaks, Some(&example(cell))))
}

/// The answer to a node that is too old for its link. It will ask again and again; here it is said once.
pub fn turn_away(cell: &NodeContext, node: &NodeId, problem: Problem) -> Response {
    let text = serde_json::to_string(&problem).expect("problems have string keys only");
    let mut answer = StatusCode::UPGRADE_REQUIRED.into_response();
    if let Ok(text) = HeaderValue::try_from(text) {
        answer.headers_mut().insert(REASON, text);
    }
    let message = problem.message.clone();
    if cell.levels.lock().turn_away(node, problem) {
        tracing::warn!(%node, "turned away: {message}");
    }
    answer
}

/// What the leader said when it turned this node away.
pub fn reason(headers: &HeaderMap) -> Problem {
    let said = headers.get(REASON).and_then(|text| serde_json::from_slice(text.as_bytes()).ok());
    said.unwrap_or_else(|| Problem::new(ProblemCode::Outdated, "this node is too old for its cell"))
}

/// What this node is told, or tells, where the cell has outgrown it.
pub fn outgrown(cell: &NodeContext, speaks: Level) -> Problem {
    let leader = reach::leader(cell).map(|leader| leader.node.to_string());
    problem(VERSION, speaks, leader.as_deref())
}

fn problem(version: &str, speaks: Level, example: Option<&str>) -> Problem {
    Problem::new(ProblemCode::Outdated, outdated(version, speaks)).hint(remedy(example))
}

/// A node that can read what the cell writes: the one that leads.
fn example(cell: &NodeContext) -> String {
    let leader = reach::leader(cell).map(|leader| leader.node);
    let node = leader.as_ref().unwrap_or(&cell.node);
    let version = cell.engine.machine().read(|state| {
        state.node(node).map(|node| node.facts.version.clone()).filter(|it| !it.is_empty())
    });
    version.map_or_else(|| node.to_string(), |version| format!("{node} ({version})"))
}

/// A node's word on what it can read, good as long as its link.
#[derive(Debug)]
pub struct DeclaredLevel {
    cell: NodeContext,
    node: NodeId,
    number: u64,
}

impl DeclaredLevel {
    pub fn given(cell: &NodeContext, node: &NodeId, level: Level) -> Self {
        let number = cell.levels.lock().announce(node, level);
        Self { cell: cell.clone(), node: node.clone(), number }
    }
}

impl Drop for DeclaredLevel {
    fn drop(&mut self) {
        self.cell.levels.lock().withdraw(&self.node, self.number);
    }
}

/// Raises the cell's level once all can read it. For the leader.
pub async fn raise(cell: &NodeContext, engine: &dyn Engine, members: &[Member]) {
    let mut announced = cell.levels.lock().announced();
    announced.insert(cell.node.clone(), Level::BUILD);
    let is_server = |node: &NodeId| members.iter().any(|it| it.peer.name == node.as_str());
    let machine = engine.machine();
    let Some(level) = machine.read(|state| level::next(state, is_server, &announced)) else {
        return;
    };
    let change = Change::Raise { level }.free();
    match cell.write(Writer::Scheduler, IDENTITY, vec![change]).await {
        Ok(_) => {
            tracing::info!(level = level.0, "every node is upgraded: the cell's level is raised")
        }
        Err(error) => tracing::debug!(%error, "cannot raise the cell's level"),
    }
}

/// What is said while nodes run different versions; none while all run the same.
pub fn half_done(state: &State) -> Option<String> {
    let mut by_version: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (id, node) in state.nodes() {
        let version = node.facts.version.as_str();
        if !version.is_empty() {
            by_version.entry(version).or_default().push(id.as_str());
        }
    }
    if by_version.len() < 2 {
        return None;
    }
    let parts: Vec<String> = by_version
        .iter()
        .map(|(version, nodes)| format!("{} on {version}", nodes.join(", ")))
        .collect();
    Some(format!(
        "an upgrade is half done: {}; the cell speaks {} until all run the newest",
        parts.join("; "),
        state.level()
    ))
}

#[cfg(test)]
mod tests {
    use plimsoll_model::NodeFacts;
    use plimsoll_model::testkit::{cell, cpus};

    use super::*;

    #[test]
    fn what_a_node_can_read_is_in_what_it_announces() {
        assert_eq!(announced(&announcement()), (Level::BUILD, VERSION.to_owned()));
        assert_eq!(announced(&HeaderMap::new()).0, Level::FIRST, "who says nothing");
    }

    #[test]
    fn an_upgrade_is_half_done_while_versions_differ() {
        let runs = |version: &str| NodeFacts { version: version.to_owned(), ..cpus(4) };
        let same = cell().node("ash", runs("0.1.0")).node("birch", runs("0.1.0"));
        assert_eq!(half_done(&same.state), None);
        let mixed = same.node("cedar", runs("0.2.0"));
        assert_eq!(
            half_done(&mixed.state).unwrap(),
            "an upgrade is half done: ash, birch on 0.1.0; cedar on 0.2.0; the cell speaks level 1 until all run \
             the newest"
        );
    }
}
