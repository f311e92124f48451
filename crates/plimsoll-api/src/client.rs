//! The way to a daemon's API: one method for each thing it can be asked, with the words of [`view`].
//!
//! How requests travel is in `transport`, what comes back a piece at a time in `stream`. Every request has a connection of
//! its own, so a client can be shared and its streams do not wait for each other.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::{HeaderMap, Method};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::exec_stream::ExecStart;
use crate::view;
use crate::view::page::MAX_LIMIT;
use plimsoll_model::cell_files::CellFileKind;

mod endpoint;
mod error;
mod exec_session;
mod stream;
mod transport;

pub use endpoint::{BadEndpoint, ChosenEndpoint, Endpoint, address};
pub use error::Error;
pub use exec_session::{ExecSender, ExecSession};
pub use stream::Stream;

use transport::{ApiRequest, Follow, StreamingResponse, Transport};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How long a command run beside a service may take when nobody says; the answer comes when it is done.
const EXEC_PATIENCE: Duration = Duration::from_hours(24);

/// How long a node may take to begin to send a volume: it may have yet to hear that it may.
const VOLUME_PATIENCE: Duration = Duration::from_mins(1);

/// How much longer than a search its answer may take: it is passed on, and the cell is copied first.
const SEARCH_MARGIN: Duration = Duration::from_secs(30);

/// What is in a volume, as it comes.
#[derive(Debug)]
pub struct VolumeContent(StreamingResponse);

impl VolumeContent {
    /// The next bytes; none at the end.
    pub async fn piece(&mut self) -> Result<Option<Bytes>> {
        self.0.piece().await
    }
}

/// An answer as the daemon gave it, for who passes it on.
#[derive(Debug)]
pub struct PassedAnswer {
    pub status: u16,
    body: StreamingResponse,
}

impl PassedAnswer {
    pub fn headers(&self) -> &HeaderMap {
        &self.body.headers
    }

    /// The next bytes; none at the end.
    pub async fn piece(&mut self) -> Result<Option<Bytes>> {
        self.body.piece().await
    }
}

/// A client of one daemon.
#[derive(Debug, Clone)]
pub struct Client {
    transport: Transport,
    is_consistent: bool,
    /// How many of a list are asked for at once.
    part: u32,
}

/// Whose logs are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogsOf {
    Replica(String),
    /// All replicas of the deployment, or of the service that the query names.
    Deployment(String),
}

impl Client {
    pub fn new(endpoint: Endpoint) -> Self {
        Self { transport: Transport::new(endpoint), is_consistent: false, part: MAX_LIMIT }
    }

    /// With a token, whichever way the daemon is reached. A server that is asked on its Unix socket knows who asks without.
    pub fn with_token(mut self, token: impl Into<String>) -> Self {
        self.transport = self.transport.with_token(token.into());
        self
    }

    /// With who chose where the daemon is, for messages.
    pub fn chosen_by(mut self, by: &str) -> Self {
        self.transport = self.transport.chosen_by(by);
        self
    }

    /// Has what nodes say of the cell's authorities heard, with the certificates that the node was recognised by. What is returned
    /// for it says from then on who is a node of the cell.
    pub fn following(
        mut self,
        follow: impl Fn(&view::AuthorityNotice, &[CertificateDer<'static>]) -> Option<Arc<ClientConfig>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.transport = self.transport.following(Follow(Arc::new(follow)));
        self
    }

    /// From now on reads that are not streams see all that was written before they were asked, or fail.
    pub fn consistent(mut self, is_consistent: bool) -> Self {
        self.is_consistent = is_consistent;
        self
    }

    /// From now on lists are asked for in parts of so many.
    pub fn in_parts_of(mut self, part: u32) -> Self {
        self.part = part;
        self
    }

    /// How fresh the last answer was that said so, to this client or a clone of it.
    pub fn freshness(&self) -> Option<view::Freshness> {
        self.transport.freshness()
    }

    pub fn endpoint(&self) -> &Endpoint {
        self.transport.endpoint()
    }

    pub async fn status(&self) -> Result<view::Status> {
        self.get("/v1/status").await
    }

    /// The status of one deployment, if there is anything of it, and of the nodes that hold its replicas.
    pub async fn status_of(&self, deployment: &str) -> Result<view::Status> {
        let query = Query::default().value("deployment", Some(deployment));
        self.get(&query.onto("/v1/status".to_owned())).await
    }

    pub async fn nodes(&self) -> Result<Vec<view::Node>> {
        self.list("/v1/nodes").await
    }

    /// None where there is no such node.
    pub async fn node(&self, name: &str) -> Result<Option<view::Node>> {
        let query = Query::default().value("name", Some(name));
        let found: Vec<view::Node> = self.get(&query.onto("/v1/nodes".to_owned())).await?;
        // A daemon that does not know the question answers with all of them.
        Ok(found.into_iter().find(|node| node.name == name))
    }

    pub async fn deployments(&self) -> Result<Vec<view::Deployment>> {
        self.list("/v1/deployments").await
    }

    pub async fn deployment(&self, name: &str) -> Result<view::Deployment> {
        self.get(&path(&["v1", "deployments", name])).await
    }

    pub async fn apply(&self, name: &str, apply: &view::Apply) -> Result<view::Applied> {
        self.send(Method::PUT, &path(&["v1", "deployments", name]), apply).await
    }

    /// What an apply would do; nothing is written.
    pub async fn dry_run(&self, name: &str, apply: &view::Apply) -> Result<view::Applied> {
        let path = format!("{}?dry_run=true", path(&["v1", "deployments", name]));
        self.send(Method::PUT, &path, apply).await
    }

    /// With `volumes`, the deployment's named volumes go once its containers are gone.
    pub async fn delete(&self, name: &str, volumes: bool) -> Result<view::Deleted> {
        let path = format!("{}?volumes={volumes}", path(&["v1", "deployments", name]));
        self.answer(ApiRequest::new(Method::DELETE, &path)).await
    }

    pub async fn scale(&self, name: &str, scale: &view::Scale) -> Result<view::Applied> {
        self.send(Method::POST, &path(&["v1", "deployments", name, "scale"]), scale).await
    }

    pub async fn rollback(&self, name: &str, back: &view::Rollback) -> Result<view::Applied> {
        self.send(Method::POST, &path(&["v1", "deployments", name, "rollback"]), back).await
    }

    pub async fn restart(&self, name: &str, restart: &view::Restart) -> Result<view::Restarted> {
        self.send(Method::POST, &path(&["v1", "deployments", name, "restart"]), restart).await
    }

    pub async fn change_rollout(
        &self,
        name: &str,
        asked: &view::ChangeRollout,
    ) -> Result<view::RolloutChanged> {
        self.send(Method::POST, &path(&["v1", "deployments", name, "rollout"]), asked).await
    }

    pub async fn cordon(&self, node: &str) -> Result<view::NodeChanged> {
        self.answer(ApiRequest::new(Method::POST, &path(&["v1", "nodes", node, "cordon"]))).await
    }

    pub async fn uncordon(&self, node: &str) -> Result<view::NodeChanged> {
        self.answer(ApiRequest::new(Method::POST, &path(&["v1", "nodes", node, "uncordon"]))).await
    }

    /// What a drain does; it begins, unless only the plan is asked for.
    pub async fn drain(
        &self,
        node: &str,
        asked: &view::Drain,
        is_plan: bool,
    ) -> Result<view::DrainPlan> {
        let query = Query::default().flag("dry_run", is_plan);
        let path = query.onto(path(&["v1", "nodes", node, "drain"]));
        self.send(Method::POST, &path, asked).await
    }

    pub async fn remove_node(&self, node: &str) -> Result<view::NodeChanged> {
        self.answer(ApiRequest::new(Method::DELETE, &path(&["v1", "nodes", node]))).await
    }

    pub async fn cell(&self) -> Result<view::Cell> {
        self.get("/v1/cell").await
    }

    pub async fn rotate_authority(&self, asked: &view::RotateAuthority) -> Result<view::Authority> {
        self.send(Method::POST, "/v1/cell/rotation", asked).await
    }

    pub async fn abort_rotation(&self) -> Result<view::Authority> {
        self.answer(ApiRequest::new(Method::DELETE, "/v1/cell/rotation")).await
    }

    /// Passes on a request as it is, for who speaks the API itself, and its answer as it comes.
    pub async fn pass(
        &self,
        method: Method,
        path: &str,
        accept: &'static str,
        body: Vec<u8>,
    ) -> Result<PassedAnswer> {
        let request = ApiRequest::new(method, path).raw(accept, body);
        let (status, body) = self.transport.ask(request).await?;
        Ok(PassedAnswer { status: status.as_u16(), body })
    }

    /// How busy nodes are and were.
    pub async fn pressure(&self, query: &view::PressureQuery) -> Result<view::CellPressure> {
        let asked = Query::default().value("node", query.node.as_ref());
        let asked = asked.value("history", query.history.then_some("true"));
        self.get(&asked.onto("/v1/pressure".to_owned())).await
    }

    pub async fn rescheduling(&self) -> Result<view::RescheduleStatus> {
        self.get("/v1/reschedule").await
    }

    /// How it is set by then.
    pub async fn set_rescheduling(
        &self,
        asked: &view::SetRescheduling,
    ) -> Result<view::RescheduleStatus> {
        self.send(Method::POST, "/v1/reschedule", asked).await
    }

    pub async fn fleet(&self) -> Result<view::FleetStatus> {
        self.get("/v1/fleet").await
    }

    pub async fn set_fleet(&self, asked: &view::SetFleet) -> Result<view::FleetStatus> {
        self.send(Method::POST, "/v1/fleet", asked).await
    }

    pub async fn set_fleet_quota(&self, asked: &view::SetFleetQuota) -> Result<view::FleetStatus> {
        self.send(Method::POST, "/v1/fleet/quota", asked).await
    }

    pub async fn create_fleet_token(
        &self,
        asked: &view::NewFleetToken,
    ) -> Result<view::FleetToken> {
        self.send(Method::POST, "/v1/fleet/tokens", asked).await
    }

    pub async fn expel_shard(&self, shard: &str) -> Result<view::FleetStatus> {
        let path = path(&["v1", "fleet", "shards", shard]);
        self.answer(ApiRequest::new(Method::DELETE, &path)).await
    }

    pub async fn join_fleet(&self, asked: &view::JoinFleet) -> Result<view::FleetStatus> {
        self.send(Method::POST, "/v1/fleet/membership", asked).await
    }

    pub async fn leave_fleet(&self) -> Result<view::FleetStatus> {
        self.answer(ApiRequest::new(Method::DELETE, "/v1/fleet/membership")).await
    }

    pub async fn create_join_token(&self, asked: &view::NewJoinToken) -> Result<view::JoinToken> {
        self.send(Method::POST, "/v1/tokens/join", asked).await
    }

    pub async fn join_tokens(&self) -> Result<Vec<view::JoinTokenStatus>> {
        self.list("/v1/tokens/join").await
    }

    pub async fn revoke_join_token(&self, name: &str) -> Result<view::JoinTokenStatus> {
        self.answer(ApiRequest::new(Method::DELETE, &path(&["v1", "tokens", "join", name]))).await
    }

    /// Who the cell takes this client for.
    pub async fn who_am_i(&self) -> Result<view::WhoAmI> {
        self.get("/v1/whoami").await
    }

    pub async fn authorities(&self) -> Result<Vec<view::CellAuthority>> {
        self.get("/v1/authority").await
    }

    pub async fn operators(&self) -> Result<Vec<view::Operator>> {
        self.list("/v1/operators").await
    }

    pub async fn add_operator(&self, asked: &view::NewOperator) -> Result<view::OperatorToken> {
        self.send(Method::POST, "/v1/operators", asked).await
    }

    pub async fn revoke_operator(&self, name: &str) -> Result<view::Operator> {
        self.answer(ApiRequest::new(Method::DELETE, &path(&["v1", "operators", name]))).await
    }

    /// The secrets that the cell keeps, without their content.
    pub async fn secrets(&self) -> Result<Vec<view::CellFile>> {
        self.list("/v1/secrets").await
    }

    pub async fn secret(&self, name: &str) -> Result<view::CellFile> {
        self.get(&path(&["v1", "secrets", name])).await
    }

    pub async fn configs(&self) -> Result<Vec<view::CellFile>> {
        self.list("/v1/configs").await
    }

    pub async fn config(&self, name: &str) -> Result<view::ConfigFile> {
        self.get(&path(&["v1", "configs", name])).await
    }

    /// Has the cell keep a secret or config.
    pub async fn create_file(
        &self,
        kind: CellFileKind,
        asked: &view::NewFile,
    ) -> Result<view::CellFile> {
        self.send(Method::POST, &path(&["v1", plural(kind)]), asked).await
    }

    /// Rolls the services that use it.
    pub async fn rotate_file(
        &self,
        kind: CellFileKind,
        name: &str,
        content: &view::NewContent,
    ) -> Result<view::RotatedFile> {
        self.send(Method::POST, &path(&["v1", plural(kind), name, "rotate"]), content).await
    }

    pub async fn remove_file(&self, kind: CellFileKind, name: &str) -> Result<view::CellFile> {
        self.answer(ApiRequest::new(Method::DELETE, &path(&["v1", plural(kind), name]))).await
    }

    /// The registries that the cell has credentials for.
    pub async fn registries(&self) -> Result<Vec<view::RegistryLogin>> {
        self.list("/v1/registries").await
    }

    pub async fn login_registry(
        &self,
        asked: &view::NewRegistryLogin,
    ) -> Result<view::RegistryLogin> {
        self.send(Method::POST, "/v1/registries", asked).await
    }

    pub async fn logout_registry(&self, host: &str) -> Result<view::RegistryLogin> {
        self.answer(ApiRequest::new(Method::DELETE, &path(&["v1", "registries", host]))).await
    }

    /// The named volumes that deployments use or used.
    pub async fn volumes(&self) -> Result<Vec<view::Volume>> {
        self.list("/v1/volumes").await
    }

    /// One of them, with how much is in it.
    pub async fn volume(&self, deployment: &str, volume: &str) -> Result<view::Volume> {
        self.get(&path(&["v1", "deployments", deployment, "volumes", volume])).await
    }

    pub async fn remove_volume(
        &self,
        deployment: &str,
        volume: &str,
        node: Option<&str>,
        force: bool,
    ) -> Result<view::VolumeChanged> {
        let query = Query::default().value("node", node).flag("force", force);
        let path = query.onto(path(&["v1", "deployments", deployment, "volumes", volume]));
        self.answer(ApiRequest::new(Method::DELETE, &path)).await
    }

    /// Begins to move it.
    pub async fn move_volume(
        &self,
        deployment: &str,
        volume: &str,
        asked: &view::MoveVolume,
    ) -> Result<view::VolumeChanged> {
        let path = path(&["v1", "deployments", deployment, "volumes", volume, "move"]);
        self.send(Method::POST, &path, asked).await
    }

    /// Begins a backup or restore: what uses the volume is stopped. Whoever asks says again that they are there, or it is over.
    pub async fn hold_volume(
        &self,
        deployment: &str,
        volume: &str,
        asked: &view::HoldVolume,
    ) -> Result<view::VolumeHold> {
        let path = path(&["v1", "deployments", deployment, "volumes", volume, "hold"]);
        self.send(Method::POST, &path, asked).await
    }

    /// How far it is.
    pub async fn volume_hold(
        &self,
        deployment: &str,
        volume: &str,
        order: u64,
    ) -> Result<view::VolumeHold> {
        self.get(&held_path(deployment, volume, order, "hold")).await
    }

    pub async fn renew_volume_hold(
        &self,
        deployment: &str,
        volume: &str,
        order: u64,
    ) -> Result<view::VolumeHold> {
        let path = held_path(deployment, volume, order, "hold");
        self.answer(ApiRequest::new(Method::PUT, &path)).await
    }

    /// Ends it, well or not. Where it was lost in between, to end it well is refused.
    pub async fn end_volume_hold(
        &self,
        deployment: &str,
        volume: &str,
        order: u64,
        failed: Option<&str>,
    ) -> Result<view::VolumeHold> {
        let path = held_path(deployment, volume, order, "hold");
        let path = match failed {
            Some(why) => format!("{path}&failed={}", encoded(why)),
            None => path,
        };
        self.answer(ApiRequest::new(Method::DELETE, &path)).await
    }

    /// What is in a volume that is held for a backup.
    pub async fn volume_content(
        &self,
        deployment: &str,
        volume: &str,
        order: u64,
    ) -> Result<VolumeContent> {
        let path = held_path(deployment, volume, order, "content");
        let request = ApiRequest::new(Method::GET, &path).patience(VOLUME_PATIENCE);
        Ok(VolumeContent(self.transport.send(request).await?))
    }

    /// Replaces what is in a volume that is held for a restore by the backup whose pieces come.
    pub async fn restore_volume(
        &self,
        deployment: &str,
        volume: &str,
        order: u64,
        pieces: mpsc::Receiver<Bytes>,
    ) -> Result<view::VolumeSize> {
        let path = held_path(deployment, volume, order, "content");
        let request = ApiRequest::new(Method::PUT, &path).patience(EXEC_PATIENCE);
        self.answer(request.fed(pieces, "application/octet-stream")).await
    }

    /// Newest first.
    pub async fn history(&self, name: &str) -> Result<Vec<view::Revision>> {
        self.get(&path(&["v1", "deployments", name, "history"])).await
    }

    pub async fn revision(&self, name: &str, revision: u64) -> Result<view::RevisionSpecs> {
        let revision = revision.to_string();
        self.get(&path(&["v1", "deployments", name, "revisions", &revision])).await
    }

    pub async fn replicas(&self) -> Result<Vec<view::Replica>> {
        self.list("/v1/replicas").await
    }

    /// Those that the node holds, also while they only come or go.
    pub async fn replicas_on(&self, node: &str) -> Result<Vec<view::Replica>> {
        let query = Query::default().value("node", Some(node));
        self.list(&query.onto("/v1/replicas".to_owned())).await
    }

    pub async fn replica(&self, id: &str) -> Result<view::Replica> {
        self.get(&path(&["v1", "replicas", id])).await
    }

    /// Runs a command beside the replica and returns what it printed.
    pub async fn exec(&self, id: &str, exec: &view::Exec) -> Result<view::Executed> {
        let request = ApiRequest::new(Method::POST, &path(&["v1", "replicas", id, "exec"]));
        self.answer(request.json(exec).patience(EXEC_PATIENCE)).await
    }

    /// Runs a command in a replica with its input and output passed on as they come.
    pub async fn attach(&self, id: &str, start: &ExecStart) -> Result<ExecSession> {
        let request = ApiRequest::new(Method::POST, &path(&["v1", "replicas", id, "exec"]));
        ExecSession::begin(&self.transport, request, start).await
    }

    pub async fn explain(&self, replica: &str) -> Result<view::Explanation> {
        self.get(&path(&["v1", "explain", replica])).await
    }

    pub async fn explain_node(&self, node: &str) -> Result<view::NodeAccount> {
        self.get(&path(&["v1", "nodes", node, "explain"])).await
    }

    /// The cell as a case.
    /// What would come of it; nothing is done.
    pub async fn what_if(&self, asked: &view::WhatIf) -> Result<view::Forecast> {
        self.send(Method::POST, "/v1/what-if", asked).await
    }

    /// The best plan for a better layout that is found in time; nothing is done.
    pub async fn optimize(&self, asked: &view::Optimize) -> Result<view::OptimizePlan> {
        let patience = Duration::from_millis(asked.time_ms) + SEARCH_MARGIN;
        let request = ApiRequest::new(Method::POST, "/v1/optimize").json(asked);
        self.answer(request.patience(patience)).await
    }

    /// Has a plan carried out.
    pub async fn apply_optimize(
        &self,
        asked: &view::ApplyOptimize,
    ) -> Result<view::OptimizeStarted> {
        self.send(Method::POST, "/v1/optimize/apply", asked).await
    }

    pub async fn snapshot(&self) -> Result<view::Snapshot> {
        self.get(&path(&["v1", "snapshot"])).await
    }

    pub async fn certificates(&self) -> Result<Vec<view::Certificate>> {
        self.list("/v1/certificates").await
    }

    pub async fn routes(&self) -> Result<Vec<view::Route>> {
        self.list("/v1/routes").await
    }

    /// Where a request goes.
    pub async fn explain_route(&self, query: &view::RouteQuery) -> Result<view::RouteExplanation> {
        let query = Query::default()
            .value("host", Some(query.host.as_str()))
            .value("path", Some(query.path.as_str()));
        self.get(&query.onto(path(&["v1", "routes", "explain"]))).await
    }

    /// Lines as they were printed; several replicas' by the time of each line, or as they come when followed.
    pub async fn logs(
        &self,
        of: &LogsOf,
        query: &view::LogQuery,
    ) -> Result<Stream<view::LogPiece>> {
        let path = match of {
            LogsOf::Replica(id) => path(&["v1", "replicas", id, "logs"]),
            LogsOf::Deployment(name) => path(&["v1", "deployments", name, "logs"]),
        };
        let query = Query::default()
            .flag("follow", query.follow)
            .value("since", query.since)
            .value("tail", query.tail)
            .value("service", query.service.as_deref());
        self.stream(ApiRequest::new(Method::GET, &query.onto(path))).await
    }

    /// Oldest first.
    pub async fn audit(&self, query: &view::AuditQuery) -> Result<Vec<view::AuditEvent>> {
        self.get(&audit_path(query, false)).await
    }

    /// What happened as [`audit`](Self::audit) has it, and then what happens.
    pub async fn follow_audit(&self, query: &view::AuditQuery) -> Result<Stream<view::AuditEvent>> {
        self.stream(ApiRequest::new(Method::GET, &audit_path(query, true)).events()).await
    }

    /// What changes after the log index, as [`Cell::applied`](view::Cell) has it; none: from now on.
    pub async fn watch(&self, after: Option<u64>) -> Result<Stream<view::Changed>> {
        let path = Query::default().value("after", after).onto("/v1/watch".to_owned());
        self.stream(ApiRequest::new(Method::GET, &path).events()).await
    }

    /// What changes of one deployment, or of a node that holds some of it.
    pub async fn watch_deployment(
        &self,
        name: &str,
        after: Option<u64>,
    ) -> Result<Stream<view::Changed>> {
        let query = Query::default().value("after", after).value("deployment", Some(name));
        let path = query.onto("/v1/watch".to_owned());
        self.stream(ApiRequest::new(Method::GET, &path).events()).await
    }

    /// Copies a backup of the cell's whole state to the writer, and says how many bytes it has.
    pub async fn backup(&self, to: &mut (impl AsyncWrite + Unpin)) -> Result<u64> {
        let mut answer = self.transport.send(ApiRequest::new(Method::POST, "/v1/backup")).await?;
        let mut copied = 0;
        while let Some(piece) = answer.piece().await? {
            to.write_all(&piece).await.map_err(Error::Local)?;
            copied += piece.len() as u64;
        }
        to.flush().await.map_err(Error::Local)?;
        Ok(copied)
    }

    /// What backups are encrypted with now.
    pub async fn backup_key(&self) -> Result<view::BackupKey> {
        self.get("/v1/backup/key").await
    }

    pub async fn rotate_backup_key(&self) -> Result<view::BackupKey> {
        self.answer(ApiRequest::new(Method::POST, "/v1/backup/key")).await
    }

    /// Whether the node can serve, with the hash of its state where that is asked for. A node that says no is no error
    /// here.
    pub async fn ready(&self, hash: bool) -> Result<view::Ready> {
        let path = Query::default().flag("hash", hash).onto("/readyz".to_owned());
        self.transport.send_any(ApiRequest::new(Method::GET, &path)).await?.json().await
    }

    /// The API's description of itself.
    pub async fn openapi(&self) -> Result<serde_json::Value> {
        self.get("/openapi.json").await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.answer(self.read(path)).await
    }

    /// A whole list, part by part. Each part is of its own moment; what comes or goes meanwhile may be missed.
    async fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>> {
        let mark = if path.contains('?') { '&' } else { '?' };
        let mut all = Vec::new();
        loop {
            let part = format!("{path}{mark}limit={}&offset={}", self.part, all.len());
            let answer = self.transport.send(self.read(&part)).await?;
            // A daemon that does not say tells all of it at once.
            let total = answer.total.unwrap_or(0);
            let part: Vec<T> = answer.json().await?;
            let is_last = part.is_empty();
            all.extend(part);
            if is_last || all.len() >= total {
                return Ok(all);
            }
        }
    }

    fn read(&self, path: &str) -> ApiRequest {
        let mark = if path.contains('?') { '&' } else { '?' };
        let asked = self.is_consistent.then(|| format!("{path}{mark}consistent=true"));
        ApiRequest::new(Method::GET, asked.as_deref().unwrap_or(path))
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T> {
        self.answer(ApiRequest::new(method, path).json(body)).await
    }

    async fn answer<T: DeserializeOwned>(&self, request: ApiRequest) -> Result<T> {
        self.transport.send(request).await?.json().await
    }

    async fn stream<T: DeserializeOwned>(&self, request: ApiRequest) -> Result<Stream<T>> {
        Ok(Stream::new(self.transport.send(request).await?))
    }
}

fn plural(kind: CellFileKind) -> &'static str {
    match kind {
        CellFileKind::Secret => "secrets",
        CellFileKind::Config => "configs",
    }
}

fn held_path(deployment: &str, volume: &str, order: u64, what: &str) -> String {
    let path = path(&["v1", "deployments", deployment, "volumes", volume, what]);
    Query::default().value("order", Some(order)).onto(path)
}

fn audit_path(query: &view::AuditQuery, follow: bool) -> String {
    Query::default()
        .flag("follow", follow)
        .value("since", query.since)
        .value("type", query.kinds.as_deref())
        .value("limit", query.limit)
        .value("before", query.before)
        .onto("/v1/audit".to_owned())
}

/// The part of a path behind the question mark.
#[derive(Debug, Default)]
struct Query(String);

impl Query {
    fn flag(self, key: &str, is_set: bool) -> Self {
        self.value(key, is_set.then_some("true"))
    }

    fn value(mut self, key: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            let mark = if self.0.is_empty() { '?' } else { '&' };
            let _ = write!(self.0, "{mark}{key}={}", encoded(&value.to_string()));
        }
        self
    }

    fn onto(self, path: String) -> String {
        path + &self.0
    }
}

/// What is written otherwise where it is nothing but dots.
const STEP: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~').remove(b',').remove(b':');

/// What is written otherwise in a part of a path or query.
const PART: &AsciiSet = &STEP.remove(b'.');

/// The path of these parts, whatever a person has typed for each.
fn path(parts: &[&str]) -> String {
    parts.iter().flat_map(|part| ["/"].into_iter().chain(encoded(part))).collect()
}

fn encoded(text: &str) -> PercentEncode<'_> {
    // A part that is nothing but dots would be taken for a step in the tree.
    let is_step = text.bytes().all(|byte| byte == b'.');
    utf8_percent_encode(text, if is_step { STEP } else { PART })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_types_stays_one_part_of_the_path() {
        for (text, encoded) in [
            ("shop-web-1", "/v1/replicas/shop-web-1"),
            ("shop/web", "/v1/replicas/shop%2Fweb"),
            ("..", "/v1/replicas/%2E%2E"),
            ("a?b=1&c", "/v1/replicas/a%3Fb%3D1%26c"),
            ("grün", "/v1/replicas/gr%C3%BCn"),
        ] {
            assert_eq!(path(&["v1", "replicas", text]), encoded);
        }
    }
}
