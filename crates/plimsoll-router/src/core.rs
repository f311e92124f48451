//! What every part of the router shares.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::limits::Limits;
use crate::seat::Seats;
use crate::sockets::Sockets;
use crate::table::{Published, Table};
use crate::tunnel::Tunnel;

pub(crate) struct Core {
    pub(crate) table: ArcSwap<Table>,
    pub(crate) tunnel: Arc<dyn Tunnel>,
    pub(crate) limits: Limits,
    pub(crate) seats: Seats,
    pub(crate) sockets: Sockets,
    /// Says that there is a new table.
    pub(crate) swapped: watch::Sender<()>,
    /// Why a published port is not listened on.
    pub(crate) troubles: watch::Sender<BTreeMap<Published, String>>,
    rolls: AtomicU64,
}

impl Core {
    pub(crate) fn new(limits: Limits, tunnel: Arc<dyn Tunnel>, sockets: Sockets) -> Self {
        let seats = Seats::new(limits.connections);
        Self {
            table: ArcSwap::default(),
            tunnel,
            limits,
            seats,
            sockets,
            swapped: watch::Sender::new(()),
            troubles: watch::Sender::default(),
            rolls: AtomicU64::new(0),
        }
    }

    /// What chance is made from: a number that nobody else was given.
    pub(crate) fn roll(&self) -> u64 {
        self.rolls.fetch_add(1, Relaxed).wrapping_mul(0xd134_2543_de82_ef95)
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("limits", &self.limits).finish_non_exhaustive()
    }
}
