//! The leader's end: gives a node its orders, writes what it reports, and notes that it lives.
//!
//! Whatever comes is read at once, also while earlier reports wait for the log or the node takes no orders: a heartbeat
//! never waits behind either.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_model::access::Digest;
use plimsoll_model::volumes::{VolumeChange, VolumeMoveFailure};
use plimsoll_model::{
    AuditEntry, Change, DeploymentName, Generation, Guarded, Millis, NodeFacts, NodeId,
    Observation, ReplicaId, State, Term, Timestamp, Writer,
};
use plimsoll_runtime::VolumeRef;
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Pipe;
use super::fence::Fence;
use super::frame::{
    Cleared, Declared, Down, Frames, READ, Report, Seen, Served, Up, VERSION, encode,
};
use super::outbox::Outbox;
use crate::authorities::CellAuthorities;
use crate::cell::authority;
use crate::context::{NodeContext, WriteError, now, span};
use crate::dispatcher::{AssignmentSender, Dispatch};
use crate::measurements::{NodeMeasurement, ReplicaMeasurement};
use crate::route_certificates::{AgentCertificates, HttpListeners, RouteCertificates};
use crate::servers::ServerList;
use plimsoll_kernel::batch;
use plimsoll_kernel::endpoints::{Endpoints, EndpointsUpdate};
use plimsoll_store::aside;

/// How long a node may take to say who it is.
const HELLO: Duration = Duration::from_secs(5);

/// How many batches of reports may wait for the log. A node sends one and waits until that is written.
const REPORTS_AHEAD: usize = 16;

/// How often at most a node is told what changed for its router: in a busy cell something always does.
const ENDPOINTS_PACE: Duration = Duration::from_millis(50);

/// How often it is looked whether a certificate has to be replaced, at least.
const LOOK: Duration = Duration::from_mins(10);

/// The most bytes that a node may say of itself, as it may where it joins: some labels have a tenth.
const MAX_FACTS: usize = 64 << 10;

/// The most bytes of a text in a report, such as what a health check printed, and of the name of who asked. A node sends less; one
/// that was taken over must not fill the state with them.
const MAX_TEXT: usize = 16 << 10;
const MAX_IDENTITY: usize = 256;

/// How long to wait when the log does not take reports.
const RETRY: Duration = Duration::from_millis(100);

/// Why a node is not listened to.
#[derive(Debug, Error)]
pub enum Refused {
    #[error("this node does not lead the cell")]
    NotLeader,
    #[error("{said} speaks for {caller}'s certificate")]
    OtherNode { caller: NodeId, said: NodeId },
    #[error("{node} has seen term {seen}, this leader is of term {term}")]
    Deposed { node: NodeId, seen: u64, term: u64 },
    #[error(
        "it speaks version {found} of the link, this node {VERSION}; run the same plimsoll on both"
    )]
    Version { found: u32 },
    #[error("it did not say who it is")]
    Silent,
    #[error("it sends more reports than it may before the first are written")]
    Ahead,
    #[error("it says {found} bytes of what it offers, at most {MAX_FACTS} are taken")]
    Verbose { found: usize },
    #[error("{node} cannot join: {why}")]
    NotTakenIn { node: NodeId, why: WriteError },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What a leader needs to serve other nodes.
#[derive(Debug, Clone)]
pub struct LinkServer {
    pub cell: NodeContext,
    pub dispatch: Arc<Dispatch>,
}

impl LinkServer {
    /// Serves one node until the link breaks or this node no longer leads. One with a key is taken in by it.
    pub async fn serve(
        &self,
        caller: &NodeId,
        key: Option<Digest>,
        mut pipe: Pipe,
    ) -> Result<(), Refused> {
        let mut leadership = self.cell.engine.leadership();
        let now = *leadership.borrow_and_update();
        if !now.is_me {
            return Err(Refused::NotLeader);
        }
        let served = async {
            let mut frames = Frames::default();
            let (facts, listeners) = self.greet(caller, now.term, &mut pipe, &mut frames).await?;
            let Pipe { to, from } = pipe;
            let welcome = welcome(&self.cell, caller, &facts, key);
            if key.is_some() {
                // Until it is taken in, the name may be another's, and so would be what is said.
                welcome.await?;
                return self.attend((caller, listeners), now.term, to, from, frames).await;
            }
            // The others are told where it is as soon as the log takes it; it is heard without.
            let welcomed = async {
                welcome.await?;
                std::future::pending().await
            };
            tokio::select! {
                attended = self.attend((caller, listeners), now.term, to, from, frames) => attended,
                refused = welcomed => refused,
            }
        };
        tokio::select! {
            _ = leadership.wait_for(|later| !later.is_me || later.term != now.term) => Ok(()),
            served = served => served,
        }
    }

    async fn attend(
        &self,
        (caller, listeners): (&NodeId, HttpListeners),
        term: Term,
        to: mpsc::Sender<Vec<u8>>,
        from: mpsc::Receiver<Vec<u8>>,
        frames: Frames,
    ) -> Result<(), Refused> {
        tokio::select! {
            told = self.tell(caller, listeners, term, &to) => told,
            heard = self.hear(caller, from, frames, &to) => heard,
        }
    }

    /// What the node offers and where it listens, if it may speak and says so.
    async fn greet(
        &self,
        caller: &NodeId,
        term: Term,
        pipe: &mut Pipe,
        frames: &mut Frames,
    ) -> Result<(Box<NodeFacts>, HttpListeners), Refused> {
        let hello = timeout(HELLO, next(&mut pipe.from, frames)).await;
        match hello.map_err(|_| Refused::Silent)?? {
            Some(Up::Hello { version, .. }) if !READ.contains(&version) => {
                Err(Refused::Version { found: version })
            }
            Some(Up::Hello { node, .. }) if node != *caller => {
                Err(Refused::OtherNode { caller: caller.clone(), said: node })
            }
            Some(Up::Hello { node, seen, .. }) if seen > term => {
                Err(Refused::Deposed { node, seen: seen.0, term: term.0 })
            }
            Some(Up::Hello { facts, listeners, .. }) => {
                let found = postcard::to_stdvec(&facts).map_or(usize::MAX, |bytes| bytes.len());
                if found > MAX_FACTS {
                    return Err(Refused::Verbose { found });
                }
                Ok((facts, listeners))
            }
            Some(Up::Beat { .. } | Up::Reports { .. }) | None => Err(Refused::Silent),
        }
    }

    /// Its orders, who the servers are and, to one that does not hold the log, what routers go by: whenever they change.
    async fn tell(
        &self,
        caller: &NodeId,
        listeners: HttpListeners,
        term: Term,
        to: &mpsc::Sender<Vec<u8>>,
    ) -> Result<(), Refused> {
        let mut orders = self.dispatch.listen(caller.clone());
        let mut feed = EndpointsFeed::new(&self.cell);
        let mut authorities = self.cell.authorities.watch();
        authorities.mark_changed();
        let mut certificates = CertificatesFeed::new(&self.cell, listeners);
        let mut told = None;
        loop {
            let roll = ServerList::of(&*self.cell.engine);
            let is_server = roll.servers.iter().any(|peer| peer.name == caller.as_str());
            if told.as_ref() != Some(&roll) {
                told = Some(roll.clone());
                if to.send(encode(&Down::Servers { term, roll })).await.is_err() {
                    return Ok(());
                }
            }
            if is_server {
                // It draws its own; should it lose the log, it has to hear of everything.
                feed.forget();
                certificates.forget();
            }
            let word = tokio::select! {
                update = orders.next() => Down::Orders { term, update },
                Ok(()) = authorities.changed() => {
                    let latest = authorities.borrow_and_update().clone();
                    let Some(latest) = latest else { continue };
                    Down::Authorities { term, authorities: CellAuthorities::clone(&latest) }
                }
                update = feed.next(), if !is_server => Down::Endpoints { term, update },
                certificates = certificates.next(), if !is_server => {
                    Down::Certificates { term, certificates }
                }
                // Who the servers are may have changed.
                () = sleep(self.cell.heartbeat()) => continue,
            };
            if to.send(encode(&word)).await.is_err() {
                return Ok(());
            }
        }
    }

    async fn hear(
        &self,
        caller: &NodeId,
        from: mpsc::Receiver<Vec<u8>>,
        frames: Frames,
        to: &mpsc::Sender<Vec<u8>>,
    ) -> Result<(), Refused> {
        let (reports, queued) = mpsc::channel(REPORTS_AHEAD);
        let mut writing = pin!(self.write_all(caller, queued, to));
        tokio::select! {
            heard = self.listen(caller, from, frames, reports) => heard?,
            () = &mut writing => return Ok(()),
        }
        // It has said all it had to say, and is believed.
        writing.await;
        Ok(())
    }

    /// Writes reports one batch after the other, until there are no more or nobody waits for it.
    async fn write_all(
        &self,
        caller: &NodeId,
        mut waiting: mpsc::Receiver<(u64, Vec<Report>)>,
        to: &mpsc::Sender<Vec<u8>>,
    ) {
        while let Some((seq, reports)) = waiting.recv().await {
            write(&self.cell, caller, reports).await;
            if to.send(encode(&Down::Written { seq })).await.is_err() {
                return;
            }
        }
    }

    async fn listen(
        &self,
        caller: &NodeId,
        mut from: mpsc::Receiver<Vec<u8>>,
        mut frames: Frames,
        waiting: mpsc::Sender<(u64, Vec<Report>)>,
    ) -> Result<(), Refused> {
        loop {
            let Ok(message) = timeout(self.cell.patience(), next(&mut from, &mut frames)).await
            else {
                return Err(Refused::Silent);
            };
            match message? {
                None => return Ok(()),
                Some(Up::Hello { .. }) => {}
                Some(Up::Beat { node, measured, replicas }) => {
                    self.note(caller, *node, measured, replicas);
                }
                Some(Up::Reports { seq, reports }) => {
                    waiting.try_send((seq, reports)).map_err(|_| Refused::Ahead)?;
                }
            }
        }
    }

    fn note(
        &self,
        caller: &NodeId,
        mut node: NodeMeasurement,
        measured: Option<Millis>,
        replicas: Vec<((ReplicaId, Generation), ReplicaMeasurement)>,
    ) {
        let now = now();
        node.heard_at = Some(now);
        node.measured_at = measured.map(|ago| Timestamp(now.0.saturating_sub(ago.0)));
        // A node speaks of what it holds and of nothing else: one that has led knows others' containers as they were then.
        let own: Vec<_> = aside(|| {
            self.cell.engine.machine().read(|state| {
                let holds = |(id, generation): &(ReplicaId, Generation)| {
                    let held =
                        state.replica(id).into_iter().flat_map(plimsoll_model::Replica::holds);
                    held.into_iter().any(|it| it.generation == *generation && it.node == *caller)
                };
                replicas.into_iter().filter(|(key, _)| holds(key)).collect()
            })
        });
        let mut measured = self.cell.measurements.lock();
        measured.nodes.insert(caller.clone(), node);
        measured.replicas.extend(own);
    }
}

/// What one node has been told of the endpoints.
struct EndpointsFeed {
    latest: watch::Receiver<Option<Arc<Endpoints>>>,
    told: Option<Arc<Endpoints>>,
    /// When it may be told again.
    due: Instant,
}

impl EndpointsFeed {
    fn new(cell: &NodeContext) -> Self {
        Self { latest: cell.endpoints.watch(), told: None, due: Instant::now() }
    }

    fn forget(&mut self) {
        self.told = None;
    }

    /// What is new; waits until something is. Nothing is lost where it is given up before.
    async fn next(&mut self) -> EndpointsUpdate {
        sleep_until(self.due).await;
        loop {
            let endpoints = self.latest.borrow_and_update().clone();
            if let Some(endpoints) =
                endpoints.filter(|endpoints| self.told.as_ref() != Some(endpoints))
            {
                let update = endpoints.since(self.told.as_deref());
                (self.told, self.due) = (Some(endpoints), Instant::now() + ENDPOINTS_PACE);
                return update;
            }
            if self.latest.changed().await.is_err() {
                // The process ends.
                std::future::pending::<()>().await;
            }
        }
    }
}

/// What one node has been told of certificates.
struct CertificatesFeed {
    cell: NodeContext,
    listeners: HttpListeners,
    own: watch::Receiver<Option<Arc<RouteCertificates>>>,
    endpoints: watch::Receiver<Option<Arc<Endpoints>>>,
    authorities: watch::Receiver<Option<Arc<CellAuthorities>>>,
    given: AgentCertificates,
    /// Nothing, to begin with: to a node that needs nothing, nothing is said.
    told: RouteCertificates,
}

impl CertificatesFeed {
    fn new(cell: &NodeContext, listeners: HttpListeners) -> Self {
        let (own, endpoints) = (cell.certificates.watch(), cell.endpoints.watch());
        let authorities = cell.authorities.watch();
        let (given, told) = (AgentCertificates::default(), RouteCertificates::default());
        Self { cell: cell.clone(), listeners, own, endpoints, authorities, given, told }
    }

    fn forget(&mut self) {
        self.told = RouteCertificates::default();
    }

    /// What it needs; waits until that is something else than before. Nothing is lost where it is given up before.
    async fn next(&mut self) -> RouteCertificates {
        loop {
            let own = self.own.borrow_and_update().clone().unwrap_or_default();
            let endpoints = self.endpoints.borrow_and_update().clone();
            if let Some(endpoints) = endpoints {
                let authority = || authority(&self.cell).ok().flatten();
                let fresh = self.given.of(&endpoints, &own, self.listeners, authority, now());
                if self.told != fresh {
                    self.told.clone_from(&fresh);
                    return fresh;
                }
            }
            let due = self.given.due().map_or(LOOK, |due| span(due.since(now())).max(RETRY));
            tokio::select! {
                _ = self.own.changed() => {}
                _ = self.endpoints.changed() => {}
                // What another authority signed is issued again by this one.
                _ = self.authorities.changed() => self.given = AgentCertificates::default(),
                () = sleep(due.min(LOOK)) => {}
            }
        }
    }
}

/// Writes down what a node offers, if that has changed since it was last here; with a key, takes it in by that.
pub(super) async fn welcome(
    cell: &NodeContext,
    node: &NodeId,
    facts: &NodeFacts,
    key: Option<Digest>,
) -> Result<(), Refused> {
    let is_known =
        |known: &plimsoll_model::Node| known.facts == *facts && (key.is_none() || known.key == key);
    if cell.engine.machine().read(|state| state.node(node).is_some_and(is_known)) {
        return Ok(());
    }
    let (id, facts) = (node.clone(), facts.clone());
    let change = match key {
        Some(key) => Change::Enrol { node: id, facts, key },
        None => Change::PutNode { node: id, facts },
    };
    match cell.write(Writer::Agent, node.as_str(), vec![change.free()]).await {
        Err(why) if key.is_some() => Err(Refused::NotTakenIn { node: node.clone(), why }),
        Err(error) => {
            tracing::warn!(%node, %error, "cannot write the node's resources");
            Ok(())
        }
        Ok(_) => Ok(()),
    }
}

/// Where this node leads: the same, without a wire between.
pub(super) async fn local(
    cell: &NodeContext,
    dispatch: &Dispatch,
    term: Term,
    fence: &mut Fence,
    orders: &AssignmentSender,
    outbox: &mut Outbox,
) {
    match fence.admit(term).await {
        Ok(true) => {}
        Ok(false) => {
            tracing::error!(
                term = term.0,
                seen = fence.seen().0,
                "this node leads an older term than it has seen"
            );
            return;
        }
        Err(error) => {
            tracing::error!(%error, "cannot write the term; accepting no orders");
            return;
        }
    }
    let mut told = dispatch.listen(cell.node.clone());
    let tell = async {
        loop {
            orders.put(told.next().await);
        }
    };
    let report = async {
        loop {
            let (seq, reports) = outbox.next().await;
            write(cell, &cell.node, reports).await;
            outbox.written(seq);
        }
    };
    tokio::select! {
        () = tell => {}
        () = report => {}
    }
}

/// Commits what a node saw of its own containers. Returns once it is in the log, however long that takes; who waits no
/// longer drops this.
async fn write(cell: &NodeContext, node: &NodeId, reports: Vec<Report>) {
    // Whoever applies a long entry has the state for as long, and heartbeats must not wait behind who waits for it.
    let batch = aside(|| own(cell, node, reports));
    for piece in batch::pieces(batch, cell.policy.max_changes) {
        write_piece(cell, node, piece).await;
    }
}

async fn write_piece(cell: &NodeContext, node: &NodeId, mut batch: Vec<Guarded>) {
    while !batch.is_empty() {
        match cell.write(Writer::Agent, node.as_str(), batch.clone()).await {
            Ok(_) => return,
            Err(WriteError::Refused(rejection)) => {
                // One word the cell does not take, as of a container it holds for stopped, must not hold up the others.
                tracing::warn!(%node, %rejection, "a report was refused");
                if rejection.position < batch.len() {
                    batch.remove(rejection.position);
                } else {
                    return;
                }
            }
            Err(WriteError::Store(error)) => {
                tracing::debug!(%node, %error, "cannot write reports; retrying");
                sleep(RETRY).await;
            }
        }
    }
}

/// A node speaks of its own containers and of nobody else's.
fn own(cell: &NodeContext, node: &NodeId, reports: Vec<Report>) -> Vec<Guarded> {
    let at = now();
    cell.engine.machine().read(|state| {
        let held = |id: &ReplicaId| {
            let held = state.replica(id).into_iter().flat_map(plimsoll_model::Replica::holds);
            held.filter(|held| held.node == *node).map(|held| held.generation).collect::<Vec<_>>()
        };
        let is_own = |seen: &Seen| held(&seen.replica).contains(&seen.generation);
        let observe = |seen: Seen| {
            let Seen { replica, generation, state, mut code } = seen;
            if let Some(code) = &mut code {
                code.shorten(MAX_TEXT);
            }
            let observation = Observation { state, code, at };
            Change::Observe { replica, generation, observation }.free()
        };
        let removed = |Cleared { deployment, revision }: Cleared| {
            Change::VolumesRemoved { deployment, node: node.clone(), revision }.free()
        };
        let changes = reports.into_iter().filter_map(|report| match report {
            Report::Seen(seen) => is_own(&seen).then(|| observe(seen)),
            Report::Cleared(cleared) => Some(removed(cleared)),
            // Whether it runs any of that is looked at where it is written.
            Report::Declared(Declared { service, spec, paths }) => {
                let node = node.clone();
                Some(Change::DeclareVolumes { service, spec, node, paths }.free())
            }
            Report::VolumeRemoved { volume, order } => {
                let VolumeRef { deployment, name: volume } = volume;
                let node = node.clone();
                let change = VolumeChange::Removed { deployment, volume, node, order };
                Some(Change::Volume { change }.free())
            }
            Report::VolumesCopied { deployment, order, error } => {
                copied(state, node, deployment, order, error)
            }
            Report::Followed { epoch } => {
                Some(Change::ConfirmAuthority { node: node.clone(), epoch }.free())
            }
            Report::Served(Served { replica, mut asked_by, through }) => {
                asked_by.truncate(asked_by.floor_char_boundary(MAX_IDENTITY));
                let is_here = !held(&replica).is_empty();
                let entry = AuditEntry::Serve { replica, asked_by, through };
                is_here.then(|| Change::Record { entry }.free())
            }
        });
        changes.collect()
    })
}

/// The word of the destination of a move, and of nobody else.
fn copied(
    state: &State,
    node: &NodeId,
    deployment: DeploymentName,
    order: Generation,
    error: Option<String>,
) -> Option<Guarded> {
    let moving = state.volumes().get(&deployment)?.moving.as_ref()?;
    if moving.order != order || moving.dst != *node {
        return None;
    }
    let change = match error {
        None => VolumeChange::Copied { deployment, node: node.clone(), order },
        Some(mut error) => {
            error.truncate(error.floor_char_boundary(MAX_TEXT));
            let why = VolumeMoveFailure::Copy { error };
            VolumeChange::GiveUp { deployment, order, why }
        }
    };
    Some(Change::Volume { change }.free())
}

/// The next message; none when the other side has ended.
pub(super) async fn next<T: serde::de::DeserializeOwned>(
    from: &mut mpsc::Receiver<Vec<u8>>,
    frames: &mut Frames,
) -> io::Result<Option<T>> {
    loop {
        if let Some(message) = frames.take()? {
            return Ok(Some(message));
        }
        match from.recv().await {
            Some(piece) => frames.push(&piece),
            None => return Ok(None),
        }
    }
}
