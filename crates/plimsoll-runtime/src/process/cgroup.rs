//! Cgroups for processes, where this host lets us have them: version 2, else version 1, else none. They hold services
//! to their memory, processor and process limits and count what each uses. Best effort: a controller that is missing
//! is left out, and the runtime's description says so.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use plimsoll_model::{Bytes, ContainerSpec};

use crate::pressure::files::{field, number};
use crate::usage::{CpuTime, Usage};

/// What our cgroups are below, in every hierarchy.
const OURS: &str = "plimsoll";

/// The time over which a processor quota is counted; the kernel's own default.
const PERIOD_MICROS: u64 = 100_000;

/// The controllers that are used, by their names in version 1.
const CONTROLLERS: [&str; 4] = ["memory", "cpu", "cpuacct", "pids"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cgroups {
    None,
    /// One hierarchy: our directory in it.
    V2(PathBuf),
    /// A hierarchy a controller: our directory in each.
    V1(Vec<PathBuf>),
}

impl Cgroups {
    /// Looks below `root` (`/sys/fs/cgroup`) for a place to write.
    pub(super) fn find(root: Option<&Path>, cell_id: &str) -> Self {
        let Some(root) = root else { return Self::None };
        if root.join("cgroup.controllers").is_file() {
            let ours = root.join(OURS).join(cell_id);
            let wanted = "+memory +cpu +pids";
            let is_made = make_readable(&root.join(OURS)) && make_readable(&ours);
            let parents = [root.to_owned(), root.join(OURS), ours.clone()];
            let is_given = parents
                .iter()
                .all(|dir| fs::write(dir.join("cgroup.subtree_control"), wanted).is_ok());
            return if is_made && is_given { Self::V2(ours) } else { Self::None };
        }
        let ours: Vec<PathBuf> = CONTROLLERS
            .iter()
            .map(|controller| root.join(controller))
            .filter(|hierarchy| hierarchy.join("cgroup.procs").is_file())
            .map(|hierarchy| hierarchy.join(OURS).join(cell_id))
            .filter(|ours| ours.parent().is_some_and(make_readable) && make_readable(ours))
            .collect();
        if ours.is_empty() { Self::None } else { Self::V1(ours) }
    }

    /// In words, for the description.
    pub(super) fn limits(&self) -> &'static str {
        match self {
            Self::V2(_) => "memory, CPU and process limits are enforced by cgroup v2",
            Self::V1(_) => {
                "memory, CPU and process limits are enforced by cgroup v1, as far as its controllers are mounted"
            }
            Self::None => "memory, CPU and process limits are not enforced: no writable cgroup",
        }
    }

    /// Makes the cgroups of one generation and sets its limits. What the kernel does not take is left out.
    pub(super) fn make(&self, name: &str, spec: &ContainerSpec) -> Vec<PathBuf> {
        let dirs = self.dirs(name);
        let made: Vec<PathBuf> = dirs.into_iter().filter(|dir| make_readable(dir)).collect();
        for dir in &made {
            set_limits(dir, spec);
        }
        made
    }

    fn dirs(&self, name: &str) -> Vec<PathBuf> {
        match self {
            Self::None => Vec::new(),
            Self::V2(ours) => vec![ours.join(name)],
            Self::V1(ours) => ours.iter().map(|dir| dir.join(name)).collect(),
        }
    }

    /// Nothing runs in them any more.
    pub(super) fn remove(&self, name: &str) {
        for dir in self.dirs(name) {
            let _ = fs::remove_dir(dir);
        }
    }
}

/// Programs read their own limits there, as whichever user they run; the daemon's umask would keep them out.
fn make_readable(dir: &Path) -> bool {
    let made = fs::create_dir_all(dir);
    made.and_then(|()| fs::set_permissions(dir, PermissionsExt::from_mode(0o755))).is_ok()
}

/// Writes each limit where its file is: in version 1 every controller has a directory of its own, so most files are
/// not in most directories.
fn set_limits(dir: &Path, spec: &ContainerSpec) {
    let set = |file: &str, value: String| {
        let path = dir.join(file);
        if path.is_file() {
            let _ = fs::write(path, value);
        }
    };
    if let Some(memory) = spec.memory_limit() {
        set("memory.max", memory.0.to_string());
        set("memory.limit_in_bytes", memory.0.to_string());
    }
    if let Some(cpu) = spec.cpu_limit() {
        let quota = cpu.0.saturating_mul(PERIOD_MICROS / 1_000);
        set("cpu.max", format!("{quota} {PERIOD_MICROS}"));
        set("cpu.cfs_period_us", PERIOD_MICROS.to_string());
        set("cpu.cfs_quota_us", quota.to_string());
    }
    if let Some(pids) = spec.pids_limit.filter(|pids| *pids > 0) {
        set("pids.max", pids.to_string());
    }
}

/// What was used in the cgroups of one generation; none where they do not count both.
pub(crate) fn usage(dirs: &[PathBuf]) -> Option<Usage> {
    let cpu = dirs.iter().find_map(|dir| {
        let nanos = || number(&dir.join("cpuacct.usage")).map(|nanos| nanos / 1_000);
        field(&dir.join("cpu.stat"), "usage_usec").or_else(nanos)
    })?;
    let memory = dirs.iter().find_map(|dir| {
        let (current, idle) = match number(&dir.join("memory.current")) {
            Some(current) => (current, "inactive_file"),
            None => (number(&dir.join("memory.usage_in_bytes"))?, "total_inactive_file"),
        };
        let idle = field(&dir.join("memory.stat"), idle).unwrap_or(0);
        Some(current.saturating_sub(idle))
    })?;
    Some(Usage { cpu: CpuTime(cpu), memory: Bytes(memory) })
}

/// How many processes the kernel killed in them for want of memory.
pub(super) fn oom_kills(dirs: &[PathBuf]) -> u64 {
    let counted = |dir: &PathBuf| {
        field(&dir.join("memory.events"), "oom_kill")
            .or_else(|| field(&dir.join("memory.oom_control"), "oom_kill"))
    };
    dirs.iter().find_map(counted).unwrap_or(0)
}

/// Puts this process, and what it starts, into them.
pub(super) fn join(dirs: &[PathBuf]) {
    for dir in dirs {
        let _ = fs::write(dir.join("cgroup.procs"), "0");
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::{MilliCpus, Resources};

    use super::*;

    fn file(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn spec() -> ContainerSpec {
        let limits =
            Resources { cpu: MilliCpus(1_500), memory: Bytes(64 << 20), ..Resources::NONE };
        ContainerSpec { limits, pids_limit: Some(20), ..ContainerSpec::default() }
    }

    #[test]
    fn limits_go_where_their_files_are() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for controller in ["memory", "cpu"] {
            file(root, &format!("{controller}/cgroup.procs"), "");
        }
        // The kernel would make these with the directory.
        file(root, "memory/plimsoll/test/g1/memory.limit_in_bytes", "");
        file(root, "cpu/plimsoll/test/g1/cpu.cfs_quota_us", "");
        let cgroups = Cgroups::find(Some(root), "test");
        let ours = |controller: &str| root.join(controller).join("plimsoll/test");
        assert_eq!(cgroups, Cgroups::V1(vec![ours("memory"), ours("cpu")]));
        assert_eq!(cgroups.make("g1", &spec()).len(), 2);
        let read = |path: PathBuf| fs::read_to_string(path).unwrap();
        assert_eq!(read(ours("memory").join("g1/memory.limit_in_bytes")), "67108864");
        assert_eq!(read(ours("cpu").join("g1/cpu.cfs_quota_us")), "150000");
    }

    #[test]
    fn usage_is_read_in_either_version() {
        for (case, files, expected) in [
            (
                "version 2",
                &[
                    ("a/cpu.stat", "usage_usec 42\n"),
                    ("a/memory.current", "1000"),
                    ("a/memory.stat", "inactive_file 300\n"),
                ][..],
                Some((42, 700)),
            ),
            (
                "version 1",
                &[
                    ("b/cpuacct.usage", "42000"),
                    ("a/memory.usage_in_bytes", "1000"),
                    ("a/memory.stat", "inactive_file 1\ntotal_inactive_file 300\n"),
                ],
                Some((42, 700)),
            ),
            ("half of it", &[("a/memory.current", "1000")], None),
        ] {
            let root = tempfile::tempdir().unwrap();
            for (path, text) in files {
                file(root.path(), path, text);
            }
            let usage = usage(&[root.path().join("a"), root.path().join("b")]);
            assert_eq!(usage.map(|usage| (usage.cpu.0, usage.memory.0)), expected, "{case}");
        }
    }
}
