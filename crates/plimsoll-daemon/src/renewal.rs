//! Keeps this node's certificate good: a new one is asked for when a third of its time is left, and shown from the next
//! connection on.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::cell::{Cell, now};
use crate::cluster::authority;
use crate::pki::{Credentials, Error, Identity, NODE_LIFETIME};

/// How often it is looked at: often enough to be tried some hundred times before it runs out.
const EVERY: Duration = Duration::from_mins(30);

/// Runs until told to stop.
pub async fn run(
    cell: Cell,
    data_dir: PathBuf,
    mut identity: Identity,
    credentials: Credentials,
    mut shutdown: watch::Receiver<bool>,
) {
    loop {
        if identity.renew_due(now()) {
            match renew(&cell) {
                Ok(Some(renewed)) => {
                    let kept = renewed.store(&data_dir).and_then(|()| credentials.renew(&renewed));
                    match kept {
                        Ok(()) => identity = renewed,
                        Err(error) => tracing::error!(%error, "a new certificate cannot be used"),
                    }
                }
                Ok(None) => tracing::warn!("the cell has no authority to renew a certificate with"),
                Err(error) => tracing::error!(%error, "no new certificate could be made"),
            }
        }
        tokio::select! {
            () = sleep(EVERY) => {}
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
    }
}

/// Every server holds the authority, so none has to ask another.
fn renew(cell: &Cell) -> Result<Option<Identity>, Error> {
    let Some(authority) = authority(cell)? else { return Ok(None) };
    let (key, csr) = Identity::new_key()?;
    let certificate = authority.issue(&csr, &cell.node, now(), NODE_LIFETIME)?;
    Identity::new(key, certificate, authority.certificate().clone()).map(Some)
}
