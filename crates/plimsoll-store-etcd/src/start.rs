//! How a server starts: the settings checked, etcd reached, the prefix found to be ours, the log read. Until all of that
//! is done nothing of it shows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_etcd::{Client, Keys, Op, Range, Txn, When};
use plimsoll_model::{ClusterId, Level, State};
use plimsoll_store::{Machine, Peer, ServerId};
use thiserror::Error;
use tokio::sync::{mpsc, watch};

use crate::core::{Core, Options};
use crate::engine::Etcd;
use crate::layout::{FORMAT, Layout, Leader, Owner, from_json, to_json};
use crate::rules::{MAX_TTL, MIN_TTL};
use crate::session::Session;
use crate::shared::Shared;
use crate::sync::{Reader, Trouble, Turn};

/// Room for what is asked while a batch is on its way.
const MAX_WAITING: usize = 4_096;

/// A call that reached etcd may take this long on a busy disk.
const MIN_LIMIT: Duration = Duration::from_secs(2);

/// Whose keys lie below a prefix; none if nobody's do. What is not plimsoll's is named when a server starts there.
pub async fn cluster_at(
    etcd: &plimsoll_etcd::Config,
    prefix: &str,
) -> Result<Option<ClusterId>, StartError> {
    let client = Client::new(etcd.clone())?;
    let found = client.get(Layout::new(prefix, "").cluster()).await?;
    Ok(found.and_then(|pair| from_json::<Owner>(&pair.value)).map(|owner| owner.cluster))
}

/// How a server starts.
#[derive(Debug, Clone)]
pub struct Config {
    pub etcd: plimsoll_etcd::Config,
    pub cluster: ClusterId,
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
}

impl Config {
    /// A cell's scheduler, with its keys below `/plimsoll/<cluster>/`.
    pub fn scheduler(etcd: plimsoll_etcd::Config, cluster: ClusterId, server: ServerId) -> Self {
        Self {
            etcd,
            prefix: format!("/plimsoll/{cluster}/"),
            cluster,
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
    #[error("a lease of {}s is not possible; choose {}s to {}s", ttl.as_secs_f32(), MIN_TTL.as_secs(), MAX_TTL.as_secs())]
    Ttl { ttl: Duration },
    #[error("{prefix:?} is no prefix; one begins and ends with a slash, such as /plimsoll/home/")]
    Prefix { prefix: String },
    #[error(
        "the keys below {prefix} in etcd belong to cluster {found}, not to {wanted}; choose another prefix"
    )]
    OtherCluster { prefix: String, found: ClusterId, wanted: ClusterId },
    #[error(
        "the keys below {prefix} in etcd are not plimsoll's, or need a newer one; choose another prefix, or upgrade"
    )]
    Foreign { prefix: String },
    #[error(
        "there is nothing below {prefix} in etcd, where cluster {cluster} was: see that these are the right endpoints and \
         restore etcd from its backup; to begin anew, empty the data directory of each node"
    )]
    Vanished { prefix: String, cluster: ClusterId },
    #[error(
        "a server called {name} runs at {address}; stop it, or choose another --name. One that crashed is forgotten within \
         its lease"
    )]
    NameTaken { name: String, address: String },
    #[error(
        "cluster {cluster} has left this etcd for the disk of {name} ({address}); see `plimsoll migrate --from etcd --to \
         embedded`, which makes this node follow"
    )]
    Moved { cluster: ClusterId, name: String, address: String },
    #[error("the number of this server is taken by {name}; empty the data directory for another")]
    NumberTaken { name: String },
    #[error("{why}")]
    Unreadable { why: String },
    /// The cell speaks what this build cannot read.
    #[error("{why}")]
    Outgrown { why: String, level: Level },
    #[error(transparent)]
    Etcd(#[from] plimsoll_etcd::Error),
}

impl Config {
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

    /// Makes the prefix ours if it is nobody's yet. Returns the term after which ours begin.
    async fn claim(&self, client: &Client, layout: &Layout) -> Result<u64, StartError> {
        let key = layout.cluster();
        let owner = Owner::new(self.cluster.clone());
        // Of a server that was here before, nothing is claimed that is not there any more.
        let claims = (!self.is_known).then(|| Op::put(key.clone(), to_json(&owner)));
        let claim = Txn::when([When::absent(key.clone())])
            .then(claims)
            .otherwise([Op::get(Range::of(Keys::one(key)))])
            .repeatable();
        let reply = client.txn(claim).await?;
        let (prefix, cluster) = (self.prefix.clone(), self.cluster.clone());
        if reply.held {
            return if self.is_known {
                Err(StartError::Vanished { prefix, cluster })
            } else {
                Ok(0)
            };
        }
        let pair = reply.reads().next().and_then(|mut found| found.pairs.pop());
        let found: Option<Owner> = pair.and_then(|pair| from_json(&pair.value));
        match found {
            Some(found) if found.format > FORMAT => Err(StartError::Foreign { prefix }),
            None => Err(StartError::Foreign { prefix }),
            Some(found) if found.cluster != cluster => {
                Err(StartError::OtherCluster { prefix, found: found.cluster, wanted: cluster })
            }
            Some(Owner { moved: Some(moved), .. }) => {
                let Peer { name, address } = moved.to;
                Err(StartError::Moved { cluster, name, address })
            }
            Some(found) => Ok(found.terms_after),
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

impl Etcd {
    /// Starts a server. On return it has applied the log as it is, and knows who leads; that may be itself.
    pub async fn start(config: Config) -> Result<Arc<Self>, StartError> {
        config.check()?;
        // A member that hangs must not hold us up for as long as a lease lasts.
        let limit = config.etcd.limit.min((config.ttl / 2).max(MIN_LIMIT));
        let client = Client::new(plimsoll_etcd::Config { limit, ..config.etcd.clone() })?;
        // A renewal must fail early enough for others to be tried.
        let limit = config.ttl / 4;
        let keeper = Client::new(plimsoll_etcd::Config { limit, ..config.etcd.clone() })?;
        let layout = Layout::new(&config.prefix, &config.role);
        let terms_after = config.claim(&client, &layout).await?;

        let machine = Arc::new(Machine::new(State::new(config.cluster.clone()), 0));
        let reader = Reader {
            client: client.clone(),
            layout: layout.clone(),
            machine: Arc::clone(&machine),
            turn: Turn::default(),
        };
        let news = reader.sync().await.map_err(|trouble| match trouble {
            Trouble::Etcd(error) => StartError::Etcd(error),
            Trouble::Unreadable(why) => match machine.outgrown() {
                Some(level) => StartError::Outgrown { why, level },
                None => StartError::Unreadable { why },
            },
        })?;
        config.check_members(&news.members)?;
        let member = layout.member(config.server);
        let peer = to_json(&config.peer);
        let session = Session::open(&client, &keeper, config.ttl, member, peer).await?;

        let shared =
            Arc::new(Shared::new(config.server, config.peer.clone(), terms_after, machine));
        let (asks, queue) = mpsc::channel(MAX_WAITING);
        let (stop, stopped) = watch::channel(false);
        let (stands, standing) = watch::channel(true);
        let me = Leader { server: config.server, peer: config.peer, term: None };
        let options = Options {
            me,
            ttl: config.ttl,
            snapshot_every: config.snapshot_every,
            compacts: config.compacts,
        };
        let mut core = Core {
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
            held: None,
            revision: 0,
            session: Some(session),
            watching: None,
        };
        core.learn(news);
        let task = tokio::spawn(core.run());
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
        let etcd = plimsoll_etcd::Config::open(["http://127.0.0.1:2379"]);
        let cluster = ClusterId::new("home").unwrap();
        let good = Config::scheduler(etcd, cluster, ServerId(1));
        assert_eq!(good.prefix, "/plimsoll/home/");
        good.check().unwrap();
        let short = Config { ttl: Duration::from_millis(1_500), ..good.clone() };
        let says = short.check().unwrap_err().to_string();
        assert_eq!(says, "a lease of 1.5s is not possible; choose 2s to 60s");
        for prefix in ["", "/", "home/", "/home"] {
            let wrong = Config { prefix: prefix.to_owned(), ..good.clone() };
            assert!(wrong.check().is_err(), "{prefix:?}");
        }
    }
}
