//! What people ask a cell to do: apply, delete, scale, roll back, restart, cordon, drain. Each is checked whole, written as one command in
//! the name of whoever asked, and answered with what it changed. What follows from it is the leader's business.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_model::access::{Role, Scope};
use plimsoll_model::cell_files::{CellFileKind, MissingFile};
use plimsoll_model::ids::InvalidName;
use plimsoll_model::privilege::Privilege;
use plimsoll_model::spec::{HostPort, RouteSpec};
use plimsoll_model::state::RevisionRecord;
use plimsoll_model::{
    Change, DeploymentName, NodeId, Refusal, Rejection, ReplicaId, ServiceKey, ServiceName,
    ServiceSpec, State, Writer,
};
use thiserror::Error;

use crate::context::{NodeContext, WriteError};
use plimsoll_api::suggest;
use plimsoll_api::view::RouteQuery;

mod apply;
mod check;
mod delete;
mod diff;
mod files;
mod images;
mod nodes;
mod optimize;
mod privileges;
mod problem;
mod registries;
mod reschedule;
mod restart;
mod revise;
mod rollout;
mod routes;
mod volume_holds;
mod volumes;
mod what_if;

#[cfg(test)]
mod tests;

pub use apply::{CheckedApply, apply, check_apply, dry_run};
pub use delete::delete;
pub use files::{config, create_file, file, files, remove_file, rotate_file};
pub use images::{ImageKey, ResolvedImage, ResolvedImages};
pub use nodes::{drain, find_node, remove, set_availability};
pub use optimize::{apply_optimize, optimize};
pub use registries::{login_registry, logout_registry, registries};
pub use reschedule::set_rescheduling;
pub use restart::restart;
pub use revise::{history, revision, rollback, scale};
pub use rollout::change_rollout;
pub(crate) use volume_holds::open_hold;
pub use volume_holds::{end_hold, hold_of, hold_volume, renew_hold};
pub use volumes::{move_volume, remove_volume, volume, volumes};
pub use what_if::{rebalancer, what_if};

/// How often a change to a deployment is decided anew because someone else changed it meanwhile.
const MAX_RETRIES: usize = 5;

type Services = BTreeMap<ServiceName, Arc<ServiceSpec>>;

/// The whole of what a deployment asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct DeploymentContent {
    services: Services,
    routes: Vec<RouteSpec>,
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// As the audit names them.
    pub identity: Arc<str>,
    pub role: Role,
    /// The deployments they are bound to.
    pub scope: Scope,
}

/// Why something was not done.
#[derive(Debug, Error)]
pub enum Error {
    #[error(transparent)]
    Name(#[from] InvalidName),
    #[error("there is no deployment {name}")]
    NoSuchDeployment { name: String, hint: String },
    #[error("deployment {deployment} has no service {name}")]
    NoSuchService { deployment: DeploymentName, name: String, hint: String },
    #[error("there is no replica {name}")]
    NoSuchReplica { name: String, hint: String },
    #[error("no route is for host {host}, path {path}")]
    NoSuchRoute { host: String, path: String, hint: String },
    #[error("there is no node {name}")]
    NoSuchNode { name: String, hint: String },
    #[error("{node} is the last node that takes replicas: nothing on it could go anywhere")]
    LastNode { node: NodeId },
    #[error("{node} is being drained already")]
    AlreadyDraining { node: NodeId },
    #[error("a target of {percent} % is not a share of a node")]
    BadTarget { percent: u32 },
    #[error("what would come of it could not be worked out; nothing was done")]
    Unforeseen,
    #[error("no rollout of {deployment} is {what}")]
    NoRollout { deployment: DeploymentName, what: &'static str },
    #[error("{}", mismatch(deployment, *expected, *found))]
    RevisionChanged { deployment: DeploymentName, expected: u64, found: u64 },
    #[error("{deployment} is changed by others all the time; nothing was written")]
    Contended { deployment: DeploymentName },
    #[error("revision {revision} of {deployment} is not kept")]
    NoSuchRevision { deployment: DeploymentName, revision: u64, kept: Vec<u64> },
    #[error("{deployment} is at revision {revision} already")]
    SameRevision { deployment: DeploymentName, revision: u64 },
    #[error("{deployment} has no revision before {revision} to roll back to")]
    NoEarlierRevision { deployment: DeploymentName, revision: u64 },
    #[error("{deployment} names no services")]
    NoServices { deployment: DeploymentName },
    #[error(
        "service \"{service}\" uses placement=global; remove replicas (global runs one replica per ready node)"
    )]
    GlobalReplicas { service: ServiceName },
    #[error("it names no service to scale")]
    NothingToScale,
    #[error("service \"{service}\" depends on \"{on}\", and there is no such service")]
    MissingDependency { service: ServiceName, on: ServiceName, hint: String },
    #[error("the cell does not keep what these refer to:{}", files::missing(missing))]
    MissingFiles { missing: Vec<MissingFile> },
    #[error(
        "this token is bound to deployments {scope}, and so to secrets and configs named like them:{}",
        files::missing(files)
    )]
    ForeignFiles { files: Vec<MissingFile>, scope: Scope },
    #[error("there is no {kind} {name}")]
    NoSuchFile { kind: CellFileKind, name: String, hint: String },
    #[error("the cell has no credentials for registry {registry}")]
    NoSuchRegistry { registry: String, hint: String },
    #[error("{deployment} has no volume {volume}")]
    NoSuchVolume { deployment: String, volume: String, hint: String },
    #[error("volume {volume} is on {} nodes: {}", nodes.len(), nodes.iter().map(NodeId::as_str).collect::<Vec<_>>().join(", "))]
    VolumeOnSeveral { volume: String, nodes: Vec<NodeId> },
    #[error(
        "each replica of \"{service}\" has its own volume {volume}, which moves only with its node"
    )]
    VolumePerReplica { volume: String, service: ServiceName },
    #[error(
        "volumes of \"{service}\" have a driver or options; only plain local volumes can be moved"
    )]
    VolumeDriven { volume: String, service: ServiceName },
    #[error("the hold on volume {volume} is over, or is not open yet")]
    VolumeNotHeld { volume: String },
    #[error("{deployment} can have no volume {volume}: {why}")]
    BadVolumeName { deployment: String, volume: String, why: String },
    #[error("no node is ready to have volume {volume}")]
    VolumeNowhere { volume: String },
    #[error("{node} cannot take volume {volume}: \"{service}\" could not run there: {why}")]
    VolumeUnfit { volume: String, node: NodeId, service: ServiceName, why: String },
    #[error("the services wait for each other in a circle: {}", circle.join(" → "))]
    CircularDependency { circle: Vec<String> },
    #[error("service \"{service}\" publishes {}/{}, which {by} has already", port.number, port.protocol)]
    PortTaken { service: ServiceName, port: HostPort, by: ServiceKey },
    #[error("the route {route} leads to \"{service}\", and there is no such service")]
    RouteNowhere { route: String, service: ServiceName },
    #[error("the route {route} is {by}'s already")]
    RouteTaken { route: String, by: DeploymentName },
    #[error("the route {route} cannot be: {why}")]
    BadRoute { route: String, why: String },
    #[error("no node of the cell can run it:{}", list(reasons))]
    CannotRun { reasons: Vec<(ServiceName, String)> },
    #[error("{replica} has no container to ask")]
    NotAssigned { replica: ReplicaId },
    /// `of` is a deployment or a service: `shop`, `shop/web`.
    #[error("{replica} is not a replica of {of}")]
    NotOf { replica: ReplicaId, of: String },
    #[error("this needs role admin, and this token has role {}:{}", role.word(), privileges::list(fields))]
    Privileged { fields: Vec<(ServiceName, Privilege)>, role: Role },
    #[error("these fields cannot be used:{}", list(reasons))]
    BadSpec { reasons: Vec<(ServiceName, String)> },
    #[error("there is no kind of event called {kind:?}")]
    NoSuchKind { kind: String, hint: String },
    #[error("there is no command to run")]
    NoCommand,
    #[error("{replicas} replicas are too many to follow at once, at most {max} can be")]
    TooManyLogs { replicas: usize, max: usize },
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Runtime(#[from] plimsoll_runtime::Error),
    #[error("cannot {action} {}", path.display())]
    Disk { action: &'static str, path: std::path::PathBuf, source: std::io::Error },
}

fn mismatch(deployment: &DeploymentName, expected: u64, found: u64) -> String {
    match (expected, found) {
        (0, found) => format!("{deployment} exists already, at revision {found}"),
        (expected, 0) => format!("{deployment} is not at revision {expected}: it does not exist"),
        _ => format!("{deployment} is at revision {found}, not {expected}"),
    }
}

fn list(reasons: &[(ServiceName, String)]) -> String {
    let lines = reasons.iter().map(|(service, reason)| format!("\n  {service}: {reason}"));
    lines.collect::<Vec<_>>().concat()
}

impl Caller {
    pub fn new(identity: &str, role: Role) -> Self {
        Self { identity: Arc::from(identity), role, scope: Scope::default() }
    }

    pub fn within(self, scope: Scope) -> Self {
        Self { scope, ..self }
    }

    async fn write(
        &self,
        cell: &NodeContext,
        batch: Vec<plimsoll_model::Guarded>,
    ) -> Result<u64, WriteError> {
        Ok(cell.write(Writer::Operator, &self.identity, batch).await?.0)
    }
}

/// What a change to a deployment is decided on, and what it asks for.
struct Revised {
    before: Option<(u32, DeploymentContent)>,
    content: DeploymentContent,
}

impl Revised {
    /// The revision that it became, also where others have revised the deployment since.
    fn revision(&self, state: &State, name: &DeploymentName) -> u32 {
        match &self.before {
            // It was written on the condition that this was the last.
            Some((before, content)) if *content == self.content => *before,
            Some((before, _)) => before.saturating_add(1),
            None => {
                let deployment = state.deployments().get(name);
                deployment.and_then(|it| it.history.keys().next()).map_or(0, |first| first.0)
            }
        }
    }
}

/// Decides the deployment's services on the state as it is and writes them, unless the deployment has changed meanwhile:
/// then it decides again. Returns the log index and what was decided.
async fn revise(
    cell: &NodeContext,
    caller: &Caller,
    name: &DeploymentName,
    decide: impl Fn(&State) -> Result<Revised, Error>,
) -> Result<(u64, Revised), Error> {
    for _ in 0..MAX_RETRIES {
        let revised = cell.engine.machine().read(|state| {
            let Revised { before, mut content } = decide(state)?;
            let known = before.as_ref().map(|(_, content)| &content.services);
            content.services = caller.vouch(state, known, content.services)?;
            check::fields(&content.services)?;
            state.check_quota(name, &content.services, &content.routes).map_err(unroomed)?;
            Ok::<_, Error>(Revised { before, content })
        })?;
        let change = revised.content.clone().deploy(name);
        let decided_on =
            revised.before.as_ref().map(|(revision, _)| plimsoll_model::Revision(*revision));
        match caller.write(cell, vec![change.at_revision(decided_on)]).await {
            Ok(index) => return Ok((index, revised)),
            Err(WriteError::Refused(rejection))
                if matches!(
                    rejection.reason,
                    // What it refers to may be gone by now, which is said with the service that does.
                    Refusal::Revision { .. }
                        | Refusal::FileRotated { .. }
                        | Refusal::NoSuchFile { .. }
                ) => {}
            Err(error) => return Err(refused(error)),
        }
    }
    Err(Error::Contended { deployment: name.clone() })
}

impl DeploymentContent {
    fn of(record: &RevisionRecord) -> Self {
        Self { services: record.services.clone(), routes: record.routes.clone() }
    }

    fn deploy(self, name: &DeploymentName) -> Change {
        let Self { services, routes } = self;
        Change::Deploy { deployment: name.clone(), services, routes }
    }
}

/// Nothing was written, and the words are those of a write that was refused.
fn unroomed(reason: Refusal) -> Error {
    refused(WriteError::Refused(Rejection { position: 0, reason }))
}

/// What people can do something about is said in their words.
fn refused(error: WriteError) -> Error {
    match error {
        WriteError::Refused(Rejection {
            reason: Refusal::RouteNowhere { route, service }, ..
        }) => Error::RouteNowhere { route, service },
        WriteError::Refused(Rejection { reason: Refusal::RouteTaken { route, by }, .. }) => {
            Error::RouteTaken { route, by }
        }
        WriteError::Refused(Rejection {
            reason: Refusal::PortTaken { service, port, by }, ..
        }) => Error::PortTaken { service, port, by },
        error => error.into(),
    }
}

/// The deployment's current revision and what it asks for.
fn current(state: &State, name: &DeploymentName) -> Option<(u32, DeploymentContent)> {
    let deployment = state.deployments().get(name)?;
    Some((
        deployment.revision.0,
        deployment.current().map(DeploymentContent::of).unwrap_or_default(),
    ))
}

/// A deployment by the name a person gave.
pub fn find_deployment(state: &State, name: &str) -> Result<DeploymentName, Error> {
    let found = state.deployments().get_key_value(name).map(|(name, _)| name.clone());
    found.ok_or_else(|| no_such_deployment(state, name))
}

/// With what may have been meant.
pub fn no_such_deployment(state: &State, name: &str) -> Error {
    let known = state.deployments().keys().map(DeploymentName::as_str);
    let hint = suggest::hint(name, "deployment", known);
    Error::NoSuchDeployment { name: name.to_owned(), hint }
}

/// With what may have been meant.
pub fn no_such_route(state: &State, asked: &RouteQuery) -> Error {
    let routes: Vec<String> = state.routes().map(|(_, route)| route.to_string()).collect();
    let (host, path) = (&asked.host, &asked.path);
    let hint = suggest::hint(&format!("{host}{path}"), "route", routes.iter().map(String::as_str));
    Error::NoSuchRoute { host: host.clone(), path: path.clone(), hint }
}

/// A service of a deployment by the name a person gave.
pub fn find_service<T>(
    deployment: &DeploymentName,
    services: &BTreeMap<ServiceName, T>,
    name: &str,
) -> Result<ServiceName, Error> {
    let known = services.keys().map(ServiceName::as_str);
    services.get_key_value(name).map(|(name, _)| name.clone()).ok_or_else(|| {
        let hint = suggest::hint(name, "service", known);
        Error::NoSuchService { deployment: deployment.clone(), name: name.to_owned(), hint }
    })
}

/// A replica by the name a person gave.
pub fn find_replica(state: &State, name: &str) -> Result<ReplicaId, Error> {
    state.find_replica(name).ok_or_else(|| {
        let names: Vec<String> = state.replicas().map(|(id, _)| id.to_string()).collect();
        let hint = suggest::hint(name, "replica", names.iter().map(String::as_str));
        Error::NoSuchReplica { name: name.to_owned(), hint }
    })
}
