//! This server's lease: its keys hang on it, and with it goes the right to lead.

use std::time::{Duration, Instant};

use plimsoll_etcd::{Error, EtcdClient, LeaseId, Op, Txn};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::rules;

/// What is known of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alive {
    /// It cannot have expired before then, by our own clock.
    Until(Instant),
    /// Etcd has it no more.
    Gone,
}

#[derive(Debug)]
pub(crate) struct LeaderSession {
    pub(crate) lease: LeaseId,
    pub(crate) alive: watch::Receiver<Alive>,
    keeper: AbortHandle,
}

impl Drop for LeaderSession {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl LeaderSession {
    /// Obtains a lease, hangs a key on it, and has `keeper` keep it alive until this is dropped.
    pub(crate) async fn open(
        client: &EtcdClient,
        keeper: &EtcdClient,
        ttl: Duration,
        key: bytes::Bytes,
        value: bytes::Bytes,
    ) -> Result<Self, Error> {
        let asked = Instant::now();
        let lease = client.grant(ttl).await?;
        let put = Op::put_leased(key, value, lease.id);
        client.txn(Txn::when([]).then([put]).repeatable()).await?;
        let (sender, alive) = watch::channel(Alive::Until(rules::fence(asked, lease.ttl)));
        let task = tokio::spawn(keep(keeper.clone(), lease.id, lease.ttl, sender));
        Ok(Self { lease: lease.id, alive, keeper: task.abort_handle() })
    }

    pub(crate) fn fence(&self) -> Option<Instant> {
        match *self.alive.borrow() {
            Alive::Until(fence) => Some(fence),
            Alive::Gone => None,
        }
    }
}

/// Renews the lease until etcd has it no more. It goes on beyond the fence: where the lease turns out to have lived on,
/// nothing was lost.
async fn keep(client: EtcdClient, lease: LeaseId, ttl: Duration, alive: watch::Sender<Alive>) {
    let mut keeper = client.keep_alive(lease);
    let mut pause = rules::renew_after(ttl);
    loop {
        tokio::time::sleep(pause).await;
        // Taken before it is sent: etcd's count begins later.
        let asked = Instant::now();
        pause = match keeper.renew().await {
            Ok(life) => {
                alive.send_replace(Alive::Until(rules::fence(asked, life)));
                rules::renew_after(ttl).saturating_sub(asked.elapsed())
            }
            Err(Error::NoSuchLease { .. }) => {
                alive.send_replace(Alive::Gone);
                return;
            }
            Err(_) => rules::retry_after(ttl),
        };
    }
}

/// Waits until the lease can no longer be trusted.
pub(crate) async fn doubted(mut alive: watch::Receiver<Alive>) {
    loop {
        let Alive::Until(fence) = *alive.borrow_and_update() else { return };
        if Instant::now() >= fence {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep_until(fence.into()) => {}
            changed = alive.changed() => if changed.is_err() { return },
        }
    }
}
