//! The first node of a cell gives it an authority, and itself a certificate. A cell that was restored from a backup has
//! its authority already.

use std::path::Path;

use plimsoll_model::access::Authority as Kept;
use plimsoll_model::{Change, Writer};

use super::authority;
use super::join::Error;
use crate::cell::{Cell, now};
use crate::pki::{Authority, AuthorityParts, Identity, NODE_LIFETIME};

/// This node's identity, made now if the cell is its own and it has none yet.
pub async fn identity(cell: &Cell, data_dir: &Path) -> Result<Identity, Error> {
    let cluster = cell.engine.machine().read(|state| state.cluster().clone());
    if let Some(identity) = Identity::load(data_dir)? {
        let is_ours = identity.caller().cluster == cluster && identity.caller().node == cell.node;
        if is_ours {
            return Ok(identity);
        }
    }
    let authority = match authority(cell)? {
        Some(authority) => authority,
        None => Authority::found(&cluster, now())?,
    };
    let (key, csr) = Identity::new_key()?;
    let certificate = authority.issue(&csr, &cell.node, now(), NODE_LIFETIME)?;
    let identity = Identity::new(key, certificate, authority.certificate().clone())?;
    let AuthorityParts { certificate, key, .. } = authority.to_parts();
    let (authority, node) = (Kept { certificate, key }, cell.node.clone());
    let found = Change::Found { authority, node, key: csr.key() };
    cell.write(Writer::Operator, cell.node.as_str(), vec![found.free()]).await?;
    identity.store(data_dir)?;
    Ok(identity)
}
