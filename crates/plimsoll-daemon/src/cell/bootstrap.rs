//! The first node of a cell gives it an authority, and itself a certificate. A cell that was restored from a backup has
//! its authority already.

use std::path::Path;
use std::time::Duration;

use plimsoll_model::access::Authority as StoredAuthority;
use plimsoll_model::{Change, NodeFacts, Writer};
use tokio::time::sleep;

use super::authority;
use super::join::Error;
use crate::authorities::CellAuthorities;
use crate::context::{NodeContext, WriteError, now};
use plimsoll_peer::pki::{Authority, AuthorityParts, Csr, Identity, NODE_LIFETIME, NodeKey};

/// Between two tries to give the cell an authority.
const RETRY: Duration = Duration::from_millis(100);

/// The identity of a node that is a server because it reaches the log: it signs its own certificate, with the authority
/// in the state. Where the state has none yet, whoever leads makes it.
pub async fn signed(
    cell: &NodeContext,
    data_dir: &Path,
    facts: &NodeFacts,
) -> Result<Identity, Error> {
    let authority = until_founded(cell, data_dir, facts).await?;
    if let Some(identity) = Identity::load(data_dir)? {
        let cell_id = cell.engine.machine().read(|state| state.cell_id().clone());
        let is_named = identity.caller().cell_id == cell_id && identity.caller().node == cell.node;
        let key = identity.key_digest()?;
        let is_enrolled = cell.is_member(&cell.node, &key);
        let told = cell.engine.machine().read(CellAuthorities::of);
        let is_accepted = told.is_some_and(|told| told.accept(&identity));
        if cell.engine.machine().read(|state| state.access().revoked.contains_key(&key)) {
            return Err(Error::Removed { dir: data_dir.to_owned() });
        }
        // One that has run out while the node was down is no use to anybody, and needs nobody's leave to be replaced.
        if is_named && is_accepted && !identity.has_expired(now()) {
            return Ok(identity);
        }
        // So is one of an authority that was rotated away meanwhile: who reaches the log is a server.
        if is_named && (is_accepted || is_enrolled) {
            let (key, csr) = identity.another()?;
            return sign(cell, data_dir, &authority, key, &csr);
        }
    }
    let (key, csr) = Identity::new_key()?;
    sign(cell, data_dir, &authority, key, &csr)
}

fn sign(
    cell: &NodeContext,
    data_dir: &Path,
    authority: &Authority,
    key: NodeKey,
    csr: &Csr,
) -> Result<Identity, Error> {
    let certificate = authority.issue(csr, &cell.node, now(), NODE_LIFETIME)?;
    let identity = Identity::new(key, certificate, authority.certificate().clone())?;
    let identity = trusting(cell, identity);
    identity.store(data_dir)?;
    Ok(identity)
}

/// Also while the authority is rotated a node trusts all that its cell does from its first moment on.
fn trusting(cell: &NodeContext, identity: Identity) -> Identity {
    match cell.engine.machine().read(CellAuthorities::of) {
        Some(told) => identity.trusting(told.anchors(), told.epoch),
        None => identity,
    }
}

/// Waits for the cell's authority, or makes it as soon as this node leads.
async fn until_founded(
    cell: &NodeContext,
    data_dir: &Path,
    facts: &NodeFacts,
) -> Result<Authority, Error> {
    let mut leadership = cell.engine.leadership();
    let mut applied = cell.engine.machine().applied();
    loop {
        applied.borrow_and_update();
        let leads = leadership.borrow_and_update().is_me;
        if let Some(authority) = authority(cell)? {
            return Ok(authority);
        }
        if leads {
            match found(cell, data_dir, facts).await {
                Ok(()) => continue,
                // Another may have been quicker, or leads by now: it is looked at again.
                Err(Error::Write(error)) => {
                    tracing::warn!(%error, "the cell has no authority yet");
                    sleep(RETRY).await;
                    continue;
                }
                Err(error) => return Err(error),
            }
        }
        let ended = tokio::select! {
            changed = leadership.changed() => changed.is_err(),
            changed = applied.changed() => changed.is_err(),
        };
        if ended {
            return Err(WriteError::Store(plimsoll_store::Error::Stopped).into());
        }
    }
}

async fn found(cell: &NodeContext, data_dir: &Path, facts: &NodeFacts) -> Result<(), Error> {
    let cell_id = cell.engine.machine().read(|state| state.cell_id().clone());
    let authority = Authority::found(&cell_id, now())?;
    let (key, csr) = Identity::new_key()?;
    let (node, own) = (cell.node.clone(), csr.key());
    let AuthorityParts { certificate, key: secret, .. } = authority.to_parts();
    let kept = StoredAuthority { certificate, key: secret };
    let batch = vec![
        Change::PutNode { node: node.clone(), facts: facts.clone() }.free(),
        Change::Found { authority: kept, node, key: own }.free(),
    ];
    cell.write(Writer::Operator, cell.node.as_str(), batch).await?;
    sign(cell, data_dir, &authority, key, &csr).map(drop)
}

/// This node's identity, made now if the cell is its own and it has none yet.
pub async fn identity(cell: &NodeContext, data_dir: &Path) -> Result<Identity, Error> {
    let cell_id = cell.engine.machine().read(|state| state.cell_id().clone());
    if let Some(identity) = Identity::load(data_dir)? {
        let is_ours = identity.caller().cell_id == cell_id && identity.caller().node == cell.node;
        if is_ours {
            return Ok(identity);
        }
    }
    let authority = match authority(cell)? {
        Some(authority) => authority,
        None => Authority::found(&cell_id, now())?,
    };
    let (key, csr) = Identity::new_key()?;
    let certificate = authority.issue(&csr, &cell.node, now(), NODE_LIFETIME)?;
    let identity = Identity::new(key, certificate, authority.certificate().clone())?;
    let AuthorityParts { certificate, key, .. } = authority.to_parts();
    let (authority, node) = (StoredAuthority { certificate, key }, cell.node.clone());
    let found = Change::Found { authority, node, key: csr.key() };
    cell.write(Writer::Operator, cell.node.as_str(), vec![found.free()]).await?;
    let identity = trusting(cell, identity);
    identity.store(data_dir)?;
    Ok(identity)
}
