//! Services as processes of this host, for nodes without a container engine.
//!
//! Every replica has a [`supervisor`] of its own, which outlives the daemon and writes down, on disk, who runs and how
//! it ended. This runtime starts supervisors, adopts those it finds, and reads what they wrote; it remembers nothing
//! that is not on disk. A lock that each supervisor holds makes a second one of the same generation impossible.

mod attach;
mod beneath;
pub(crate) mod cgroup;
mod clear;
mod enter;
mod exec;
mod journal;
mod launch;
mod limits;
mod list;
mod paths;
mod reader;
mod record;
mod refusal;
pub(crate) mod signals;
mod start;
mod stop;
pub mod supervisor;
pub(crate) mod table;
mod users;
mod watch;
mod workdir;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_model::{Capability, CellId, ContainerSpec, DeploymentName, Generation};
use rustix::process::geteuid;
use tokio::task::JoinSet;

use crate::attach::{AttachRequest, AttachStreams};
use crate::error::{Error, Operation, PullError, Reason, Result};
use crate::logs::{LogQuery, Logs};
use crate::runtime::{
    BoxFuture, Bus, ContainerInfo, ContainerStatus, Description, Events, ExecOutcome, ExecOutput,
    ExecRequest, Exit, Pull, Runtime, RuntimeEvent, StartRequest, Tag, VolumeRef,
};
use crate::usage::Usage;
use cgroup::Cgroups;
pub use launch::LogBounds;
use paths::{Home, RunDir, absent_is_fine, mend};
use reader::blocking;
use record::RunState;
use stop::settled;
use watch::ExitWatch;

/// Whether services can be other users of this host, and are its root where nobody says otherwise.
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Where and how processes are run.
#[derive(Debug, Clone)]
pub struct Settings {
    pub cell_id: CellId,
    /// Other users must be able to pass through it, for services that run as one.
    pub data_dir: PathBuf,
    /// A program, and the words after which it hands the rest to [`supervisor::main`].
    pub supervisor: Vec<String>,
    /// For services that do not say.
    pub log: LogBounds,
    /// Where cgroups are mounted; none leaves them alone.
    pub cgroup_root: Option<PathBuf>,
}

impl Settings {
    /// The running program supervises, under the word `supervise`, even when its file was replaced meanwhile.
    pub fn new(cell_id: CellId, data_dir: impl Into<PathBuf>) -> Self {
        Self {
            cell_id,
            data_dir: data_dir.into(),
            supervisor: vec!["/proc/self/exe".to_owned(), "supervise".to_owned()],
            log: LogBounds::default(),
            cgroup_root: Some(PathBuf::from("/sys/fs/cgroup")),
        }
    }
}

/// Processes of one cell on this host. Dropping it leaves them running.
#[derive(Debug)]
pub struct ProcessRuntime(Arc<ProcessInner>);

#[derive(Debug)]
struct ProcessInner {
    settings: Settings,
    home: Home,
    cgroups: Cgroups,
    bus: Bus,
    /// One at a time for each generation, so that a start and a stop do not cross.
    turns: Mutex<BTreeMap<Generation, Arc<tokio::sync::Mutex<()>>>>,
    /// One for every running service; they end with the runtime.
    watchers: Mutex<JoinSet<()>>,
}

impl ProcessRuntime {
    /// Opens the data directory and adopts what runs.
    pub async fn open(settings: Settings) -> Result<Self> {
        let home = Home(settings.data_dir.join(settings.cell_id.as_str()));
        let root = settings.cgroup_root.clone();
        let (prepared, cell_id) = (home.clone(), settings.cell_id.clone());
        let failed = |error| Error::failed(Operation::Open, settings.data_dir.display(), error);
        let (cgroups, runs) = blocking(move || {
            let mended = mend(&prepared)?;
            if let Some(first) = mended.first {
                let (count, first) = (mended.count, first.display());
                tracing::warn!(count, %first, "other users could read files of services; closed them");
            }
            let cgroups = Cgroups::find(root.as_deref(), cell_id.as_str());
            let runs = prepared.runs()?;
            sweep_secrets(&prepared, &runs);
            Ok((cgroups, runs))
        })
        .await
        .map_err(failed)?;
        let inner = ProcessInner {
            settings,
            home,
            cgroups,
            bus: Bus::new(),
            turns: Mutex::default(),
            watchers: Mutex::default(),
        };
        let inner = Arc::new(inner);
        for run in runs {
            // One unreadable directory must not keep a node from its other replicas.
            inner.adopt(&run).unwrap_or_else(|error| unreadable(&run, &error));
        }
        Ok(Self(inner))
    }
}

/// Secrets of what is gone: an earlier daemon may have died before it removed them.
fn sweep_secrets(home: &Home, runs: &[RunDir]) {
    let secrets = home.secrets();
    for generation in secrets.generations() {
        if !runs.contains(&home.run(generation)) {
            secrets.remove(generation);
        }
    }
}

impl ProcessInner {
    /// Takes on what an earlier daemon left. Its directory tells all that is needed.
    fn adopt(self: &Arc<Self>, run: &RunDir) -> io::Result<()> {
        let Some(launch) = run.read_launch()? else { return self.clear_rest(run) };
        match run.run_state()? {
            RunState::Running(record, _) => {
                tracing::info!(tag = %launch.tag, pid = record.supervisor.pid, "adopted");
                self.watch(run.clone(), launch.tag, ExitWatch::on(&record.supervisor)?);
            }
            RunState::Starting => {
                let (inner, run) = (Arc::downgrade(self), run.clone());
                self.spawn(async move {
                    let Ok(Some(record)) = settled(&run).await else { return };
                    let (Some(inner), Ok(watch)) =
                        (inner.upgrade(), ExitWatch::on(&record.supervisor))
                    else {
                        return;
                    };
                    inner.bus.tell(RuntimeEvent::Started { tag: launch.tag.clone() });
                    inner.watch(run, launch.tag, watch);
                });
            }
            RunState::Lost(record) => {
                tracing::warn!(tag = %launch.tag, "exited while the daemon was down");
                run.bury(&record)?;
            }
            RunState::Idle(_) => {}
        }
        Ok(())
    }

    /// Removes what is left where an earlier daemon died while it cleared away, or before it had begun: without a launch
    /// it is nobody's.
    fn clear_rest(&self, run: &RunDir) -> io::Result<()> {
        match run.run_state()? {
            RunState::Starting | RunState::Running(..) => return Ok(()),
            RunState::Lost(record) => drop(run.bury(&record)?),
            RunState::Idle(_) => {}
        }
        if let Some(name) = run.0.file_name().and_then(|name| name.to_str()) {
            self.cgroups.remove(name);
        }
        absent_is_fine(fs::remove_dir_all(&run.0))
    }

    /// Tells the end of a service when it comes.
    fn watch(&self, run: RunDir, tag: Tag, mut watch: ExitWatch) {
        let bus = self.bus.clone();
        self.spawn(async move {
            watch.ended().await;
            match blocking(move || outcome(&run)).await {
                Ok(Some(exit)) => bus.tell(RuntimeEvent::Exited { tag, exit }),
                Ok(None) => {}
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(%tag, error, "cannot read its exit status");
                    bus.tell(RuntimeEvent::Missed);
                }
            }
        });
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        while watchers.try_join_next().is_some() {}
        watchers.spawn(task);
    }

    /// The tag's directory. It is another's when a cell that was restored from a backup gives a generation again;
    /// then nothing of the tag is here.
    fn own(&self, operation: Operation, tag: &Tag) -> Result<RunLookup> {
        let cell_id = &self.settings.cell_id;
        if tag.cell_id != *cell_id {
            return Err(Error::Foreign { operation, tag: tag.clone(), cell_id: cell_id.clone() });
        }
        let run = self.home.run(tag.generation);
        let launch = run.read_launch().map_err(|error| Error::failed(operation, tag, error))?;
        Ok(match launch {
            Some(launch) if launch.tag != *tag => RunLookup::Held(launch.tag),
            Some(_) => RunLookup::Here(run),
            None => RunLookup::Free(run),
        })
    }

    fn turn(&self, generation: Generation) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(turns.entry(generation).or_default())
    }
}

/// What a tag's directory is to it.
enum RunLookup {
    Free(RunDir),
    Here(RunDir),
    Held(Tag),
}

impl RunLookup {
    fn here(self) -> Option<RunDir> {
        match self {
            Self::Here(run) => Some(run),
            Self::Free(_) | Self::Held(_) => None,
        }
    }
}

fn unreadable(run: &RunDir, error: &io::Error) {
    tracing::warn!(directory = %run.0.display(), error = error as &dyn std::error::Error, "left out");
}

/// How the service of a supervisor that is gone ended.
fn outcome(run: &RunDir) -> io::Result<Option<Exit>> {
    Ok(match run.run_state()? {
        RunState::Idle(ContainerStatus::Exited { exit, .. }) => Some(exit),
        RunState::Lost(record) => Some(run.bury(&record)?),
        RunState::Idle(_) | RunState::Starting | RunState::Running(..) => None,
    })
}

impl Runtime for ProcessRuntime {
    fn describe(&self) -> BoxFuture<'_, Result<Description>> {
        let mut limits: Vec<String> = [
            "services are processes of this host; image, pull_policy and platform are not used",
            "files are the host's own: a mount is a link in the service's working directory, at its target without the leading slash ($PLIMSOLL_FILES/data for /data); read_only and tmpfs sizes are not held",
            "the network is the host's own: services bind the host's ports, and networks, dns and hostname are not used",
            "privileges are not reduced: cap_drop, security_opt, privileged and userns_mode are not used",
            "a service ends with its first process: whatever that leaves behind is killed",
        ]
        .map(str::to_owned)
        .to_vec();
        limits.push(self.0.cgroups.limits().to_owned());
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Box::pin(async { Ok(Description { name: "process", version, limits }) })
    }

    fn lacks(&self) -> BTreeSet<Capability> {
        refusal::LACKS.into()
    }

    fn refuses(&self, spec: &ContainerSpec) -> Vec<Reason> {
        refusal::reasons(spec, Path::new("/etc"), geteuid().is_root())
    }

    /// A process has no image.
    fn pull<'a>(&'a self, _: &'a Pull) -> BoxFuture<'a, Result<(), PullError>> {
        Box::pin(async { Ok(()) })
    }

    fn start<'a>(&'a self, order: &'a StartRequest) -> BoxFuture<'a, Result<()>> {
        let (inner, order) = (Arc::clone(&self.0), order.clone());
        Box::pin(async move {
            let tag = order.tag.clone();
            // A task of its own: a start that nobody waits for any more still ends in a known state.
            let start = tokio::spawn(async move { inner.start(order).await });
            start.await.map_err(|error| Error::failed(Operation::Start, tag, error))?
        })
    }

    fn stop<'a>(&'a self, tag: &'a Tag) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.0.stop(tag))
    }

    fn remove<'a>(&'a self, tag: &'a Tag) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.0.remove(tag))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<ContainerInfo>>> {
        let home = self.0.home.clone();
        Box::pin(async move {
            let place = home.0.display().to_string();
            let found = blocking(move || list::list(&home)).await;
            found.map_err(|error| Error::failed(Operation::List, place, error))
        })
    }

    fn events(&self) -> Events {
        self.0.bus.listen()
    }

    fn usage(&self) -> BoxFuture<'_, Result<BTreeMap<Tag, Usage>>> {
        let home = self.0.home.clone();
        Box::pin(async move {
            let place = home.0.display().to_string();
            let usage = blocking(move || list::usage(&home)).await;
            usage.map_err(|error| Error::failed(Operation::Usage, place, error))
        })
    }

    fn logs<'a>(&'a self, tag: &'a Tag, query: LogQuery) -> BoxFuture<'a, Result<Logs>> {
        Box::pin(async move {
            let Some(run) = self.0.own(Operation::Logs, tag)?.here() else {
                return Err(Error::Absent { operation: Operation::Logs, tag: tag.clone() });
            };
            let (sender, logs) = Logs::channel();
            tokio::spawn(reader::answer(run, tag.clone(), query, sender));
            Ok(logs)
        })
    }

    fn exec<'a>(
        &'a self,
        tag: &'a Tag,
        exec: &'a ExecRequest,
    ) -> BoxFuture<'a, Result<ExecOutput>> {
        Box::pin(async move {
            let failed = |error| Error::failed(Operation::Exec, tag, error);
            let Some(run) = self.0.own(Operation::Exec, tag)?.here() else {
                return Err(Error::Absent { operation: Operation::Exec, tag: tag.clone() });
            };
            let looked = blocking(move || Ok((run.run_state()?, run.read_launch()?)));
            match looked.await.map_err(failed)? {
                (RunState::Running(..), Some(launch)) => {
                    exec::run(launch, exec).await.map_err(failed)
                }
                _ => Err(Error::NotRunning { operation: Operation::Exec, tag: tag.clone() }),
            }
        })
    }

    fn attach<'a>(
        &'a self,
        tag: &'a Tag,
        request: &'a AttachRequest,
        streams: AttachStreams,
    ) -> BoxFuture<'a, Result<ExecOutcome>> {
        Box::pin(async move {
            let failed = |error| Error::failed(Operation::Exec, tag, error);
            let Some(run) = self.0.own(Operation::Exec, tag)?.here() else {
                return Err(Error::Absent { operation: Operation::Exec, tag: tag.clone() });
            };
            let looked = blocking(move || Ok((run.run_state()?, run.read_launch()?)));
            match looked.await.map_err(failed)? {
                (RunState::Running(..), Some(launch)) => {
                    attach::run(launch, request, streams).await.map_err(failed)
                }
                _ => Err(Error::NotRunning { operation: Operation::Exec, tag: tag.clone() }),
            }
        })
    }

    fn remove_volumes<'a>(
        &'a self,
        deployment: &'a DeploymentName,
    ) -> BoxFuture<'a, Result<Vec<String>>> {
        let path = self.0.home.volumes(deployment);
        Box::pin(async move {
            let removed = blocking(move || remove_volumes(&path)).await;
            removed.map_err(|error| Error::failed(Operation::RemoveVolumes, deployment, error))
        })
    }

    fn volume_dir<'a>(&'a self, volume: &'a VolumeRef) -> BoxFuture<'a, Result<Option<PathBuf>>> {
        let path = self.0.home.volume(volume);
        Box::pin(async move {
            let path = path.map_err(|error| Error::failed(Operation::FindVolume, volume, error))?;
            Ok(Some(path).filter(|path| path.is_dir()))
        })
    }

    fn create_volume<'a>(&'a self, volume: &'a VolumeRef) -> BoxFuture<'a, Result<PathBuf>> {
        let path = self.0.home.volume(volume);
        Box::pin(async move {
            let made = blocking(move || {
                let path = path?;
                workdir::make_volume(&path).map(|()| path)
            });
            let made = made.await;
            made.map_err(|error| Error::failed(Operation::CreateVolume, volume, error))
        })
    }

    fn remove_volume<'a>(&'a self, volume: &'a VolumeRef) -> BoxFuture<'a, Result<()>> {
        let path = self.0.home.volume(volume);
        Box::pin(async move {
            let removed = blocking(move || absent_is_fine(fs::remove_dir_all(path?))).await;
            removed.map_err(|error| Error::failed(Operation::RemoveVolume, volume, error))
        })
    }
}

fn remove_volumes(path: &Path) -> io::Result<Vec<String>> {
    if !path.is_dir() {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    absent_is_fine(fs::remove_dir_all(path))?;
    Ok(names)
}
