//! Keeps this node's certificate good, and its trust that of the cell. A new certificate is made when a third of its time is
//! left, or when another authority signs; it is shown from the next connection on. A server signs its own, since every server
//! holds the authority; other nodes ask one.
//!
//! While the cell's authority is rotated this node follows in an order that never cuts it off: it trusts what it is told to
//! trust, on disk, before it shows a certificate of it, and says that it has done its part after both. What it has once
//! followed it does not take back for an older word.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use crate::authorities::CellAuthorities;
use crate::cell::reach::{self, RENEW};
use crate::cell::{ANSWER, authority};
use crate::context::{NodeContext, now};
use crate::link::Report;
use plimsoll_peer::pki::{Error, Identity, NODE_LIFETIME, NodeKey};
use plimsoll_peer::{PeerClient, Response};

/// How often it is looked at: often enough to be tried some hundred times before it runs out.
const EVERY: Duration = Duration::from_mins(30);

/// How soon it is tried again to follow another authority: the whole cell waits.
const AGAIN: Duration = Duration::from_millis(500);

/// How long what is written to the log waits to be looked at: in a busy cell something always is.
const PACE: Duration = Duration::from_millis(50);

/// What keeps the identity of a node.
#[derive(Debug)]
pub struct Renewal {
    cell: NodeContext,
    data_dir: PathBuf,
    identity: Identity,
    client: PeerClient,
    /// Where it is said that this node has done its part of a rotation.
    reports: mpsc::UnboundedSender<Report>,
    /// The epoch for which that was said.
    confirmed: Option<u64>,
    has_complained: bool,
}

impl Renewal {
    /// Keeps the credentials of this client, and of all that share them.
    pub fn new(
        cell: NodeContext,
        data_dir: PathBuf,
        identity: Identity,
        client: PeerClient,
        reports: mpsc::UnboundedSender<Report>,
    ) -> Self {
        let (confirmed, has_complained) = (None, false);
        Self { cell, data_dir, identity, client, reports, confirmed, has_complained }
    }

    /// Runs until told to stop.
    pub async fn run(mut self, mut shutdown: watch::Receiver<bool>) {
        let mut told = self.cell.authorities.watch();
        let mut applied = self.cell.engine.machine().applied();
        let mut tried: Option<Instant> = None;
        loop {
            applied.borrow_and_update();
            self.cell.authorities.read(self.cell.engine.machine());
            let latest = told.borrow_and_update().clone();
            let is_settled = match latest {
                Some(latest) => self.follow(&latest).await,
                None => true,
            };
            let may_try = tried.is_none_or(|tried| tried.elapsed() >= EVERY);
            if is_settled && may_try && self.identity.renew_due(now()) {
                tried = Some(Instant::now());
                self.renew().await;
            }
            let wait = if is_settled { EVERY } else { AGAIN };
            // A log that has ended says nothing any more; the leader may.
            let is_written = async {
                match applied.changed().await {
                    Ok(()) => sleep(PACE).await,
                    Err(_) => std::future::pending().await,
                }
            };
            tokio::select! {
                () = sleep(wait) => {}
                changed = told.changed() => if changed.is_err() { return },
                () = is_written, if is_settled => {}
                _ = shutdown.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// Does what this word on the authorities asks; whether all of it is done.
    async fn follow(&mut self, latest: &CellAuthorities) -> bool {
        if latest.epoch < self.identity.epoch() {
            return true;
        }
        if !latest.accept(&self.identity) {
            // Nobody accepts what it shows, and nobody would sign anything for it: it comes too late.
            return true;
        }
        if latest.epoch > self.identity.epoch() {
            let trusting = self.identity.clone().trusting(latest.anchors(), latest.epoch);
            if !self.keep(trusting) {
                return false;
            }
        }
        if !latest.signs(&self.identity) {
            let is_renewed = self.renew().await;
            if !is_renewed || !latest.signs(&self.identity) {
                return false;
            }
        }
        if latest.is_rotating && self.confirmed != Some(latest.epoch) {
            self.confirmed = Some(latest.epoch);
            // Nobody listens any more where the node ends.
            let _ = self.reports.send(Report::Followed { epoch: latest.epoch });
        }
        true
    }

    /// Gets another certificate, if one is to be had.
    async fn renew(&mut self) -> bool {
        match self.signed().await {
            Ok(renewed) => renewed.is_some_and(|renewed| self.keep(renewed)),
            Err(error) => {
                tracing::error!(%error, "cannot renew the certificate");
                false
            }
        }
    }

    /// Why there is no new certificate yet: said once, and again after there was one.
    fn complain(&mut self, why: &dyn std::fmt::Display) {
        if !std::mem::replace(&mut self.has_complained, true) {
            tracing::warn!(%why, "no new certificate yet; trying on");
        }
    }

    /// On disk first: what others were told of this node must be true of it after a crash.
    fn keep(&mut self, identity: Identity) -> bool {
        let kept = identity
            .store(&self.data_dir)
            .and_then(|()| self.client.credentials().renew(&identity));
        match kept {
            Ok(()) => (self.identity, self.has_complained) = (identity, false),
            Err(error) => {
                tracing::error!(%error, "cannot use the new certificate");
                return false;
            }
        }
        true
    }

    async fn signed(&mut self) -> Result<Option<Identity>, Error> {
        let (key, csr) = self.identity.another()?;
        let cell = &self.cell;
        let epoch = cell.engine.machine().read(|state| state.access().authority_epoch);
        // A log that is behind has an authority that others may not trust any more.
        if cell.holds_log() && epoch >= self.identity.epoch() {
            let Some(authority) = authority(cell)? else { return Ok(None) };
            let certificate = authority.issue(&csr, &cell.node, now(), NODE_LIFETIME)?;
            return self.of(&key, certificate.to_vec()).map(Some);
        }
        let Some(leader) = reach::leader(cell) else {
            self.complain(&"no server leads that could be asked");
            return Ok(None);
        };
        let body = Bytes::copy_from_slice(csr.as_der());
        let asked = self.client.call(&leader, Method::POST, RENEW, body, ANSWER).await;
        match asked.and_then(Response::good) {
            Ok(certificate) => self.of(&key, certificate.to_vec()).map(Some),
            Err(error) => {
                self.complain(&format!("{}: {error}", leader.node));
                Ok(None)
            }
        }
    }

    /// The same node with another certificate, of any authority that it trusts.
    fn of(&self, key: &NodeKey, certificate: Vec<u8>) -> Result<Identity, Error> {
        let anchors: Vec<_> = self.identity.anchors().cloned().collect();
        let identity = Identity::signed_by_any(key, certificate, anchors.iter())?;
        Ok(identity.trusting(anchors, self.identity.epoch()))
    }
}
