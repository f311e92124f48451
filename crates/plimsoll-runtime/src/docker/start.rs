//! Starting a container: what it needs is made, then it is created and started; whatever is there already is used.

use std::path::Path;
use std::time::Duration;

use bollard::models::{
    ContainerInspectResponse, ContainerStateStatusEnum as State, Mount, NetworkConnectRequest,
};
use bollard::query_parameters::{CreateContainerOptions, RemoveContainerOptions};
use tokio::time::sleep;

use super::engine_error::EngineError;
use super::list::{NameLookup, is_running};
use super::networks::{self, NetworkEndpoint};
use super::{DockerInner, body, files, labels, naming, refusal, security, volumes};
use crate::error::{Error, Operation, Result};
use crate::runtime::{StartRequest, Tag};

/// How often a start that another crossed is tried anew. Each time something of it has become clear, so a few suffice.
const TRIES: u32 = 6;

/// The pause before the second try, doubled before each next one: an engine reserves a name before it shows who has it.
const PAUSE: Duration = Duration::from_millis(50);

impl DockerInner {
    pub(super) async fn start(&self, order: &StartRequest) -> Result<()> {
        let tag = &order.tag;
        self.check_cell(Operation::Start, tag)?;
        let turn = self.turn(tag.generation);
        let _turn = turn.lock().await;
        // While it is held, nobody takes the deployment's networks away.
        let house = self.house(tag.deployment());
        let stay = house.read().await;
        let mut tries = 1;
        let result = loop {
            match self.bring_up(order).await {
                Err(StartFailure::Engine(fault)) if fault.is_passing() && tries < TRIES => {
                    sleep(PAUSE * 2_u32.pow(tries - 1)).await;
                    tries += 1;
                }
                result => break result,
            }
        };
        drop(stay);
        if result.is_err() {
            // What was made for it is of no use to anyone until the next try.
            self.leave(tag.deployment()).await;
        }
        result.map_err(|failure| match failure {
            StartFailure::Refused(error) => error,
            StartFailure::Engine(fault) => fault.error(Operation::Start, tag),
        })
    }

    async fn bring_up(&self, order: &StartRequest) -> Result<(), StartFailure> {
        let tag = &order.tag;
        match self.find(tag).await? {
            NameLookup::Here(container) if is_running(&container) => return Ok(()),
            NameLookup::Here(container) => {
                refuse(self, order)?;
                if is_made_for(&container, order) && self.mounts_files_of(&container, order) {
                    return Ok(self.start_again(order, &container).await?);
                }
                self.discard(&labels::name(tag)).await?;
            }
            NameLookup::Held { id } => {
                return Err(EngineError::Held { name: labels::name(tag), id }.into());
            }
            NameLookup::Free => refuse(self, order)?,
        }
        Ok(self.make(order).await?)
    }

    /// Starts what has exited, with its logs and what it wrote still there; or what was made and never started, which
    /// may lack a network yet.
    async fn start_again(
        &self,
        order: &StartRequest,
        container: &ContainerInspectResponse,
    ) -> Result<(), EngineError> {
        let name = container.id.clone().unwrap_or_else(|| labels::name(&order.tag));
        let settings = container.network_settings.as_ref();
        let joined = settings.and_then(|settings| settings.networks.clone()).unwrap_or_default();
        let mut missing = networks::endpoints(&order.tag, &order.spec);
        missing.retain(|endpoint| {
            let names = [Some(&endpoint.network), endpoint.scoped.as_ref()];
            !names.into_iter().flatten().any(|name| joined.contains_key(name))
        });
        let docker = self.engine.worker().await?;
        for endpoint in &mut missing {
            networks::choose(&docker, &order.tag, endpoint).await?;
        }
        self.open_all_names().await?;
        self.open_names(&docker, &mut missing).await?;
        let started = async {
            self.files.write(order.tag.generation, &order.spec)?;
            self.join(&name, &missing).await?;
            Ok(self.engine.worker().await?.start_container(&name, None).await?)
        };
        let started: Result<(), EngineError> = started.await;
        if let Err(EngineError::Said { .. }) = &started
            && (!has_run(container) || started.as_ref().is_err_and(EngineError::is_passing))
        {
            // It never worked, or its network is gone for good and made under another id: only a new one will do.
            self.discard(&name).await?;
        }
        started
    }

    /// Whether it finds its configs and secrets where they are written now. Where they lie in memory may have changed
    /// since it was made, and what it mounts cannot be changed.
    fn mounts_files_of(&self, container: &ContainerInspectResponse, order: &StartRequest) -> bool {
        let Ok(dirs) = self.files.of(order.tag.generation) else {
            return order.spec.secrets.is_empty();
        };
        let mounts = container.host_config.as_ref().and_then(|host| host.mounts.as_ref());
        files::placed(&order.spec, &dirs).all(|(file, path)| {
            let is_it = |mount: &Mount| {
                mount.target.as_ref() == Some(&file.target)
                    && mount.source.as_deref().map(Path::new) == Some(&path)
            };
            mounts.is_some_and(|mounts| mounts.iter().any(is_it))
        })
    }

    async fn make(&self, order: &StartRequest) -> Result<(), EngineError> {
        let made = self.prepare_and_run(order).await;
        // What passes may be another's container under the same name, and then the files are its own.
        if made.as_ref().is_err_and(|fault| !fault.is_passing()) {
            self.files.remove(order.tag.generation);
        }
        made
    }

    async fn prepare_and_run(&self, order: &StartRequest) -> Result<(), EngineError> {
        let docker = self.engine.worker().await?;
        let (tag, spec) = (&order.tag, &*order.spec);
        let mut endpoints = networks::endpoints(tag, spec);
        let pool = self.settings.naming.as_ref().map(|naming| naming.pool);
        {
            let _alone = self.making.lock().await;
            for endpoint in &mut endpoints {
                networks::ensure(&docker, tag, endpoint, pool).await?;
            }
        }
        let bridge = self.open_names(&docker, &mut endpoints).await?;
        let volumes = volumes::ensure(&docker, order).await?;
        let files = self.files.write(tag.generation, spec)?;
        let security = security::options(spec)?;
        let place = body::NetworkContext {
            endpoint: endpoints.first(),
            resolvers: naming::resolvers(spec, bridge.as_ref()),
        };
        let body = body::body(order, &files, security, place, &volumes);
        let options = CreateContainerOptions {
            name: Some(labels::name(tag)),
            platform: spec.platform.clone().unwrap_or_default(),
        };
        let created = docker.create_container(Some(options), body).await?;
        for warning in created.warnings {
            tracing::warn!(%tag, warning, "the engine reported a warning");
        }
        let started = async {
            self.join(&created.id, endpoints.get(1..).unwrap_or_default()).await?;
            Ok(docker.start_container(&created.id, None).await?)
        };
        let started: Result<(), EngineError> = started.await;
        if started.is_err() {
            // Half made, it would only stand in the way of the next try. If it cannot be removed now, that one does.
            let _ = self.discard(&created.id).await;
        }
        started
    }

    /// The networks besides the first: older engines create a container in one only.
    async fn join(&self, id: &str, endpoints: &[NetworkEndpoint]) -> Result<(), EngineError> {
        let docker = self.engine.worker().await?;
        for endpoint in endpoints {
            let request = NetworkConnectRequest {
                container: id.to_owned(),
                endpoint_config: Some(endpoint.settings.clone()),
            };
            docker.connect_network(&endpoint.network, request).await?;
        }
        Ok(())
    }

    /// Removes a container that does not run. One that does, or is gone, is found so at the next look.
    async fn discard(&self, name: &str) -> Result<(), EngineError> {
        let options = RemoveContainerOptions { v: true, ..Default::default() };
        let removed = self.engine.worker().await?.remove_container(name, Some(options)).await;
        match removed.map_err(EngineError::from) {
            Err(fault) if fault.is_absent() => Ok(()),
            result => result,
        }
    }
}

enum StartFailure {
    Refused(Error),
    Engine(EngineError),
}

impl From<EngineError> for StartFailure {
    fn from(fault: EngineError) -> Self {
        Self::Engine(fault)
    }
}

fn refuse(inner: &DockerInner, order: &StartRequest) -> Result<(), StartFailure> {
    let reasons = refusal::reasons(&order.spec, inner.engine.version());
    if reasons.is_empty() {
        return Ok(());
    }
    let tag: Tag = order.tag.clone();
    Err(StartFailure::Refused(Error::Refused { tag, reasons }))
}

fn has_run(container: &ContainerInspectResponse) -> bool {
    let state = container.state.as_ref();
    state.is_some_and(|state| state.status != Some(State::CREATED))
}

/// A generation has one spec for life, but the node may have chosen other ports since.
fn is_made_for(container: &ContainerInspectResponse, order: &StartRequest) -> bool {
    let host = container.host_config.as_ref();
    let bound = host.and_then(|host| host.port_bindings.clone()).unwrap_or_default();
    bound == body::ports(&order.bindings)
}
