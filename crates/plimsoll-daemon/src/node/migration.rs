//! Takes a cell whose daemons are stopped to another engine, verified by the hash of its state. The first server to go takes
//! the cell along; every other one follows it. What was there before stays, set aside or marked as left.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_model::access::Digest;
use plimsoll_model::{CellId, NodeId, State};
use plimsoll_store::backup::{self, Summary};
use plimsoll_store::keys::UnlockKey;
use plimsoll_store::{Incarnation, Peer, ServerId, migration};
use plimsoll_store_etcd::migrate::{EtcdCell, EtcdLocation, MigrateError, Moved, Reached};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::etcd::{EngineKind, EtcdOptions, EtcdRecord, lock};
use super::etcd_seal::SealKey;
use super::node_file::NodeFile;
use super::{bootstrap, name, store_dir};
use crate::servers::ServerList;

/// What a migration did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    pub cell_id: CellId,
    pub node: NodeId,
    /// The last entry of the log that is in the state.
    pub applied: u64,
    /// Of the state, the same before and after.
    pub hash: String,
    /// Whether the cell was there already, and this node followed.
    pub has_followed: bool,
    /// Where the log is kept that this node had.
    pub kept: Option<PathBuf>,
}

/// Why a cell stays where it is.
#[derive(Debug, Error)]
pub enum Error {
    #[error("{} is no data directory of a node; name the one `plimsoll up` was started with", dir.display())]
    NoNode { dir: PathBuf },
    #[error("{} is of the {engine} engine already", dir.display())]
    There { dir: PathBuf, engine: &'static str },
    #[error(
        "the cell was taken to etcd as of entry {theirs}, and the log in {} goes on to entry {ours}: what was acknowledged \
         may be there alone. Delete the keys in etcd, and migrate this server first",
        dir.display()
    )]
    Ahead { dir: PathBuf, ours: u64, theirs: u64 },
    #[error("servers of the cell still run: {}; stop them first. One that crashed is forgotten within its lease", names.join(", "))]
    Running { names: Vec<String> },
    #[error(
        "the state does not know node {node}, so it cannot be its server; migrate on a node of the cell"
    )]
    Stranger { node: NodeId },
    #[error(
        "what was written does not read back as it was ({before} became {after}); nothing is changed"
    )]
    Differs { before: String, after: String },
    #[error("{} is missing, where the cell was taken to before; restore it from a backup", dir.display())]
    Lost { dir: PathBuf },
    #[error("where the cell went cannot be understood; run the same plimsoll on all nodes")]
    Unclear,
    #[error("{} holds no log to take along. A node without the log finds the servers wherever they are", dir.display())]
    NoLog { dir: PathBuf },
    #[error(transparent)]
    Node(#[from] super::Error),
    #[error(transparent)]
    Store(#[from] migration::Error),
    #[error(transparent)]
    Found(#[from] backup::Error),
    #[error(transparent)]
    Etcd(#[from] MigrateError),
}

/// Takes the node of a data directory, and its cell if that is still where it was, to an engine.
pub async fn migrate(
    dir: &Path,
    to: EngineKind,
    etcd: &EtcdOptions,
    unlock: Option<&UnlockKey>,
) -> Result<Migrated, Error> {
    let memory = NodeFile::read(dir)?.ok_or_else(|| Error::NoNode { dir: dir.to_owned() })?;
    match (to, memory.etcd.clone()) {
        (EngineKind::Etcd, None) => to_etcd(dir, memory, etcd, unlock).await,
        (EngineKind::Embedded, Some(kept)) => to_embedded(dir, memory, kept, etcd, unlock).await,
        (EngineKind::Etcd, Some(_)) => Err(Error::There { dir: dir.to_owned(), engine: "etcd" }),
        (EngineKind::Embedded, None) => {
            Err(Error::There { dir: dir.to_owned(), engine: "embedded" })
        }
    }
}

async fn to_etcd(
    dir: &Path,
    memory: NodeFile,
    etcd: &EtcdOptions,
    unlock: Option<&UnlockKey>,
) -> Result<Migrated, Error> {
    if etcd.endpoints.is_empty() {
        let why = "--to etcd takes --etcd-endpoints, such as http://10.0.0.1:2379";
        return Err(super::Error::Unfit(why.to_owned()).into());
    }
    let store = store_dir(dir);
    let stopped = migration::read(&store, unlock).map_err(|error| match error {
        migration::Error::NoLog { .. } => Error::NoLog { dir: dir.to_owned() },
        error => error.into(),
    })?;
    let cell_id = stopped.state.cell_id().clone();
    let prefix = etcd.prefix_of(&cell_id);
    let seal = SealKey::of(dir, etcd, &cell_id, unlock).await?;
    let place = EtcdLocation::scheduler(etcd.config()?, cell_id.clone(), prefix, seal.key.clone());
    let (applied, hash) = (stopped.last, hash(&stopped.state));
    let reached = Reached { last_term: stopped.last_term, last: applied, term: stopped.term };
    let has_followed = match is_there(dir, &place, reached).await {
        Ok(is_there) => is_there,
        Err(error) => {
            seal.take_back(unlock);
            return Err(error);
        }
    };
    if !has_followed {
        place.settle(&stopped.state, applied, reached).await?;
        verify(&place, applied, &hash).await?;
    }
    // From here on it is of etcd; the store that is still there is not looked at any more.
    let server = name::number()?;
    let kept = EtcdRecord { cell_id: cell_id.clone(), server, options: etcd.clone() };
    let node = memory.name.clone();
    NodeFile { etcd: Some(kept), joined: None, ..memory }.write(dir)?;
    drop(stopped);
    let kept = Some(bootstrap::set_aside(&store, "migrated")?);
    Ok(Migrated { cell_id, node, applied, hash, has_followed, kept })
}

/// Whether another server has brought the cell.
async fn is_there(dir: &Path, place: &EtcdLocation, reached: Reached) -> Result<bool, Error> {
    let Some(found) = place.look().await? else { return Ok(false) };
    must_be_ours(dir, place, &found, reached)?;
    Ok(true)
}

/// Whether what is there is this cell, brought by a server that had all that this one has.
fn must_be_ours(
    dir: &Path,
    place: &EtcdLocation,
    found: &EtcdCell,
    ours: Reached,
) -> Result<(), Error> {
    let Some(theirs) = found.came.filter(|_| found.moved.is_none()) else {
        return Err(MigrateError::NotEmpty { prefix: place.prefix.clone() }.into());
    };
    if (ours.last_term, ours.last) > (theirs.last_term, theirs.last) {
        return Err(Error::Ahead { dir: dir.to_owned(), ours: ours.last, theirs: theirs.last });
    }
    Ok(())
}

/// Reads back what was written; where it is not the same, takes it away again.
pub(super) async fn verify(place: &EtcdLocation, applied: u64, before: &str) -> Result<(), Error> {
    let found = place.look().await?;
    let after = found.filter(|found| found.applied == applied).map(|found| hash(&found.state));
    if after.as_deref() == Some(before) {
        return Ok(());
    }
    place.clear().await?;
    let (before, after) = (before.to_owned(), after.unwrap_or_else(|| "nothing".to_owned()));
    Err(Error::Differs { before, after })
}

async fn to_embedded(
    dir: &Path,
    memory: NodeFile,
    kept: EtcdRecord,
    etcd: &EtcdOptions,
    unlock: Option<&UnlockKey>,
) -> Result<Migrated, Error> {
    let _lock = lock(dir)?;
    let said = etcd.or(&kept.options);
    let (cell_id, node) = (kept.cell_id, memory.name.clone());
    let prefix = said.prefix_of(&cell_id);
    let seal = SealKey::of(dir, &said, &cell_id, unlock).await?.key;
    let place = EtcdLocation::scheduler(said.config()?, cell_id.clone(), prefix.clone(), seal);
    let found = place.look().await?.ok_or(MigrateError::NoCell { prefix })?;
    let (applied, hash) = (found.applied, hash(&found.state));
    let is_other = |moved: &Moved| moved.to.name != node.as_str();
    let has_followed = found.moved.as_ref().is_some_and(is_other);
    if has_followed {
        follow(dir, memory, &cell_id, &found)?;
    } else {
        if found.moved.is_none() {
            take_home(dir, &node, &place, &found, &hash).await?;
        }
        arrive(dir, memory, &hash)?;
    }
    Ok(Migrated { cell_id, node, applied, hash, has_followed, kept: None })
}

/// Where a store lies until the cell has left etcd for it.
fn unfinished(dir: &Path) -> PathBuf {
    dir.join("store.new")
}

/// Makes a store of the cell beside where it will be, and has the cell leave etcd.
async fn take_home(
    dir: &Path,
    node: &NodeId,
    place: &EtcdLocation,
    found: &EtcdCell,
    hash: &str,
) -> Result<(), Error> {
    if !found.members.is_empty() {
        let names = found.members.values().map(|peer| format!("{} ({})", peer.name, peer.address));
        return Err(Error::Running { names: names.collect() });
    }
    let known = found.state.node(node).ok_or_else(|| Error::Stranger { node: node.clone() })?;
    let server = known.server.unwrap_or(found.state.access().next_server).max(1);
    let store = unfinished(dir);
    if store.exists() {
        fs::remove_dir_all(&store).map_err(io("clear", &store))?;
    }
    let cell_id = found.state.cell_id().clone();
    let of = Summary { cell_id, applied: found.applied, term: found.term };
    let incarnation = migration::found(&store, node, ServerId(server), &found.state, &of)?;
    must_hold(&store, hash)?;
    let address = known.facts.address.clone().unwrap_or_default();
    let to = Peer { name: node.to_string(), address };
    let incarnation = serde_json::to_value(incarnation).map_err(|_| Error::Unclear)?;
    place.leave(Moved { to, incarnation }).await?;
    Ok(())
}

fn must_hold(store: &Path, before: &str) -> Result<(), Error> {
    let after = hash(&migration::read(store, None)?.state);
    if after == before {
        return Ok(());
    }
    Err(Error::Differs { before: before.to_owned(), after })
}

/// The cell has left etcd for the store that lies ready. May be done again where it was cut short.
fn arrive(dir: &Path, memory: NodeFile, hash: &str) -> Result<(), Error> {
    let (ready, store) = (unfinished(dir), store_dir(dir));
    if ready.exists() {
        must_hold(&ready, hash)?;
        plimsoll_files::replace(&ready, &store).map_err(io("put into place", &store))?;
    } else if !store.exists() {
        return Err(Error::Lost { dir: store });
    }
    let incarnation = Incarnation::default();
    NodeFile { etcd: None, joined: None, incarnation, ..memory }.write(dir)?;
    Ok(())
}

/// The cell has left etcd for another node: this one is of it with the number it has, and will be given the log.
fn follow(dir: &Path, memory: NodeFile, cell_id: &CellId, found: &EtcdCell) -> Result<(), Error> {
    let Some(moved) = &found.moved else { return Err(Error::Unclear) };
    let stranger = || Error::Stranger { node: memory.name.clone() };
    let number =
        found.state.node(&memory.name).and_then(|node| node.server).ok_or_else(stranger)?;
    let incarnation: Incarnation =
        serde_json::from_value(moved.incarnation.clone()).map_err(|_| Error::Unclear)?;
    let node = NodeId::new(&moved.to.name).map_err(|_| Error::Unclear)?;
    let key = found.state.node(&node).and_then(|it| it.key);
    let keys = key.map(|key| (moved.to.name.clone(), key)).into_iter().collect();
    let roll = ServerList { since: found.applied, servers: vec![moved.to.clone()], keys };
    bootstrap::servers(dir)?.begin_with(roll);
    let joined = Some((cell_id.clone(), number));
    NodeFile { etcd: None, joined, incarnation, ..memory }.write(dir)?;
    Ok(())
}

fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> super::Error {
    let path = path.to_owned();
    move |source| super::Error::Io { action, path, source }
}

/// As `/healthz` says it.
pub(super) fn hash(state: &State) -> String {
    let bytes = postcard::to_stdvec(state).expect("every state can be written");
    Digest(Sha256::digest(bytes).into()).to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use plimsoll_model::Term;

    use super::*;

    #[test]
    fn a_server_with_more_than_what_was_taken_along_is_not_left_behind() {
        let cell_id: CellId = "home".parse().unwrap();
        let at = |term: u64, last: u64| Reached { last_term: Term(term), last, term: Term(term) };
        let found = |came: Option<Reached>, moved: Option<Moved>| EtcdCell {
            state: State::new(cell_id.clone()),
            applied: 90,
            term: Term(9),
            came,
            moved,
            members: BTreeMap::new(),
        };
        let etcd = plimsoll_etcd::EtcdConfig::open(["http://127.0.0.1:2379"]);
        let seal = plimsoll_store::keys::CellKey::generate().unwrap();
        let prefix = "/plimsoll/home/".to_owned();
        let place = EtcdLocation::scheduler(etcd, cell_id.clone(), prefix, seal);
        let moved = Moved { to: Peer::default(), incarnation: serde_json::Value::Null };
        for (case, came, moved, ours, refused) in [
            ("the same", Some(at(3, 80)), None, at(3, 80), None),
            ("less", Some(at(3, 80)), None, at(3, 79), None),
            ("more of an older term, never agreed on", Some(at(3, 80)), None, at(2, 95), None),
            ("more", Some(at(3, 80)), None, at(3, 81), Some("migrate this server first")),
            ("of a later term", Some(at(3, 80)), None, at(4, 70), Some("goes on to entry 70")),
            ("a cell that began there", None, None, at(3, 80), Some("there are keys below")),
            ("one that left", Some(at(3, 80)), Some(moved), at(3, 80), Some("there are keys")),
        ] {
            let said = must_be_ours(Path::new("/d"), &place, &found(came, moved), ours);
            match (said, refused) {
                (Ok(()), None) => {}
                (Err(error), Some(words)) => {
                    assert!(error.to_string().contains(words), "{case}: {error}");
                }
                (said, _) => panic!("{case}: {said:?}"),
            }
        }
    }
}
