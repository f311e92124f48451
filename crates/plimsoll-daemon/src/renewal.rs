//! Keeps this node's certificate good: a new one is made when a third of its time is left, and shown from the next
//! connection on. A server signs its own, since every server holds the authority; other nodes ask one.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::cell::reach::{self, RENEW};
use crate::cell::{ANSWER, authority};
use crate::context::{NodeContext, now};
use plimsoll_peer::pki::{Credentials, Error, Identity, NODE_LIFETIME};
use plimsoll_peer::{PeerClient, Response};

/// How often it is looked at: often enough to be tried some hundred times before it runs out.
const EVERY: Duration = Duration::from_mins(30);

/// Runs until told to stop.
pub async fn run(
    cell: NodeContext,
    data_dir: PathBuf,
    mut identity: Identity,
    client: PeerClient,
    credentials: Credentials,
    mut shutdown: watch::Receiver<bool>,
) {
    loop {
        if identity.renew_due(now()) {
            match renew(&cell, &identity, &client).await {
                Ok(Some(renewed)) => {
                    let kept = renewed.store(&data_dir).and_then(|()| credentials.renew(&renewed));
                    match kept {
                        Ok(()) => identity = renewed,
                        Err(error) => tracing::error!(%error, "cannot use the new certificate"),
                    }
                }
                Ok(None) => {
                    tracing::warn!(
                        "this certificate runs out, and no server can be asked for another"
                    );
                }
                Err(error) => tracing::error!(%error, "cannot renew the certificate"),
            }
        }
        tokio::select! {
            () = sleep(EVERY) => {}
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
    }
}

async fn renew(
    cell: &NodeContext,
    old: &Identity,
    client: &PeerClient,
) -> Result<Option<Identity>, Error> {
    let (key, csr) = old.another()?;
    if cell.holds_log() {
        let Some(authority) = authority(cell)? else { return Ok(None) };
        let certificate = authority.issue(&csr, &cell.node, now(), NODE_LIFETIME)?;
        return Identity::new(key, certificate, authority.certificate().clone()).map(Some);
    }
    let Some(leader) = reach::leader(cell) else { return Ok(None) };
    let body = Bytes::copy_from_slice(csr.as_der());
    let asked = client.call(&leader, Method::POST, RENEW, body, ANSWER).await;
    match asked.and_then(Response::good) {
        Ok(certificate) => {
            Identity::new(key, certificate.to_vec(), old.authority().clone()).map(Some)
        }
        Err(error) => {
            tracing::warn!(leader = %leader.node, %error, "the certificate was not renewed");
            Ok(None)
        }
    }
}
