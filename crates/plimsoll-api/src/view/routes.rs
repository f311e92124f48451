//! HTTP routes, as they are told.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Certificate, Reason};

/// Which HTTP requests go to which service, and whether anyone is there to answer them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Route {
    /// `shop.example`, `*.shop.example`; none: every host.
    pub host: Option<String>,
    pub path: String,
    pub deployment: String,
    pub service: String,
    pub port: u16,
    /// Whether the service sees requests without the path.
    pub strip_path: bool,
    /// `off`, `internal`, `files` or `auto`.
    pub tls: String,
    /// How many containers take requests.
    pub taking: u32,
    /// What keeps this node from serving it as it is asked for.
    pub notes: Vec<Reason>,
}

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RouteExplanation {
    pub route: Route,
    /// What its host shows, where it is served under TLS.
    pub certificate: Option<Certificate>,
    /// Whose router tells what is under way.
    pub told_by: String,
    /// Every container of the service, those that take requests first.
    pub containers: Vec<RouteContainer>,
}

/// A container that a route may lead to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RouteContainer {
    pub replica: String,
    pub generation: u64,
    pub node: String,
    pub takes_requests: bool,
    /// Requests under way to it from the node that tells this.
    pub in_flight: Option<u32>,
    /// Why it takes requests, or why not.
    pub reason: Reason,
}

/// Which request is asked about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct RouteQuery {
    pub host: String,
    pub path: String,
}
