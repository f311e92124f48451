//! Published ports: listens on those of the table. A port that is in use by another process is retried, and reported until
//! it is free.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::core::RouterCore;
use crate::table::{Protocol, PublishedPort};
use crate::{RouterStage, stops_accepting, tcp, udp};

/// How often binding a port that is in use is retried.
const RETRY: Duration = Duration::from_millis(500);

/// Listens on the published ports of each table, while the stage is open and this is polled.
pub(crate) async fn run(core: Arc<RouterCore>, stage: watch::Receiver<RouterStage>) {
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
            () = stops_accepting(stage.clone()) => break,
        }
    }
    for task in listeners.0.values_mut() {
        // A task that panicked has ended as well, and has logged it.
        let _ = task.await;
    }
}

/// The tasks that listen, which end when it is dropped. Accepted connections go on.
#[derive(Debug, Default)]
struct Listeners(BTreeMap<PublishedPort, JoinHandle<()>>);

impl Listeners {
    fn keep(&mut self, core: &RouterCore, stays: impl Fn(PublishedPort) -> bool) {
        self.0.retain(|at, task| {
            let stays = stays(*at);
            if !stays {
                task.abort();
                clear_error(core, *at);
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

async fn listen(core: Arc<RouterCore>, at: PublishedPort, stage: watch::Receiver<RouterStage>) {
    match at.protocol {
        Protocol::Tcp => {
            let bind = |address| core.sockets.tcp(address, tcp::bind);
            let listener = tokio::select! {
                listener = bound(&core, at, bind) => listener,
                () = stops_accepting(stage.clone()) => return,
            };
            tcp::accept(core, at, listener, stage).await;
        }
        Protocol::Udp => {
            let socket = tokio::select! {
                socket = bound(&core, at, |address| core.sockets.udp(address)) => socket,
                () = stops_accepting(stage.clone()) => return,
            };
            udp::serve(core, at, socket, stage).await;
        }
    }
}

/// Binds, with retries.
async fn bound<S>(
    core: &RouterCore,
    at: PublishedPort,
    bind: impl Fn(SocketAddr) -> io::Result<S>,
) -> S {
    loop {
        let error = match bind_dual_stack(at.address, &bind) {
            Ok(socket) => {
                clear_error(core, at);
                return socket;
            }
            Err(error) => error,
        };
        let text = format!("cannot listen on {at}: {error}");
        let is_new = core.bind_errors.send_if_modified(|bind_errors| {
            let is_new = bind_errors.get(&at) != Some(&text);
            bind_errors.insert(at, text);
            is_new
        });
        if is_new {
            tracing::error!(%at, %error, "cannot bind a published port");
        }
        sleep(RETRY).await;
    }
}

/// The port is bound, or not published any more.
fn clear_error(core: &RouterCore, at: PublishedPort) {
    core.bind_errors.send_if_modified(|bind_errors| bind_errors.remove(&at).is_some());
}

/// The unspecified address binds IPv6 and IPv4, or IPv4 alone on a host without IPv6.
fn bind_dual_stack<S>(
    address: SocketAddr,
    bind: impl Fn(SocketAddr) -> io::Result<S>,
) -> io::Result<S> {
    let is_any = matches!(address.ip(), IpAddr::V6(ip) if ip.is_unspecified());
    match bind(address) {
        Err(error) if is_any && error.kind() != io::ErrorKind::AddrInUse => {
            bind((Ipv4Addr::UNSPECIFIED, address.port()).into())
        }
        bound => bound,
    }
}
