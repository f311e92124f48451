//! Cells and nodes for tests: `cell("blue").node("ash")`.

use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_model::{CellId, Millis, NodeId, Timestamp};

use super::{Authority, Credentials, Identity, NODE_LIFETIME};

pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock past 1970");
    Timestamp(u64::try_from(since.as_millis()).expect("a time of this age"))
}

pub fn node(name: &str) -> NodeId {
    NodeId::new(name).expect("a valid name")
}

pub fn cell(name: &str) -> Authority {
    Authority::found(&CellId::new(name).expect("a valid name"), now()).expect("keys can be made")
}

impl Authority {
    pub fn identity(&self, name: &str, at: Timestamp, lifetime: Millis) -> Identity {
        let (key, csr) = Identity::new_key().expect("keys can be made");
        let certificate = self.issue(&csr, &node(name), at, lifetime).expect("keys can be made");
        Identity::new(key, certificate, self.certificate().clone()).expect("keys can be made")
    }

    pub fn node(&self, name: &str) -> Credentials {
        Credentials::new(&self.identity(name, now(), NODE_LIFETIME)).expect("keys can be made")
    }

    /// A shard of the fleet that the cell coordinates.
    pub fn shard(&self, name: &str) -> Credentials {
        let (key, csr) = Identity::new_key().expect("keys can be made");
        let issued = self.issue_shard(&csr, &node(name), now(), NODE_LIFETIME);
        let identity =
            Identity::new(key, issued.expect("keys can be made"), self.certificate().clone());
        Credentials::new(&identity.expect("keys can be made")).expect("keys can be made")
    }

    /// A node whose certificate ran out a minute ago.
    pub fn expired(&self, name: &str) -> Credentials {
        let then = Timestamp(now().0 - Millis::minutes(61).0);
        Credentials::new(&self.identity(name, then, Millis::minutes(60))).expect("keys can be made")
    }
}

impl Identity {
    pub fn key_for_tests(&self) -> Vec<u8> {
        self.key.0.clone()
    }

    /// A broken one: the key is another's.
    pub fn with_key_for_tests(mut self, key: Vec<u8>) -> Self {
        self.key = super::NodeKey(key);
        self
    }
}
