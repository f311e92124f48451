//! Services as containers of a Docker engine, or of a Podman that answers as one.
//!
//! Each container carries its [`Tag`] in its labels and its stop signal and grace in its settings, so that nothing needs
//! to be remembered here: a daemon that lost its memory asks the engine. The engine may be down when this opens and may
//! go away later; calls then say [`Error::Unavailable`], and work again when it is back.

mod attach;
mod body;
mod credentials;
mod engine;
mod engine_error;
mod events;
mod exec;
mod files;
mod image;
mod labels;
mod list;
mod logs;
mod mounts;
mod naming;
mod networks;
mod pull;
mod refusal;
mod resolve;
mod security;
mod start;
mod stop;
mod subnets;
mod usage;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_model::spec::Healthcheck;
use plimsoll_model::{Capability, CellId, ContainerSpec, DeploymentName, Generation};
use tokio::sync::RwLock;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::attach::{AttachRequest, AttachStreams};
use crate::bridge::{Block, Names};
use crate::error::{Error, Operation, PullError, Reason, Result};
use crate::logs::{LogQuery, Logs};
use crate::runtime::{
    BoxFuture, Bus, ContainerInfo, Description, Events, ExecOutcome, ExecOutput, ExecRequest,
    ImageResolution, Pull, Runtime, StartRequest, Tag, VolumeRef, wall_clock,
};
use crate::usage::Usage;
use credentials::Keyring;
use engine::EngineClient;
pub use engine::detect;
use engine_error::EngineError;
use files::ContainerFiles;
use list::is_running;
use pull::Pulls;
pub use subnets::POOL;

/// How soon an engine that does not answer is looked for again, to clear away what an earlier daemon left on it.
const SWEEP_RETRY: Duration = Duration::from_secs(5);

/// Which engine, and what of this node is used beside it.
#[derive(Debug, Clone)]
pub struct Settings {
    pub cell_id: CellId,
    /// The engine's socket; [`detect`] finds it.
    pub socket: PathBuf,
    /// Where configs lie while a container has them mounted; secrets lie in memory. The engine must see the same paths.
    pub data_dir: PathBuf,
    /// The file that `docker login` writes; none to pull without credentials.
    pub credentials: Option<PathBuf>,
    /// Who has services find each other by name across nodes; none to leave that to the engine, which knows its own.
    pub naming: Option<Naming>,
}

/// See [`Names`].
#[derive(Debug, Clone)]
pub struct Naming {
    pub names: Arc<dyn Names>,
    pub pool: AddressPool,
}

/// What networks take their addresses from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressPool {
    pub block: Block,
    /// An operator gave it. Once it is exhausted nothing else is taken; ours is a guess, and the engine may choose beside it.
    pub is_given: bool,
}

impl Settings {
    pub fn new(cell_id: CellId, socket: impl Into<PathBuf>, data_dir: impl Into<PathBuf>) -> Self {
        let credentials = credentials::default_file();
        let (socket, data_dir) = (socket.into(), data_dir.into());
        Self { cell_id, socket, data_dir, credentials, naming: None }
    }
}

/// Containers of one cell on an engine. Dropping it leaves them running.
#[derive(Debug)]
pub struct DockerRuntime {
    inner: Arc<DockerInner>,
    /// What continues in the background, and ends with it.
    tasks: [AbortHandle; 2],
}

#[derive(Debug)]
struct DockerInner {
    settings: Settings,
    engine: Arc<EngineClient>,
    bus: Bus,
    files: ContainerFiles,
    pulls: Pulls,
    /// One at a time for each generation, so that a start and a removal do not cross.
    turns: Mutex<BTreeMap<Generation, Arc<tokio::sync::Mutex<()>>>>,
    /// Held to read by whoever starts a container of the deployment, and to write by whoever takes its networks away.
    houses: Mutex<BTreeMap<DeploymentName, Arc<RwLock<()>>>>,
    /// One makes networks at a time: older engines let two have one name.
    making: tokio::sync::Mutex<()>,
    cgroups: Mutex<usage::Cgroups>,
}

impl DockerRuntime {
    /// Begins to listen to the engine, whether or not it answers.
    pub fn open(settings: Settings) -> Self {
        let since = wall_clock();
        // The engine has a working directory of its own.
        let data_dir =
            std::path::absolute(&settings.data_dir).unwrap_or_else(|_| settings.data_dir.clone());
        let engine = Arc::new(EngineClient::new(settings.socket.clone()));
        let bus = Bus::new();
        let (cell_id, told) = (settings.cell_id.clone(), bus.clone());
        let listener = tokio::spawn(events::listen(Arc::clone(&engine), told, cell_id, since));
        let keyring = Keyring { file: settings.credentials.clone() };
        let inner = DockerInner {
            files: ContainerFiles::new(&data_dir.join(settings.cell_id.as_str())),
            pulls: Pulls::new(Arc::clone(&engine), keyring),
            settings,
            engine,
            bus,
            turns: Mutex::default(),
            houses: Mutex::default(),
            making: tokio::sync::Mutex::default(),
            cgroups: Mutex::default(),
        };
        let inner = Arc::new(inner);
        let sweeper = tokio::spawn(Arc::clone(&inner).sweep());
        Self { inner, tasks: [listener.abort_handle(), sweeper.abort_handle()] }
    }

    /// Carries work to its end in a task of its own: nobody's giving up leaves it half done.
    async fn carry<F, Fut>(&self, operation: Operation, tag: &Tag, work: F) -> Result<()>
    where
        F: FnOnce(Arc<DockerInner>) -> Fut,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        let task = tokio::spawn(work(Arc::clone(&self.inner)));
        task.await.map_err(|error| Error::failed(operation, tag, error))?
    }
}

impl Drop for DockerRuntime {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl DockerInner {
    /// Clears away what is left of what is gone: an earlier daemon may have died in between. It waits for the engine,
    /// which may come up after the daemon.
    async fn sweep(self: Arc<Self>) {
        while let Err(fault) = self.sweep_networks().await {
            tracing::debug!(error = &fault as &dyn std::error::Error, "not swept yet");
            sleep(SWEEP_RETRY).await;
        }
        self.sweep_files().await;
    }

    /// The networks of deployments of which no container is left. On the others names are answered.
    async fn sweep_networks(&self) -> Result<(), EngineError> {
        let docker = self.engine.client().await?;
        for deployment in networks::deployments(&docker, &self.settings.cell_id).await? {
            self.leave(&deployment).await;
        }
        self.open_all_names().await
    }

    /// The files of containers that are gone.
    async fn sweep_files(&self) {
        for generation in self.files.generations() {
            // A start that is under way has written its files and may not have its container yet.
            let turn = self.turn(generation);
            let _turn = turn.lock().await;
            let Ok(own) = self.own(true).await else { return };
            if own.iter().all(|(_, tag)| tag.generation != generation) {
                self.files.remove(generation);
                self.forget_turn(generation);
            }
        }
    }

    fn check_cell(&self, operation: Operation, tag: &Tag) -> Result<()> {
        let cell_id = &self.settings.cell_id;
        if tag.cell_id == *cell_id {
            return Ok(());
        }
        Err(Error::Foreign { operation, tag: tag.clone(), cell_id: cell_id.clone() })
    }

    /// The id of the tag's container, and whether it runs.
    async fn here(&self, operation: Operation, tag: &Tag) -> Result<(String, bool)> {
        self.check_cell(operation, tag)?;
        let found = self.find(tag).await.map_err(|fault| fault.error(operation, tag))?;
        let container =
            found.here().ok_or_else(|| Error::Absent { operation, tag: tag.clone() })?;
        let runs = is_running(&container);
        Ok((container.id.unwrap_or_else(|| labels::name(tag)), runs))
    }

    fn turn(&self, generation: Generation) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(locked(&self.turns).entry(generation).or_default())
    }

    fn forget_turn(&self, generation: Generation) {
        locked(&self.turns).remove(&generation);
    }

    fn house(&self, deployment: &DeploymentName) -> Arc<RwLock<()>> {
        let mut houses = locked(&self.houses);
        // Those nobody is in are not kept, so that this stays as small as the node.
        houses.retain(|_, house| Arc::strong_count(house) > 1);
        Arc::clone(houses.entry(deployment.clone()).or_default())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Runtime for DockerRuntime {
    fn describe(&self) -> BoxFuture<'_, Result<Description>> {
        Box::pin(async {
            let has_names = self.inner.settings.naming.is_some();
            let described = image::describe(&self.inner.engine, has_names).await;
            described.map_err(|fault| fault.error(Operation::Describe, "the engine"))
        })
    }

    fn lacks(&self) -> BTreeSet<Capability> {
        let mut lacks = refusal::lacks(self.inner.engine.version());
        // Podman answers for names itself, and asks us what it does not know for the first network of a container alone. What
        // runs there with several is left alone, though it does not find everybody; nothing more is sent there.
        if self.inner.settings.naming.is_some() && self.inner.engine.is_podman() {
            lacks.insert(Capability::SeveralNetworks);
        }
        lacks
    }

    fn refuses(&self, spec: &ContainerSpec) -> Vec<Reason> {
        refusal::reasons(spec, self.inner.engine.version())
    }

    fn pull<'a>(&'a self, pull: &'a Pull) -> BoxFuture<'a, Result<(), PullError>> {
        Box::pin(self.inner.pulls.pull(pull))
    }

    fn resolve<'a>(&'a self, pull: &'a Pull) -> BoxFuture<'a, Result<ImageResolution, PullError>> {
        Box::pin(self.inner.pulls.resolve(pull))
    }

    fn image_check<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<Option<Healthcheck>>> {
        Box::pin(async move {
            let check = image::check(&self.inner.engine, image).await;
            check.map_err(|fault| fault.error(Operation::Describe, image))
        })
    }

    fn declared_volumes<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<BTreeSet<String>>> {
        Box::pin(async move {
            let found = image::volumes(&self.inner.engine, image).await;
            found.map_err(|fault| fault.error(Operation::Describe, image))
        })
    }

    fn start<'a>(&'a self, order: &'a StartRequest) -> BoxFuture<'a, Result<()>> {
        let own = order.clone();
        Box::pin(
            self.carry(
                Operation::Start,
                &order.tag,
                |inner| async move { inner.start(&own).await },
            ),
        )
    }

    fn stop<'a>(&'a self, tag: &'a Tag) -> BoxFuture<'a, Result<()>> {
        let own = tag.clone();
        Box::pin(self.carry(Operation::Stop, tag, |inner| async move { inner.stop(&own).await }))
    }

    fn remove<'a>(&'a self, tag: &'a Tag) -> BoxFuture<'a, Result<()>> {
        let own = tag.clone();
        Box::pin(self.carry(
            Operation::Remove,
            tag,
            |inner| async move { inner.remove(&own).await },
        ))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<ContainerInfo>>> {
        Box::pin(async {
            let found = self.inner.list().await;
            found.map_err(|fault| fault.error(Operation::List, "containers"))
        })
    }

    fn events(&self) -> Events {
        self.inner.bus.listen()
    }

    fn usage(&self) -> BoxFuture<'_, Result<BTreeMap<Tag, Usage>>> {
        Box::pin(async {
            let usage = self.inner.usage().await;
            usage.map_err(|fault| fault.error(Operation::Usage, "containers"))
        })
    }

    fn logs<'a>(&'a self, tag: &'a Tag, query: LogQuery) -> BoxFuture<'a, Result<Logs>> {
        Box::pin(async move {
            let (id, _) = self.inner.here(Operation::Logs, tag).await?;
            let docker = self.inner.engine.client().await;
            let docker = docker.map_err(|fault| fault.error(Operation::Logs, tag))?;
            let (sender, logs) = Logs::channel();
            tokio::spawn(logs::answer(docker, id, tag.clone(), query, sender));
            Ok(logs)
        })
    }

    fn exec<'a>(
        &'a self,
        tag: &'a Tag,
        exec: &'a ExecRequest,
    ) -> BoxFuture<'a, Result<ExecOutput>> {
        Box::pin(async move {
            let (id, runs) = self.inner.here(Operation::Exec, tag).await?;
            let not_running = || Error::NotRunning { operation: Operation::Exec, tag: tag.clone() };
            if !runs {
                return Err(not_running());
            }
            let executed = async {
                let docker = self.inner.engine.client().await?;
                exec::run(&docker, &id, exec).await
            };
            executed.await.map_err(|fault| match fault {
                // It ended between the look and the command, or is paused.
                EngineError::Said { status: 404 | 409, .. } => not_running(),
                fault => fault.error(Operation::Exec, tag),
            })
        })
    }

    fn attach<'a>(
        &'a self,
        tag: &'a Tag,
        request: &'a AttachRequest,
        streams: AttachStreams,
    ) -> BoxFuture<'a, Result<ExecOutcome>> {
        Box::pin(async move {
            let (id, runs) = self.inner.here(Operation::Exec, tag).await?;
            let not_running = || Error::NotRunning { operation: Operation::Exec, tag: tag.clone() };
            if !runs {
                return Err(not_running());
            }
            let executed = async {
                let docker = self.inner.engine.client().await?;
                attach::run(&docker, &id, request, streams).await
            };
            executed.await.map_err(|fault| match fault {
                // It ended between the look and the command, or is paused.
                EngineError::Said { status: 404 | 409, .. } => not_running(),
                fault => fault.error(Operation::Exec, tag),
            })
        })
    }

    fn remove_volumes<'a>(
        &'a self,
        deployment: &'a DeploymentName,
    ) -> BoxFuture<'a, Result<Vec<String>>> {
        Box::pin(async move {
            let removed = async {
                let docker = self.inner.engine.worker().await?;
                volumes::remove(&docker, &self.inner.settings.cell_id, deployment).await
            };
            removed.await.map_err(|fault| fault.error(Operation::RemoveVolumes, deployment))
        })
    }

    fn volume_dir<'a>(&'a self, volume: &'a VolumeRef) -> BoxFuture<'a, Result<Option<PathBuf>>> {
        Box::pin(async move {
            let found = async {
                let docker = self.inner.engine.worker().await?;
                volumes::dir(&docker, &self.inner.settings.cell_id, volume).await
            };
            found.await.map_err(|fault| fault.error(Operation::FindVolume, volume))
        })
    }

    fn create_volume<'a>(&'a self, volume: &'a VolumeRef) -> BoxFuture<'a, Result<PathBuf>> {
        Box::pin(async move {
            let made = async {
                let docker = self.inner.engine.worker().await?;
                volumes::create(&docker, &self.inner.settings.cell_id, volume).await
            };
            made.await.map_err(|fault| fault.error(Operation::CreateVolume, volume))
        })
    }

    fn remove_volume<'a>(&'a self, volume: &'a VolumeRef) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let removed = async {
                let docker = self.inner.engine.worker().await?;
                volumes::remove_one(&docker, &self.inner.settings.cell_id, volume).await
            };
            removed.await.map_err(|fault| fault.error(Operation::RemoveVolume, volume))
        })
    }
}
