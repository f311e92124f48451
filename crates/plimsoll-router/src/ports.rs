//! Published ports: listens on what the table says, and on nothing else. A port that somebody else holds is tried again
//! and said to be in trouble until it is free.

use std::collections::BTreeMap;
use std::future::ready;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::core::Core;
use crate::table::{Protocol, Published};
use crate::{tcp, udp};

/// How often a port that someone else holds is tried again, and a listener out of files rests.
const RETRY: Duration = Duration::from_millis(500);

/// Listens as the tables say, for as long as it is polled.
pub(crate) async fn run(core: Arc<Core>) {
    let mut swapped = core.swapped.subscribe();
    let mut listeners = Listeners::default();
    loop {
        swapped.mark_unchanged();
        let table = core.table.load_full();
        listeners.keep(&core, |at| table.published_pool(at).is_some());
        for (at, _) in table.published() {
            listeners
                .0
                .entry(at)
                .or_insert_with(|| tokio::spawn(listen(Arc::clone(&core), at)).abort_handle());
        }
        if swapped.changed().await.is_err() {
            return;
        }
    }
}

/// Ends with all that listen. Connections that were let in go on.
#[derive(Debug, Default)]
struct Listeners(BTreeMap<Published, AbortHandle>);

impl Listeners {
    fn keep(&mut self, core: &Core, stays: impl Fn(Published) -> bool) {
        self.0.retain(|at, task| {
            let stays = stays(*at);
            if !stays {
                task.abort();
                forgive(core, *at);
            }
            stays
        });
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        self.0.values().for_each(AbortHandle::abort);
    }
}

async fn listen(core: Arc<Core>, at: Published) {
    match at.protocol {
        Protocol::Tcp => {
            let listener = bound(&core, at, |address| ready(tcp::bind(address))).await;
            tcp::accept(core, at, listener).await;
        }
        Protocol::Udp => {
            let socket = bound(&core, at, UdpSocket::bind).await;
            udp::serve(core, at, Arc::new(socket)).await;
        }
    }
}

/// Binds, as soon as that is possible.
async fn bound<S, F>(core: &Core, at: Published, bind: impl Fn(SocketAddr) -> F) -> S
where
    F: Future<Output = io::Result<S>>,
{
    loop {
        let error = match both_kinds(at.address, &bind).await {
            Ok(socket) => {
                forgive(core, at);
                return socket;
            }
            Err(error) => error,
        };
        let text = format!("cannot listen on {at}: {error}");
        let is_new = core.troubles.send_if_modified(|troubles| {
            let is_new = troubles.get(&at) != Some(&text);
            troubles.insert(at, text);
            is_new
        });
        if is_new {
            tracing::error!(%at, %error, "cannot listen on a published port");
        }
        sleep(RETRY).await;
    }
}

/// The port is no trouble any more.
fn forgive(core: &Core, at: Published) {
    core.troubles.send_if_modified(|troubles| troubles.remove(&at).is_some());
}

/// All addresses means both kinds, where the host has both.
async fn both_kinds<S, F>(address: SocketAddr, bind: impl Fn(SocketAddr) -> F) -> io::Result<S>
where
    F: Future<Output = io::Result<S>>,
{
    let is_any = matches!(address.ip(), IpAddr::V6(ip) if ip.is_unspecified());
    match bind(address).await {
        Err(error) if is_any && error.kind() != io::ErrorKind::AddrInUse => {
            bind((Ipv4Addr::UNSPECIFIED, address.port()).into()).await
        }
        bound => bound,
    }
}
