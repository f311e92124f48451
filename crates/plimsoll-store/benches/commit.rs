//! Durable commits a second, against the plainest thing that is durable at all: append one record, `fdatasync`,
//! again. Rates differ from disk to disk; the ratios to that loop, taken in the same run, tell how good we are.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_model::testkit::{cpus, node_id};
use plimsoll_model::{Author, CellId, Change, Command, Term, Timestamp, Writer};
use plimsoll_store::embedded::EmbeddedConfig;
use plimsoll_store::{Embedded, Engine};

/// How long each rate is taken over.
const SPAN: Duration = Duration::from_secs(3);

fn main() {
    // `cargo test --benches` asks benchmarks to show that they run, not how fast.
    let span = if std::env::args().any(|arg| arg == "--bench") { SPAN } else { SPAN / 30 };
    let dir = std::env::var_os("PLIMSOLL_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = dir.join(format!("plimsoll-commit-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory to write in");
    println!(
        "append + fdatasync, one after the other, and commits of the embedded engine on the same disk"
    );
    let before = plain(&dir, span);
    let rows: Vec<_> = [1, 16, 64].map(|writers| (writers, commits(&dir, writers, span))).into();
    let plain_rate = f64::midpoint(before, plain(&dir, span));
    println!(
        "{:>8}  {:>10}  {:>6}  {:>9}  {:>9}",
        "writers", "commits/s", "ratio", "median", "p99"
    );
    println!("{:>8}  {plain_rate:>10.0}  {:>6.2}", "plain", 1.0);
    for (writers, (rate, median, p99)) in rows {
        let ratio = rate / plain_rate;
        println!("{writers:>8}  {rate:>10.0}  {ratio:>6.2}  {median:>9.2?}  {p99:>9.2?}");
    }
    std::fs::remove_dir_all(&dir).ok();
}

/// Records a second, each as long as a small command, each synced before the next.
fn plain(dir: &Path, span: Duration) -> f64 {
    let record = postcard::to_stdvec(&command(1)).expect("a command can be written");
    let path = dir.join("plain");
    let mut file = OpenOptions::new().create(true).append(true).open(path).expect("a file");
    let started = Instant::now();
    let mut count = 0_u32;
    while started.elapsed() < span {
        file.write_all(&record).expect("room on the disk");
        file.sync_data().expect("a disk that syncs");
        count += 1;
    }
    f64::from(count) / started.elapsed().as_secs_f64()
}

/// Commits a second of so many writers, each waiting for its own, with the median and the 99th percentile.
fn commits(dir: &Path, writers: u64, span: Duration) -> (f64, Duration, Duration) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let cell_id = CellId::new("bench").expect("a valid name");
        let config = EmbeddedConfig::alone(dir.join(format!("data-{writers}")), cell_id);
        let engine = Embedded::start(config).await.expect("a fresh directory");
        let started = Instant::now();
        let tasks = (0..writers).map(|writer| {
            let engine = Arc::clone(&engine);
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
        let elapsed = started.elapsed();
        engine.shutdown().await.expect("it stops");
        latencies.sort_unstable();
        let count = u32::try_from(latencies.len()).expect("a few seconds' worth");
        let rate = f64::from(count) / elapsed.as_secs_f64();
        (rate, latencies[latencies.len() / 2], latencies[latencies.len() * 99 / 100])
    })
}

/// The same node over and over, saying something new of itself: the state stays small.
fn command(number: u64) -> Command {
    let mut facts = cpus(4);
    facts.labels.insert("number".to_owned(), number.to_string());
    let change = Change::PutNode { node: node_id(&format!("n{}", number % 100)), facts };
    let by = Author::new(Writer::Agent, "bench");
    Command::new(Timestamp(number), Term(1), by, vec![change.free()])
}
