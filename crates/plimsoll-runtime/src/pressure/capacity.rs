//! What a node has to give: processors, memory, GPUs, and its name and kind.

use std::collections::BTreeMap;
use std::path::Path;

use plimsoll_model::{Bytes, MilliCpus, NodeFacts, Resources, RuntimeFacts};

use super::cgroup;
use super::files::{field, number, text};

/// A node as it finds itself. Zone and labels are its operator's to add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostInfo {
    pub hostname: Option<String>,
    pub facts: NodeFacts,
}

impl HostInfo {
    /// Reads below `root`, which is `/` on a real node. None where not even processors and memory can be read.
    pub fn read(root: &Path) -> Option<Self> {
        let capacity =
            Resources { cpu: cpu(root)?, memory: memory(root)?, gpus: gpus(root), all_gpus: 0 };
        let hostname = text(&root.join("proc/sys/kernel/hostname"))
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty());
        let facts = NodeFacts {
            capacity,
            zone: None,
            labels: BTreeMap::new(),
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            runtime: RuntimeFacts::default(),
            address: None,
            version: String::new(),
            api: None,
        };
        Some(Self { hostname, facts })
    }
}

/// The processors that are on, or the part of them that the cgroup's quota allows.
pub(super) fn cpu(root: &Path) -> Option<MilliCpus> {
    let stat = text(&root.join("proc/stat"))?;
    let is_processor = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let online = u64::try_from(stat.lines().filter(is_processor).count()).ok()? * 1_000;
    let allowed = cgroup(root).and_then(|dir| quota(&text(&dir.join("cpu.max"))?));
    let cpu = allowed.map_or(online, |allowed| allowed.min(online));
    (cpu > 0).then_some(MilliCpus(cpu))
}

/// `150000 100000` allows one and a half processors, `max 100000` all of them.
fn quota(text: &str) -> Option<u64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period) = (quota.parse::<u64>().ok()?, period.parse::<u64>().ok()?);
    (quota * 1_000).checked_div(period)
}

/// The host's memory, or the part of it that the cgroup may use.
pub(super) fn memory(root: &Path) -> Option<Bytes> {
    let total = field(&root.join("proc/meminfo"), "MemTotal:")?.saturating_mul(1_024);
    let allowed = cgroup(root).and_then(|dir| number(&dir.join("memory.max")));
    let memory = allowed.map_or(total, |allowed| allowed.min(total));
    (memory > 0).then_some(Bytes(memory))
}

/// Device nodes. A card of NVIDIA's has a render node as well, so those count only where none is NVIDIA's.
fn gpus(root: &Path) -> u32 {
    let nvidia = devices(&root.join("dev"), "nvidia");
    if nvidia > 0 { nvidia } else { devices(&root.join("dev/dri"), "renderD") }
}

/// Entries that are `prefix` and a number: `nvidia0`, but not `nvidia-uvm` or `nvidiactl`.
fn devices(dir: &Path, prefix: &str) -> u32 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let is_device = |name: &str| {
        name.strip_prefix(prefix)
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    u32::try_from(names.filter(|name| is_device(name)).count()).unwrap_or(u32::MAX)
}
