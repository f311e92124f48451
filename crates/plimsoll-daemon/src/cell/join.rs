//! How a node joins a cell: it brings a token to any of the cell's nodes, over a connection on which that node has proved
//! that it is of the cell the token is for, and takes a certificate and a number home.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use plimsoll_model::{CellId, Level, NodeFacts, NodeId};
use plimsoll_store::Incarnation;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::ANSWER;
use crate::authorities::CellAuthorities;
use crate::context::WriteError;
use crate::servers::ServerList;
use plimsoll_api::view::Problem;
use plimsoll_peer as peer;
use plimsoll_peer::pki::{self, Identity, JoinAddress};

/// The version of what is asked and answered.
pub const VERSION: u32 = 1;

pub const PATH: &str = "/peer/join";

/// What a newcomer asks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JoinRequest {
    pub version: u32,
    /// What it can read of what the cell writes.
    #[serde(default)]
    pub level: Level,
    pub token: String,
    pub node: NodeId,
    pub facts: NodeFacts,
    pub csr: Vec<u8>,
}

/// What it is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    pub cell_id: CellId,
    pub certificate: Vec<u8>,
    /// Its number as a server.
    pub server: u64,
    /// Where the log is.
    pub servers: ServerList,
    /// The life of the cell it is taken into.
    #[serde(default)]
    pub incarnation: Incarnation,
    /// Whom it is to trust.
    #[serde(default)]
    pub authorities: Option<CellAuthorities>,
}

#[derive(Debug, Error)]
pub enum Error {
    #[error(transparent)]
    Identity(#[from] pki::Error),
    #[error(transparent)]
    Peer(#[from] peer::Error),
    #[error(
        "the token is for cell {found}, and --cell names {wanted}: leave out --cell, or bring a token of {wanted}"
    )]
    OtherCell { found: CellId, wanted: CellId },
    #[error("{0}")]
    Refused(String),
    #[error("the answer cannot be understood: {0}")]
    Answer(String),
    #[error("this node was removed from the cell; to come back as a new one, empty {}", dir.display())]
    Removed { dir: PathBuf },
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Joins, and keeps the identity it was given. Where the cell was named it must be that one, or the token stays good.
pub async fn join(
    at: &JoinAddress,
    cell_id: Option<&CellId>,
    node: &NodeId,
    facts: NodeFacts,
    data_dir: &Path,
) -> Result<(Admission, Identity), Error> {
    if let Some(wanted) = cell_id {
        let found = peer::meet(at.token.fingerprint(), &at.address, ANSWER).await?.cell_id;
        if found != *wanted {
            return Err(Error::OtherCell { found, wanted: wanted.clone() });
        }
    }
    let (key, csr) = Identity::new_key()?;
    let (token, csr) = (at.token.to_string(), csr.as_der().to_vec());
    let (version, level, node) = (VERSION, Level::BUILD, node.clone());
    let request = JoinRequest { version, level, token, node, facts, csr };
    let body = serde_json::to_vec(&request).map_err(|error| Error::Answer(error.to_string()))?;
    let fingerprint = at.token.fingerprint();
    let met = peer::ask(fingerprint, &at.address, PATH, Bytes::from(body), ANSWER).await?;
    let understood = |error: serde_json::Error| Error::Answer(error.to_string());
    if !met.response.status.is_success() {
        let problem: Problem = serde_json::from_slice(&met.response.body).map_err(understood)?;
        let hint = problem.hint.map(|hint| format!("; {hint}")).unwrap_or_default();
        return Err(Error::Refused(format!("{}{hint}", problem.message)));
    }
    let admission: Admission = serde_json::from_slice(&met.response.body).map_err(understood)?;
    // Whoever answered has proved to be of the cell: its word on whom to trust counts, also where the token names an authority
    // that is on its way out.
    let told = admission.authorities.as_ref();
    let anchors: Vec<_> = told.map(|told| told.anchors().collect()).unwrap_or_default();
    let known = std::iter::once(&met.authority).chain(&anchors);
    let identity = Identity::signed_by_any(&key, admission.certificate.clone(), known)?;
    let identity = identity.trusting(anchors, told.map_or(0, |told| told.epoch));
    identity.store(data_dir)?;
    Ok((admission, identity))
}
