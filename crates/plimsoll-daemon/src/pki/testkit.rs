//! Cells and nodes for tests: `cell("blue").node("ash")`.

use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_model::{ClusterId, Millis, NodeId, Timestamp};

use super::{Authority, Credentials, Identity, NODE_LIFETIME};

pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp(u64::try_from(since.as_millis()).unwrap())
}

pub(crate) fn node(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

pub(crate) fn cell(name: &str) -> Authority {
    Authority::found(&ClusterId::new(name).unwrap(), now()).unwrap()
}

impl Authority {
    pub(crate) fn identity(&self, name: &str, at: Timestamp, lifetime: Millis) -> Identity {
        let (key, csr) = Identity::new_key().unwrap();
        let certificate = self.issue(&csr, &node(name), at, lifetime).unwrap();
        Identity::new(key, certificate, self.certificate().clone()).unwrap()
    }

    pub(crate) fn node(&self, name: &str) -> Credentials {
        Credentials::new(&self.identity(name, now(), NODE_LIFETIME)).unwrap()
    }

    /// A node whose certificate ran out a minute ago.
    pub(crate) fn expired(&self, name: &str) -> Credentials {
        let then = Timestamp(now().0 - Millis::minutes(61).0);
        Credentials::new(&self.identity(name, then, Millis::minutes(60))).unwrap()
    }
}

impl Identity {
    pub(crate) fn key_for_tests(&self) -> Vec<u8> {
        self.key.0.clone()
    }

    /// A broken one: the key is another's.
    pub(crate) fn with_key_for_tests(mut self, key: Vec<u8>) -> Self {
        self.key = super::NodeKey(key);
        self
    }
}
