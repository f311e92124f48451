//! What this node's router goes by: the endpoints as its log has them, or as the leader told it.

use std::sync::Arc;

use plimsoll_kernel::endpoints::{Endpoints, EndpointsUpdate};
use tokio::sync::watch;

/// None while neither is known.
#[derive(Debug, Clone, Default)]
pub struct EndpointFeed(watch::Sender<Option<Arc<Endpoints>>>);

impl EndpointFeed {
    pub fn latest(&self) -> Option<Arc<Endpoints>> {
        self.0.borrow().clone()
    }

    pub fn watch(&self) -> watch::Receiver<Option<Arc<Endpoints>>> {
        self.0.subscribe()
    }

    pub fn set(&self, endpoints: Endpoints) {
        self.0.send_if_modified(|known| {
            let is_new = known.as_deref() != Some(&endpoints);
            if is_new {
                *known = Some(Arc::new(endpoints));
            }
            is_new
        });
    }

    /// The leader says what has changed of the endpoints.
    pub fn update(&self, update: EndpointsUpdate) {
        let known = self.latest().unwrap_or_default();
        self.set(known.updated(update));
    }
}
