//! What this node takes from outside, and what it cannot take and why.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use plimsoll_model::ServiceKey;

use crate::route_certificates::{HeldCertificate, HttpListeners};

#[derive(Debug, Clone, Default)]
pub struct IngressStatus {
    /// Whether this node takes requests for routes in the clear.
    pub serves_http: bool,
    /// And under TLS.
    pub serves_https: bool,
    /// Published ports this node does not listen on for their services, and why, as a sentence.
    pub unbound_ports: BTreeMap<(ServiceKey, SocketAddr), String>,
    /// Hosts of routes that this node has no certificate for, and why, as a sentence.
    pub missing_certificates: BTreeMap<String, String>,
    /// Certificates of routes that this node holds or should hold.
    pub certificates: Vec<HeldCertificate>,
    /// The challenges of ACME authorities that this node answers: hosts and tokens.
    pub answered_challenges: BTreeMap<String, String>,
}

impl IngressStatus {
    pub fn listeners(&self) -> HttpListeners {
        HttpListeners { http: self.serves_http, https: self.serves_https }
    }
}
