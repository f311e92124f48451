//! The key that backups of the cell are encrypted with: the first leader makes it, and people change it.

use std::io;

use plimsoll_model::access::KeyBytes;
use plimsoll_model::{Change, Writer};
use plimsoll_store::keys::CellKey;

use crate::context::{NodeContext, WriteError};

/// Who the audit says it was.
const IDENTITY: &str = "leader";

/// A key that nobody has yet.
pub fn fresh() -> io::Result<KeyBytes> {
    let key = CellKey::generate()?;
    Ok(KeyBytes(key.expose().try_into().expect("a key has as many bytes")))
}

/// Makes the cell's first backup key, unless it has one.
pub async fn ensure(cell: &NodeContext) -> Result<(), WriteError> {
    if cell.engine.machine().read(|state| state.access().backup_key.is_some()) {
        return Ok(());
    }
    let secret = match fresh() {
        Ok(secret) => secret,
        Err(error) => return Err(plimsoll_store::Error::Disk(error.to_string().into()).into()),
    };
    let change = Change::CreateBackupKey { secret };
    cell.write(Writer::Operator, IDENTITY, vec![change.free()]).await.map(drop)
}
