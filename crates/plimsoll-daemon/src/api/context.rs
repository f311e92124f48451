//! What every handler is given.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use axum::response::Response;
use serde::Serialize;
use tokio::sync::{Mutex, watch};

use super::answer::{Answer, Failure, json};
use crate::cell::{Cell, now};
use crate::cluster::{quorum, upgrade};
use crate::peer::Client;
use crate::routing::Routing;
use crate::view::build::{Here, Source};
use crate::view::tenure::millis;
use crate::view::{Freshness, Problem, Tenure};

pub(super) use plimsoll_model::level::VERSION;

#[derive(Debug)]
pub(super) struct Context {
    pub(super) cell: Cell,
    pub(super) data_dir: PathBuf,
    /// The way to other nodes; none in a cell that cannot have any.
    pub(super) client: OnceLock<Client>,
    /// This node's router; none where nothing is routed.
    pub(super) routing: OnceLock<Arc<Routing>>,
    /// The state's last hash, with the index it is of.
    pub(super) hashed: Mutex<Option<(u64, String)>>,
    /// True once the daemon ends: then streams do too.
    pub(super) ending: watch::Receiver<bool>,
}

impl Context {
    /// Looks at the cell and answers with what is found there. The work is done where it holds up no other request.
    pub(super) async fn look<T: Serialize>(
        self: &Arc<Self>,
        view: impl FnOnce(&Source<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Answer {
        let context = Arc::clone(self);
        let looking = tokio::task::spawn_blocking(move || {
            let value = context.look_now(view)?;
            Ok::<Response, Failure>(json(&value))
        });
        looking.await.unwrap_or_else(|_| {
            Err(Problem::failure("bug", "the answer could not be put together").into())
        })
    }

    pub(super) fn look_now<T>(&self, view: impl FnOnce(&Source<'_>) -> T) -> T {
        let cell = &self.cell;
        // Copied, so that the facts and the state are never held at once: each has others waiting for it.
        let facts = {
            let facts = cell.soft.facts();
            facts.clone()
        };
        let mut here = self.here();
        cell.engine.machine().read_at(|state, applied| {
            here.applied = applied;
            view(&Source { state, facts: &facts, here: &here })
        })
    }

    pub(super) fn here(&self) -> Here {
        let cell = &self.cell;
        let leadership = *cell.engine.leadership().borrow();
        let members = cell.engine.members();
        let named = |name: &String| !name.is_empty();
        let leader = if leadership.is_me {
            Some(cell.node.to_string())
        } else {
            let leads = members.iter().find(|member| Some(member.id) == leadership.leader);
            leads.map(|member| member.peer.name.clone()).filter(named)
        };
        let servers: BTreeSet<String> =
            members.into_iter().map(|member| member.peer.name).filter(named).collect();
        let standing = cell.engine.standing();
        Here {
            node: cell.node.clone(),
            version: VERSION,
            leader,
            servers,
            term: leadership.term.0,
            applied: standing.applied,
            lag: standing.lag(),
            heard_ms: standing.heard.map(millis),
            now: now(),
        }
    }

    pub(super) fn tenure(&self) -> Tenure {
        Tenure::of(&self.cell.engine.tenure(), self.cell.holds_log())
    }

    pub(super) fn freshness(&self) -> Freshness {
        let Here { node, leader, term, applied, lag, heard_ms, .. } = self.here();
        Freshness { node: node.to_string(), leader, term, applied, lag, heard_ms }
    }

    /// Why nobody leads, as far as this node has found out.
    pub(super) fn leaderless(&self) -> Problem {
        if self.cell.engine.standing().is_superseded {
            return quorum::superseded();
        }
        if let Some(level) = self.cell.engine.standing().outgrown {
            return upgrade::outgrown(&self.cell, level);
        }
        if let Some(problem) = self.cell.soft.facts().outdated.clone() {
            return problem;
        }
        if let Some(why) = self.cell.engine.tenure().hindrance {
            return quorum::hindered(&why);
        }
        quorum::problem(self.cell.soft.facts().quorum.as_ref())
    }

    /// The same, where this node leads and knows that too few answer: then it finds out which.
    pub(super) async fn deserted(&self, client: &Client) -> Problem {
        quorum::problem(Some(&quorum::ask(&self.cell, client).await))
    }
}
