//! Stopping a container as its own settings say, and clearing it away with what only it needed.

use std::time::Duration;

use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::{RemoveContainerOptions, StopContainerOptions};
use plimsoll_model::DeploymentName;
use tokio::time::{Instant, sleep};

use super::engine::WORK_WAIT;
use super::engine_error::EngineError;
use super::list::is_running;
use super::{DockerInner, networks};
use crate::error::{Error, Operation, Result};
use crate::runtime::{DEFAULT_STOP_GRACE, Tag};

/// How long a removal that another began may take.
const REMOVAL_WAIT: Duration = Duration::from_secs(20);

const LOOK_AGAIN: Duration = Duration::from_millis(50);

impl DockerInner {
    /// The container carries its signal and its grace, so that an orphan is stopped as it wished, too. The engine keeps
    /// the time: it kills the container even if we are gone by then.
    pub(super) async fn stop(&self, tag: &Tag) -> Result<()> {
        self.check_cell(Operation::Stop, tag)?;
        // A start under way comes to its end first; a stop itself takes no turn, since it may take its grace.
        drop(self.turn(tag.generation).lock().await);
        let stopped = async {
            let Some(container) = self.find(tag).await?.here() else { return Ok(()) };
            if !is_running(&container) {
                return Ok(());
            }
            let wait = grace(&container).saturating_add(WORK_WAIT);
            let docker = self.engine.client().await?.with_timeout(wait);
            let id = container.id.unwrap_or_default();
            match docker.stop_container(&id, None::<StopContainerOptions>).await {
                Ok(()) => Ok(()),
                Err(error) => Err(EngineError::from(error)).or_else(absent_is_fine),
            }
        };
        stopped.await.map_err(|fault: EngineError| fault.error(Operation::Stop, tag))
    }

    pub(super) async fn remove(&self, tag: &Tag) -> Result<()> {
        self.check_cell(Operation::Remove, tag)?;
        let turn = self.turn(tag.generation);
        let _turn = turn.lock().await;
        let removed = self.remove_container(tag).await;
        match removed.map_err(|fault| fault.error(Operation::Remove, tag))? {
            Removal::Runs => return Err(Error::StillRunning { tag: tag.clone() }),
            Removal::Done => {}
        }
        self.files.remove(tag.generation);
        self.leave(tag.deployment()).await;
        self.forget_turn(tag.generation);
        Ok(())
    }

    async fn remove_container(&self, tag: &Tag) -> Result<Removal, EngineError> {
        let begin = Instant::now();
        loop {
            let Some(container) = self.find(tag).await?.here() else { return Ok(Removal::Done) };
            if is_running(&container) {
                return Ok(Removal::Runs);
            }
            let docker = self.engine.worker().await?;
            let options = RemoveContainerOptions { v: true, ..Default::default() };
            let id = container.id.unwrap_or_default();
            match docker.remove_container(&id, Some(options)).await.map_err(EngineError::from) {
                // It was started, or another removes it: the next look shows which.
                Err(fault) if fault.status() == Some(409) && begin.elapsed() < REMOVAL_WAIT => {
                    sleep(LOOK_AGAIN).await;
                }
                result => return result.or_else(absent_is_fine).map(|()| Removal::Done),
            }
        }
    }

    /// Takes the deployment's networks away if nothing of it is left. Whoever is about to start another of it needs
    /// them, and will come by here in turn.
    pub(super) async fn leave(&self, deployment: &DeploymentName) {
        let house = self.house(deployment);
        let Ok(_alone) = house.try_write() else { return };
        let cleared = async {
            let docker = self.engine.worker().await?;
            networks::clear(&docker, &self.settings.cell_id, deployment).await
        };
        match cleared.await {
            Ok(gone) => self.close_names(&gone).await,
            Err(fault) => {
                let error = &fault as &dyn std::error::Error;
                tracing::warn!(%deployment, error, "left its networks");
            }
        }
    }
}

enum Removal {
    Runs,
    Done,
}

fn absent_is_fine(fault: EngineError) -> Result<(), EngineError> {
    if fault.is_absent() { Ok(()) } else { Err(fault) }
}

fn grace(container: &ContainerInspectResponse) -> Duration {
    let seconds = container.config.as_ref().and_then(|config| config.stop_timeout);
    match seconds.and_then(|seconds| u64::try_from(seconds).ok()) {
        Some(seconds) => Duration::from_secs(seconds),
        None => Duration::from_millis(DEFAULT_STOP_GRACE.0),
    }
}
