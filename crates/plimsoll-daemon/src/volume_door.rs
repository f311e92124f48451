//! What the agent and those who serve volumes share: which volumes of this node somebody may read or replace, and the way to have two
//! directories change places. What is done with it is settled in [`volume_restore`](crate::volume_restore).

use std::collections::BTreeMap;
use std::path::PathBuf;

use plimsoll_model::Generation;
use plimsoll_runtime::VolumeRef;
use tokio::sync::{mpsc, oneshot};

use crate::volume_orders::HeldVolume;

/// What may be done with volumes of this node by whoever holds them, by the word of the leader.
#[derive(Debug, Default)]
pub struct VolumeDoor {
    pub holds: BTreeMap<Generation, HeldVolume>,
    pub swaps: Option<mpsc::UnboundedSender<VolumeSwap>>,
    /// Where notes are kept; none where nothing is.
    pub data_dir: Option<PathBuf>,
}

/// Two directories that are to change places.
#[derive(Debug)]
pub struct VolumeSwap {
    pub(crate) order: Generation,
    pub(crate) volume: VolumeRef,
    pub(crate) dir: PathBuf,
    pub(crate) staged: PathBuf,
    pub(crate) done: oneshot::Sender<Result<(), SwapRefusal>>,
}

/// Why they did not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SwapRefusal {
    /// The node does not know of the hold, or not any more.
    NotHeld,
    Disk(String),
}
