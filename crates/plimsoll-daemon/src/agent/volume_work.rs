//! Removes and copies single volumes as the cell asks for it, and says what came of it. Nothing of the deployment starts
//! meanwhile: what mounts a volume finds it whole, or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_model::spec::VolumeSpec;
use plimsoll_model::{DeploymentName, Generation, ReplicaId};
use plimsoll_peer::PeerClient;
use plimsoll_runtime::{VolumeRef, chain};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::Agent;
use super::work::WorkOutcome;
use crate::link::Report;
use crate::shared::Shared;
use crate::volume_archive::VolumeTotals;
use crate::volume_copy::{self, AskedContent, CopyNotes};
use crate::volume_door::{SwapRefusal, VolumeDoor, VolumeSwap};
use crate::volume_orders::{VolumeCopy, VolumeDiscard, VolumeExport};
use crate::volume_restore::{admitted, exchange};

/// How long until a volume that could not be removed is tried again: an engine refuses while it still clears away a container.
const RETRY: Duration = Duration::from_secs(1);

/// What is asked of this node's volumes one by one.
#[derive(Debug, Default)]
pub(super) struct VolumeWork {
    discards: BTreeMap<VolumeRef, (VolumeDiscard, Instant)>,
    removing: BTreeSet<VolumeRef>,
    /// Done, and told to the cell.
    removed: BTreeMap<VolumeRef, Generation>,
    copying: BTreeMap<Generation, AbortHandle>,
    /// Over, well or not, and told to the cell.
    copied: BTreeSet<Generation>,
    pub(super) client: Option<PeerClient>,
    pub(super) notes: CopyNotes,
    pub(super) exports: Shared<BTreeMap<Generation, VolumeExport>>,
    pub(super) door: Shared<VolumeDoor>,
}

/// What came of one of them.
#[derive(Debug)]
pub(super) enum VolumeWorkDone {
    Removed { volume: VolumeRef, discard: VolumeDiscard, result: Result<(), String> },
    Copied { deployment: DeploymentName, order: Generation, result: Result<VolumeTotals, String> },
}

impl VolumeWork {
    /// When there is something to try; none while there is not.
    pub(super) fn due(&self) -> Option<Instant> {
        let idle = self.discards.iter().filter(|(volume, _)| !self.removing.contains(*volume));
        idle.map(|(_, (_, due))| *due).filter(|due| *due > Instant::now()).min()
    }

    /// Whether a volume of the deployment is being removed. What mounts one that is copied is not asked for.
    pub(super) fn is_removing(&self, deployment: &DeploymentName) -> bool {
        self.removing.iter().any(|volume| volume.deployment == *deployment)
    }

    pub(super) fn discard(&mut self, all: BTreeMap<VolumeRef, VolumeDiscard>) {
        self.removed.retain(|volume, order| all.get(volume).is_some_and(|it| it.order == *order));
        let now = Instant::now();
        let asked = all.into_iter().filter(|(volume, _)| !self.removed.contains_key(volume));
        self.discards = asked.map(|(volume, discard)| (volume, (discard, now))).collect();
    }
}

impl Agent {
    /// Begins what can be begun.
    pub(super) fn begin_discards(&mut self) {
        let now = Instant::now();
        let work = &self.volume_work;
        let due = work
            .discards
            .iter()
            .filter(|(volume, (_, due))| *due <= now && !work.removing.contains(*volume));
        let due: Vec<(VolumeRef, VolumeDiscard)> =
            due.map(|(volume, (discard, _))| (volume.clone(), *discard)).collect();
        for (volume, discard) in due {
            self.volume_work.removing.insert(volume.clone());
            let runtime = Arc::clone(&self.runtime);
            // What another put there is not ours to remove.
            let is_ours =
                !discard.is_remnant || self.volume_work.notes.has(discard.order, &volume.name);
            self.beside(async move {
                let result = if is_ours { runtime.remove_volume(&volume).await } else { Ok(()) };
                let result = result.map_err(|error| chain(&error));
                WorkOutcome::Volume(VolumeWorkDone::Removed { volume, discard, result })
            });
        }
    }

    /// Begins to copy what is new among these, and gives up what is not asked for any more.
    pub(super) fn copy_volumes(&mut self, all: &BTreeMap<Generation, VolumeCopy>) {
        let work = &mut self.volume_work;
        work.copied.retain(|order| all.contains_key(order));
        work.copying.retain(|order, task| {
            let is_asked = all.contains_key(order);
            if !is_asked {
                task.abort();
            }
            is_asked
        });
        for (order, asked) in all {
            let work = &self.volume_work;
            if work.copied.contains(order) || work.copying.contains_key(order) {
                continue;
            }
            let (runtime, client) = (Arc::clone(&self.runtime), work.client.clone());
            let (notes, order, asked) = (work.notes.clone(), *order, asked.clone());
            let deployment = asked.deployment.clone();
            tracing::info!(%deployment, from = %asked.src, volumes = ?asked.volumes, "copying volumes");
            let task = self.beside(async move {
                let result =
                    volume_copy::copy(&runtime, client.as_ref(), &notes, order, &asked).await;
                WorkOutcome::Volume(VolumeWorkDone::Copied { deployment, order, result })
            });
            self.volume_work.copying.insert(order, task);
        }
    }

    /// Puts a restored volume in the place of the one that is there, if nothing is to run with it: containers are started here
    /// and nowhere else, so that none can come in between.
    pub(super) fn swap_volume(&mut self, swap: VolumeSwap) {
        let VolumeSwap { order, volume, dir, staged, done } = swap;
        let asked = AskedContent { volume, order };
        let is_held = admitted(&self.volume_work.door.lock(), &asked, true).is_some();
        let swapped = if !is_held || self.is_to_run_with(&asked.volume) {
            Err(SwapRefusal::NotHeld)
        } else {
            exchange(&dir, &staged).map_err(SwapRefusal::Disk)
        };
        // Who does not wait for it any more finds it done or not by the note.
        let _ = done.send(swapped);
    }

    /// Whether something here has the volume mounted, or is to.
    fn is_to_run_with(&self, volume: &VolumeRef) -> bool {
        let deployment = &volume.deployment;
        let own = self.briefs.iter().filter(|(id, _)| id.service.deployment == *deployment);
        own.flat_map(|(_, brief)| &brief.wanted).any(|wanted| {
            let mut mounted = wanted.spec.container.mounted_volumes();
            let declared = |key: &String| VolumeSpec::default().name_on_engine(deployment, key);
            mounted.any(|it| it.name(deployment) == volume.name)
                || wanted.declared.values().any(|key| declared(key) == volume.name)
        })
    }

    pub(super) fn volume_done(&mut self, done: VolumeWorkDone) {
        let deployment = match done {
            VolumeWorkDone::Removed { volume, discard, result } => {
                self.volume_work.removing.remove(&volume);
                match result {
                    Ok(()) => {
                        tracing::info!(%volume, "volume removed");
                        self.volume_work.discards.remove(&volume);
                        self.volume_work.removed.insert(volume.clone(), discard.order);
                        self.volume_work.notes.forget(discard.order);
                        let order = discard.order;
                        let _ = self
                            .reports
                            .send(Report::VolumeRemoved { volume: volume.clone(), order });
                    }
                    Err(error) => {
                        tracing::warn!(%volume, error, "cannot remove a volume; retrying");
                        if let Some((_, due)) = self.volume_work.discards.get_mut(&volume) {
                            *due = Instant::now() + RETRY;
                        }
                    }
                }
                volume.deployment
            }
            VolumeWorkDone::Copied { deployment, order, result } => {
                self.volume_work.copying.remove(&order);
                self.volume_work.copied.insert(order);
                let error = match result {
                    Ok(totals) => {
                        tracing::info!(%deployment, ?totals, "volumes copied");
                        None
                    }
                    Err(error) => {
                        tracing::warn!(%deployment, error, "cannot copy volumes");
                        Some(error)
                    }
                };
                let deployment_said = deployment.clone();
                let report = Report::VolumesCopied { deployment: deployment_said, order, error };
                // Without a reporter the daemon is going down, and the next one is asked again.
                let _ = self.reports.send(report);
                deployment
            }
        };
        self.go_on_with(&deployment);
    }

    /// Looks again at what waited to start while something was done with the deployment's volumes.
    pub(super) fn go_on_with(&mut self, deployment: &DeploymentName) {
        let own = |id: &&ReplicaId| id.service.deployment == *deployment;
        let waiting: Vec<ReplicaId> = self.briefs.keys().filter(own).cloned().collect();
        for id in waiting {
            self.advance(&id);
        }
    }
}
