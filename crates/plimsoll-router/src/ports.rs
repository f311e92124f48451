//! Published ports: listens on what the table says, and on nothing else. A port that somebody else holds is tried again
//! and said to be in trouble until it is free.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::core::Core;
use crate::table::{Protocol, Published};
use crate::{Stage, is_over, tcp, udp};

/// How often a port that someone else holds is tried again, and a listener out of files rests.
const RETRY: Duration = Duration::from_millis(500);

/// Listens as the tables say, while the stage is open and this is polled.
pub(crate) async fn run(core: Arc<Core>, stage: watch::Receiver<Stage>) {
    let mut swapped = core.swapped.subscribe();
    let mut listeners = Listeners::default();
    loop {
        swapped.mark_unchanged();
        let table = core.table.load_full();
        listeners.keep(&core, |at| table.published_pool(at).is_some());
        for (at, _) in table.published() {
            let begin = || tokio::spawn(listen(Arc::clone(&core), at, stage.clone()));
            listeners.0.entry(at).or_insert_with(begin);
        }
        tokio::select! {
            changed = swapped.changed() => if changed.is_err() { return },
            () = is_over(stage.clone()) => break,
        }
    }
    for task in listeners.0.values_mut() {
        // One that panicked has ended as well, and has said so.
        let _ = task.await;
    }
}

/// Ends with all that listen. Connections that were let in go on.
#[derive(Debug, Default)]
struct Listeners(BTreeMap<Published, JoinHandle<()>>);

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
        self.0.values().for_each(JoinHandle::abort);
    }
}

async fn listen(core: Arc<Core>, at: Published, stage: watch::Receiver<Stage>) {
    match at.protocol {
        Protocol::Tcp => {
            let bind = |address| core.sockets.tcp(address, tcp::bind);
            let listener = tokio::select! {
                listener = bound(&core, at, bind) => listener,
                () = is_over(stage.clone()) => return,
            };
            tcp::accept(core, at, listener, stage).await;
        }
        Protocol::Udp => {
            let socket = tokio::select! {
                socket = bound(&core, at, |address| core.sockets.udp(address)) => socket,
                () = is_over(stage.clone()) => return,
            };
            udp::serve(core, at, socket, stage).await;
        }
    }
}

/// Binds, as soon as that is possible.
async fn bound<S>(core: &Core, at: Published, bind: impl Fn(SocketAddr) -> io::Result<S>) -> S {
    loop {
        let error = match both_kinds(at.address, &bind) {
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
fn both_kinds<S>(address: SocketAddr, bind: impl Fn(SocketAddr) -> io::Result<S>) -> io::Result<S> {
    let is_any = matches!(address.ip(), IpAddr::V6(ip) if ip.is_unspecified());
    match bind(address) {
        Err(error) if is_any && error.kind() != io::ErrorKind::AddrInUse => {
            bind((Ipv4Addr::UNSPECIFIED, address.port()).into())
        }
        bound => bound,
    }
}
