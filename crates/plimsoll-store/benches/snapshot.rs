//! What a large state costs in memory and time: to write its snapshot, to bring that to a new server, to back it up. The
//! state itself is held once by each of the two servers, which are one process here.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use plimsoll_model::access::KeyBytes;
use plimsoll_model::testkit::{cpus, node_id};
use plimsoll_model::{Author, CellId, Change, Command, Term, Timestamp, Writer};
use plimsoll_store::embedded::channel::Switchboard;
use plimsoll_store::embedded::{EmbeddedConfig, Founding};
use plimsoll_store::{Embedded, Engine, Peer, ServerId, backup};

/// Beyond what one number of 30 bits counts.
const LARGE: usize = 1_200 << 20;

/// What each node of the state says of itself.
const LABEL: usize = 1 << 20;

#[tokio::main]
async fn main() {
    // `cargo test --benches` asks benchmarks to show that they run, not how fast.
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let bytes = if is_bench { LARGE } else { 8 << 20 };
    let dir = std::env::var_os("PLIMSOLL_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = dir.join(format!("plimsoll-snapshot-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory to write in");
    println!("a state of {} MiB", bytes >> 20);
    println!("{:<28}{:>8}  {:>10}  {:>10}", "", "took", "before", "at most");

    let board = Switchboard::new();
    let first = start(&dir, &board, ServerId(1), Founding::Alone).await;
    let filled = measured("filled", async {
        for nth in 0..bytes / LABEL {
            first.propose(node(nth)).await.expect("it leads");
        }
    });
    filled.await;
    first.propose(backup_key()).await.expect("it leads");
    let snapshot = measured("snapshot", async { first.snapshot().await.expect("it can write") });
    snapshot.await;
    let file = dir.join("backup");
    let backed_up = measured("backup", async {
        backup::take(first.machine(), Term(1), &file).expect("it can write")
    });
    backed_up.await;
    let second = start(&dir, &board, ServerId(2), Founding::Join).await;
    let reached = measured("reaches a new server", async {
        first.add_server(ServerId(2), Peer::default(), true).await.expect("it leads");
        let target = *first.machine().applied().borrow();
        let mut applied = second.machine().applied();
        applied.wait_for(|index| *index >= target).await.expect("it applies");
    });
    reached.await;
    let same = measured("is the same state", async {
        let hash = |server: &Arc<Embedded>| server.machine().read(|state| state.nodes().len());
        assert_eq!(hash(&first), hash(&second), "both have every node");
    });
    same.await;
    for server in [second, first] {
        server.shutdown().await.expect("it ends");
    }
    std::fs::remove_dir_all(&dir).ok();
}

async fn start(dir: &Path, board: &Switchboard, id: ServerId, founding: Founding) -> Arc<Embedded> {
    let alone = EmbeddedConfig::alone(
        dir.join(id.0.to_string()),
        CellId::new("bench").expect("a valid name"),
    );
    let config = EmbeddedConfig { server: id, founding, network: board.port(id), ..alone };
    let server = Embedded::start(config).await.expect("it starts");
    board.plug(&server);
    server
}

fn node(nth: usize) -> Command {
    let mut facts = cpus(4);
    facts.labels.insert("large".to_owned(), "x".repeat(LABEL));
    command(Change::PutNode { node: node_id(&format!("n{nth}")), facts })
}

fn backup_key() -> Command {
    command(Change::CreateBackupKey { secret: KeyBytes([7; 32]) })
}

fn command(change: Change) -> Command {
    let by = Author::new(Writer::Operator, "bench");
    Command::new(Timestamp(1), Term(1), by, vec![change.free()])
}

/// Prints how long it took, and how much memory the process had before and at most meanwhile.
async fn measured<T>(what: &str, work: impl Future<Output = T>) -> T {
    // Forgets the most so far; without that right, what is shown is the most since the start.
    std::fs::write("/proc/self/clear_refs", "5").ok();
    let (before, begun) = (resident("VmRSS:"), Instant::now());
    let done = work.await;
    let took = begun.elapsed().as_secs_f64();
    println!("{what:<28}{took:>7.1}s  {before:>6} MiB  {:>6} MiB", resident("VmHWM:"));
    done
}

/// MiB of memory, as the kernel counts it.
fn resident(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) >> 10
}
