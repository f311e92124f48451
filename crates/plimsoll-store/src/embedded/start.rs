//! What a data directory holds, whether it can be believed, and how a server starts from it.
//!
//! ```text
//! lock       held while a process uses the directory
//! identity   whose it is
//! keyring    what the rest is sealed with
//! snapshot   the state as of one entry
//! log/       the entries after it, and the vote
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use openraft::alias::StoredMembershipOf;
use openraft::errors::{InitializeError, RaftError};
use openraft::{Raft, RaftMetrics, SnapshotPolicy};
use plimsoll_model::level::{VERSION, outdated, remedy};
use plimsoll_model::{CellId, Level, State};
use plimsoll_seal::UnlockKey;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::addresses::Addresses;
use super::door::Door;
use super::incarnation::{Incarnation, IncarnationGuard};
use super::leader_tracker::LeaderTracker;
use super::network::{Arrivals, PeerClientFactory};
use super::snapshot::Snapshots;
use super::state::StateMachine;
use super::store::LogStore;
use super::types::{Header, Mark, MembershipRecord, Types};
use super::{Embedded, EmbeddedConfig, Founding, Timing};
use crate::checked_file::{FileFormat, Unreadable};
use crate::disk::monitored::MonitoredDisk;
use crate::disk::{Disk, is_unfinished};
use crate::engine::ServerId;
use crate::keys;
use crate::log::{self, TornWrite};
use crate::machine::Machine;

const IDENTITY: FileFormat = FileFormat { magic: *b"plimsidt", format: 3, name: "server identity" };

/// How many entries that the snapshot holds are kept besides, in snapshots: a server that was away for a moment
/// catches up from them without the whole snapshot.
const KEPT_SHARE: u64 = 10;

/// Room for entries and messages on their way inside openraft: with that many waiting, more would only wait longer.
const MAX_WAITING: u64 = 4_096;

/// How long a follower may take to install a snapshot that has arrived: one of several gigabytes is decoded and written to a
/// slow disk meanwhile.
const SNAPSHOT_TIMEOUT_MS: u64 = 120_000;

/// Why a server cannot start from its data directory. Nothing in it was changed.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error("{} is in use by another plimsoll; stop that one, or choose another data directory", dir.display())]
    InUse { dir: PathBuf },
    #[error("{} belongs to cell {found}, not to {wanted}; choose another data directory", dir.display())]
    OtherCell { dir: PathBuf, found: CellId, wanted: CellId },
    #[error("{} holds no store", dir.display())]
    NoStore { dir: PathBuf },
    #[error("{} holds an unfinished restore; empty it and restore again", dir.display())]
    Unfinished { dir: PathBuf },
    #[error(
        "{} lacks the snapshot that its log begins after (entry {purged}); restore this server from a backup, or \
         wipe its data directory and let it join again",
        dir.display()
    )]
    SnapshotLost { dir: PathBuf, purged: u64 },
    #[error(
        "the store in {} is locked; start it with its unlock key (`--unlock-key-file`)",
        dir.display()
    )]
    Locked { dir: PathBuf },
    #[error("this is not the unlock key of the store in {}", dir.display())]
    WrongUnlockKey { dir: PathBuf },
    #[error(
        "{} lacks the keyring that its store is sealed with; restore this server from a backup, or wipe its data \
         directory and let it join again",
        dir.display()
    )]
    KeyringLost { dir: PathBuf },
    #[error("cannot {action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Log(#[from] log::Error),
    #[error(transparent)]
    File(#[from] Unreadable),
    #[error("cannot start from {}: {}: {}", dir.display(), outdated(VERSION, *level), remedy(None))]
    Outgrown { dir: PathBuf, level: Level },
    #[error("cannot start from {}: {why}", dir.display())]
    Consensus { dir: PathBuf, why: String },
}

impl OpenError {
    pub(crate) fn io<T>(action: &'static str, path: &Path, r: io::Result<T>) -> Result<T, Self> {
        r.map_err(|source| Self::Io { action, path: path.to_owned(), source })
    }
}

/// Whose data directory it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServerIdentity {
    pub(crate) cell_id: CellId,
    pub(crate) server: ServerId,
    /// Whether a log was made. From then on there must be one.
    pub(crate) founded: bool,
    pub(crate) incarnation: Incarnation,
    /// The life of the cell that took the place of this server's.
    pub(crate) superseded: Option<Incarnation>,
}

/// As it was written in format 1.
#[derive(Deserialize)]
struct FirstIdentity {
    cell_id: CellId,
    server: ServerId,
    founded: bool,
}

impl From<FirstIdentity> for ServerIdentity {
    fn from(first: FirstIdentity) -> Self {
        let FirstIdentity { cell_id, server, founded } = first;
        Self { cell_id, server, founded, incarnation: Incarnation::default(), superseded: None }
    }
}

impl ServerIdentity {
    fn path(data_dir: &Path) -> PathBuf {
        data_dir.join("identity")
    }

    fn read(disk: &dyn Disk, data_dir: &Path) -> Result<Option<Self>, OpenError> {
        let path = Self::path(data_dir);
        let Some(body) = IDENTITY.read(disk, &path)? else { return Ok(None) };
        let identity = postcard::from_bytes(&body);
        // What was written before there were incarnations is shorter.
        let first = || postcard::from_bytes::<FirstIdentity>(&body).map(Self::from);
        let identity = identity.or_else(|_| first()).map_err(|error| {
            let what = format!("cannot decode its content ({error})");
            Unreadable::Damaged { path, what }
        })?;
        Ok(Some(identity))
    }

    pub(crate) fn write(&self, disk: &dyn Disk, data_dir: &Path) -> Result<(), OpenError> {
        let path = Self::path(data_dir);
        let body = postcard::to_stdvec(self).expect("an identity can be written");
        OpenError::io("write", &path, IDENTITY.write(disk, &path, &body))
    }
}

/// Which cell a data directory belongs to; none if it is new.
pub fn cell_of(data_dir: &Path) -> Result<Option<CellId>, OpenError> {
    let identity = ServerIdentity::read(&crate::disk::RealDisk, data_dir)?;
    Ok(identity.map(|identity| identity.cell_id))
}

/// Whether the server of a data directory was told that its cell was recovered without it.
pub fn is_superseded(data_dir: &Path) -> Result<bool, OpenError> {
    let identity = ServerIdentity::read(&crate::disk::RealDisk, data_dir)?;
    Ok(identity.is_some_and(|identity| identity.superseded.is_some()))
}

/// A data directory, opened and held.
#[derive(Debug)]
pub(crate) struct OpenedStore {
    pub(crate) identity: ServerIdentity,
    pub(crate) store: LogStore,
    pub(crate) cut: Option<TornWrite>,
    pub(crate) snapshots: Snapshots,
    pub(crate) header: Header,
    /// As of the snapshot.
    pub(crate) state: State,
}

pub(crate) fn log_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("log")
}

/// Keeps every other process off a data directory as long as the result lives.
pub(crate) fn hold(disk: &dyn Disk, data_dir: &Path) -> Result<Box<dyn Send + Sync>, OpenError> {
    match disk.lock(&data_dir.join("lock")) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(OpenError::InUse { dir: data_dir.to_owned() })
        }
        result => OpenError::io("lock", data_dir, result),
    }
}

/// Opens a data directory, with its unlock key where it is locked. One without a store becomes that of `fresh`, if it is
/// given; it is locked from now on if there is an unlock key.
pub(crate) fn open(
    disk: &Arc<dyn Disk>,
    data_dir: &Path,
    fresh: Option<ServerIdentity>,
    unlock: Option<&UnlockKey>,
) -> Result<OpenedStore, OpenError> {
    let dir = || data_dir.to_owned();
    OpenError::io("create", data_dir, disk.create_dir(data_dir))?;
    let lock = hold(disk.as_ref(), data_dir)?;
    let log = log_dir(data_dir);
    let keys = match keys::read(disk.as_ref(), data_dir, unlock)? {
        Some(keys) => keys,
        None if holds_entries(disk.as_ref(), data_dir)? => {
            return Err(OpenError::KeyringLost { dir: dir() });
        }
        None if fresh.is_none() => return Err(OpenError::NoStore { dir: dir() }),
        None => keys::generate(disk.as_ref(), data_dir, unlock)?,
    };
    let mut snapshots = Snapshots::new(disk, data_dir, &keys);
    OpenError::io("clear", data_dir, snapshots.clear())?;
    let snapshot = snapshots.load()?;
    let will_vote = fresh.is_some();
    let mut identity = match (ServerIdentity::read(disk.as_ref(), data_dir)?, fresh) {
        (Some(identity), _) => identity,
        (None, _) if snapshot.is_some() => return Err(OpenError::Unfinished { dir: dir() }),
        (None, None) => return Err(OpenError::NoStore { dir: dir() }),
        (None, Some(fresh)) => {
            let made = OpenError::io("list", data_dir, disk.list(&log))?;
            if made.iter().any(|name| !is_unfinished(name)) {
                return Err(OpenError::Unfinished { dir: dir() });
            }
            fresh.write(disk.as_ref(), data_dir)?;
            fresh
        }
    };
    let growth = Arc::clone(snapshots.growth());
    let (store, cut) = LogStore::open(disk, &log, !identity.founded, &keys, lock, growth)?;
    // Whoever only reads a store may go without.
    if will_vote && OpenError::io("read", &log, store.lacks_vote())? {
        return Err(log::Error::VoteLost { path: log::meta_path(&log) }.into());
    }
    if !identity.founded {
        identity.founded = true;
        identity.write(disk.as_ref(), data_dir)?;
    }
    if will_vote {
        let in_use = store.keys_in_use()?.into_iter().chain(snapshots.key_in_use()?);
        let keys = Arc::new(OpenError::io("make a key for", data_dir, keys.renewed(in_use))?);
        keys::write(disk.as_ref(), data_dir, &keys, unlock)?;
        store.seal_with(&keys);
        snapshots.seal_with(&keys);
    }
    let held = snapshot.as_ref().and_then(|(header, _)| header.last).map(|mark| mark.index);
    if let Some(purged) = store.meta().purged.map(|mark| mark.index)
        && held.is_none_or(|held| held < purged)
    {
        return Err(OpenError::SnapshotLost { dir: dir(), purged });
    }
    let (header, state) =
        snapshot.unwrap_or_else(|| (Header::default(), State::new(identity.cell_id.clone())));
    Ok(OpenedStore { identity, store, cut, snapshots, header, state })
}

/// Whether there is anything that only a keyring opens.
fn holds_entries(disk: &dyn Disk, data_dir: &Path) -> Result<bool, OpenError> {
    let names = OpenError::io("list", data_dir, disk.list(data_dir))?;
    let log = log_dir(data_dir);
    let segments = OpenError::io("list", &log, disk.list(&log))?;
    let is_made = |name: &String| !is_unfinished(name);
    Ok(names.iter().any(|name| name == "snapshot") || segments.iter().any(is_made))
}

impl Embedded {
    /// Starts a server from its data directory. A cell of one leads, with all its entries applied, on return.
    pub async fn start(mut config: EmbeddedConfig) -> Result<Arc<Self>, OpenError> {
        let watched = Arc::new(MonitoredDisk::over(Arc::clone(&config.disk)));
        config.disk = Arc::clone(&watched) as _;
        let dir = config.data_dir.clone();
        let failed = |why: String| OpenError::Consensus { dir: dir.clone(), why };
        let fresh = ServerIdentity {
            cell_id: config.cell_id.clone(),
            server: config.server,
            founded: false,
            incarnation: config.incarnation,
            superseded: None,
        };
        let (disk, data_dir) = (Arc::clone(&config.disk), config.data_dir.clone());
        let (timing, unlock) = (config.timing, config.unlock.clone());
        let opened = tokio::task::spawn_blocking(move || {
            let opened = open(&disk, &data_dir, Some(fresh), unlock.as_ref())?;
            let measured = timing.map_or_else(|| Timing::measure(disk.as_ref(), &data_dir), Ok);
            let timing = OpenError::io("write to", &data_dir, measured)?;
            Ok::<_, OpenError>((opened, timing))
        });
        let (opened, timing) = opened.await.map_err(|error| failed(error.to_string()))??;
        let OpenedStore { identity, store, cut, snapshots, header, state } = opened;
        if identity.cell_id != config.cell_id {
            let (found, wanted) = (identity.cell_id, config.cell_id);
            return Err(OpenError::OtherCell { dir, found, wanted });
        }

        let started_in = store.meta().vote.map_or(0, |vote| vote.term);
        let recovered = store.range().end;
        let membership: StoredMembershipOf<Types> =
            header.membership().map_err(|error| failed(error.to_string()))?;
        let applied = header.last;
        let growth = Arc::clone(snapshots.growth());
        let arrivals = Arrivals::new(snapshots.clone());
        growth.add(store.bytes_from(applied.map_or(0, |mark| mark.index + 1)));
        let machine = Arc::new(Machine::new(state, applied.map_or(0, |mark| mark.index)));
        let addresses = Arc::<Addresses>::default();
        let who = (identity.cell_id.clone(), identity.incarnation, identity.server);
        let door = Door::new(who, Arc::clone(&config.notary), Arc::clone(&machine));
        let door = Arc::new(door);
        door.know(membership.log_id().as_ref().map(Mark::from), membership.membership());
        let state_machine = StateMachine {
            machine: Arc::clone(&machine),
            applied,
            membership,
            snapshots,
            addresses: Arc::clone(&addresses),
            door: Arc::clone(&door),
        };
        let raft_config = raft_config(&config, timing).map_err(failed)?;
        let guard = IncarnationGuard::new(&config.disk, config.data_dir.clone(), identity.clone());
        let guard = Arc::new(guard);
        let network = Arc::clone(&config.network);
        let links = PeerClientFactory {
            network,
            guard: Arc::clone(&guard),
            door: Arc::clone(&door),
            machine: Arc::clone(&machine),
            addresses,
        };
        let raft =
            Raft::new(identity.server, raft_config, links, store.clone(), state_machine).await;
        let unstarted = |why: String| match machine.outgrown() {
            Some(level) => OpenError::Outgrown { dir: dir.clone(), level },
            None => failed(why),
        };
        let raft = raft.map_err(|error| unstarted(error.to_string()))?;
        Arc::clone(&growth).follow(raft.clone(), store.downgrade());
        growth.limit(config.snapshot_bytes);

        if config.founding == Founding::Alone {
            let alone = BTreeMap::from([(identity.server, config.peer.clone())]);
            match raft.initialize(alone).await {
                // It was founded before.
                Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {}
                Err(error) => return Err(failed(error.to_string())),
            }
        }
        let tracker = LeaderTracker::new(&guard, identity.server, timing, started_in, recovered);
        let tracker = Arc::new(tracker);
        let leadership = tracker.follow(&raft);
        let engine = Self {
            raft,
            identity,
            guard,
            door,
            machine,
            leadership,
            tracker,
            timing,
            cut,
            disk: watched,
            dir: Arc::from(config.data_dir),
            arrivals: Mutex::new(arrivals),
            store: Mutex::new(Some(store)),
        };
        match (engine.come_up().await, engine.machine.outgrown()) {
            (_, Some(level)) => Err(OpenError::Outgrown { dir, level }),
            (Err(why), None) => Err(failed(why)),
            (Ok(()), None) => Ok(Arc::new(engine)),
        }
    }

    /// Waits until the server knows who belongs to its cell; in a cell of one, also until it leads. That takes no
    /// timeout: openraft calls an election at once when it has never heard of a leader.
    async fn come_up(&self) -> Result<(), String> {
        // Asked of its state and not of its metrics, which follow a moment later.
        let found = self.raft.with_raft_state(|state| {
            let effective = state.membership_state.effective();
            (*effective.log_id(), MembershipRecord::from(effective.membership()))
        });
        let (at, roster) = found.await.map_err(|error| error.to_string())?;
        let is_alone = roster.is_alone(self.id());
        let is_ready = |metrics: &RaftMetrics<Types>| {
            let knows_members = *metrics.membership_config.log_id() >= at;
            let leads = !is_alone || self.tracker.leadership(metrics).is_me;
            metrics.running_state.is_err() || (knows_members && leads)
        };
        let waited = self.raft.wait(None).metrics(is_ready, "the server is up").await;
        let metrics = waited.map_err(|error| error.to_string())?;
        metrics.running_state.map_err(|error| error.to_string())?;
        // The watch follows the metrics.
        let mut leadership = self.leadership.clone();
        let leads = leadership.wait_for(|now| !is_alone || now.is_me).await;
        leads.map(drop).map_err(|_| "it stopped".to_owned())
    }
}

/// Openraft's settings; what is not named here is as it comes.
fn raft_config(config: &EmbeddedConfig, timing: Timing) -> Result<Arc<openraft::Config>, String> {
    let millis = |span: std::time::Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let every = config.snapshot_every.max(1);
    let settings = openraft::Config {
        cluster_name: config.cell_id.to_string(),
        heartbeat_interval: millis(timing.heartbeat),
        election_timeout_min: millis(timing.election),
        election_timeout_max: millis(timing.election * 2),
        install_snapshot_timeout: SNAPSHOT_TIMEOUT_MS,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(every),
        max_in_snapshot_log_to_keep: every / KEPT_SHARE,
        replication_lag_threshold: every * 2,
        api_channel_size: Some(MAX_WAITING),
        // How long it leaves a server alone that it could not reach. Opening connections has a pause of its own.
        backoff: "50ms".to_owned(),
        // A server that was cut off must not unseat a leader that the others are content with.
        enable_pre_vote: Some(true),
        ..openraft::Config::default()
    };
    settings.validate().map(Arc::new).map_err(|error| error.to_string())
}
