//! How patient servers are with each other, from how long this disk takes to make an entry safe: a slow disk must
//! not look like a dead leader.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::disk::{Disk, RealDisk};

/// An election is never called sooner than this: a busy machine pauses for shorter than that, and five heartbeats
/// fit. With it a new leader is there within about a second.
const MIN_ELECTION: Duration = Duration::from_millis(250);

/// A disk that would need more than this is broken, and waiting longer would not mend it.
const MAX_ELECTION: Duration = Duration::from_secs(10);

/// How many appends fit into an election timeout, at least.
const APPENDS_PER_ELECTION: u32 = 10;

const HEARTBEATS_PER_ELECTION: u32 = 5;

/// How often the disk is tried. The slowest try counts, save one that may have met a stranger's sync.
const TRIES: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long one append takes on this disk.
    pub append: Duration,
    pub heartbeat: Duration,
    /// Without a heartbeat for this long, and at most twice as long, a server stands for election.
    pub election: Duration,
}

impl Timing {
    pub fn from_append(append: Duration) -> Self {
        let election = (append * APPENDS_PER_ELECTION).clamp(MIN_ELECTION, MAX_ELECTION);
        Self { append, heartbeat: election / HEARTBEATS_PER_ELECTION, election }
    }

    /// Tries the disk that holds the directory.
    pub(crate) fn measure(disk: &dyn Disk, dir: &Path) -> io::Result<Self> {
        Self::with_file(disk, &dir.join("timing.new"))
    }

    /// What a server on this disk would find when it starts, for who wants to know it before, or beside one that runs.
    pub fn foretell(dir: &Path) -> io::Result<Self> {
        // A server that starts just now has a file of its own.
        Self::with_file(&RealDisk, &dir.join(format!("timing.{}", std::process::id())))
    }

    fn with_file(disk: &dyn Disk, path: &Path) -> io::Result<Self> {
        let file = disk.create(path)?;
        let mut tries = Vec::with_capacity(TRIES);
        for nth in 0..TRIES {
            let started = Instant::now();
            file.write_at(nth as u64 * 4_096, &[1; 4_096])?;
            file.sync()?;
            tries.push(started.elapsed());
        }
        drop(file);
        disk.remove(path)?;
        tries.sort_unstable();
        Ok(Self::from_append(tries[TRIES - 2]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_disk_makes_servers_patient() {
        for (case, append_us, election_ms) in [
            ("flash answers at once", 100, 250),
            ("a busy disk", 40_000, 400),
            ("a dying disk", 5_000_000, 10_000),
        ] {
            let timing = Timing::from_append(Duration::from_micros(append_us));
            assert_eq!(timing.election, Duration::from_millis(election_ms), "{case}");
            assert!(timing.heartbeat * 3 < timing.election, "{case}");
        }
    }
}
