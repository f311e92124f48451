//! Whether what a start asks for is what its data directory holds. A node of a cell goes on there; `--join` and `--cell`
//! that say otherwise are refused before anything is opened, since to ignore them would run another cell than was asked
//! for.
//!
//! The token in `--join` names its cell by the fingerprint of the authority. That alone does not make this node a member:
//! it may have been removed, and a restored cell has the authority of the one before it. A start with the token that this
//! node was taken in with is a restart; with any other token of its cell, the cell is asked.

use std::time::Duration;

use plimsoll_model::{CellId, NodeId};
use plimsoll_store::Peer;
use plimsoll_store::embedded::{OpenError, cell_of, is_superseded};
use tokio::time::timeout;

use super::node_file::NodeFile;
use super::{Error, NodeOptions, store_dir};
use crate::link::reach::Reach;
use crate::link::{Connect, Unopened};
use plimsoll_peer::pki::{Credentials, Identity, JoinAddress};
use plimsoll_peer::{self as peer, PeerClient};

/// How long the cell may take to say whether this node is of it: a cell that is down must not keep its nodes from starting.
const PATIENCE: Duration = Duration::from_secs(3);

/// How many nodes are asked for the leader before the question is dropped.
const MAX_HOPS: usize = 3;

/// Whether this node is of a cell, as the cell says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Membership {
    Member,
    Removed,
    Unknown,
}

pub(super) async fn check(
    options: &NodeOptions,
    memory: Option<&NodeFile>,
    name: &NodeId,
) -> Result<(), Error> {
    // What is there of another engine is taken to this one by `migrate`, which is the next step whatever the cell.
    super::etcd::choose(options, memory)?;
    let store = store_dir(&options.data_dir);
    // Of a cell that went on without it nothing holds this node any more.
    if options.join.is_some() && is_superseded(&store)? {
        return Ok(());
    }
    let joined = memory.and_then(|memory| Some(&memory.joined.as_ref()?.0)).cloned();
    let on_etcd = || memory.and_then(|memory| Some(memory.etcd.as_ref()?.cell_id.clone()));
    let Some(found) = joined.or_else(on_etcd).map_or_else(|| cell_of(&store), |it| Ok(Some(it)))?
    else {
        return Ok(());
    };
    if let Some(wanted) = options.cell_id.as_ref().filter(|wanted| **wanted != found) {
        let (dir, wanted) = (options.data_dir.clone(), wanted.clone());
        return Err(OpenError::OtherCell { dir, found, wanted }.into());
    }
    match &options.join {
        None => Ok(()),
        Some(at) => check_token(options, memory, name, found, at).await,
    }
}

async fn check_token(
    options: &NodeOptions,
    memory: Option<&NodeFile>,
    name: &NodeId,
    cell_id: CellId,
    at: &JoinAddress,
) -> Result<(), Error> {
    let (dir, node) = (options.data_dir.clone(), name.clone());
    // Without an identity this is a restored cell before its first start, which is not the one that a token was made in.
    let identity = Identity::load(&dir)?;
    // The token that it was taken in with may name an authority that was rotated away since.
    let is_own = memory.and_then(|memory| memory.join_token) == Some(at.token.secret_hash());
    if is_own && identity.is_some() {
        return Ok(());
    }
    let fingerprint = at.token.fingerprint();
    let Some(identity) = identity.filter(|it| it.trusts(fingerprint)) else {
        let met = peer::meet(fingerprint, &at.address, PATIENCE).await;
        return Err(if met.is_ok_and(|met| met.cell_id == cell_id) {
            Error::LeftBehind { dir, node, cell_id }
        } else {
            Error::OtherToken { dir, node, cell_id }
        });
    };
    let asked = timeout(PATIENCE, ask(&identity, at)).await.unwrap_or(Membership::Unknown);
    match asked {
        Membership::Member => Ok(()),
        Membership::Removed => Err(Error::NoMember { dir, node, cell_id }),
        Membership::Unknown => {
            tracing::warn!(
                address = at.address, cell = %cell_id,
                "--join is not used: this node is of the cell already, unless it was removed, and nobody could be asked"
            );
            Ok(())
        }
    }
}

/// Asks the leader, as this node will for its link.
async fn ask(identity: &Identity, at: &JoinAddress) -> Membership {
    let fingerprint = at.token.fingerprint();
    let Ok(first) = peer::meet(fingerprint, &at.address, PATIENCE).await else {
        return Membership::Unknown;
    };
    let Ok(credentials) = Credentials::new(identity) else { return Membership::Unknown };
    let reach = Reach(PeerClient::new(credentials));
    let mut next = Peer { name: first.node.to_string(), address: at.address.clone() };
    for _ in 0..MAX_HOPS {
        match reach.open(&next).await {
            Ok(_) => return Membership::Member,
            Err(Unopened::Removed) => return Membership::Removed,
            Err(Unopened::NotLeader { leader: Some(leader) }) => next = leader,
            Err(_) => return Membership::Unknown,
        }
    }
    Membership::Unknown
}
