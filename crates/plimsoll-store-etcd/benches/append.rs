//! Commits a second on etcd, against what the same etcd takes from as many clients that each put one value of the same
//! size after the other, as etcd's own benchmark does: plainly, and in a transaction with a condition. Rates differ from
//! disk to disk; the ratios, taken in the same run, tell what the engine adds.
//! `lab/etcd with cargo bench -p plimsoll-store-etcd`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_etcd::testkit::EtcdLab;
use plimsoll_etcd::{EtcdClient, Keys, Op, Txn, When};
use plimsoll_model::testkit::{cpus, node_id};
use plimsoll_model::{Author, CellId, Change, Command, Term, Timestamp, Writer};
use plimsoll_store::{Engine, ServerId};
use plimsoll_store_etcd::{Etcd, EtcdEngineConfig};

/// How long each rate is taken over.
const SPAN: Duration = Duration::from_secs(4);

/// How often the two take turns: a disk that is slow for a moment is then slow for both.
const TURNS: usize = 3;

fn main() {
    // `cargo test --benches` asks benchmarks to show that they run, not how fast.
    let measures = std::env::args().any(|arg| arg == "--bench");
    let (span, turns) = if measures { (SPAN, TURNS) } else { (SPAN / 20, 1) };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(run(span, turns));
}

async fn run(span: Duration, turns: usize) {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let cell_id = CellId::new("bench").expect("a valid name");
    let seal = plimsoll_seal::CellKey::generate().expect("random bytes");
    let config = EtcdEngineConfig::scheduler(lab.config(), cell_id, ServerId(1), seal);
    let engine = Etcd::start(config).await.expect("a fresh etcd");
    let client = EtcdClient::new(lab.config()).expect("good settings");
    println!(
        "{:>8}  {:>8}  {:>14}  {:>10}  {:>12}  {:>14}  {:>9}",
        "writers", "puts/s", "transactions/s", "commits/s", "of puts", "of transactions", "median"
    );
    for writers in [1, 16, 64, 256] {
        let (mut puts, mut txns, mut commits, mut median) = (0.0, 0.0, 0.0, Duration::ZERO);
        for _ in 0..turns {
            puts += plain_rate(&client, writers, span, false).await;
            txns += plain_rate(&client, writers, span, true).await;
            let (rate, middle) = commit_rate(&engine, writers, span).await;
            commits += rate;
            median = middle;
        }
        let count = f64::from(u32::try_from(turns).expect("a few"));
        println!(
            "{writers:>8}  {:>8.0}  {:>14.0}  {:>10.0}  {:>12.2}  {:>14.2}  {median:>9.2?}",
            puts / count,
            txns / count,
            commits / count,
            commits / puts,
            commits / txns
        );
    }
    engine.shutdown().await.expect("it stops");
}

async fn plain_rate(client: &EtcdClient, writers: u64, span: Duration, guarded: bool) -> f64 {
    let value = postcard::to_stdvec(&command(1)).expect("a command can be written");
    let started = Instant::now();
    let tasks = (0..writers).map(|writer| {
        let (client, value) = (client.clone(), value.clone());
        tokio::spawn(async move {
            let mut count = 0_u32;
            while started.elapsed() < span {
                let key = format!("/bench/{writer:04}/{count:020}");
                if guarded {
                    let put = Op::put(key.clone(), value.clone());
                    let txn = Txn::when([When::absent(key)]).then([put]);
                    client.txn(txn).await.expect("etcd takes it");
                } else {
                    client.put(key, value.clone()).await.expect("etcd takes it");
                }
                count += 1;
            }
            count
        })
    });
    let mut count = 0;
    for task in tasks.collect::<Vec<_>>() {
        count += task.await.expect("a writer does not panic");
    }
    let rate = f64::from(count) / started.elapsed().as_secs_f64();
    client.delete(Keys::prefix("/bench/")).await.expect("etcd deletes it");
    rate
}

async fn commit_rate(engine: &Arc<Etcd>, writers: u64, span: Duration) -> (f64, Duration) {
    let started = Instant::now();
    let tasks = (0..writers).map(|writer| {
        let engine = Arc::clone(engine);
        tokio::spawn(async move {
            let mut latencies = Vec::new();
            while started.elapsed() < span {
                let asked = Instant::now();
                let number = latencies.len() as u64 * writers + writer;
                engine.propose(command(number)).await.expect("it leads alone");
                latencies.push(asked.elapsed());
            }
            latencies
        })
    });
    let mut latencies = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        latencies.extend(task.await.expect("a writer does not panic"));
    }
    let count = u32::try_from(latencies.len()).expect("a few seconds' worth");
    let rate = f64::from(count) / started.elapsed().as_secs_f64();
    latencies.sort_unstable();
    (rate, latencies[latencies.len() / 2])
}

/// The same node over and over, saying something new of itself: the state stays small.
fn command(number: u64) -> Command {
    let mut facts = cpus(4);
    facts.labels.insert("number".to_owned(), number.to_string());
    let change = Change::PutNode { node: node_id(&format!("n{}", number % 100)), facts };
    let by = Author::new(Writer::Agent, "bench");
    Command::new(Timestamp(number), Term(1), by, vec![change.free()])
}
