//! The servers of a cell and who may join or ask, as they are told.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Authority, LeadershipInfo, Problem, Time};

/// The servers of the cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cell {
    pub name: String,
    /// The node that answers.
    pub node: String,
    pub leader: Option<String>,
    pub term: u64,
    pub applied: u64,
    /// Whether nodes can join it.
    pub joinable: bool,
    /// Why nobody leads; none while somebody does.
    #[serde(default)]
    pub trouble: Option<Problem>,
    #[serde(flatten)]
    pub tenure: LeadershipInfo,
    /// The forms it writes, which every server can read.
    #[serde(default)]
    pub level: u32,
    /// What is said while nodes run different versions.
    #[serde(default)]
    pub upgrade: Option<String>,
    /// Servers come, go, or get or lose their votes just now: what is shown of them is not settled.
    #[serde(default)]
    pub is_changing: bool,
    /// None while it cannot be joined.
    #[serde(default)]
    pub authority: Option<Authority>,
    pub servers: Vec<Server>,
}

/// A node that holds the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Server {
    pub id: u64,
    pub node: String,
    pub address: String,
    pub votes: bool,
    pub is_leader: bool,
    /// As it says itself: `leader`, `voter`, `learner` or `standby`. None if it does not answer.
    #[serde(default)]
    pub role: Option<String>,
    /// The last entry that it has applied.
    #[serde(default)]
    pub applied: Option<u64>,
    /// How many entries it lacks of those that the node that answers has applied.
    #[serde(default)]
    pub lag: Option<u64>,
    /// Of the program it runs, as it last said.
    #[serde(default)]
    pub version: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct NewJoinToken {
    /// What it is called in lists and in the audit; chosen when left out.
    #[serde(default)]
    pub name: Option<String>,
    /// How long it is good for; a day at most, and when left out.
    #[serde(default)]
    pub seconds: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JoinToken {
    pub name: String,
    /// What `plimsoll up --join` takes.
    pub join: String,
    pub expires_at: Time,
}

/// A join token as the cell remembers it: never the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JoinTokenStatus {
    pub name: String,
    /// `good`, `used`, `expired` or `revoked`.
    pub state: String,
    pub created_at: Time,
    pub expires_at: Time,
    /// The node that joined with it.
    pub used_by: Option<String>,
}

/// Somebody who may ask for things over the network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Operator {
    pub name: String,
    /// `read`, `deploy` or `admin`.
    pub role: String,
    pub created_at: Time,
    /// The deployments it is bound to, by name or by prefix; none: all.
    #[serde(default)]
    pub deployments: Vec<String>,
    /// None: it is good until it is revoked.
    #[serde(default)]
    pub expires_at: Option<Time>,
    /// As far as the answering node knows since it started.
    #[serde(default)]
    pub last_used: Option<Time>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct NewOperator {
    pub name: String,
    pub role: String,
    /// Bind it to these deployments, by name or by prefix: `shop`, `shop-*`. None: all.
    #[serde(default)]
    pub deployments: Vec<String>,
    /// How long it is good for; until it is revoked when left out.
    #[serde(default)]
    pub seconds: Option<u64>,
    /// The certificate of whoever this is for, in PEM: its key is what they are known by, and no token is made.
    #[serde(default)]
    pub certificate: Option<String>,
}

/// A token, told once and never again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperatorToken {
    pub name: String,
    pub role: String,
    /// What goes into `Authorization: Bearer`; empty for who has a certificate.
    pub token: String,
    /// What `plimsoll login` takes: the token, the fingerprint of the cell's authority, and where some nodes listen; empty for
    /// who has a certificate.
    pub login: String,
    pub expires_at: Option<Time>,
}

/// Who asks, as the answering node knows them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhoAmI {
    /// As the audit names them: `token:ci`, `unix:root`.
    pub identity: String,
    pub role: String,
    /// The deployments they are bound to; none: all.
    pub deployments: Vec<String>,
    /// When their token runs out, if it does.
    pub expires_at: Option<Time>,
    /// The cell's name.
    pub cell: String,
    /// The fingerprints of the authorities that nodes of the cell may have their certificates from.
    pub authorities: Vec<String>,
    /// Where the API of some nodes listens.
    pub addresses: Vec<String>,
}

/// What the certificates of the cell's nodes are signed with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CellAuthority {
    /// SHA-256 of the certificate.
    pub fingerprint: String,
    /// The name that the certificate of every node of the cell has beside its own.
    pub server_name: String,
    /// As PEM.
    pub certificate: String,
}
