//! Published ports: this node listens on each and hands every connection to a healthy replica on it, so that replicas
//! come and go behind a port that stays. A replica takes connections from the moment its current generation is reported
//! healthy until it is reported otherwise or leaves.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use plimsoll_model::spec::{PortMode, Protocol};
use plimsoll_model::{ReplicaId, ServiceKey, State};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::cell::Cell;

/// How long one replica may take to accept before the next is tried.
const CONNECT: Duration = Duration::from_secs(1);

/// How often a port that someone else holds is tried again, and a listener out of files rests.
const RETRY: Duration = Duration::from_secs(1);

/// Where a published port leads.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lead {
    service: ServiceKey,
    target: u16,
}

/// Listens until told to stop.
pub async fn run(cell: Cell, mut shutdown: watch::Receiver<bool>) {
    let mut applied = cell.engine.machine().applied();
    let mut listeners: BTreeMap<SocketAddr, (Lead, JoinHandle<()>)> = BTreeMap::new();
    let mut late = Late::new();
    loop {
        applied.mark_unchanged();
        let (wanted, now_late) = cell.engine.machine().read(published);
        listeners.retain(|address, (lead, task)| {
            let stays = wanted.get(address) == Some(lead);
            if !stays {
                task.abort();
                cell.soft.facts().ports.remove(&(lead.service.clone(), *address));
            }
            stays
        });
        tell_late(&cell, &late, &now_late);
        late = now_late;
        for (address, lead) in wanted {
            listeners.entry(address).or_insert_with(|| {
                let task = tokio::spawn(listen(cell.clone(), address, lead.clone()));
                (lead, task)
            });
        }
        tokio::select! {
            changed = applied.changed() => if changed.is_err() { break },
            _ = shutdown.wait_for(|stop| *stop) => break,
        }
    }
    for (_, task) in listeners.into_values() {
        task.abort();
    }
}

/// Services that ask for a port that another has, and which that is.
type Late = BTreeMap<(ServiceKey, SocketAddr), ServiceKey>;

fn tell_late(cell: &Cell, before: &Late, now: &Late) {
    let mut facts = cell.soft.facts();
    for key in before.keys().filter(|key| !now.contains_key(key)) {
        facts.ports.remove(key);
    }
    for ((service, address), owner) in now {
        let text = format!("{} is published by {owner} already", shown(*address));
        facts.ports.insert((service.clone(), *address), text);
    }
}

/// `port 8080`, or with the address it is to be bound to.
fn shown(address: SocketAddr) -> String {
    if address.ip() == ANY { format!("port {}", address.port()) } else { address.to_string() }
}

/// The ports that lead to any healthy replica. Of two services that ask for one, the first by name has it.
fn published(state: &State) -> (BTreeMap<SocketAddr, Lead>, Late) {
    let (mut wanted, mut late) = (BTreeMap::<SocketAddr, Lead>::new(), Late::new());
    for (key, service) in state.services() {
        let ports = service.desired().into_iter().flat_map(|spec| &spec.container.ports);
        let routed = ports.filter(|p| p.mode == PortMode::Routed && p.protocol == Protocol::Tcp);
        for port in routed {
            let Some(number) = port.published else { continue };
            let host = port.host_ip.as_ref().and_then(|ip| ip.parse().ok());
            let address = SocketAddr::new(host.unwrap_or(ANY), number);
            let lead = Lead { service: key.clone(), target: port.target };
            let owner = wanted.entry(address).or_insert(lead);
            if owner.service != *key {
                late.insert((key.clone(), address), owner.service.clone());
            }
        }
    }
    (wanted, late)
}

const ANY: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

async fn listen(cell: Cell, address: SocketAddr, lead: Lead) {
    let key = (lead.service.clone(), address);
    let listener = loop {
        match bind(address).await {
            Ok(listener) => break listener,
            Err(error) => {
                let text = format!("cannot listen on {}: {error}", shown(address));
                let known = cell.soft.facts().ports.insert(key.clone(), text);
                if known.is_none() {
                    let service = &lead.service;
                    tracing::error!(%address, %service, %error, "cannot listen on a published port");
                }
                sleep(RETRY).await;
            }
        }
    };
    cell.soft.facts().ports.remove(&key);
    let turn = Arc::new(AtomicUsize::new(0));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(hand_on(cell.clone(), lead.clone(), stream, Arc::clone(&turn)));
            }
            Err(error) => {
                tracing::warn!(%address, %error, "cannot accept");
                sleep(RETRY).await;
            }
        }
    }
}

/// All addresses means both kinds, where the host has both.
async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(error) if address.ip() == ANY && error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    }
}

/// Tries the healthy replicas in turn. With none, the connection is closed: there is nobody to talk to.
async fn hand_on(cell: Cell, lead: Lead, mut from: TcpStream, turn: Arc<AtomicUsize>) {
    let pool = pool(&cell, &lead.service);
    let first = turn.fetch_add(1, Ordering::Relaxed);
    for at in 0..pool.len() {
        let to = SocketAddr::new(pool[(first + at) % pool.len()], lead.target);
        if let Ok(Ok(mut to)) = timeout(CONNECT, TcpStream::connect(to)).await {
            let (_, _) = (from.set_nodelay(true), to.set_nodelay(true));
            // Either side may end it as it likes.
            let _ = copy_bidirectional(&mut from, &mut to).await;
            return;
        }
    }
}

/// Where the replicas of the service on this node are reached that are healthy and not on their way out.
fn pool(cell: &Cell, key: &ServiceKey) -> Vec<IpAddr> {
    let running = cell.engine.machine().read(|state| {
        let Some(service) = state.service(key) else { return Vec::new() };
        let mut running = Vec::new();
        for (slot, replica) in &service.replicas {
            let next = replica.successor.as_ref().map(|successor| &successor.assignment);
            let held = replica.assignment.iter().chain(next);
            for assignment in held.filter(|a| a.node == cell.node && replica.runs(a)) {
                let id = ReplicaId::new(key.clone(), slot.clone());
                running.push((id, assignment.generation));
            }
        }
        running
    });
    let facts = cell.soft.facts();
    running.iter().filter_map(|key| facts.replicas.get(key)?.address).collect()
}
