//! A cell whose etcd lost acknowledged writes goes on below another prefix, with the state that a server still had in memory.
//! The first server takes the cell there, every other one follows; their daemons are restarted afterwards.

use std::path::{Path, PathBuf};

use plimsoll_model::{CellId, NodeId, Term};
use plimsoll_store::backup::{self, Summary};
use plimsoll_store::keys::{CellKey, UnlockKey};
use plimsoll_store::recovery::TERM_STEP;
use plimsoll_store_etcd::migrate::{EtcdLocation, MigrateError, Reached};
use thiserror::Error;

use super::etcd::{EtcdOptions, EtcdRecord};
use super::etcd_seal::SealKey;
use super::migration::{self, hash, verify};
use super::node_file::NodeFile;

/// What a recovery did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredEtcd {
    pub cell_id: CellId,
    pub node: NodeId,
    /// Where the cell is now.
    pub prefix: String,
    /// The last entry that is kept.
    pub applied: u64,
    /// No leader has a term up to this one again.
    pub term: Term,
    pub hash: String,
    /// Whether the cell was there already, and this node followed.
    pub has_followed: bool,
}

/// Why a cell was not recovered. What was there is still there.
#[derive(Debug, Error)]
pub enum Error {
    #[error("{} is no data directory of a node on etcd; name the one `plimsoll up` was started with", dir.display())]
    NotOnEtcd { dir: PathBuf },
    #[error("{prefix} is where the cell was; choose another prefix with --etcd-prefix")]
    SamePrefix { prefix: String },
    #[error("the state is of cell {found}, and {} of cell {wanted}", dir.display())]
    OtherCell { dir: PathBuf, found: CellId, wanted: CellId },
    #[error(
        "the cell below {prefix} was recovered as of entry {theirs}, and this server has applied entry {ours}: delete the \
         keys there, and recover this server first"
    )]
    Ahead { prefix: String, ours: u64, theirs: u64 },
    #[error(transparent)]
    Node(#[from] super::Error),
    #[error(transparent)]
    Backup(#[from] backup::Error),
    #[error(transparent)]
    Etcd(#[from] MigrateError),
    #[error(transparent)]
    Unverified(#[from] migration::Error),
}

/// Whether the node of a data directory has its log on an etcd.
pub fn is_on_etcd(dir: &Path) -> bool {
    NodeFile::read(dir).is_ok_and(|memory| memory.is_some_and(|memory| memory.etcd.is_some()))
}

/// Where a cell goes when nobody says: beside where it was, by the last entry that is kept.
pub fn fresh_prefix(dir: &Path, applied: u64) -> Result<String, Error> {
    let (_, kept) = kept(dir)?;
    let old = kept.options.prefix_of(&kept.cell_id);
    Ok(format!("{}.recovered-{applied}/", old.trim_end_matches('/')))
}

fn kept(dir: &Path) -> Result<(NodeFile, EtcdRecord), Error> {
    let memory = NodeFile::read(dir)?.ok_or_else(|| Error::NotOnEtcd { dir: dir.to_owned() })?;
    let kept = memory.etcd.clone().ok_or_else(|| Error::NotOnEtcd { dir: dir.to_owned() })?;
    Ok((memory, kept))
}

/// Takes the state in a backup, which these keys open, and the node of a data directory, to where the options say.
pub async fn recover(
    dir: &Path,
    state: &Path,
    keys: &[CellKey],
    etcd: &EtcdOptions,
    unlock: Option<&UnlockKey>,
) -> Result<RecoveredEtcd, Error> {
    let (memory, kept) = kept(dir)?;
    let (Summary { cell_id, applied, term }, state) = backup::state(state, keys)?;
    if cell_id != kept.cell_id {
        let (found, wanted) = (cell_id, kept.cell_id);
        return Err(Error::OtherCell { dir: dir.to_owned(), found, wanted });
    }
    let said = etcd.or(&kept.options);
    let prefix = said.prefix_of(&cell_id);
    if prefix == kept.options.prefix_of(&cell_id) {
        return Err(Error::SamePrefix { prefix });
    }
    let seal = SealKey::of(dir, &said, &cell_id, unlock).await?.key;
    let place = EtcdLocation::scheduler(said.config()?, cell_id.clone(), prefix.clone(), seal);
    // Leaders may have come and gone that this server never heard of.
    let reached = Reached { last_term: term, last: applied, term: Term(term.0 + TERM_STEP) };
    let hash = hash(&state);
    let found = place.look().await?;
    let has_followed = found.is_some();
    if let Some(found) = found {
        let Some(theirs) = found.came.filter(|_| found.moved.is_none()) else {
            return Err(MigrateError::NotEmpty { prefix }.into());
        };
        if applied > theirs.last {
            return Err(Error::Ahead { prefix, ours: applied, theirs: theirs.last });
        }
    } else {
        place.settle(&state, applied, reached).await?;
        verify(&place, applied, &hash).await?;
    }
    let options = EtcdOptions { prefix: Some(prefix.clone()), ..said };
    let node = memory.name.clone();
    NodeFile { etcd: Some(EtcdRecord { options, ..kept }), ..memory }.write(dir)?;
    Ok(RecoveredEtcd { cell_id, node, prefix, applied, term: reached.term, hash, has_followed })
}
