//! What to run, worked out from an order once and written down: the supervisor reads it, and so does a daemon that
//! adopts the process later and must know how to stop it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_model::spec::Logging;
use plimsoll_model::{Bytes, ContainerSpec, Millis};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::users::ProcessUser;
use super::{limits, signals};
use crate::error::Reason;
use crate::runtime::{DEFAULT_STOP_GRACE, StartRequest, Tag};

/// Where commands are looked for when the service does not say; Docker's own default.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Launch {
    pub(super) tag: Tag,
    /// Which start this is. Only the supervisor that was started for it may carry it out, and not one that an earlier
    /// daemon started and that comes late.
    pub(super) ticket: String,
    pub(super) entry: ProcessSetup,
    pub(super) stop: Stop,
    pub(super) log: LogBounds,
    /// The program that supervises, and the words that tell it to.
    pub(super) supervisor: Vec<String>,
}

/// A process to become, down to the last setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProcessSetup {
    pub(super) command: Vec<String>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) directory: PathBuf,
    pub(super) credentials: Option<ProcessUser>,
    pub(super) limits: Vec<limits::Limit>,
    /// Directories of the cgroups to join.
    pub(super) cgroups: Vec<PathBuf>,
    pub(super) oom_score_adj: Option<i32>,
    /// Whether it dies with the process that starts it.
    pub(super) dies_with_parent: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stop {
    pub(super) signal: i32,
    pub(super) grace: Millis,
}

impl Stop {
    pub(super) fn of(spec: &ContainerSpec) -> Result<Self, Reason> {
        let signal = match spec.stop_signal.as_deref() {
            None | Some("") => Signal::TERM,
            Some(text) => signals::parse(text)
                .ok_or_else(|| Reason::UnknownSignal { signal: text.to_owned() })?,
        };
        let grace = spec.stop_grace.unwrap_or(DEFAULT_STOP_GRACE);
        Ok(Self { signal: signal.as_raw(), grace })
    }

    pub(super) fn signal(&self) -> Signal {
        Signal::from_named_raw(self.signal).unwrap_or(Signal::TERM)
    }
}

/// How much is kept of what a service prints: so many files of such a size, oldest dropped first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogBounds {
    pub file_bytes: Bytes,
    pub files: u32,
}

impl Default for LogBounds {
    /// 20 MiB a replica: a hundred replicas stay below what a small node's disk can spare.
    fn default() -> Self {
        Self { file_bytes: Bytes(10 << 20), files: 2 }
    }
}

impl LogBounds {
    /// What the spec's `logging` says in the words of Docker's own drivers, else what the node says.
    fn of(logging: Option<&Logging>, node: Self) -> Self {
        let option = |name: &str| logging?.options.get(name).map(String::as_str);
        let size =
            option("max-size").and_then(|text| text.parse().ok()).filter(|size: &Bytes| size.0 > 0);
        let files =
            option("max-file").and_then(|text| text.parse().ok()).filter(|files| *files > 0);
        Self { file_bytes: size.unwrap_or(node.file_bytes), files: files.unwrap_or(node.files) }
    }
}

/// The command of a spec: its entrypoint and what follows it. Empty when it has none.
pub(super) fn command(spec: &ContainerSpec) -> Vec<String> {
    spec.entrypoint.iter().chain(&spec.command).flatten().cloned().collect()
}

impl Launch {
    pub(super) fn new(
        order: &StartRequest,
        work: &Path,
        credentials: Option<ProcessUser>,
        cgroups: Vec<PathBuf>,
        log: LogBounds,
        supervisor: &[String],
    ) -> Result<Self, Reason> {
        let spec = &order.spec;
        let directory = match spec.working_dir.as_deref() {
            None | Some("") => work.to_owned(),
            // A relative one is taken from the service's own directory; an absolute one replaces it.
            Some(directory) => work.join(directory),
        };
        let environment = environment(order, work, credentials.as_ref());
        let entry = ProcessSetup {
            command: command(spec),
            environment,
            directory,
            credentials,
            limits: limits::of(spec)?,
            cgroups,
            oom_score_adj: spec.oom_score_adj,
            dies_with_parent: true,
        };
        Ok(Self {
            tag: order.tag.clone(),
            ticket: ticket(),
            entry,
            stop: Stop::of(spec)?,
            log: LogBounds::of(spec.logging.as_ref(), log),
            supervisor: supervisor.to_vec(),
        })
    }
}

/// Unlike any other of this host: no two processes of one id start in the same nanosecond, and one counts.
fn ticket() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}-{count}", std::process::id(), now.as_nanos())
}

/// What the service finds in its environment. Nothing of the daemon's own gets there.
fn environment(
    order: &StartRequest,
    work: &Path,
    credentials: Option<&ProcessUser>,
) -> BTreeMap<String, String> {
    let work = work.display().to_string();
    let home = credentials.and_then(|who| who.home.clone()).unwrap_or_else(|| work.clone());
    let mut environment = BTreeMap::from([
        ("PATH".to_owned(), PATH.to_owned()),
        ("HOME".to_owned(), home),
        ("PLIMSOLL_FILES".to_owned(), work),
        ("PLIMSOLL_REPLICA".to_owned(), order.tag.replica.to_string()),
    ]);
    for binding in &order.bindings {
        environment.insert(format!("PLIMSOLL_PORT_{}", binding.target), binding.port.to_string());
    }
    if let [binding] = order.bindings.as_slice() {
        environment.insert("PORT".to_owned(), binding.port.to_string());
    }
    environment.extend(order.spec.environment.clone());
    environment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_spec_does_not_say_has_a_default() {
        let stop = Stop::of(&ContainerSpec::default()).unwrap();
        assert_eq!((stop.signal(), stop.grace), (Signal::TERM, Millis::seconds(10)));
        let spec = ContainerSpec {
            stop_signal: Some("SIGINT".into()),
            stop_grace: Some(Millis::minutes(1)),
            ..ContainerSpec::default()
        };
        let stop = Stop::of(&spec).unwrap();
        assert_eq!((stop.signal(), stop.grace), (Signal::INT, Millis::minutes(1)));
    }

    #[test]
    fn logs_are_bounded_as_the_spec_says_else_as_the_node_does() {
        let node = LogBounds { file_bytes: Bytes(5), files: 4 };
        for (case, options, size, files) in [
            ("nothing said", &[][..], 5, 4),
            ("both said", &[("max-size", "10k"), ("max-file", "7")], 10_240, 7),
            ("nonsense is not said", &[("max-size", "big"), ("max-file", "0")], 5, 4),
            ("no bound is not said", &[("max-size", "-1")], 5, 4),
        ] {
            let options = options.iter().map(|(key, value)| ((*key).into(), (*value).into()));
            let logging = Logging { driver: None, options: options.collect() };
            let bounds = LogBounds::of(Some(&logging), node);
            assert_eq!(bounds, LogBounds { file_bytes: Bytes(size), files }, "{case}");
        }
    }
}
