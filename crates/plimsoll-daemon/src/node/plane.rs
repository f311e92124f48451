//! What of a node carries clients: its router, and the tunnels that other nodes have opened to its replicas. It may outlive
//! the rest, and then goes on with what it last knew until another process has taken over.

use std::time::Duration;

use plimsoll_router::RouterStage;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use plimsoll_peer::Stay;

/// How long clients may stay after another process has taken over. Requests end long before; what is left are connections
/// that are carried without being understood, and nobody knows when those have said all they wanted to.
pub const LINGER: Duration = Duration::from_mins(10);

/// See the module's own words.
#[derive(Debug)]
pub struct DataPlane {
    stage: watch::Sender<RouterStage>,
    tasks: JoinSet<()>,
    present: mpsc::Sender<()>,
    tunnels: mpsc::Receiver<()>,
}

impl Default for DataPlane {
    fn default() -> Self {
        // Nothing is ever sent: it closes when the last who could is gone.
        let (present, tunnels) = mpsc::channel(1);
        Self { stage: watch::Sender::default(), tasks: JoinSet::new(), present, tunnels }
    }
}

impl DataPlane {
    pub(super) fn stage(&self) -> watch::Receiver<RouterStage> {
        self.stage.subscribe()
    }

    /// How tunnels are kept.
    pub(super) fn stay(&self) -> Stay {
        Stay { stage: self.stage(), present: self.present.clone() }
    }

    pub(super) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Lets nobody in any more, since another process does, and returns once all have left or had their time. Other nodes
    /// are told to open their tunnels there.
    pub async fn leave(mut self) {
        self.stage.send_replace(RouterStage::HandingOver);
        if timeout(LINGER, self.ended()).await.is_err() {
            tracing::info!(
                "cuts connections that were open when another process took over, {} min ago",
                LINGER.as_secs() / 60
            );
        }
    }

    /// Whoever is inside is let go after the request under way.
    pub(super) fn close(&self) {
        self.stage.send_replace(RouterStage::Closing);
    }

    /// Returns once nobody is inside any more.
    pub(super) async fn ended(&mut self) {
        while self.tasks.join_next().await.is_some() {}
        let (present, _) = mpsc::channel(1);
        drop(std::mem::replace(&mut self.present, present));
        while self.tunnels.recv().await.is_some() {}
    }
}
