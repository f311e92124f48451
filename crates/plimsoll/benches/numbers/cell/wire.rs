//! What the peer port carries: messages of the log to another node and back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_daemon::context::now;
use plimsoll_model::CellId;
use plimsoll_peer::pki::{Authority, Credentials};
use plimsoll_peer::{Limits, PeerClient, PeerServer, RaftNetwork, raft_router};
use plimsoll_store::embedded::network::Network as _;
use plimsoll_store::{Peer, ServerId};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use super::commits::identity;
use crate::{Table, shown};

const ROUNDS: usize = 5;
const SPAN: Duration = Duration::from_secs(1);

const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of a message, there and back, and how many are under way at once.
const LOADS: [(usize, usize); 3] = [(256, 1), (256, 64), (1 << 20, 16)];

/// Two runtimes of one thread each stand for two nodes.
pub(in super::super) fn wire(table: &mut Table) {
    let cell_id = CellId::new("bench").expect("a valid name");
    let authority = Authority::found(&cell_id, now()).expect("an authority can be made");
    let credentials =
        |name: &str| Credentials::new(&identity(&authority, name)).expect("its identity is good");
    let (ash, birch) = (one_thread(), one_thread());
    let server = {
        let _entered = ash.enter();
        let any = "127.0.0.1:0".parse().expect("an address");
        PeerServer::bind(any, &credentials("ash"), Limits::default()).expect("some port is free")
    };
    let address = server.local_addr().expect("it has a port").to_string();
    let peer = Peer { name: "ash".to_owned(), address };
    let (_ending, end) = watch::channel(false);
    ash.spawn(server.serve(raft_router(|_, message| async move { message.into() }), end));
    let network = Arc::new(RaftNetwork::new(PeerClient::new(credentials("birch"))));
    for (size, at_once) in LOADS {
        let mut rounds: Vec<(f64, Duration)> =
            (0..ROUNDS).map(|_| round(&birch, &network, &peer, size, at_once)).collect();
        rounds.sort_unstable_by(|one, other| other.0.total_cmp(&one.0));
        let text = |(rate, p99): (f64, Duration)| format!("{rate:.0}/s, p99 {}", shown(p99));
        let what = format!("messages of {size} B to another node and back, {at_once} at once");
        table.row(&what, "", text(rounds[0]), text(rounds[ROUNDS / 2]));
    }
}

fn one_thread() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().expect("a thread starts")
}

/// Round trips a second, and the time of the slowest in a hundred.
fn round(
    from: &Runtime,
    network: &Arc<RaftNetwork>,
    to: &Peer,
    size: usize,
    at_once: usize,
) -> (f64, Duration) {
    let begun = Instant::now();
    let callers: Vec<_> = (0..at_once)
        .map(|_| {
            let (network, to) = (Arc::clone(network), to.clone());
            from.spawn(async move {
                let mut times = Vec::new();
                while begun.elapsed() < SPAN {
                    let asked = Instant::now();
                    let sent = network.send(ServerId(1), &to, vec![7; size], PATIENCE).await;
                    assert_eq!(sent.expect("it comes back").len(), size);
                    times.push(asked.elapsed());
                }
                times
            })
        })
        .collect();
    let mut times: Vec<Duration> = callers
        .into_iter()
        .flat_map(|caller| from.block_on(caller).expect("no caller panics"))
        .collect();
    let elapsed = begun.elapsed();
    times.sort_unstable();
    let count = u32::try_from(times.len()).expect("a few seconds' worth");
    (f64::from(count) / elapsed.as_secs_f64(), times[times.len() * 99 / 100])
}
