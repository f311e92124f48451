//! A host's own counters. One machine plays several hosts, so each is given files as the kernel has them for a host of its
//! own size, kept up to date from the cgroups of the containers that its engine runs: what a node measures there is what
//! its containers really used.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

use crate::engine::LabEngine;

/// Where the kernel counts a container's processor time, in nanoseconds.
const PLACES: [&str; 2] = ["/sys/fs/cgroup/cpuacct/docker", "/sys/fs/cgroup/cpu,cpuacct/docker"];

/// More often than any node looks.
const PACE: Duration = Duration::from_millis(20);

/// How many microseconds a limit of processor time is for.
const PERIOD: u32 = 100_000;

/// Files below a root of their own, for as long as this is there.
#[derive(Debug)]
pub struct CpuCounters {
    is_over: Arc<AtomicBool>,
    keeper: Option<JoinHandle<io::Result<()>>>,
}

impl CpuCounters {
    /// What keeps this machine from having them; none: nothing.
    pub fn missing() -> Option<&'static str> {
        let is_counted =
            PLACES.iter().filter_map(|place| Path::new(place).parent()).any(Path::is_dir);
        (!is_counted).then_some("this kernel has no cgroup v1 CPU accounting")
    }

    /// A host with so many thousandths of a core, whose counters are those of one engine's containers.
    pub fn keep(root: &Path, engine: &LabEngine, milli_cpus: u32) -> io::Result<Self> {
        let (cgroup, proc) = (root.join("sys/fs/cgroup"), root.join("proc"));
        fs::create_dir_all(&cgroup)?;
        fs::create_dir_all(&proc)?;
        fs::write(cgroup.join("cgroup.controllers"), "cpu memory")?;
        fs::write(cgroup.join("cpu.max"), format!("{} {PERIOD}", PERIOD / 1_000 * milli_cpus))?;
        fs::write(cgroup.join("cpu.stat"), "usage_usec 0")?;
        for file in ["stat", "meminfo"] {
            fs::copy(Path::new("/proc").join(file), proc.join(file))?;
        }
        let containers = engine.containers();
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        let keeper = thread::spawn(move || {
            let mut used = BTreeMap::new();
            while !until.load(Ordering::Relaxed) {
                count(&containers, &mut used);
                let total: u64 = used.values().sum();
                let next = cgroup.join("cpu.stat.next");
                fs::write(&next, format!("usage_usec {}\n", total / 1_000))?;
                fs::rename(next, cgroup.join("cpu.stat"))?;
                sleep(PACE);
            }
            Ok(())
        });
        Ok(Self { is_over, keeper: Some(keeper) })
    }
}

impl Drop for CpuCounters {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = self.keeper.take().map(JoinHandle::join);
        let is_well = ended.is_none_or(|ended| matches!(ended, Ok(Ok(()))));
        assert!(is_well || thread::panicking(), "the counters stood still");
    }
}

/// Takes note of what every container of the engine has used. What is gone used what it used.
fn count(containers: &Path, used: &mut BTreeMap<PathBuf, u64>) {
    let ids = fs::read_dir(containers).into_iter().flatten().flatten();
    for id in ids.map(|entry| entry.file_name()) {
        for file in PLACES.map(|dir| Path::new(dir).join(&id).join("cpuacct.usage")) {
            let spent = fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
            if let Some(spent) = spent {
                used.insert(PathBuf::from(&id), spent);
            }
        }
    }
}
