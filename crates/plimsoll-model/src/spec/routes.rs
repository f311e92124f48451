//! Which HTTP requests a deployment answers, and with which of its services.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::ServiceName;

/// HTTP requests for a host and path, and the service that answers them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RouteSpec {
    /// `None` answers for every host.
    pub host: Option<String>,
    /// A prefix, beginning with `/`.
    pub path: String,
    /// Whether the service sees the request without the prefix.
    pub strip_path: bool,
    pub service: ServiceName,
    pub port: u16,
    pub tls: Tls,
}

impl RouteSpec {
    /// Whether two routes ask for the same requests, however they are written.
    pub fn is_same_claim(&self, other: &Self) -> bool {
        self.claim() == other.claim()
    }

    /// The prefix without a slash at its end, which makes no difference.
    pub fn prefix(&self) -> &str {
        match self.path.trim_end_matches('/') {
            "" => "/",
            path => path,
        }
    }

    /// Hosts are compared without case and final dot.
    fn claim(&self) -> (Option<String>, &str) {
        (self.host.as_deref().map(bare_name), self.prefix())
    }
}

/// A host as certificates are kept for it: in lower case, without the final dot.
pub fn bare_name(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// `shop.example/api`, or `*/api` for every host.
impl fmt::Display for RouteSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, prefix) = self.claim();
        write!(f, "{}{prefix}", host.as_deref().unwrap_or("*"))
    }
}

/// Where a route's certificate comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tls {
    #[default]
    Off,
    /// Issued by the cell's own authority.
    Internal,
    /// Read from the nodes' certificate directory.
    Files,
    /// Asked of an ACME authority, and renewed.
    Auto,
}
