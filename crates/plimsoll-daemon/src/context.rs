//! What every part of a daemon holds: the replicated state, the runtime, and who this node is.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use plimsoll_kernel::{Leader, Policy};
use plimsoll_model::access::Digest;
use plimsoll_model::{Event, Generation, Guarded, Millis, NodeId, Writer};
use plimsoll_runtime::Runtime;
use plimsoll_store::{Engine, Peer};

use crate::authorities::AuthorityFeed;
pub use crate::clock::now;
use crate::endpoint_feed::EndpointFeed;
use crate::fleet::{Coordinator, FleetLinkStatus};
use crate::ingress_status::IngressStatus;
use crate::log_writer::LogWriter;
pub use crate::log_writer::WriteError;
use crate::measurements::SharedMeasurements;
use crate::peer_levels::PeerLevels;
use crate::pressure_history::PressureHistory;
use crate::quorum::Quorum;
use crate::route_certificates::CertificateFeed;
use crate::servers::Servers;
use crate::shared::Shared;
use crate::volume_door::VolumeDoor;
use crate::volume_orders::VolumeExport;
use crate::write_latency::WriteLatency;

#[derive(Debug, Clone)]
pub struct NodeContext {
    pub engine: Arc<dyn Engine>,
    pub runtime: Arc<dyn Runtime>,
    pub node: NodeId,
    /// The key of this node's certificate, from when it has one.
    pub key: Arc<OnceLock<Digest>>,
    pub servers: Arc<Servers>,
    /// The numbers decisions turn on, the same for every loop of the daemon.
    pub policy: Policy,
    pub measurements: SharedMeasurements,
    pub endpoints: EndpointFeed,
    pub authorities: AuthorityFeed,
    pub certificates: CertificateFeed,
    pub ingress: Shared<IngressStatus>,
    pub levels: Shared<PeerLevels>,
    /// Which servers answered when they were last asked; none while somebody leads.
    pub quorum: Shared<Option<Quorum>>,
    /// What this node keeps while it leads; none while it does not.
    pub leader: Shared<Option<Leader>>,
    /// How busy nodes were in the last hour, as far as this node led; it is for people alone.
    pub pressure_history: Shared<PressureHistory>,
    /// Which nodes may read which volumes here, by the word of the leader.
    pub volume_exports: Shared<BTreeMap<Generation, VolumeExport>>,
    /// What may be done with volumes here for a backup or restore, likewise.
    pub volume_door: Shared<VolumeDoor>,
    /// How many batches of this node's decisions were refused since it started.
    pub refused_batches: Arc<AtomicU64>,
    /// How long writes of this node took.
    pub write_latency: Arc<WriteLatency>,
    /// What makes this a node of a coordinator; none in a cell that runs deployments.
    pub coordinator: Option<Arc<dyn Coordinator>>,
    /// How the link to the coordinator of this cell's fleet is.
    pub fleet_link: Shared<FleetLinkStatus>,
}

/// A span of the model's time as one of this machine's.
pub const fn span(span: Millis) -> Duration {
    Duration::from_millis(span.0)
}

impl NodeContext {
    pub fn new(
        engine: Arc<dyn Engine>,
        runtime: Arc<dyn Runtime>,
        node: NodeId,
        servers: Arc<Servers>,
        policy: Policy,
    ) -> Self {
        Self {
            engine,
            runtime,
            node,
            key: Arc::default(),
            servers,
            policy,
            measurements: SharedMeasurements::default(),
            endpoints: EndpointFeed::default(),
            authorities: AuthorityFeed::default(),
            certificates: CertificateFeed::default(),
            ingress: Shared::default(),
            levels: Shared::default(),
            quorum: Shared::default(),
            leader: Shared::default(),
            pressure_history: Shared::default(),
            volume_exports: Shared::default(),
            volume_door: Shared::default(),
            refused_batches: Arc::default(),
            write_latency: Arc::default(),
            coordinator: None,
            fleet_link: Shared::default(),
        }
    }

    /// How often a node says that it is alive.
    pub fn heartbeat(&self) -> Duration {
        span(self.policy.heartbeat)
    }

    /// How long to wait for the other end of a link before it counts as gone.
    pub fn patience(&self) -> Duration {
        span(self.policy.node_ttl())
    }

    /// Whether this node holds the log. One that does not asks those who do.
    pub fn holds_log(&self) -> bool {
        self.servers.hold(self.node.as_str(), &*self.engine)
    }

    /// Whether this node can tell who may ask for what: it holds the log, and has read there that it is of the cell itself.
    /// One that joined a moment ago has yet to, and knows neither tokens nor who was removed.
    pub fn can_check(&self) -> bool {
        // A node without a certificate is alone: there is nobody who could check in its place, and nobody who would hear.
        let Some(own) = self.key.get() else { return true };
        // On a line of its own: what is borrowed here must be given back before the engine is asked again.
        let leads = self.engine.leadership().borrow().is_me;
        leads || (self.holds_log() && self.is_member(&self.node, own))
    }

    /// Whether this key is the one enrolled for this name, as this node's log has it.
    pub fn is_member(&self, node: &NodeId, key: &Digest) -> bool {
        let enrolled = self.engine.machine().read(|state| state.node(node).and_then(|it| it.key));
        enrolled.as_ref() == Some(key)
    }

    /// Whether who has this name and key holds the log: only such a node can have checked who asked it.
    pub fn is_server(&self, node: &NodeId, key: &Digest) -> bool {
        self.servers.are(node.as_str(), key, &*self.engine)
    }

    /// One of the servers, another each time, for who knows no leader.
    pub fn any_server(&self) -> Option<Peer> {
        self.servers.any(self.node.as_str(), &*self.engine)
    }

    /// The log of this cell, and nothing else of this node.
    pub fn log(&self) -> LogWriter {
        LogWriter { engine: Arc::clone(&self.engine), latency: Arc::clone(&self.write_latency) }
    }

    /// Commits a batch in the name of this writer. Returns the index it has in the log, and what it changed.
    pub async fn write(
        &self,
        writer: Writer,
        identity: &str,
        batch: Vec<Guarded>,
    ) -> Result<(u64, Arc<[Event]>), WriteError> {
        self.log().write(writer, identity, batch).await
    }
}
