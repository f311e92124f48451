//! When a node that takes over from another process may let clients in: once its router knows the way to everything that the
//! endpoints says takes requests. Before that, clients who come are the other's.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::Routing;
use plimsoll_kernel::endpoints::{EndpointState, Endpoints, ReplicaEndpoint};

/// How long a node may take to find its way. One that does not (its engine does not answer, or nobody leads) lets clients in
/// all the same: what it knows by then is no less than after a start.
const SETTLE: Duration = Duration::from_secs(10);

/// How often it is looked at: who leads, what is applied and where containers are change one without the other.
const LOOK: Duration = Duration::from_millis(10);

impl Routing {
    /// Returns once clients are let in.
    pub async fn opened(&self) {
        let mut open = self.open.subscribe();
        let _ = open.wait_for(|open| *open).await;
    }

    pub(super) async fn settle(&self) {
        if self.sockets.is_inherited() {
            let settled = async {
                while !self.knows_the_way() {
                    sleep(LOOK).await;
                }
            };
            if timeout(SETTLE, settled).await.is_err() {
                tracing::warn!(
                    "takes over without knowing where all replicas are: see whether the runtime answers and somebody leads"
                );
            }
        }
        self.open.send_replace(true);
    }

    fn knows_the_way(&self) -> bool {
        let position = self.cell.engine.log_position();
        // What this node's log said when the other process closed it may be old by now.
        let is_fresh = position.heard.is_some() && position.applied >= position.committed;
        if self.cell.holds_log() && !is_fresh {
            return false;
        }
        self.cell.endpoints.latest().is_some_and(|endpoints| self.leads_to_all(&endpoints))
    }

    fn leads_to_all(&self, endpoints: &Endpoints) -> bool {
        endpoints.services.values().all(|listing| {
            let is_led_to = |container: &&ReplicaEndpoint| {
                // By its ports from everywhere, and at any port by those who know its name.
                let is_named = !listing.networks.is_empty() && container.node == self.cell.node;
                container.state == EndpointState::Ready && (is_named || !container.ports.is_empty())
            };
            let mut takers = listing.replicas.iter().filter(is_led_to);
            takers.all(|one| self.is_in(&one.replica.to_string(), one.generation) == Some(true))
        })
    }
}
