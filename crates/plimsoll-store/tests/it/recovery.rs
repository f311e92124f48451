//! A cell that lost too many servers, and goes on from one of them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_model::Timestamp;
use plimsoll_model::testkit::node_id;
use plimsoll_store::embedded::channel::{Switchboard, TestNotary};
use plimsoll_store::embedded::{EmbeddedConfig, Founding};
use plimsoll_store::recovery::{GivenUp, Survivor};
use plimsoll_store::{Embedded, Engine, Error, Incarnation, Peer, ServerId, ServerRole, recovery};

use crate::support::*;

const NAMES: [&str; 3] = ["ash", "birch", "cedar"];

struct Cell {
    dir: TempDir,
    board: Switchboard,
}

impl Cell {
    fn path(&self, at: usize) -> PathBuf {
        self.dir.join(NAMES[at])
    }

    async fn start(&self, at: usize) -> Arc<Embedded> {
        self.start_as(at, at as u64 + 1, Incarnation::default()).await
    }

    async fn start_as(&self, at: usize, id: u64, incarnation: Incarnation) -> Arc<Embedded> {
        let (server, founding) =
            (ServerId(id), if id == 1 { Founding::Alone } else { Founding::Join });
        let network = self.board.port(server);
        let config = EmbeddedConfig {
            server,
            founding,
            network,
            incarnation,
            notary: Arc::new(TestNotary::new("test", NAMES[at])),
            peer: peer(at),
            ..config(&self.path(at))
        };
        let engine = Embedded::start(config).await.unwrap();
        self.board.plug(&engine);
        engine
    }
}

fn peer(at: usize) -> Peer {
    Peer { name: NAMES[at].to_owned(), address: String::new() }
}

async fn leader(servers: &[&Arc<Embedded>]) -> usize {
    let mut found = None;
    eventually("one of them leads", || {
        found = servers.iter().position(|server| server.leadership().borrow().is_me);
        let is_found = found.is_some();
        async move { is_found }
    })
    .await;
    found.unwrap()
}

/// Three servers with twenty writes behind them, all stopped.
async fn three() -> Cell {
    let cell = Cell { dir: TempDir::new(), board: Switchboard::new() };
    let mut servers = Vec::new();
    for at in 0..3 {
        servers.push(cell.start(at).await);
    }
    servers[0].propose(give_backup_key()).await.unwrap();
    for name in NAMES {
        servers[0].propose(join(name)).await.unwrap();
    }
    for at in [1, 2] {
        servers[0].add_server(ServerId(at as u64 + 1), peer(at), true).await.unwrap();
    }
    servers[0].set_voters(BTreeSet::from([1, 2, 3].map(ServerId))).await.unwrap();
    let first = leader(&servers.iter().collect::<Vec<_>>()).await;
    for nth in 0..20 {
        servers[first].propose(join(&format!("n{nth}"))).await.unwrap();
    }
    let target = *servers[first].machine().applied().borrow();
    for server in &servers {
        server.machine().applied().wait_for(|index| *index >= target).await.unwrap();
    }
    // All at once, as a power cut: nobody is left to elect.
    for server in &servers {
        cell.board.cut_off(server.id());
    }
    for server in servers {
        server.shutdown().await.unwrap();
    }
    for id in 1..=3 {
        cell.board.heal(ServerId(id));
    }
    cell
}

fn survivor(store: &std::path::Path, given_up: GivenUp) -> Survivor<'_> {
    Survivor { store, given_up, unlock: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_survivor_goes_on_alone_with_all_that_it_held() {
    let cell = three().await;
    let (path, backup) = (cell.path(2), cell.dir.join("before.backup"));
    let found = recovery::look(survivor(&path, GivenUp::Stays)).unwrap();
    assert_eq!((found.server, found.node.as_str()), (ServerId(3), "cedar"));
    let others: Vec<_> = found.others.iter().map(|other| other.peer.name.as_str()).collect();
    assert_eq!(others, ["ash", "birch"]);
    let recovered =
        recovery::recover(survivor(&path, GivenUp::Stays), &backup, Timestamp(5_000)).unwrap();
    assert_eq!(recovered.found, found, "looking changed nothing");

    let engine = cell.start(2).await;
    let now = *engine.leadership().borrow();
    assert!(now.is_me && now.term.0 > found.term.0 + 1_000, "{now:?}");
    assert_eq!(engine.incarnation(), recovered.incarnation);
    assert_eq!(engine.members().len(), 1);
    engine.machine().read(|state| {
        assert!((0..20).all(|nth| has_node(state, &format!("n{nth}"))), "no write is lost");
        assert!(!has_node(state, "ash") && !has_node(state, "birch"), "the others are forgotten");
        assert_eq!(state.node(&node_id("cedar")).unwrap().server, Some(3));
    });
    let committed = engine.propose(join("after")).await.unwrap();
    assert!(committed.index > found.last, "indexes go on where they were");
    engine.shutdown().await.unwrap();

    let error = recovery::recover(survivor(&path, GivenUp::Stays), &backup, Timestamp(6_000))
        .unwrap_err()
        .to_string();
    assert!(error.contains("is the only one, so there is nothing to recover"), "{error}");
    let before = plimsoll_store::backup::verify(&backup).unwrap();
    assert_eq!(before.summary.applied, found.last, "what was there before is kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_majority_that_comes_back_gives_up_and_stays_so() {
    let cell = three().await;
    recovery::recover(
        survivor(&cell.path(2), GivenUp::Stays),
        &cell.dir.join("b"),
        Timestamp(5_000),
    )
    .unwrap();
    let heir = cell.start(2).await;
    heir.propose(join("decided-without-them")).await.unwrap();
    let old = [cell.start(0).await, cell.start(1).await];
    for server in &old {
        eventually("it gives up", || async { server.log_position().is_superseded }).await;
        eventually("it leads nobody and follows nobody", || async {
            let now = *server.leadership().borrow();
            now.leader.is_none() && !now.is_me
        })
        .await;
        assert_eq!(server.propose(join("late")).await, Err(Error::Superseded));
    }
    let now = *heir.leadership().borrow();
    assert!(now.is_me, "they did not unseat it: {now:?}");
    heir.machine().read(|state| assert!(has_node(state, "decided-without-them")));
    heir.shutdown().await.unwrap();

    // Without anybody to tell them, they remember.
    for server in old {
        server.shutdown().await.unwrap();
    }
    assert!(plimsoll_store::embedded::is_superseded(&cell.path(0)).unwrap());
    let old = [cell.start(0).await, cell.start(1).await];
    for server in &old {
        assert!(server.log_position().is_superseded);
        assert_eq!(server.propose(join("later")).await, Err(Error::Superseded));
        assert!(!server.leadership().borrow().is_me);
    }
    let error = recovery::look(survivor(&cell.path(0), GivenUp::Stays)).unwrap_err().to_string();
    assert!(error.contains("is in use by another plimsoll"), "{error}");
    for server in old {
        server.shutdown().await.unwrap();
    }
    let error = recovery::look(survivor(&cell.path(0), GivenUp::Stays)).unwrap_err().to_string();
    assert!(error.contains("join it again with a new token"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newcomers_are_heard_by_the_heir_in_its_own_life_only() {
    let cell = three().await;
    recovery::recover(
        survivor(&cell.path(2), GivenUp::Stays),
        &cell.dir.join("b"),
        Timestamp(5_000),
    )
    .unwrap();
    let heir = cell.start(2).await;
    // Birch's machine was wiped and joins under its name and a new number.
    std::fs::remove_dir_all(cell.path(1)).unwrap();
    let newcomer = cell.start_as(1, 4, heir.incarnation()).await;
    heir.add_server(newcomer.id(), peer(1), true).await.unwrap();
    assert_eq!(newcomer.log_position().role, ServerRole::Learner);
    let target = *heir.machine().applied().borrow();
    newcomer.machine().applied().wait_for(|index| *index >= target).await.unwrap();
    assert_eq!(state_bytes(&newcomer), state_bytes(&heir), "also what the recovery decided");
    assert!(newcomer.machine().read(|state| has_node(state, "n19") && !has_node(state, "ash")));
    newcomer.shutdown().await.unwrap();
    heir.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_gave_up_can_be_told_to_return_and_the_heir_gives_up_for_it() {
    let cell = three().await;
    // The wrong one was recovered.
    let (heir_dir, backup) = (cell.path(2), cell.dir.join("b"));
    let wrong =
        recovery::recover(survivor(&heir_dir, GivenUp::Stays), &backup, Timestamp(5_000)).unwrap();
    let heir = cell.start(2).await;
    let right = cell.start(0).await;
    eventually("it gives up", || async { right.log_position().is_superseded }).await;
    right.shutdown().await.unwrap();

    let found = recovery::look(survivor(&cell.path(0), GivenUp::Returns)).unwrap();
    assert_eq!(found.superseded, Some(wrong.incarnation));
    let back = cell.dir.join("back");
    let recovered =
        recovery::recover(survivor(&cell.path(0), GivenUp::Returns), &back, Timestamp(6_000))
            .unwrap();
    assert!(recovered.incarnation.supersedes(wrong.incarnation));
    let right = cell.start(0).await;
    assert!(right.leadership().borrow().is_me && !right.log_position().is_superseded);
    right.propose(join("after-the-return")).await.unwrap();

    // A newcomer of the life before asks the one that returned, and so hears of it.
    heir.add_server(ServerId(1), peer(0), false).await.unwrap();
    eventually("the heir gives up", || async { heir.log_position().is_superseded }).await;
    assert_eq!(heir.propose(join("late")).await, Err(Error::Superseded));
    right.shutdown().await.unwrap();
    heir.shutdown().await.unwrap();
}
