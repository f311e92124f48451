//! When a node that takes over from another process may let clients in: once its router knows the way to everything that the
//! chart says takes requests. Before that, clients who come are the other's.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::Routing;
use super::chart::{Chart, Container, Turn};

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
        let standing = self.cell.engine.standing();
        // What this node's log said when the other process closed it may be old by now.
        let is_fresh = standing.heard.is_some() && standing.applied >= standing.committed;
        if self.cell.holds_log() && !is_fresh {
            return false;
        }
        self.cell.soft.chart().is_some_and(|chart| self.leads_to_all(&chart))
    }

    fn leads_to_all(&self, chart: &Chart) -> bool {
        chart.services.values().all(|listing| {
            let is_led_to = |container: &&Container| {
                // By its ports from everywhere, and at any port by those who know its name.
                let is_named = !listing.networks.is_empty() && container.node == self.cell.node;
                container.turn == Turn::Takes && (is_named || !container.ports.is_empty())
            };
            let mut takers = listing.containers.iter().filter(is_led_to);
            takers.all(|one| self.is_in(&one.replica.to_string(), one.generation) == Some(true))
        })
    }
}
