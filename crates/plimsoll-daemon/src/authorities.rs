//! Which authorities this cell trusts and which one signs, as this node last heard: from its log, or from its leader. Of two
//! words the later one counts, by the number that the cell gives to each.

use std::sync::Arc;

use plimsoll_model::State;
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use plimsoll_peer::pki::Identity;

/// The authorities of a cell at one epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellAuthorities {
    pub epoch: u64,
    /// Whether the cell waits for its nodes to follow.
    pub is_rotating: bool,
    /// Their certificates, the one that signs first.
    certificates: Vec<Vec<u8>>,
}

impl CellAuthorities {
    /// None before the cell is founded.
    pub fn of(state: &State) -> Option<Self> {
        let access = state.access();
        access.authority.as_ref()?;
        Some(Self {
            epoch: access.authority_epoch,
            is_rotating: access.rotation.is_some(),
            certificates: access.anchors().map(<[u8]>::to_vec).collect(),
        })
    }

    pub fn anchors(&self) -> impl Iterator<Item = CertificateDer<'static>> {
        self.certificates.iter().map(|certificate| certificate.clone().into())
    }

    /// The one that signs.
    pub fn signs(&self, identity: &Identity) -> bool {
        self.certificates.first().is_some_and(|first| identity.authority().as_ref() == *first)
    }

    /// Whether whoever shows this identity is accepted.
    pub fn accept(&self, identity: &Identity) -> bool {
        self.certificates.iter().any(|known| identity.authority().as_ref() == *known)
    }
}

/// None while nothing is known.
#[derive(Debug, Clone, Default)]
pub struct AuthorityFeed(watch::Sender<Option<Arc<CellAuthorities>>>);

impl AuthorityFeed {
    pub fn latest(&self) -> Option<Arc<CellAuthorities>> {
        self.0.borrow().clone()
    }

    pub fn watch(&self) -> watch::Receiver<Option<Arc<CellAuthorities>>> {
        self.0.subscribe()
    }

    /// A word on the authorities, which counts if it is the latest.
    pub fn offer(&self, authorities: CellAuthorities) {
        self.0.send_if_modified(|known| {
            let is_news = known.as_ref().is_none_or(|known| known.epoch < authorities.epoch);
            if is_news {
                *known = Some(Arc::new(authorities));
            }
            is_news
        });
    }

    /// What this node's log says. It is looked at often, and seldom new.
    pub fn read(&self, machine: &plimsoll_store::Machine) {
        let known = self.0.borrow().as_ref().map(|known| known.epoch);
        let news = machine.read(|state| {
            let is_news = known.is_none_or(|known| known < state.access().authority_epoch);
            is_news.then(|| CellAuthorities::of(state)).flatten()
        });
        if let Some(news) = news {
            self.offer(news);
        }
    }
}
