//! The link of a cell to the coordinator of its fleet, while this node leads: every cycle it reports what the shard says of itself,
//! and hands over what it is told. Nothing waits for it. With the coordinator gone the cell goes on with the machines it has.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use plimsoll_api::view::{Problem, ProblemCode};
use plimsoll_kernel::shard;
use plimsoll_model::acme::SecretKey;
use plimsoll_model::fleet::{
    Ack, CoordinatorAnswer, FleetMembership, InstructionId, MAX_PENDING, MembershipChange,
    ReportOrder, ShardKinds, ShardMessage,
};
use plimsoll_model::{Change, NodeId, Term, Writer};
use plimsoll_store::{Leadership, Peer};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::authorities::CellAuthorities;
use crate::cell::ANSWER;
use crate::context::{NodeContext, WriteError, now};
use crate::fleet::{
    ENROL, EnrolRequest, Enrolment, FleetLinkStatus, MAX_WAIT, Misdirected, REPORT, ReportAnswer,
    ReportRequest, VERSION,
};
use plimsoll_peer::pki::{self, Credentials, FleetAddress, Identity, NodeKey};
use plimsoll_peer::{self as peer, PeerClient, Target};

/// How often a shard reports.
pub const CYCLE: Duration = Duration::from_secs(10);

/// The soonest that it reports again once it has carried something out.
const SOON: Duration = Duration::from_millis(500);

/// How long to leave a coordinator alone that did not answer.
const RETRY: Duration = Duration::from_secs(2);

/// How often it is looked whether the cell has joined a fleet meanwhile.
const LOOK: Duration = Duration::from_secs(1);

/// Who the audit says it was.
const IDENTITY: &str = "fleet link";

/// Why a cell was not let into a fleet.
#[derive(Debug, Error)]
pub enum JoinError {
    #[error(transparent)]
    Identity(#[from] pki::Error),
    #[error(transparent)]
    Peer(#[from] peer::Error),
    #[error("the coordinator refused: {}", .0.message)]
    Refused(Box<Problem>),
    #[error("the answer of the coordinator cannot be understood: {0}")]
    Answer(String),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Joins with a token. The key is made here and kept in the replicated state, so that whoever leads the cell can speak for it.
pub async fn join(cell: &NodeContext, by: &str, at: &FleetAddress) -> Result<(), JoinError> {
    let (key, csr) = Identity::new_key()?;
    let token = at.token.to_string();
    let request = EnrolRequest { version: VERSION, token, csr: csr.as_der().to_vec() };
    let garbled = |error: serde_json::Error| JoinError::Answer(error.to_string());
    let body = Bytes::from(serde_json::to_vec(&request).map_err(garbled)?);
    let met = peer::ask(at.token.fingerprint(), &at.address, ENROL, body, ANSWER).await?;
    if !met.response.status.is_success() {
        let problem: Problem = serde_json::from_slice(&met.response.body).map_err(garbled)?;
        return Err(JoinError::Refused(Box::new(problem)));
    }
    let enrolment: Enrolment = serde_json::from_slice(&met.response.body).map_err(garbled)?;
    let Enrolment { shard, certificate, servers, authorities } = enrolment;
    let anchors: Vec<_> = authorities.anchors().collect();
    // It must be good, or this cell would be shut out with a token spent.
    Identity::signed_by_any(&key, certificate.clone(), &anchors)?;
    let membership = FleetMembership {
        shard,
        coordinator: met.by.cell_id,
        servers: named(&servers),
        key: SecretKey::new(key.expose().to_vec()),
        certificate,
        authorities: anchors.iter().map(|it| it.to_vec()).collect(),
        joined_at: now(),
    };
    set(cell, by, Writer::Operator, membership).await?;
    Ok(())
}

async fn set(
    cell: &NodeContext,
    by: &str,
    writer: Writer,
    membership: FleetMembership,
) -> Result<(), WriteError> {
    let change = MembershipChange::Set { membership: Box::new(membership) };
    cell.write(writer, by, vec![Change::FleetMembership { change }.free()]).await.map(drop)
}

/// Those that can be called.
fn named(servers: &[Peer]) -> BTreeMap<NodeId, String> {
    let known = servers.iter().filter(|peer| !peer.address.is_empty());
    known.filter_map(|peer| Some((NodeId::new(&peer.name).ok()?, peer.address.clone()))).collect()
}

/// Reports whenever this node leads and the cell is in a fleet, until told to stop.
pub async fn run(cell: NodeContext, mut shutdown: watch::Receiver<bool>) {
    let mut leadership = cell.engine.leadership();
    loop {
        tokio::select! {
            elected = leadership.wait_for(|leadership| leadership.is_me) => {
                if elected.is_err() {
                    return;
                }
            }
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
        let term = leadership.borrow().term;
        tokio::select! {
            () = FleetLink::new(&cell, term).run() => {}
            _ = leadership.wait_for(|now: &Leadership| !now.is_me || now.term != term) => {}
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
        *cell.fleet_link.lock() = FleetLinkStatus::default();
    }
}

/// What one exchange came to.
enum Exchanged {
    /// Something was carried out: the coordinator is to hear of it soon.
    Acted,
    Nothing,
    Failed(String),
}

struct FleetLink<'c> {
    cell: &'c NodeContext,
    /// The next report is later than this one: a term of this cell, and a number that grows in it.
    order: ReportOrder,
    /// For the membership it was made of.
    client: Option<(FleetMembership, PeerClient, Identity)>,
    /// Who led when it was last heard of.
    leader: Option<Target>,
    turn: usize,
    kinds: ShardKinds,
    knows_kinds: bool,
    /// What the last report said about instructions.
    said: Vec<(InstructionId, Ack)>,
}

impl<'c> FleetLink<'c> {
    fn new(cell: &'c NodeContext, term: Term) -> Self {
        Self {
            cell,
            order: ReportOrder { epoch: term.0, cycle: 0 },
            client: None,
            leader: None,
            turn: 0,
            kinds: ShardKinds::default(),
            knows_kinds: false,
            said: Vec::new(),
        }
    }

    async fn run(mut self) {
        loop {
            let membership =
                self.cell.engine.machine().read(|state| state.fleet_membership().cloned());
            let Some(membership) = membership else {
                self.client = None;
                *self.cell.fleet_link.lock() = FleetLinkStatus::default();
                sleep(LOOK).await;
                continue;
            };
            let begun = Instant::now();
            let next = match self.exchange(&membership).await {
                Exchanged::Acted => SOON,
                Exchanged::Nothing => CYCLE,
                Exchanged::Failed(why) => {
                    self.leader = None;
                    tracing::debug!(why, "the coordinator of the fleet did not answer");
                    self.cell.fleet_link.lock().trouble = Some(why);
                    RETRY
                }
            };
            sleep_until(begun + next).await;
        }
    }

    /// One report, and what comes back.
    async fn exchange(&mut self, membership: &FleetMembership) -> Exchanged {
        let (client, identity) = match self.client(membership) {
            Ok(client) => client,
            Err(error) => return Exchanged::Failed(error.to_string()),
        };
        self.order.cycle += 1;
        let (kinds, report) = self.cell.engine.machine().read(|state| {
            let report = shard::report(state, membership.shard.clone(), self.order);
            (ShardKinds::of(shard::registration(state.machines()), &report), report)
        });
        if self.kinds != kinds {
            (self.kinds, self.knows_kinds) = (kinds, false);
        }
        self.said = self.acks();
        let acks = self.said.clone();
        let message = match ShardMessage::new(report, &self.kinds, !self.knows_kinds, acks) {
            Ok(message) => message,
            Err(error) => return Exchanged::Failed(error.to_string()),
        };
        let csr = match another_certificate(membership, &identity) {
            Ok(csr) => csr,
            Err(error) => return Exchanged::Failed(error.to_string()),
        };
        let wait_ms = u64::try_from(MAX_WAIT.as_millis()).unwrap_or(u64::MAX);
        let said = ReportRequest { message, csr, wait_ms };
        let Ok(body) = postcard::to_stdvec(&said) else {
            return Exchanged::Failed("the report cannot be written".to_owned());
        };
        let Some(to) = self.leader.clone().or_else(|| self.any(membership)) else {
            return Exchanged::Failed("no server of the coordinator is known".to_owned());
        };
        let within = MAX_WAIT + ANSWER;
        let asked = client.call(&to, Method::POST, REPORT, body.into(), within).await;
        let response = match asked {
            Ok(response) => response,
            Err(error) => return Exchanged::Failed(error.to_string()),
        };
        if response.status == StatusCode::MISDIRECTED_REQUEST {
            return self.redirected(&response.body);
        }
        if !response.status.is_success() {
            let problem = serde_json::from_slice::<Problem>(&response.body);
            let why = problem.map_or_else(|_| response.status.to_string(), |it| it.message);
            return Exchanged::Failed(why);
        }
        let Ok(answer) = postcard::from_bytes::<ReportAnswer>(&response.body) else {
            return Exchanged::Failed("the answer cannot be understood".to_owned());
        };
        self.leader = Some(to);
        self.take(membership, answer).await
    }

    /// Another one leads, or nobody knows who does.
    fn redirected(&mut self, body: &[u8]) -> Exchanged {
        let leader = serde_json::from_slice::<Misdirected>(body).ok().and_then(|it| it.leader);
        let Some(to) = leader.as_ref().and_then(crate::cell::target) else {
            return Exchanged::Failed("the coordinator has no leader".to_owned());
        };
        self.leader = Some(to);
        Exchanged::Acted
    }

    async fn take(&mut self, membership: &FleetMembership, said: ReportAnswer) -> Exchanged {
        let ReportAnswer { answer, servers, authorities, certificate } = said;
        *self.cell.fleet_link.lock() = FleetLinkStatus { answered_at: Some(now()), trouble: None };
        self.knows_kinds = !answer.wants_kinds;
        let learnt = learnt(membership, &servers, &authorities, certificate);
        if learnt != *membership
            && let Err(error) = set(self.cell, IDENTITY, Writer::Agent, learnt).await
        {
            tracing::warn!(%error, "cannot write what the coordinator said of itself");
        }
        let wants = answer.wants_kinds;
        self.obey(&answer).await;
        // What was answered before, the coordinator asks for until it can be done: that is said again with the next cycle.
        if wants || self.acks().iter().any(|ack| !self.said.contains(ack)) {
            Exchanged::Acted
        } else {
            Exchanged::Nothing
        }
    }

    /// What became of instructions, as far as the coordinator may not have heard. It never has more of them waiting.
    fn acks(&self) -> Vec<(InstructionId, Ack)> {
        self.cell.engine.machine().read(|state| {
            let acks = state.machines().acks().iter().rev().take(MAX_PENDING);
            acks.map(|(id, ack)| (*id, ack.clone())).collect()
        })
    }

    /// Writes what follows from the answer. An instruction that is refused holds up no other: it is said again, and decided anew.
    async fn obey(&self, answer: &CoordinatorAnswer) {
        let batches = self.cell.engine.machine().read(|state| {
            // A leader that was deposed knows less than was answered meanwhile.
            if answer.term < state.machines().term() {
                return Vec::new();
            }
            shard::obey_all(state, &answer.instructions, now())
        });
        for batch in batches {
            if let Err(error) = self.cell.write(Writer::Shard, IDENTITY, batch).await {
                tracing::info!(%error, "an instruction of the coordinator was not written");
            }
        }
    }

    /// The next of its servers each time.
    fn any(&mut self, membership: &FleetMembership) -> Option<Target> {
        self.turn += 1;
        let at = self.turn.checked_rem(membership.servers.len())?;
        let (node, address) = membership.servers.iter().nth(at)?;
        Some(Target { node: node.clone(), address: address.clone() })
    }

    fn client(&mut self, of: &FleetMembership) -> Result<(PeerClient, Identity), pki::Error> {
        if let Some((known, client, identity)) = &self.client
            && (&known.certificate, &known.authorities) == (&of.certificate, &of.authorities)
        {
            return Ok((client.clone(), identity.clone()));
        }
        let key = NodeKey::from_pkcs8(of.key.expose().to_vec());
        let anchors: Vec<_> = of.authorities.iter().map(|it| it.clone().into()).collect();
        let identity = Identity::signed_by_any(&key, of.certificate.clone(), &anchors)?;
        let identity = identity.trusting(anchors, 0);
        let client = PeerClient::new(Credentials::new(&identity)?);
        self.client = Some((of.clone(), client.clone(), identity.clone()));
        Ok((client, identity))
    }
}

/// A request for another certificate, where this one runs out or is of an authority that signs no more.
fn another_certificate(
    of: &FleetMembership,
    identity: &Identity,
) -> Result<Option<Vec<u8>>, pki::Error> {
    let signs = of.authorities.first().is_some_and(|it| identity.authority().as_ref() == *it);
    if signs && !identity.renew_due(now()) {
        return Ok(None);
    }
    let (_, csr) = identity.another()?;
    Ok(Some(csr.as_der().to_vec()))
}

/// What this cell knows of its coordinator by now.
fn learnt(
    of: &FleetMembership,
    servers: &[Peer],
    authorities: &CellAuthorities,
    certificate: Option<Vec<u8>>,
) -> FleetMembership {
    let mut next = of.clone();
    let servers = named(servers);
    if !servers.is_empty() {
        next.servers = servers;
    }
    let anchors: Vec<Vec<u8>> = authorities.anchors().map(|it| it.to_vec()).collect();
    if !anchors.is_empty() {
        next.authorities = anchors;
    }
    next.certificate = certificate.unwrap_or(next.certificate);
    next
}

/// What whoever asked to join is told.
pub fn refused(error: &JoinError) -> Problem {
    match error {
        JoinError::Refused(problem) => (**problem).clone(),
        JoinError::Write(error) => crate::problem::written(error),
        JoinError::Identity(_) | JoinError::Peer(_) | JoinError::Answer(_) => {
            let text = plimsoll_runtime::chain(error);
            Problem::new(ProblemCode::CoordinatorUnreachable, text)
        }
    }
}
