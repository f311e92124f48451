//! Three servers in one process: replication, the loss of a leader, and a server that is far behind.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use plimsoll_store::disk::Disk as _;
use plimsoll_store::disk::sim::SimDisk;
use plimsoll_store::embedded::channel::Switchboard;
use plimsoll_store::embedded::{EmbeddedConfig, Founding, Sender};
use plimsoll_store::{Embedded, Engine, Error, Peer, ServerId, ServerRole};

use crate::support::*;

struct Cell {
    board: Switchboard,
    disks: Vec<SimDisk>,
    servers: Vec<Arc<Embedded>>,
}

impl Cell {
    /// The first server founds the cell, and takes the others in.
    async fn of(count: u64, snapshot_every: u64) -> Self {
        let board = Switchboard::new();
        let mut cell = Self { board, disks: Vec::new(), servers: Vec::new() };
        for id in 1..=count {
            cell.disks.push(SimDisk::new());
            let server = cell.start(ServerId(id), snapshot_every).await;
            cell.servers.push(server);
        }
        for id in 2..=count {
            cell.servers[0].add_server(ServerId(id), Peer::default(), true).await.unwrap();
        }
        cell.servers[0].set_voters((1..=count).map(ServerId).collect()).await.unwrap();
        cell
    }

    async fn start(&self, id: ServerId, snapshot_every: u64) -> Arc<Embedded> {
        let founding = if id == ServerId(1) { Founding::Alone } else { Founding::Join };
        let disk = &self.disks[usize::try_from(id.0).unwrap() - 1];
        let network = self.board.port(id);
        let config =
            EmbeddedConfig { server: id, founding, snapshot_every, network, ..on_sim(disk) };
        let server = Embedded::start(config).await.unwrap();
        self.board.plug(&server);
        server
    }

    async fn leader_among(&self, ids: &[usize]) -> usize {
        let mut found = None;
        eventually("one of them leads", || {
            found = ids.iter().copied().find(|id| self.servers[*id].leadership().borrow().is_me);
            let is_found = found.is_some();
            async move { is_found }
        })
        .await;
        found.unwrap()
    }

    async fn agree_on(&self, ids: &[usize]) -> Vec<u8> {
        let target = ids.iter().map(|id| *self.servers[*id].machine().applied().borrow()).max();
        for id in ids {
            let mut applied = self.servers[*id].machine().applied();
            applied.wait_for(|index| Some(*index) >= target).await.unwrap();
        }
        let first = state_bytes(&self.servers[ids[0]]);
        for id in ids {
            assert_eq!(state_bytes(&self.servers[*id]), first, "server {id} differs");
        }
        first
    }

    async fn stop(self) {
        for server in self.servers {
            server.shutdown().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_hold_the_same_state_and_send_writers_to_the_leader() {
    let cell = Cell::of(3, 10_000).await;
    let leader = cell.leader_among(&[0, 1, 2]).await;
    for nth in 0..20 {
        cell.servers[leader].propose(join(&format!("n{nth}"))).await.unwrap();
    }
    cell.agree_on(&[0, 1, 2]).await;
    let follower = (leader + 1) % 3;
    let error = cell.servers[follower].propose(join("late")).await.unwrap_err();
    assert_eq!(error, Error::NotLeader { leader: cell.servers[leader].id() });
    assert!(cell.servers[follower].catch_up().await.is_err(), "only the leader can tell");
    let log_position = cell.servers[follower].log_position();
    assert_eq!((log_position.role, log_position.lag()), (ServerRole::Voter, 0));
    assert!(
        log_position.heard.unwrap() < timing().election * 2
            && log_position.last >= log_position.applied
    );
    let members = cell.servers[follower].members();
    assert_eq!(members.iter().filter(|member| member.votes).count(), 3);
    cell.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_loses_its_place_and_no_acknowledged_write_is_lost() {
    let cell = Cell::of(3, 10_000).await;
    let old = cell.leader_among(&[0, 1, 2]).await;
    let old_term = cell.servers[old].leadership().borrow().term;
    cell.servers[old].propose(join("before")).await.unwrap();
    cell.board.cut_off(cell.servers[old].id());
    let others: Vec<usize> = (0..3).filter(|id| *id != old).collect();
    let new = cell.leader_among(&others).await;
    assert!(cell.servers[new].leadership().borrow().term > old_term, "no two leaders share a term");
    cell.servers[new].propose(join("during")).await.unwrap();

    // The old one cannot commit, and says which of the two it is.
    let error = cell.servers[old].propose(join("ghost")).await.unwrap_err();
    assert!(matches!(error, Error::QuorumLost | Error::Unsettled | Error::NoLeader), "{error}");
    let cut_off = &cell.servers[old];
    eventually("it no longer claims to lead", || async {
        let now = *cut_off.leadership().borrow();
        now.leader.is_none() && !now.is_me
    })
    .await;
    assert!(cut_off.log_position().heard.unwrap() > timing().election, "it knows since when");
    assert_eq!(cell.servers[new].log_position().role, ServerRole::Leader);
    cell.board.heal(cell.servers[old].id());
    cell.servers[new].propose(join("after")).await.unwrap();
    cell.agree_on(&[0, 1, 2]).await;
    for server in &cell.servers {
        server.machine().read(|state| {
            for name in ["before", "during", "after"] {
                assert!(has_node(state, name), "{name} on {}", server.id());
            }
            assert!(!has_node(state, "ghost"));
        });
    }
    cell.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_far_behind_takes_over_the_leaders_snapshot_and_ends_equal() {
    let mut cell = Cell::of(3, 20).await;
    let leader = cell.leader_among(&[0, 1, 2]).await;
    for nth in 0..120 {
        cell.servers[leader].propose(join(&format!("n{nth}"))).await.unwrap();
    }
    cell.servers[leader].snapshot().await.unwrap();
    let new = ServerId(4);
    cell.disks.push(SimDisk::new());
    let server = cell.start(new, 20).await;
    let mut watcher = server.machine().watch(1);
    cell.servers.push(server);
    cell.servers[leader].add_server(new, Peer::default(), true).await.unwrap();
    let state = cell.agree_on(&[0, 1, 2, 3]).await;
    let lagged = watcher.next().await.unwrap_err();
    assert!(lagged.resume > 100, "it was given a snapshot, and its watchers are told: {lagged}");

    // And it is still equal after a restart from what it took over.
    cell.servers[3].shutdown().await.unwrap();
    cell.servers[3] = cell.start(new, 20).await;
    let again = cell.agree_on(&[0, 1, 2, 3]).await;
    assert_eq!(again, state);
    cell.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_of_many_pieces_reaches_a_new_server_and_leaves_nothing_beside_it() {
    const EVERY: u64 = 10;
    let mut cell = Cell::of(1, EVERY).await;
    for nth in 0..3 * EVERY {
        cell.servers[0].propose(large(nth, 300 << 10)).await.unwrap();
    }
    cell.servers[0].snapshot().await.unwrap();
    let held = &cell.servers[0];
    eventually("its log begins later", || async { held.held().start > 0 }).await;
    let new = ServerId(2);
    cell.disks.push(SimDisk::new());
    let server = cell.start(new, EVERY).await;
    cell.servers.push(server);
    cell.servers[0].add_server(new, Peer::default(), true).await.unwrap();
    let state = cell.agree_on(&[0, 1]).await;
    assert!(state.len() > 8 << 20, "{} bytes, of which a message carries one MiB", state.len());
    cell.servers[1].shutdown().await.unwrap();
    for disk in &cell.disks {
        let files = disk.list(Path::new("data")).unwrap();
        let is_unfinished =
            |name: &String| Path::new(name).extension().is_some_and(|it| it == "new");
        assert!(!files.iter().any(is_unfinished), "{files:?}");
    }
    cell.servers[1] = cell.start(new, EVERY).await;
    assert_eq!(cell.agree_on(&[0, 1]).await, state, "what was written down is whole");
    cell.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_stays_bounded_while_a_follower_is_cut_off_which_ends_equal() {
    const EVERY: u64 = 20;
    let cell = Cell::of(3, EVERY).await;
    let leader = cell.leader_among(&[0, 1, 2]).await;
    let away = (leader + 1) % 3;
    cell.board.cut_off(cell.servers[away].id());
    let mut most = 0;
    for nth in 0..EVERY * 30 {
        cell.servers[leader].propose(join(&format!("n{nth}"))).await.unwrap();
        let held = cell.servers[leader].held();
        most = most.max(held.end - held.start);
    }
    eprintln!("the leader held at most {most} entries");
    let leading = &cell.servers[leader];
    eventually("what the snapshot holds is dropped", || async {
        let held = leading.held();
        held.end - held.start <= 2 * EVERY
    })
    .await;
    let behind = cell.servers[away].machine();
    let mut watcher = behind.watch(*behind.applied().borrow() + 1);
    cell.board.heal(cell.servers[away].id());
    cell.servers[leader].propose(join("after")).await.unwrap();
    cell.agree_on(&[0, 1, 2]).await;
    assert!(watcher.try_next().is_err(), "it was given a snapshot, and its watchers are told");
    cell.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_stops_hands_over_and_the_cell_goes_on() {
    let cell = Cell::of(3, 10_000).await;
    let old = cell.leader_among(&[0, 1, 2]).await;
    cell.servers[old].propose(join("before")).await.unwrap();
    let started = std::time::Instant::now();
    cell.servers[old].shutdown().await.unwrap();
    let others: Vec<usize> = (0..3).filter(|id| *id != old).collect();
    let new = cell.leader_among(&others).await;
    cell.servers[new].propose(join("after")).await.unwrap();
    eprintln!("handed over and written in {:?}", started.elapsed());
    assert!(cell.servers[new].machine().read(|state| has_node(state, "before")));
    for id in others {
        cell.servers[id].shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_peers_starts_with_what_it_knows_to_be_committed() {
    let mut cell = Cell::of(3, 10_000).await;
    let leader = cell.leader_among(&[0, 1, 2]).await;
    for nth in 0..10 {
        cell.servers[leader].propose(join(&format!("n{nth}"))).await.unwrap();
    }
    cell.agree_on(&[0, 1, 2]).await;
    let servers = std::mem::take(&mut cell.servers);
    for server in servers {
        server.shutdown().await.unwrap();
    }
    let alone = cell.start(ServerId(2), 10_000).await;
    let known = alone.machine().read(|state| state.nodes().len());
    assert!(known >= 8, "it knows {known} of 10 nodes");
    assert_eq!(alone.propose(join("late")).await, Err(Error::NoLeader));
    assert_eq!(alone.members().len(), 3);
    alone.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_come_and_go() {
    let mut cell = Cell::of(1, 10_000).await;
    cell.servers[0].propose(join("ash")).await.unwrap();
    for id in 2..=3 {
        cell.disks.push(SimDisk::new());
        let server = cell.start(ServerId(id), 10_000).await;
        cell.servers.push(server);
        cell.servers[0].add_server(ServerId(id), Peer::default(), true).await.unwrap();
    }
    let voters = |ids: &[u64]| ids.iter().copied().map(ServerId).collect::<BTreeSet<_>>();
    cell.servers[0].set_voters(voters(&[1, 2, 3])).await.unwrap();
    cell.agree_on(&[0, 1, 2]).await;
    cell.servers[0].set_voters(voters(&[1])).await.unwrap();
    cell.servers[0].remove_server(ServerId(3)).await.unwrap();
    assert_eq!(cell.servers[0].members().len(), 2);
    cell.servers[0].propose(join("birch")).await.unwrap();
    let noise = cell.servers[0].answer(&Sender::Server(ServerId(2)), &[1, 2, 3, 4, 5, 255]).await;
    assert!(!noise.is_empty(), "noise is answered in words and changes nothing");
    cell.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_never_answered_or_no_longer_does_is_not_taken_for_caught_up() {
    let mut cell = Cell::of(1, 10_000).await;
    for id in 2..=3 {
        cell.disks.push(SimDisk::new());
        let server = cell.start(ServerId(id), 10_000).await;
        cell.servers.push(server);
    }
    cell.board.cut_off(ServerId(3));
    for id in 2..=3 {
        cell.servers[0].add_server(ServerId(id), Peer::default(), false).await.unwrap();
    }
    let known = |cell: &Cell| cell.servers[0].lags().into_keys().map(|id| id.0).collect::<Vec<_>>();
    eventually("the second has the log", || async { known(&cell) == [1, 2] }).await;
    // It is still there when nothing was written for a while.
    tokio::time::sleep(timing().election * 8).await;
    assert_eq!(known(&cell), [1, 2]);
    cell.board.cut_off(ServerId(2));
    eventually("it is gone", || async { known(&cell) == [1] }).await;
    cell.stop().await;
}
