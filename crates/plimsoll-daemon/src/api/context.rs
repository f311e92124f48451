//! What every handler is given.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use axum::response::Response;
use plimsoll_model::{State, Timestamp};
use serde::Serialize;
use tokio::sync::{Mutex, watch};

use super::answer::{Answer, ErrorResponse, json, part};
use super::event_metrics::EventCounts;
use crate::cell::{self, upgrade};
use crate::context::{NodeContext, now};
use crate::measurements::Measurements;
use crate::problem;
use crate::quorum;
use crate::routing::Routing;
use crate::shared::Shared;
use crate::views::{self, Responder, Source, Subjects};
use plimsoll_api::view::leadership::millis;
use plimsoll_api::view::{AuthorityNotice, Freshness, LeadershipInfo, Page, Problem, ProblemCode};
use plimsoll_peer::PeerClient;

pub(super) use plimsoll_model::level::VERSION;

#[derive(Debug)]
pub(super) struct Context {
    pub(super) cell: NodeContext,
    pub(super) data_dir: PathBuf,
    /// The way to other nodes; none in a cell that cannot have any.
    pub(super) client: OnceLock<PeerClient>,
    /// This node's router; none where nothing is routed.
    pub(super) routing: OnceLock<Arc<Routing>>,
    /// When each operator last asked this node for something it answered, since it started.
    pub(super) token_uses: Shared<BTreeMap<String, Timestamp>>,
    /// What has happened in the cell, for who counts it.
    pub(super) event_counts: Shared<EventCounts>,
    /// The state's last hash, with the index it is of.
    pub(super) hashed: Mutex<Option<(u64, String)>>,
    /// What was last said of the cell's authorities.
    pub(super) notice: Shared<Option<Arc<AuthorityNotice>>>,
    /// True once the daemon ends: then streams do too.
    pub(super) ending: watch::Receiver<bool>,
}

impl Context {
    /// Looks at the cell and answers with what is found there. The work is done where it holds up no other request.
    pub(super) async fn look<T: Serialize + 'static>(
        self: &Arc<Self>,
        view: impl FnOnce(&Source<'_>) -> Result<T, ErrorResponse> + Send + 'static,
    ) -> Answer {
        // Copied, so that the measurements and the state are never held at once: each has others waiting for it.
        let measured = |context: &Self| context.cell.measurements.lock().clone();
        self.answer_with(measured, view, json).await
    }

    /// As [`look`](Self::look), at a list of which a part is told.
    pub(super) async fn look_at_list<T: Serialize + 'static>(
        self: &Arc<Self>,
        page: Page,
        view: impl FnOnce(&Source<'_>) -> Result<Vec<T>, ErrorResponse> + Send + 'static,
    ) -> Answer {
        let measured = |context: &Self| context.cell.measurements.lock().clone();
        self.answer_with(measured, view, move |all: &Vec<T>| part(page, all)).await
    }

    /// As [`look`](Self::look), at a part of the cell: what it costs follows that part, not the cell.
    pub(super) async fn look_at<N: Clone + Send + 'static, T: Serialize + 'static>(
        self: &Arc<Self>,
        name: N,
        subjects: impl FnOnce(&State, &N) -> Subjects + Send + 'static,
        view: impl FnOnce(&Source<'_>, &N) -> Result<T, ErrorResponse> + Send + 'static,
    ) -> Answer {
        let measured = measured_of(name.clone(), subjects);
        self.answer_with(measured, move |source| view(source, &name), json).await
    }

    /// As [`look_at`](Self::look_at), at a list of which a part is told.
    pub(super) async fn look_at_list_of<N: Clone + Send + 'static, T: Serialize + 'static>(
        self: &Arc<Self>,
        name: N,
        subjects: impl FnOnce(&State, &N) -> Subjects + Send + 'static,
        page: Page,
        view: impl FnOnce(&Source<'_>, &N) -> Result<Vec<T>, ErrorResponse> + Send + 'static,
    ) -> Answer {
        let measured = measured_of(name.clone(), subjects);
        let view = move |source: &Source<'_>| view(source, &name);
        self.answer_with(measured, view, move |all: &Vec<T>| part(page, all)).await
    }

    async fn answer_with<T: Serialize + 'static>(
        self: &Arc<Self>,
        measured: impl FnOnce(&Self) -> Measurements + Send + 'static,
        view: impl FnOnce(&Source<'_>) -> Result<T, ErrorResponse> + Send + 'static,
        respond: impl FnOnce(&T) -> Response + Send + 'static,
    ) -> Answer {
        let context = Arc::clone(self);
        let looking = tokio::task::spawn_blocking(move || {
            let measured = measured(&context);
            let value = context.source(&measured, view)?;
            Ok::<Response, ErrorResponse>(respond(&value))
        });
        looking.await.unwrap_or_else(|_| {
            Err(Problem::new(ProblemCode::Bug, "the answer could not be put together").into())
        })
    }

    fn source<T>(&self, measured: &Measurements, view: impl FnOnce(&Source<'_>) -> T) -> T {
        let cell = &self.cell;
        let ingress = cell.ingress.lock().clone();
        let mut here = self.here();
        cell.engine.machine().read_at(|state, applied| {
            here.applied = applied;
            let (ingress, policy, here) = (&ingress, &cell.policy, &here);
            view(&Source { state, measured, ingress, policy, here })
        })
    }

    pub(super) fn here(&self) -> Responder {
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
        let position = cell.engine.log_position();
        Responder {
            node: cell.node.clone(),
            version: VERSION,
            leader,
            servers,
            term: leadership.term.0,
            applied: position.applied,
            lag: position.lag(),
            heard_ms: position.heard.map(millis),
            trouble: self.impaired(),
            now: now(),
        }
    }

    pub(super) fn leadership_info(&self) -> LeadershipInfo {
        views::leadership_info(&self.cell.engine.leadership_info(), self.cell.holds_log())
    }

    pub(super) fn freshness(&self) -> Freshness {
        let Responder { node, leader, term, applied, lag, heard_ms, .. } = self.here();
        Freshness { node: node.to_string(), leader, term, applied, lag, heard_ms }
    }

    /// What keeps writes from being taken, whoever leads: seen before one fails. Of a daemon that stops, nothing is.
    pub(super) fn impaired(&self) -> Option<Problem> {
        use plimsoll_store::Error;
        match self.cell.engine.impairment()? {
            Error::Stopped | Error::Outgrown { .. } => None,
            error => Some(problem::stored(&error)),
        }
    }

    /// Why nobody leads, as far as this node has found out.
    pub(super) fn leaderless(&self) -> Problem {
        if self.cell.engine.log_position().is_superseded {
            return problem::superseded();
        }
        if let Some(level) = self.cell.engine.log_position().outgrown {
            return upgrade::outgrown(&self.cell, level);
        }
        if let Some(problem) = self.impaired() {
            return problem;
        }
        if let Some(problem) = self.cell.levels.lock().outdated.clone() {
            return problem;
        }
        if let Some(why) = self.cell.engine.leadership_info().hindrance {
            return quorum::hindered(&why);
        }
        quorum::problem(self.cell.quorum.lock().as_ref())
    }

    /// The same, where this node leads and knows that too few answer: then it finds out which.
    pub(super) async fn deserted(&self, client: &PeerClient) -> Problem {
        let found = cell::quorum::ask(&self.cell, client).await;
        let problem = quorum::problem(Some(&found));
        // What one is told now, the next who asks finds as well, unless somebody leads again by then.
        if found.is_lost() && self.cell.engine.leadership().borrow().leader.is_none() {
            cell::quorum::note(&self.cell, Some(found));
        }
        problem
    }
}

/// The measurements of a part of the cell.
fn measured_of<N>(
    name: N,
    subjects: impl FnOnce(&State, &N) -> Subjects,
) -> impl FnOnce(&Context) -> Measurements {
    move |context| {
        let subjects = context.cell.engine.machine().read(|state| subjects(state, &name));
        subjects.measurements(&context.cell.measurements.lock())
    }
}
