//! Volumes that are to go with a deleted deployment, once its last container has. The promise is a file in the data
//! directory, so it outlives the daemon; a deployment that comes back under the name keeps them.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_model::DeploymentName;
use plimsoll_runtime::chain;
use tokio::sync::Notify;

use super::Error;
use crate::cell::Cell;

/// How long until it is tried again: an engine refuses while it still clears away a container.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub struct Volumes {
    dir: PathBuf,
    wake: Arc<Notify>,
}

impl Volumes {
    /// Keeps its promises below the data directory.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self { dir: data_dir.into().join("volumes-to-remove"), wake: Arc::new(Notify::new()) }
    }

    pub(super) fn promise(&self, deployment: &DeploymentName) -> Result<(), Error> {
        let path = self.dir.join(deployment.as_str());
        let written = fs::create_dir_all(&self.dir).and_then(|()| fs::write(&path, []));
        written.map_err(|source| Error::Disk { action: "write", path, source })
    }

    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Keeps every promise as its time comes. Never returns.
    pub async fn keep(self, cell: Cell) {
        loop {
            let promised = self.promised();
            if promised.is_empty() {
                self.wake.notified().await;
                continue;
            }
            for deployment in promised {
                self.keep_one(&cell, &deployment).await;
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    fn promised(&self) -> Vec<DeploymentName> {
        let Ok(entries) = fs::read_dir(&self.dir) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter_map(|name| DeploymentName::new(name).ok()).collect()
    }

    async fn keep_one(&self, cell: &Cell, deployment: &DeploymentName) {
        let (is_back, is_there) = cell.engine.machine().read(|state| {
            let mut services = state.services().keys();
            let is_there = services.any(|key| key.deployment == *deployment);
            (state.deployments().contains_key(deployment), is_there)
        });
        if is_back {
            self.forget(deployment);
        } else if !is_there {
            match cell.runtime.remove_volumes(deployment).await {
                Ok(removed) => {
                    tracing::info!(%deployment, ?removed, "volumes removed, as asked");
                    self.forget(deployment);
                }
                Err(error) => {
                    let error = chain(&error);
                    tracing::warn!(%deployment, error, "volumes not removed yet; trying again");
                }
            }
        }
    }

    fn forget(&self, deployment: &DeploymentName) {
        let path = self.dir.join(deployment.as_str());
        if let Err(error) = fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "cannot remove");
        }
    }
}
