//! A cell that comes to an etcd, or leaves one. No server runs meanwhile: what is written is a snapshot without entries, and
//! one transaction makes it a cell's. A cell that left is marked, so that no server takes it up again here.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_etcd::{EtcdClient, Keys, Op, Range, Txn, When};
use plimsoll_model::{CellId, State, Term};
use plimsoll_seal::CellKey;
use plimsoll_store::{Machine, Peer, ServerId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::layout::{FORMAT, Layout, Owner, Snapshot, from_json, to_json};
use crate::rules::MAX_BYTES;
use crate::seal::{ValueSeal, part_of};
use crate::sync::{LogReader, Loss, SyncError, SyncLock};
use crate::tip::KnownTip;

/// The term of a snapshot that no leader on this etcd wrote.
const NO_TERM: i64 = 0;

/// More parts than any state has, each a megabyte.
const MAX_PARTS: u32 = 10_000;

/// Where a cell is, or is to be.
#[derive(Debug, Clone)]
pub struct EtcdLocation {
    pub etcd: plimsoll_etcd::EtcdConfig,
    pub cell_id: CellId,
    pub prefix: String,
    pub role: String,
    /// What the cell seals its values with.
    pub seal: CellKey,
}

/// How far a cell had come in the engine it left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Reached {
    /// Of its last entry; first, because a later term has more.
    pub last_term: Term,
    pub last: u64,
    /// The newest term that was seen.
    pub term: Term,
}

/// Where a cell went that was here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    pub to: Peer,
    /// What whoever follows must know, in the words of the engine it went to.
    pub incarnation: serde_json::Value,
}

/// A cell as it is here.
#[derive(Debug)]
pub struct EtcdCell {
    pub state: State,
    pub applied: u64,
    /// No term that any leader here had is later.
    pub term: Term,
    /// How it came here.
    pub came: Option<Reached>,
    pub moved: Option<Moved>,
    /// The servers that run.
    pub members: BTreeMap<ServerId, Peer>,
}

#[derive(Debug, Error)]
pub enum MigrateError {
    #[error(
        "the keys below {prefix} in etcd belong to cell {found}, not to {wanted}; choose another prefix"
    )]
    OtherCell { prefix: String, found: CellId, wanted: CellId },
    #[error(
        "there are keys below {prefix} in etcd already; choose another prefix, or delete them first"
    )]
    NotEmpty { prefix: String },
    #[error(
        "what is below {prefix} in etcd is sealed with key {found}, and this node has key {ours}; print the right one with \
         `plimsoll cell etcd-seal-key` on a server that has it, and give it with --etcd-seal-key-file"
    )]
    OtherSeal { prefix: String, found: String, ours: String },
    #[error("no cell below {prefix} in etcd; check the endpoints and the prefix")]
    NoCell { prefix: String },
    #[error(
        "another process writes below {prefix} in etcd; stop all daemons of the cell, then retry"
    )]
    Contended { prefix: String },
    #[error("{why}")]
    Unreadable { why: String },
    #[error(transparent)]
    Etcd(#[from] plimsoll_etcd::Error),
}

impl From<SyncError> for MigrateError {
    fn from(trouble: SyncError) -> Self {
        match trouble {
            SyncError::Etcd(error) => Self::Etcd(error),
            SyncError::Unreadable(why) | SyncError::Lost(Loss { why, .. }) => {
                Self::Unreadable { why }
            }
        }
    }
}

impl EtcdLocation {
    /// A cell's scheduler, with its keys below a prefix.
    pub fn scheduler(
        etcd: plimsoll_etcd::EtcdConfig,
        cell_id: CellId,
        prefix: String,
        seal: CellKey,
    ) -> Self {
        Self { etcd, cell_id, prefix, role: "scheduler".to_owned(), seal }
    }

    fn open(&self) -> Result<(EtcdClient, Layout), MigrateError> {
        Ok((EtcdClient::new(self.etcd.clone())?, Layout::new(&self.prefix, &self.role)))
    }

    /// The cell as it is here; none where nothing is.
    pub async fn look(&self) -> Result<Option<EtcdCell>, MigrateError> {
        let (client, layout) = self.open()?;
        let Some(pair) = client.get(layout.cell_id()).await? else { return Ok(None) };
        let prefix = || self.prefix.clone();
        let owner = from_json::<Owner>(&pair.value).filter(|owner| owner.format <= FORMAT);
        let owner = owner.ok_or_else(|| MigrateError::NotEmpty { prefix: prefix() })?;
        if owner.cell_id != self.cell_id {
            let (found, wanted) = (owner.cell_id, self.cell_id.clone());
            return Err(MigrateError::OtherCell { prefix: prefix(), found, wanted });
        }
        let seal = ValueSeal::new(&self.seal);
        if owner.seal != seal.id() {
            let (found, ours) = (owner.seal, seal.id());
            return Err(MigrateError::OtherSeal { prefix: prefix(), found, ours });
        }
        let machine = Arc::new(Machine::new(State::new(self.cell_id.clone()), 0));
        let reader = LogReader {
            client,
            layout,
            machine: Arc::clone(&machine),
            turn: SyncLock::default(),
            tip: KnownTip::default(),
            seal,
            owner: Some(owner.clone()),
            server: None,
        };
        let news = reader.sync().await?;
        let (state, applied) = machine.read_at(|state, applied| (state.clone(), applied));
        let revision = u64::try_from(news.revision).unwrap_or(0);
        let mut members = news.members;
        members.extend(news.held.map(|held| (held.leader.server, held.leader.peer)));
        Ok(Some(EtcdCell {
            state,
            applied,
            term: Term(owner.terms_after + revision),
            came: owner.came,
            moved: owner.moved,
            members,
        }))
    }

    /// Puts a cell where nothing is.
    pub async fn settle(
        &self,
        state: &State,
        applied: u64,
        reached: Reached,
    ) -> Result<(), MigrateError> {
        let (client, layout) = self.open()?;
        self.clear_leftovers(&client, &layout).await?;
        let seal = ValueSeal::new(&self.seal);
        let bytes = postcard::to_stdvec(state).expect("every state can be written");
        for (nth, at) in (0..bytes.len()).step_by(MAX_BYTES).enumerate() {
            let part = &bytes[at..bytes.len().min(at + MAX_BYTES)];
            let key = layout.state_part(applied, NO_TERM, nth);
            let part = seal.seal(&key, &part_of(bytes.len() as u64), part);
            client.put(key, part).await?;
        }
        let snapshot =
            Snapshot { format: FORMAT, index: applied, term: NO_TERM, bytes: bytes.len() as u64 };
        let owner = Owner {
            terms_after: reached.term.0,
            came: Some(reached),
            ..Owner::new(self.cell_id.clone(), &seal)
        };
        // From here on it is a cell.
        let txn = Txn::when([When::absent(layout.cell_id()), When::absent(layout.snapshot())])
            .then([
                Op::put(layout.cell_id(), to_json(&owner)),
                Op::put(layout.snapshot(), to_json(&snapshot)),
            ])
            .otherwise([Op::get(Range::of(Keys::one(layout.cell_id())))]);
        if client.txn(txn).await?.held {
            return Ok(());
        }
        Err(MigrateError::Contended { prefix: self.prefix.clone() })
    }

    /// Parts of a state without a cell are what a migration left that did not come to its end. Anything else is somebody's.
    async fn clear_leftovers(
        &self,
        client: &EtcdClient,
        layout: &Layout,
    ) -> Result<(), MigrateError> {
        let keys = Keys::prefix(Bytes::from(self.prefix.clone()));
        let all = client.range(Range::of(keys).limit(MAX_PARTS).keys_only()).await?.pairs;
        if !all.iter().all(|pair| layout.is_state(&pair.key)) {
            return Err(MigrateError::NotEmpty { prefix: self.prefix.clone() });
        }
        if !all.is_empty() {
            client.delete(layout.states()).await?;
        }
        Ok(())
    }

    /// Takes back what [`settle`](Self::settle) wrote, where it did not turn out well.
    pub async fn clear(&self) -> Result<(), MigrateError> {
        let (client, _) = self.open()?;
        client.delete(Keys::prefix(Bytes::from(self.prefix.clone()))).await?;
        Ok(())
    }

    /// Marks the cell as gone: no server starts here from now on. Not while one runs.
    pub async fn leave(&self, moved: Moved) -> Result<(), MigrateError> {
        let (client, layout) = self.open()?;
        let contended = || MigrateError::Contended { prefix: self.prefix.clone() };
        let pair = client.get(layout.cell_id()).await?.ok_or_else(contended)?;
        let owner = from_json::<Owner>(&pair.value).ok_or_else(contended)?;
        let left = Owner { moved: Some(moved), ..owner };
        let txn = Txn::when([When::absent(layout.leader())])
            .then([Op::put(layout.cell_id(), to_json(&left))])
            .repeatable();
        if client.txn(txn).await?.held { Ok(()) } else { Err(contended()) }
    }
}
