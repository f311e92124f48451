//! How a server starts: the settings checked, etcd reached, the prefix found to be ours, the log read. Until all of that
//! is done nothing of it shows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_etcd::{Alarm, EtcdClient, Keys, Op, Range, Txn, When};
use plimsoll_model::{CellId, Level, State};
use plimsoll_seal::CellKey;
use plimsoll_store::{Machine, Peer, ServerId};
use thiserror::Error;
use tokio::sync::{mpsc, watch};

use crate::core::{EngineOptions, EngineTask};
use crate::engine::Etcd;
use crate::layout::{FORMAT, Layout, LeaderClaim, LostMark, Owner, from_json, to_json};
use crate::rules::{self, MAX_TTL, MIN_TTL};
use crate::seal::ValueSeal;
use crate::session::LeaderSession;
use crate::shared::EtcdShared;
use crate::sync::{LogReader, Loss, SyncError, SyncLock};
use crate::tip::KnownTip;

/// Room for what is asked while a batch is on its way.
const MAX_WAITING: usize = 4_096;

/// A call that reached etcd may take this long on a busy disk.
const MIN_LIMIT: Duration = Duration::from_secs(2);

/// A cell that lies below a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundCell {
    pub cell_id: CellId,
    /// The key that its values are sealed with.
    pub seal: String,
    pub has_left: bool,
}

/// Whose keys lie below a prefix; none if nobody's do. What is not plimsoll's is named when a server starts there.
pub async fn cell_at(
    etcd: &plimsoll_etcd::EtcdConfig,
    prefix: &str,
) -> Result<Option<FoundCell>, StartError> {
    let client = EtcdClient::new(etcd.clone())?;
    let found = client.get(Layout::new(prefix, "").cell_id()).await?;
    let owner = found.and_then(|pair| from_json::<Owner>(&pair.value));
    Ok(owner.map(|Owner { cell_id, seal, moved, .. }| FoundCell {
        cell_id,
        seal,
        has_left: moved.is_some(),
    }))
}

/// How a server starts.
#[derive(Debug, Clone)]
pub struct EtcdEngineConfig {
    pub etcd: plimsoll_etcd::EtcdConfig,
    pub cell_id: CellId,
    /// Where its keys are; it ends with a slash.
    pub prefix: String,
    /// What is elected below the prefix: `scheduler`, or `coordinator`.
    pub role: String,
    pub server: ServerId,
    pub peer: Peer,
    /// How long the cell is without a leader after a crash, at most, and a moment.
    pub ttl: Duration,
    pub snapshot_every: u64,
    /// Whether etcd's history before the last snapshot is compacted. It is that of all who use this etcd.
    pub compacts: bool,
    /// Whether this server was of this cell before. Then what the cell has must be there.
    pub is_known: bool,
    /// What the cell seals its values with.
    pub seal: CellKey,
}

impl EtcdEngineConfig {
    /// A cell's scheduler, with its keys below `/plimsoll/<cell>/`.
    pub fn scheduler(
        etcd: plimsoll_etcd::EtcdConfig,
        cell_id: CellId,
        server: ServerId,
        seal: CellKey,
    ) -> Self {
        Self {
            seal,
            etcd,
            prefix: format!("/plimsoll/{cell_id}/"),
            cell_id,
            role: "scheduler".to_owned(),
            server,
            peer: Peer::default(),
            ttl: Duration::from_secs(15),
            snapshot_every: plimsoll_store::embedded::SNAPSHOT_EVERY,
            compacts: true,
            is_known: false,
        }
    }
}

/// Why a server cannot start. Nothing was changed.
#[derive(Debug, Error)]
pub enum StartError {
    #[error("a lease TTL of {}s is out of range; choose {}s to {}s", ttl.as_secs_f32(), MIN_TTL.as_secs(), MAX_TTL.as_secs())]
    Ttl { ttl: Duration },
    #[error(
        "{prefix:?} is not a prefix; it must begin and end with a slash, such as /plimsoll/home/"
    )]
    Prefix { prefix: String },
    #[error(
        "the keys below {prefix} in etcd belong to cell {found}, not to {wanted}; choose another prefix"
    )]
    OtherCell { prefix: String, found: CellId, wanted: CellId },
    #[error(
        "the keys below {prefix} in etcd are not plimsoll's, or need a newer one; choose another prefix, or upgrade"
    )]
    Foreign { prefix: String },
    #[error(
        "there is nothing below {prefix} in etcd, where cell {cell_id} was: see that these are the right endpoints. Where a \
         server of it still runs, `plimsoll cell recover` there; else restore etcd from its backup. To begin anew, empty the \
         data directory of each node"
    )]
    Vanished { prefix: String, cell_id: CellId },
    #[error(
        "etcd has lost acknowledged writes below {prefix}: {name} has applied entry {applied}, which is not there. Keep \
         {name} running and see `plimsoll cell recover --help`"
    )]
    Lost { prefix: String, name: String, applied: u64 },
    #[error(
        "a server called {name} runs at {address}; stop it, or choose another --name. One that crashed is forgotten within \
         its lease"
    )]
    NameTaken { name: String, address: String },
    #[error(
        "cell {cell_id} has left this etcd for the disk of {name} ({address}); see `plimsoll migrate --from etcd --to \
         embedded`, which makes this node follow"
    )]
    Moved { cell_id: CellId, name: String, address: String },
    #[error(
        "what cell {cell_id} keeps below {prefix} in etcd is sealed with key {found}, and this node has key {ours}; print the \
         right one with `plimsoll cell etcd-seal-key` on a server of the cell, and give it with --etcd-seal-key-file"
    )]
    OtherSeal { prefix: String, cell_id: CellId, found: String, ours: String },
    #[error("the id of this server is in use by {name}; empty the data directory to get a new one")]
    NumberTaken { name: String },
    #[error("{why}")]
    Unreadable { why: String },
    /// The cell speaks what this build cannot read.
    #[error("{why}")]
    Outgrown { why: String, level: Level },
    #[error(transparent)]
    Etcd(#[from] plimsoll_etcd::Error),
}

impl StartError {
    /// Whether it is certain that the prefix was not made ours.
    pub fn is_before_claim(&self) -> bool {
        matches!(
            self,
            Self::Ttl { .. }
                | Self::Prefix { .. }
                | Self::OtherCell { .. }
                | Self::Foreign { .. }
                | Self::Vanished { .. }
                | Self::Lost { .. }
                | Self::Moved { .. }
                | Self::OtherSeal { .. }
        )
    }
}

impl EtcdEngineConfig {
    fn check(&self) -> Result<(), StartError> {
        if !(MIN_TTL..=MAX_TTL).contains(&self.ttl) {
            return Err(StartError::Ttl { ttl: self.ttl });
        }
        let prefix = self.prefix.as_str();
        if prefix.len() < 2 || !prefix.starts_with('/') || !prefix.ends_with('/') {
            return Err(StartError::Prefix { prefix: self.prefix.clone() });
        }
        Ok(())
    }

    /// Makes the prefix ours if it is nobody's yet. Returns whose it is, and how that is written there.
    async fn claim(
        &self,
        client: &EtcdClient,
        layout: &Layout,
    ) -> Result<(Owner, Bytes), StartError> {
        let key = layout.cell_id();
        let seal = ValueSeal::new(&self.seal);
        let owner = Owner::new(self.cell_id.clone(), &seal);
        // Of a server that was here before, nothing is claimed that is not there any more.
        let value = to_json(&owner);
        let claims = (!self.is_known).then(|| Op::put(key.clone(), value.clone()));
        let look = |key: Bytes| Op::get(Range::of(Keys::one(key)));
        // Where a server that runs misses what it wrote, nothing is begun in its place.
        let claim = Txn::when([When::absent(key.clone()), When::absent(layout.lost())])
            .then(claims)
            .otherwise([look(key), look(layout.lost())])
            .repeatable();
        let reply = client.txn(claim).await?;
        let (prefix, cell_id) = (self.prefix.clone(), self.cell_id.clone());
        if reply.held {
            return if self.is_known {
                Err(StartError::Vanished { prefix, cell_id })
            } else {
                Ok((owner, value))
            };
        }
        let mut reads = reply.reads().map(|mut found| found.pairs.pop());
        let (pair, mark) = (reads.next().flatten(), reads.next().flatten());
        if let Some(mark) = mark.and_then(|pair| from_json::<LostMark>(&pair.value)) {
            let LostMark { peer, applied, .. } = mark;
            return Err(StartError::Lost { name: peer.name, applied, prefix });
        }
        let value = pair.as_ref().map(|pair| pair.value.clone()).unwrap_or_default();
        let found: Option<Owner> = from_json(&value);
        match found {
            Some(found) if found.format > FORMAT => Err(StartError::Foreign { prefix }),
            None => Err(StartError::Foreign { prefix }),
            Some(found) if found.cell_id != cell_id => {
                Err(StartError::OtherCell { prefix, found: found.cell_id, wanted: cell_id })
            }
            Some(Owner { moved: Some(moved), .. }) => {
                let Peer { name, address } = moved.to;
                Err(StartError::Moved { cell_id, name, address })
            }
            Some(found) if found.seal != seal.id() => {
                Err(StartError::OtherSeal { prefix, cell_id, found: found.seal, ours: seal.id() })
            }
            Some(found) => Ok((found, value)),
        }
    }

    /// A server of the same name elsewhere is another one; at the same address it is an earlier life of this one.
    fn check_members(&self, members: &BTreeMap<ServerId, Peer>) -> Result<(), StartError> {
        let is_other = |id: &ServerId, peer: &Peer| {
            *id != self.server && peer.name == self.peer.name && peer.address != self.peer.address
        };
        if let Some((_, other)) = members.iter().find(|(id, peer)| is_other(id, peer)) {
            let Peer { name, address } = other.clone();
            return Err(StartError::NameTaken { name, address });
        }
        match members.get(&self.server) {
            Some(other) if other.name != self.peer.name => {
                Err(StartError::NumberTaken { name: other.name.clone() })
            }
            _ => Ok(()),
        }
    }
}

/// Keeps in sight whether etcd has space, so that it is known before a write fails. Who may not ask learns it from that.
async fn watch_alarms(client: EtcdClient, shared: Arc<EtcdShared>, ttl: Duration) {
    loop {
        if let Ok(alarms) = client.alarms().await {
            let is_full = alarms.iter().any(|(_, alarm)| *alarm == Alarm::NoSpace);
            let why = plimsoll_etcd::Error::NoSpace { action: "write keys" }.to_string();
            shared.fill(is_full.then_some(why.as_str()));
        }
        tokio::time::sleep(rules::renew_after(ttl)).await;
    }
}

impl Etcd {
    /// Starts a server. On return it has applied the log as it is, and knows who leads; that may be itself.
    pub async fn start(config: EtcdEngineConfig) -> Result<Arc<Self>, StartError> {
        config.check()?;
        // A member that hangs must not hold us up for as long as a lease lasts.
        let limit = config.etcd.limit.min((config.ttl / 2).max(MIN_LIMIT));
        let client = EtcdClient::new(plimsoll_etcd::EtcdConfig { limit, ..config.etcd.clone() })?;
        // A renewal must fail early enough for others to be tried.
        let limit = config.ttl / 4;
        let keeper = EtcdClient::new(plimsoll_etcd::EtcdConfig { limit, ..config.etcd.clone() })?;
        let layout = Layout::new(&config.prefix, &config.role);
        let owner = config.claim(&client, &layout).await?;
        let terms_after = owner.0.terms_after;

        let machine = Arc::new(Machine::new(State::new(config.cell_id.clone()), 0));
        let reader = LogReader {
            client: client.clone(),
            layout: layout.clone(),
            machine: Arc::clone(&machine),
            turn: SyncLock::default(),
            tip: KnownTip::default(),
            seal: ValueSeal::new(&config.seal),
            owner: Some(owner.0.clone()),
            server: None,
        };
        let news = reader.sync().await.map_err(|trouble| match trouble {
            SyncError::Etcd(error) => StartError::Etcd(error),
            // This server has nothing to set against it.
            SyncError::Lost(Loss { why, .. }) => StartError::Unreadable { why },
            SyncError::Unreadable(why) => match machine.outgrown() {
                Some(level) => StartError::Outgrown { why, level },
                None => StartError::Unreadable { why },
            },
        })?;
        config.check_members(&news.members)?;
        let member = layout.member(config.server);
        let peer = to_json(&config.peer);
        let session = LeaderSession::open(&client, &keeper, config.ttl, member, peer).await?;

        let shared =
            Arc::new(EtcdShared::new(config.server, config.peer.clone(), terms_after, machine));
        let (asks, queue) = mpsc::channel(MAX_WAITING);
        let (stop, stopped) = watch::channel(false);
        let (stands, standing) = watch::channel(true);
        let me = LeaderClaim { server: config.server, peer: config.peer, term: None };
        let options = EngineOptions {
            me,
            ttl: config.ttl,
            snapshot_every: config.snapshot_every,
            compacts: config.compacts,
        };
        let mut core = EngineTask {
            shared: Arc::clone(&shared),
            client,
            keeper,
            layout,
            options,
            asks: queue,
            queue: std::collections::VecDeque::new(),
            stop: stopped,
            stands: standing,
            turn: reader.turn,
            tip: reader.tip,
            seal: reader.seal,
            owner,
            held: None,
            revision: 0,
            session: Some(session),
            watching: None,
        };
        core.learn(news);
        let alarms = watch_alarms(core.client.clone(), Arc::clone(&shared), config.ttl);
        let task = tokio::spawn(async move {
            let run = core.run();
            tokio::pin!(run);
            tokio::select! {
                () = &mut run => {}
                () = alarms => run.await,
            }
        });
        let engine = Arc::new(Self::new(shared, asks, stands, stop, task));
        engine.settle(config.ttl).await;
        Ok(engine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused_before_etcd_is_asked() {
        let etcd = plimsoll_etcd::EtcdConfig::open(["http://127.0.0.1:2379"]);
        let cell_id = CellId::new("home").unwrap();
        let seal = CellKey::generate().unwrap();
        let good = EtcdEngineConfig::scheduler(etcd, cell_id, ServerId(1), seal);
        assert_eq!(good.prefix, "/plimsoll/home/");
        good.check().unwrap();
        let short = EtcdEngineConfig { ttl: Duration::from_millis(1_500), ..good.clone() };
        let says = short.check().unwrap_err().to_string();
        assert_eq!(says, "a lease TTL of 1.5s is out of range; choose 2s to 60s");
        for prefix in ["", "/", "home/", "/home"] {
            let wrong = EtcdEngineConfig { prefix: prefix.to_owned(), ..good.clone() };
            assert!(wrong.check().is_err(), "{prefix:?}");
        }
    }
}
