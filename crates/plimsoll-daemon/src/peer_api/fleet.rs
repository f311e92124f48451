//! What shards ask of a coordinator: to be let in with a token, and to be told what to do. A shard is known by its key alone; what it
//! says of itself nowhere names it.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use hyper::StatusCode;
use plimsoll_model::access::Digest;
use plimsoll_model::fleet::{FleetChange, FleetState, ShardId};
use plimsoll_model::{Change, NodeId, Refusal, Writer};
use plimsoll_store::Peer;

use super::{MAX_ASKED, PeerApi, answer, elsewhere, refuse, say};
use crate::authorities::CellAuthorities;
use crate::cell::{authority, reach};
use crate::context::now;
use crate::fleet::{
    ENROL, EnrolRequest, Enrolment, MAX_REPORT, MAX_WAIT, Misdirected, REPORT, ReportAnswer,
    ReportRequest, VERSION,
};
use crate::problem;
use crate::servers::ServerList;
use plimsoll_api::view::{Problem, ProblemCode};
use plimsoll_peer::pki::{Csr, FleetToken, NODE_LIFETIME};
use plimsoll_peer::{KnownShard, read_whole};

pub(super) fn router(gate: Arc<PeerApi>) -> Router {
    Router::new().route(ENROL, post(enrol)).route(REPORT, post(report)).with_state(gate)
}

/// A cell with a token. Only the leader can let it in, so it is passed on there.
async fn enrol(State(gate): State<Arc<PeerApi>>, request: Request) -> Response {
    let charge = match gate.charge(&request) {
        Ok(charge) => charge,
        Err(limited) => return *limited,
    };
    let answer = enrolled(&gate, request).await;
    if let Some(charge) = charge
        && !answer.status().is_client_error()
    {
        gate.limiter().refund(charge);
    }
    answer
}

async fn enrolled(gate: &PeerApi, request: Request) -> Response {
    let body = match read_whole(request.into_body(), MAX_ASKED).await {
        Ok(body) => body,
        Err(status) => return status.into_response(),
    };
    if let Some(answer) = elsewhere(gate, ENROL, &body).await {
        return answer;
    }
    let Ok(request) = serde_json::from_slice::<EnrolRequest>(&body) else {
        return say(ProblemCode::BadRequest, "this is not a request to join a fleet");
    };
    match gate.let_in(request).await {
        Ok(enrolment) => axum::Json(enrolment).into_response(),
        Err(refused) => *refused,
    }
}

impl PeerApi {
    async fn let_in(&self, request: EnrolRequest) -> Result<Enrolment, Box<Response>> {
        let machine = self.cell.engine.machine();
        if self.cell.coordinator.is_none() || machine.read(|state| state.fleet().is_none()) {
            return Err(Box::new(answer(&problem::refusal(&Refusal::NotCoordinator))));
        }
        if request.version != VERSION {
            let message =
                format!("it joins in version {}, this fleet in {VERSION}", request.version);
            return refuse(ProblemCode::Version, &message);
        }
        let Ok(token) = request.token.parse::<FleetToken>() else {
            return refuse(ProblemCode::TokenUnknown, "this is not a token for a fleet");
        };
        // Looked up before anything is worked out or written: a stranger's guess must cost the fleet nothing.
        let token = token.secret_hash();
        let known = machine.read(|state| named(state.fleet(), &token));
        let Some(shard) = known else {
            let message = "this fleet knows no such token";
            return refuse(ProblemCode::TokenUnknown, message);
        };
        let Ok(csr) = Csr::from_der(&request.csr) else {
            return refuse(ProblemCode::BadRequest, "its certificate request cannot be read");
        };
        let key = csr.key();
        // The key of a node of this cell is no shard's: one key is one identity.
        let is_node = machine.read(|state| state.nodes().values().any(|it| it.key == Some(key)));
        if is_node {
            return refuse(ProblemCode::OtherKey, "this key is that of a node of the coordinator");
        }
        let (Ok(Some(authority)), Ok(name)) = (authority(&self.cell), NodeId::new(shard.as_str()))
        else {
            return refuse(ProblemCode::NoAuthority, "the coordinator has no authority yet");
        };
        let change = FleetChange::Enrol { token, shard: shard.clone(), key };
        let batch = vec![Change::Fleet { change: Box::new(change) }.free()];
        let written = self.cell.write(Writer::Operator, shard.as_str(), batch).await;
        written.map_err(|error| Box::new(answer(&problem::written(&error))))?;
        let Ok(certificate) = authority.issue_shard(&csr, &name, now(), NODE_LIFETIME) else {
            return refuse(ProblemCode::Bug, "no certificate could be made");
        };
        let Some(authorities) = machine.read(CellAuthorities::of) else {
            return refuse(ProblemCode::NoAuthority, "the coordinator has no authority yet");
        };
        let servers = ServerList::of(&*self.cell.engine).servers;
        Ok(Enrolment { shard, certificate: certificate.to_vec(), servers, authorities })
    }
}

/// The shard that a token is for.
fn named(fleet: Option<&FleetState>, token: &Digest) -> Option<ShardId> {
    fleet?.tokens().get(token).map(|it| it.shard.clone())
}

/// What a shard has and lacks, and what it did. The answer has what it is to do.
async fn report(State(gate): State<Arc<PeerApi>>, shard: KnownShard, request: Request) -> Response {
    let cell = &gate.cell;
    let Some(coordinator) = &cell.coordinator else {
        return answer(&problem::refusal(&Refusal::NotCoordinator));
    };
    // Looked at before the body is read: whoever is not of the fleet sends nothing.
    let Some(id) = enrolled_as(&gate, &shard) else {
        let message =
            format!("{} is not in this fleet, or another key is enrolled for it", shard.name);
        let hint =
            "join again with a new token: `plimsoll fleet token create NAME` on the coordinator";
        return answer(&Problem::new(ProblemCode::Removed, message).hint(hint));
    };
    if !cell.engine.leadership().borrow().is_me {
        let leader = reach::leader(cell);
        let leader = leader.map(|to| Peer { name: to.node.to_string(), address: to.address });
        let named = axum::Json(Misdirected { leader });
        return (StatusCode::MISDIRECTED_REQUEST, named).into_response();
    }
    let body = match read_whole(request.into_body(), MAX_REPORT).await {
        Ok(body) => body,
        Err(status) => return status.into_response(),
    };
    let Ok(ReportRequest { message, csr, wait_ms }) = postcard::from_bytes(&body) else {
        return say(ProblemCode::BadRequest, "this is not a report of a shard");
    };
    let certificate = match csr.map(|csr| renewed(&gate, &id, shard.key, &csr)).transpose() {
        Ok(certificate) => certificate,
        Err(refused) => return *refused,
    };
    let wait = Duration::from_millis(wait_ms).min(MAX_WAIT);
    let heard = match coordinator.hear(&cell.log(), id, message, wait).await {
        Ok(heard) => heard,
        Err(problem) => return answer(&problem),
    };
    // It may have been expelled while it waited: then it is told nothing.
    if enrolled_as(&gate, &shard).is_none() {
        let message = format!("{} was expelled from the fleet", shard.name);
        return say(ProblemCode::Removed, &message);
    }
    let Some(authorities) = cell.engine.machine().read(CellAuthorities::of) else {
        return say(ProblemCode::NoAuthority, "the coordinator has no authority yet");
    };
    let servers = ServerList::of(&*cell.engine).servers;
    let said = ReportAnswer { answer: heard, servers, authorities, certificate };
    match postcard::to_stdvec(&said) {
        Ok(bytes) => bytes.into_response(),
        Err(_) => say(ProblemCode::Bug, "the answer cannot be written"),
    }
}

/// Which shard this is: the one that its key is enrolled for, under the name that its certificate has.
fn enrolled_as(gate: &PeerApi, shard: &KnownShard) -> Option<ShardId> {
    gate.cell.engine.machine().read(|state| {
        let id = state.fleet()?.shard_of(&shard.key)?;
        (id.as_str() == shard.name).then(|| id.clone())
    })
}

/// Another certificate, for the key that is enrolled: a new one would be another shard under its name.
fn renewed(
    gate: &PeerApi,
    shard: &ShardId,
    key: Digest,
    csr: &[u8],
) -> Result<Vec<u8>, Box<Response>> {
    let Ok(csr) = Csr::from_der(csr) else {
        return refuse(ProblemCode::BadRequest, "its certificate request cannot be read");
    };
    if csr.key() != key {
        let message = format!("the key of this request is not the one enrolled for {shard}");
        return refuse(ProblemCode::OtherKey, &message);
    }
    let (Ok(Some(authority)), Ok(name)) = (authority(&gate.cell), NodeId::new(shard.as_str()))
    else {
        return refuse(ProblemCode::NoAuthority, "the coordinator has no authority yet");
    };
    match authority.issue_shard(&csr, &name, now(), NODE_LIFETIME) {
        Ok(certificate) => Ok(certificate.to_vec()),
        Err(error) => refuse(ProblemCode::BadRequest, &error.to_string()),
    }
}
