//! Replicas come and go under load, and no request is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use plimsoll_router::{PoolMember, RouterLimits};
use tokio::time::{sleep, timeout};

use super::kit::{Server, Site, mirror};
use crate::kit::{PATIENCE, draining, inside};

const CLIENTS: usize = 16;
/// How many requests there are at least: where the promise is whole, and where it is not.
const REQUESTS: usize = 20_000;
const FEWER: usize = 8_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_stop_once_the_router_is_done_with_them_lose_no_request() {
    rolls(Stop::WhenQuiet, REQUESTS).await;
}

/// What is on its way when a server stops may be lost, and only what may be said twice is then said to another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_stop_at_once_lose_no_request_that_may_be_said_twice() {
    rolls(Stop::AtOnce, FEWER).await;
}

/// When a replica that is no longer routed to is told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    WhenQuiet,
    AtOnce,
}

async fn rolls(stop: Stop, requests: usize) {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(Server::new(mirror).await);
    }
    let site = Arc::new(Site::new(RouterLimits::default(), &members(&servers, 0)).await);
    let (done, is_over) = (Arc::<Done>::default(), Arc::new(AtomicBool::new(false)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (done, is_over) = (Arc::clone(&done), Arc::clone(&is_over));
            tokio::spawn(load(Arc::clone(&site), stop, number, done, is_over))
        })
        .collect();
    let mut generation = 0;
    while done.counts().iter().sum::<usize>() < requests
        && clients.iter().all(|it| !it.is_finished())
    {
        generation += 1;
        roll(&site, stop, &mut servers, generation).await;
        if stop == Stop::AtOnce {
            done.all_asked_again().await;
        }
    }
    is_over.store(true, Relaxed);
    for client in clients {
        client.await.expect("no request was lost");
    }
    assert!(generation >= 3, "rolled {generation} times");
}

/// How many requests of each client were answered.
#[derive(Default)]
struct Done([AtomicUsize; CLIENTS]);

impl Done {
    fn counts(&self) -> [usize; CLIENTS] {
        std::array::from_fn(|number| self.0[number].load(Relaxed))
    }

    /// Returns once every client has had an answer to what it asked since. However slow the machine is, no request meets more
    /// servers that stop than it may be sent to.
    async fn all_asked_again(&self) {
        let before = self.counts();
        let asked = || self.counts().iter().zip(before).all(|(now, before)| *now >= before + 2);
        let waiting = async {
            while !asked() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        // A client that failed asks no more, which is told elsewhere.
        let _ = timeout(PATIENCE, waiting).await;
    }
}

fn members(servers: &[Server], from: usize) -> Vec<PoolMember> {
    let named = servers.iter().enumerate();
    named.map(|(at, server)| inside(&format!("web-{}", from + at), server.at)).collect()
}

/// Starts a replica, routes to it, takes the oldest out, and stops that.
async fn roll(site: &Site, stop: Stop, servers: &mut Vec<Server>, generation: usize) {
    servers.push(Server::new(mirror).await);
    let mut all = members(servers, generation - 1);
    site.update(&all);
    sleep(Duration::from_millis(20)).await;
    all[0] = draining(&format!("web-{}", generation - 1), servers[0].at, Duration::from_secs(10));
    site.update(&all);
    if stop == Stop::WhenQuiet {
        assert!(site.router.drained(&all[0].replica, 1, PATIENCE).await);
    }
    servers.remove(0).stop();
}

/// Asks again and again: on a connection that is kept, on new ones, with and without a body.
async fn load(
    site: Arc<Site>,
    stop: Stop,
    number: usize,
    done: Arc<Done>,
    is_over: Arc<AtomicBool>,
) {
    let mut kept = site.client().await;
    let mut count = number;
    while !is_over.load(Relaxed) {
        count += 1;
        let heard = match count % 8 {
            0 => site.get("/").await,
            1 | 2 if stop == Stop::WhenQuiet => {
                kept.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").await
            }
            _ => kept.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await,
        };
        assert_eq!(heard.status, 200, "{}", heard.body);
        done.0[number].fetch_add(1, Relaxed);
    }
}
