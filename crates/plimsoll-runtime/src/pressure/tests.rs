use std::fs;
use std::time::Duration;

use tempfile::TempDir;

use super::*;

/// A tree of files that looks like a host.
struct Tree(TempDir);

impl Tree {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// Two processors and 8 GiB, 6 of them available.
    fn host() -> Self {
        Self::new()
            .file("proc/stat", &stat(100, 900))
            .file("proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 6291456 kB\n")
            .file("proc/sys/kernel/hostname", "ash\n")
    }

    /// The same in a cgroup that allows one processor and 2 GiB, half of them in use.
    fn container() -> Self {
        Self::host()
            .file("sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n")
            .file("sys/fs/cgroup/cpu.max", "100000 100000\n")
            .file("sys/fs/cgroup/cpu.stat", "usage_usec 1000000\nuser_usec 1\n")
            .file("sys/fs/cgroup/memory.max", "2147483648\n")
            .file("sys/fs/cgroup/memory.current", "1610612736\n")
            .file("sys/fs/cgroup/memory.stat", "anon 7\ninactive_file 536870912\n")
    }

    fn file(self, path: &str, text: &str) -> Self {
        self.write(path, text);
        self
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn root(&self) -> &Path {
        self.0.path()
    }
}

fn stat(busy: u64, idle: u64) -> String {
    format!("cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 1 1 1\ncpu1 1 1 1 1\nintr 5\n")
}

#[test]
fn the_host_counts_in_ticks() {
    let later = |busy: u64, idle: u64| stat(100 + busy, 900 + idle);
    for (case, second, pressure) in [
        ("a quarter busy", later(25, 75), Some((Pressure::percent(25), MilliCpus(500)))),
        ("idle is a sample of zero", later(0, 100), Some((Pressure::ZERO, MilliCpus(0)))),
        ("all busy", later(100, 0), Some((Pressure::FULL, MilliCpus(2_000)))),
        ("no tick has passed", later(0, 0), None),
        ("the busy counter went backwards", stat(90, 1_200), None),
        ("the idle counter went backwards", stat(110, 100), None),
        ("not a number", "cpu x y\ncpu0 1\n".to_owned(), None),
    ] {
        let tree = Tree::host();
        let mut collector = Collector::new(tree.root());
        assert_eq!(collector.read(Instant::now()).cpu, None, "the first read is no sample");
        tree.write("proc/stat", &second);
        let cpu = collector.read(Instant::now()).cpu.map(|share| (share.pressure, share.used));
        assert_eq!(cpu, pressure, "{case}");
    }
}

#[test]
fn a_container_counts_in_its_own_time() {
    let tree = Tree::container();
    let mut collector = Collector::new(tree.root());
    let start = Instant::now();
    for (case, second, usage, pressure) in [
        ("the first read is no sample", 0, 1_000_000, None),
        ("half of the one processor it may use", 2, 2_000_000, Some(Pressure::percent(50))),
        ("a counter gone backwards", 3, 10, None),
        ("and on from there", 4, 250_010, Some(Pressure::percent(25))),
    ] {
        tree.write("sys/fs/cgroup/cpu.stat", &format!("usage_usec {usage}\n"));
        let reading = collector.read(start + Duration::from_secs(second));
        assert_eq!(reading.cpu.map(|share| share.pressure), pressure, "{case}");
    }
}

#[test]
fn memory_is_what_could_not_be_given_back() {
    let share = |gib: u64, percent| {
        Some(Share { used: Bytes(gib << 30), pressure: Pressure::percent(percent) })
    };
    for (case, tree, memory) in [
        ("the host's", Tree::host(), share(2, 25)),
        ("the container's, without idle files", Tree::container(), share(1, 50)),
        (
            "without a limit, the host's",
            Tree::container().file("sys/fs/cgroup/memory.max", "max\n"),
            share(2, 25),
        ),
        ("nothing can be read", Tree::new(), None),
        (
            "more available than there is",
            Tree::host().file("proc/meminfo", "MemTotal: 8 kB\nMemAvailable: 9 kB\n"),
            None,
        ),
        (
            "all of it available",
            Tree::host().file("proc/meminfo", "MemTotal: 8 kB\nMemAvailable: 8 kB\n"),
            share(0, 0),
        ),
        ("half of it can be read", Tree::new().file("proc/meminfo", "MemTotal: 8 kB\n"), None),
    ] {
        assert_eq!(Collector::new(tree.root()).read(Instant::now()).memory, memory, "{case}");
    }
}

#[test]
fn stalls_keep_both_digits() {
    let tree = Tree::host().file(
        "proc/pressure/cpu",
        "some avg10=1.45 avg60=0.07 avg300=100.00 total=378690336\nfull avg10=0.00 total=0\n",
    );
    let stalls = Collector::new(tree.root()).read(Instant::now()).stalls;
    assert_eq!(
        stalls.cpu,
        Some(Stall {
            seconds_10: Pressure::from_millionths(14_500),
            seconds_60: Pressure::from_millionths(700),
            seconds_300: Pressure::FULL,
            total_micros: 378_690_336,
        })
    );
    assert_eq!(stalls.memory, None, "a kernel without it");
}

#[test]
fn a_node_says_what_it_has() {
    let facts = |tree: &Tree| {
        let host = HostInfo::read(tree.root()).unwrap();
        let have = host.facts.capacity;
        (host.hostname.unwrap(), have.cpu.to_string(), have.memory.to_string(), have.gpus)
    };
    let name = || "ash".to_owned();
    for (case, tree, expected) in [
        ("a host", Tree::host(), (name(), "2".into(), "8 GiB".into(), 0)),
        ("a container", Tree::container(), (name(), "1".into(), "2 GiB".into(), 0)),
        (
            "a quota beyond the host allows no more than the host",
            Tree::container()
                .file("sys/fs/cgroup/cpu.max", "900000 100000\n")
                .file("sys/fs/cgroup/memory.max", "max\n"),
            (name(), "2".into(), "8 GiB".into(), 0),
        ),
        (
            "two of NVIDIA's, whose render nodes are theirs",
            Tree::host()
                .file("dev/nvidia0", "")
                .file("dev/nvidia1", "")
                .file("dev/nvidiactl", "")
                .file("dev/nvidia-uvm", "")
                .file("dev/dri/renderD128", "")
                .file("dev/dri/renderD129", ""),
            (name(), "2".into(), "8 GiB".into(), 2),
        ),
        (
            "one of another maker",
            Tree::host().file("dev/dri/renderD128", "").file("dev/dri/card0", ""),
            (name(), "2".into(), "8 GiB".into(), 1),
        ),
    ] {
        assert_eq!(facts(&tree), expected, "{case}");
    }
    assert_eq!(HostInfo::read(Tree::new().root()), None, "nothing can be read");
}

#[test]
fn this_host_can_be_read() {
    let host = HostInfo::read(Path::new("/")).unwrap();
    assert!(host.facts.capacity.cpu >= MilliCpus(1_000), "{host:?}");
    assert!(host.facts.capacity.memory > Bytes(64 << 20), "{host:?}");
    assert_eq!(host.facts.os, "linux");
    let mut collector = Collector::new("/");
    let memory = collector.read(Instant::now()).memory.unwrap();
    assert!(memory.used > Bytes(0) && memory.pressure <= Pressure::FULL, "{memory:?}");
    // A tick is at most ten milliseconds long; with one past, there is a sample.
    let sample = (0..1_000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(2));
        collector.read(Instant::now()).cpu
    });
    assert!(sample.is_some());
}
