//! The state that all parts of the router share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::connection_limit::ConnectionLimit;
use crate::limits::RouterLimits;
use crate::sockets::Sockets;
use crate::table::{PublishedPort, RoutingTable};
use crate::tunnel::Tunnel;

pub(crate) struct RouterCore {
    pub(crate) table: ArcSwap<RoutingTable>,
    pub(crate) tunnel: Arc<dyn Tunnel>,
    pub(crate) limits: RouterLimits,
    pub(crate) connection_limit: ConnectionLimit,
    pub(crate) sockets: Sockets,
    /// Notified of each new table.
    pub(crate) swapped: watch::Sender<()>,
    /// Why a published port is not bound.
    pub(crate) bind_errors: watch::Sender<BTreeMap<PublishedPort, String>>,
    rolls: AtomicU64,
}

impl RouterCore {
    pub(crate) fn new(limits: RouterLimits, tunnel: Arc<dyn Tunnel>, sockets: Sockets) -> Self {
        let connection_limit = ConnectionLimit::new(&limits);
        Self {
            table: ArcSwap::default(),
            tunnel,
            limits,
            connection_limit,
            sockets,
            swapped: watch::Sender::new(()),
            bind_errors: watch::Sender::default(),
            rolls: AtomicU64::new(0),
        }
    }

    /// A seed for random choices, different for each call.
    pub(crate) fn roll(&self) -> u64 {
        self.rolls.fetch_add(1, Relaxed).wrapping_mul(0xd134_2543_de82_ef95)
    }
}

impl fmt::Debug for RouterCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouterCore").field("limits", &self.limits).finish_non_exhaustive()
    }
}
