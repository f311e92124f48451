//! Durable commits a second of three servers with mutual TLS between them, set beside a three-member etcd on the same disk.
//!
//! Both are measured in turns while the others are at rest. Ours at two levels: proposals at the leading engine, as every
//! write of a daemon ends up, and writes through the API of the daemon that leads, as people make them. What etcd is asked
//! comes over its API, from this process.

use std::time::{Duration, Instant};

use plimsoll_api::view::NewOperator;
use tokio::task::JoinSet;

mod etcd;
mod server;

pub(super) use server::identity;
pub(in super::super) use server::{WORD, be_server};

use super::daemons::{Cell, Site};
use crate::node::threads;
use crate::{Table, shown};

const WRITERS: usize = 64;

/// What each write carries.
const VALUE: usize = 256;

/// How long each is asked in each round, and how often they take turns.
const SPAN: Duration = Duration::from_secs(4);
const ROUNDS: usize = 5;

/// What one round found.
struct Round {
    /// Commits a second.
    rate: f64,
    median: Duration,
    p99: Duration,
}

impl Round {
    fn of(mut times: Vec<Duration>, elapsed: Duration) -> Self {
        times.sort_unstable();
        let count = u32::try_from(times.len()).expect("a few seconds' worth");
        let rate = f64::from(count) / elapsed.as_secs_f64();
        Self { rate, median: times[times.len() / 2], p99: times[times.len() * 99 / 100] }
    }
}

pub(in super::super) fn commits(table: &mut Table) {
    if !etcd::is_installed() {
        eprintln!("commits: etcd is not installed, left out");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory can be made");
    let mut rounds: [Vec<Round>; 3] = Default::default();
    threads().block_on(async {
        let other = etcd::Cluster::start(dir.path()).await;
        let mut engines = server::Servers::start(dir.path());
        let cell = Cell::of_three(Site::Loopback).await;
        for round in 0..=ROUNDS {
            let found = [other.round().await, engines.round(), api(&cell).await];
            let shown = found.each_ref().map(|one| format!("{:.0}/s", one.rate));
            eprintln!("commits, round {round}: etcd, engine, API: {}", shown.join(", "));
            // The first round warms up whatever can be warm.
            if round > 0 {
                rounds.iter_mut().zip(found).for_each(|(rounds, one)| rounds.push(one));
            }
        }
    });
    let [etcd, engine, api] = &rounds;
    let name = format!("{WRITERS} writers, 3 servers");
    rates(table, &format!("commits, {name}: proposed to the leading engine"), engine);
    rates(table, &format!("commits, {name}: through the leader's API"), api);
    rates(table, &format!("commits, {name}: puts to etcd 3.4's leader"), etcd);
    ratios(table, "the engine's rate as a multiple of etcd's, round by round", engine, etcd);
    ratios(table, "the API's rate as a multiple of etcd's, round by round", api, etcd);
}

fn rates(table: &mut Table, what: &str, rounds: &[Round]) {
    let mut by_rate: Vec<&Round> = rounds.iter().collect();
    by_rate.sort_unstable_by(|one, other| other.rate.total_cmp(&one.rate));
    let text = |round: &Round| {
        let [median, p99] = [round.median, round.p99].map(shown);
        format!("{:.0}/s, p50 {median}, p99 {p99}", round.rate)
    };
    table.row(what, "", text(by_rate[0]), text(by_rate[by_rate.len() / 2]));
}

fn ratios(table: &mut Table, what: &str, ours: &[Round], theirs: &[Round]) {
    let pairs = ours.iter().zip(theirs);
    let mut ratios: Vec<f64> = pairs.map(|(ours, theirs)| ours.rate / theirs.rate).collect();
    ratios.sort_unstable_by(|one, other| other.total_cmp(one));
    let [best, median] = [ratios[0], ratios[ratios.len() / 2]].map(|ratio| format!("{ratio:.2}"));
    table.row(what, "≥ 1", best, median);
}

/// Writes without pause for a while, so many at once, each waiting for its own.
async fn press<W, F>(write: W) -> Round
where
    W: Fn(usize, u64) -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send,
{
    let begun = Instant::now();
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let write = write.clone();
        writers.spawn(async move {
            let mut times = Vec::new();
            while begun.elapsed() < SPAN {
                let asked = Instant::now();
                write(writer, times.len() as u64).await;
                times.push(asked.elapsed());
            }
            times
        });
    }
    let times = writers.join_all().await.concat();
    Round::of(times, begun.elapsed())
}

/// Writes through the API of the daemon that leads: each gives somebody a token and takes it back, in turns, under the
/// longest name there is.
async fn api(cell: &Cell) -> Round {
    let client = cell.client(cell.until_whole().await);
    for operator in client.operators().await.expect("the leader answers") {
        client.revoke_operator(&operator.name).await.expect("the leader writes it");
    }
    press(move |writer, number| {
        let client = client.clone();
        let name = format!("{writer:063}");
        async move {
            let written = if number.is_multiple_of(2) {
                let asked = NewOperator { name, role: "read".to_owned(), ..NewOperator::default() };
                client.add_operator(&asked).await.map(drop)
            } else {
                client.revoke_operator(&name).await.map(drop)
            };
            written.expect("the leader writes it");
        }
    })
    .await
}

/// A value unlike the one before.
fn value(number: u64) -> String {
    format!("{number:0VALUE$}")
}
