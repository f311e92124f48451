//! What a runtime really has: containers as the engine shows them, processes as the kernel does.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A container, or the processes of one generation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Found {
    /// `shop/web/1`
    pub(crate) replica: String,
    pub(crate) generation: u64,
    pub(crate) is_running: bool,
    /// The container's id, or that of the process.
    pub(crate) id: String,
    /// When its present run began. A container that was restarted keeps its id and loses this.
    pub(crate) since: String,
    /// What it finds as `VERSION` in its environment.
    pub(crate) version: String,
}

impl Found {
    pub(crate) fn of_container(container: &Value) -> Option<Self> {
        let label = |name: &str| container["Config"]["Labels"][name].as_str();
        let environment = container["Config"]["Env"].as_array().into_iter().flatten();
        let mut versions = environment.filter_map(|pair| pair.as_str()?.strip_prefix("VERSION="));
        Some(Self {
            replica: label("plimsoll.replica")?.to_owned(),
            generation: label("plimsoll.generation")?.parse().ok()?,
            is_running: container["State"]["Running"].as_bool()?,
            id: container["Id"].as_str()?.to_owned(),
            since: container["State"]["StartedAt"].as_str()?.to_owned(),
            version: versions.next().unwrap_or_default().to_owned(),
        })
    }

    /// What lives in one directory. A shell and its children are one; two that are not each other's are two.
    fn of_processes(run: &Path, processes: &[&Process]) -> Vec<Self> {
        let launch = fs::read(run.join("launch.json")).unwrap_or_default();
        let launch: Value = serde_json::from_slice(&launch).unwrap_or_default();
        let name = run.file_name().and_then(|name| name.to_str()?.strip_prefix('g')?.parse().ok());
        let idle = Self {
            replica: launch["tag"]["replica"].as_str().unwrap_or("stray").to_owned(),
            generation: name.unwrap_or_default(),
            is_running: false,
            id: String::new(),
            since: String::new(),
            version: String::new(),
        };
        let is_root = |process: &&&Process| {
            processes.iter().all(|other| other.pid != process.parent) && !is_daemon(process.parent)
        };
        let roots = processes.iter().filter(is_root).map(|root| Self {
            is_running: true,
            id: root.pid.to_string(),
            since: root.began.clone(),
            version: root.environment.get("VERSION").cloned().unwrap_or_default(),
            ..idle.clone()
        });
        let roots: Vec<Self> = roots.collect();
        if roots.is_empty() { vec![idle] } else { roots }
    }

    pub(crate) fn deployment(&self) -> &str {
        self.replica.split('/').next().unwrap_or_default()
    }

    /// `shop/web`
    pub(crate) fn service(&self) -> &str {
        self.replica.rsplit_once('/').map_or("", |(service, _)| service)
    }

    /// `shop-web-1`, as the cell names it.
    pub(crate) fn name(&self) -> String {
        self.replica.replace('/', "-").replace('@', "")
    }
}

/// The process runtime's directories below a data directory, and the processes that live in them.
pub(crate) struct Processes(PathBuf);

/// One process: its number, its parent's, and when it began.
struct Process {
    pid: i32,
    parent: i32,
    began: String,
    environment: BTreeMap<String, String>,
}

impl Processes {
    pub(crate) fn below(data: &Path) -> Self {
        Self(data.join("process"))
    }

    /// One for each directory of a generation, and one for each process that has lost its own.
    pub(crate) fn found(&self) -> Vec<Found> {
        let mut homes: BTreeMap<PathBuf, Vec<&Process>> =
            self.runs().into_iter().map(|run| (run, Vec::new())).collect();
        let processes = Self::processes();
        for process in &processes {
            let work =
                Path::new(process.environment.get("PLIMSOLL_FILES").map_or("", String::as_str));
            if let Some(run) = work.parent().filter(|run| run.starts_with(&self.0)) {
                homes.entry(run.to_owned()).or_default().push(process);
            }
        }
        let mut all: Vec<Found> =
            homes.iter().flat_map(|(run, processes)| Found::of_processes(run, processes)).collect();
        all.sort();
        all
    }

    /// Ends everything, supervisors first, which would otherwise write down an end that nobody reads.
    pub(crate) fn kill(&self) {
        let mut pids: Vec<i32> = Vec::new();
        for run in self.runs() {
            let record = fs::read(run.join("record.json")).unwrap_or_default();
            let record: Value = serde_json::from_slice(&record).unwrap_or_default();
            let supervisor = record["supervisor"]["pid"].as_i64();
            pids.extend(supervisor.and_then(|pid| i32::try_from(pid).ok()));
        }
        let below = |process: &Process| {
            let files = process.environment.get("PLIMSOLL_FILES");
            files.is_some_and(|files| Path::new(files).starts_with(&self.0))
        };
        pids.extend(Self::processes().iter().filter(|one| below(one)).map(|one| one.pid));
        for pid in pids.into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    fn runs(&self) -> Vec<PathBuf> {
        let entries = |path: &Path| {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect::<Vec<_>>()
        };
        entries(&self.0).iter().flat_map(|cell| entries(&cell.join("replicas"))).collect()
    }

    fn processes() -> Vec<Process> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(|pid: i32| {
            let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).ok();
            let stat = String::from_utf8_lossy(&read("stat")?).into_owned();
            // The name before the last parenthesis may hold anything.
            let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
            let is_dead = matches!(fields.first(), Some(&"Z" | &"X"));
            let environment = String::from_utf8_lossy(&read("environ")?).into_owned();
            let pairs = environment.split('\0').filter_map(|pair| pair.split_once('='));
            let environment =
                pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            (!is_dead).then_some(Process {
                pid,
                parent: fields.get(1)?.parse().ok()?,
                began: (*fields.get(19)?).to_owned(),
                environment,
            })
        })
        .collect()
    }
}

/// What the daemon itself runs, as its probes, is no replica.
fn is_daemon(pid: i32) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.split(|byte| *byte == 0).nth(1) == Some(b"up")
}
