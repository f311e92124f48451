//! Volumes that an image declares: the node finds them when it has pulled the image, tells the cell, and starts nothing of it
//! until the cell has noted it as the holder of the replica's data and says so. A claim too many makes somebody wait; one too
//! few makes an empty database.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::spec::{MAX_DECLARED, MAX_DECLARED_PATH};
use plimsoll_model::{ContainerSpec, Generation, Millis, ReplicaId, Timestamp};
use plimsoll_runtime::{Error, PullError, Runtime, chain};

use super::Agent;
use crate::dispatcher::DesiredReplica;
use crate::link::{Declared, Report};

/// How long a word to the cell is waited for before it is said again: whoever stood in the way may have gone.
const SAY_AGAIN: Millis = Millis::seconds(5);

/// What the node found in the image of one container.
#[derive(Debug)]
pub(super) struct FoundVolumes {
    paths: BTreeSet<String>,
    /// When to tell the cell again.
    again: Timestamp,
}

impl Agent {
    /// The image is here, and declares this. Said at once, so that whoever hears that it starts knows of its data.
    pub(super) fn found_volumes(
        &mut self,
        id: &ReplicaId,
        generation: Generation,
        paths: BTreeSet<String>,
    ) {
        let spec = self.brief_of(id, generation).map(|wanted| &wanted.spec);
        let is_news = spec.is_some_and(|spec| spec.declared.lacks(&paths));
        if let Some(unit) = self.unit_mut(id, generation) {
            unit.declared = Some(FoundVolumes { paths, again: Timestamp(0) });
        }
        if is_news {
            self.tell_volumes(id, generation);
        }
    }

    /// Whether its image declares volumes that the cell does not let it mount yet.
    pub(super) fn awaits_volumes(&self, id: &ReplicaId, wanted: &DesiredReplica) -> bool {
        let found = self.unit(id, wanted.generation).and_then(|unit| unit.declared.as_ref());
        found.is_some_and(|it| it.paths.iter().any(|path| !wanted.declared.contains_key(path)))
    }

    /// Tells the cell what was found, now and then, for as long as it is waited for.
    pub(super) fn tell_volumes(&mut self, id: &ReplicaId, generation: Generation) {
        let now = self.clock.now();
        let Some(hash) = self.brief_of(id, generation).map(|wanted| wanted.spec.hash) else {
            return;
        };
        let Some(unit) = self.unit_mut(id, generation) else { return };
        let Some(found) = &mut unit.declared else { return };
        let is_due = found.again <= now;
        if is_due {
            found.again = now.plus(SAY_AGAIN);
        }
        let (again, paths) = (found.again, found.paths.clone());
        self.timers.insert((again, id.clone()));
        if is_due {
            let declared = Declared { service: id.service.clone(), spec: hash, paths };
            // Without a reporter the daemon is going down, and the next one looks for itself.
            let _ = self.reports.send(Report::Declared(declared));
        }
    }

    /// What a new container of it mounts: what its image declares, or, where nobody has looked at that, all it may.
    pub(super) fn declared_mounts(
        &self,
        id: &ReplicaId,
        generation: Generation,
    ) -> BTreeMap<String, String> {
        let found = self.unit(id, generation).and_then(|unit| unit.declared.as_ref());
        let granted = self.brief_of(id, generation).map(|wanted| wanted.declared.clone());
        let is_found = |path: &String| found.is_none_or(|found| found.paths.contains(path));
        granted.unwrap_or_default().into_iter().filter(|(path, _)| is_found(path)).collect()
    }
}

/// Where the image of the container declares volumes that it does not mount. Without an answer nothing is started: what the cell
/// does not know to have data, it would run twice.
pub(super) async fn find(
    runtime: &dyn Runtime,
    spec: &ContainerSpec,
) -> Result<BTreeSet<String>, PullError> {
    let image = || spec.image.clone();
    let found = runtime.declared_volumes(&spec.pinned_image()).await.map_err(|error| {
        let text = chain(&error);
        match error {
            Error::Unavailable { .. } => PullError::Unavailable { image: image(), error: text },
            _ => PullError::Other { image: image(), error: text },
        }
    })?;
    let paths = spec.unmounted(found.iter().map(String::as_str));
    if paths.len() > MAX_DECLARED || paths.iter().any(|path| path.len() > MAX_DECLARED_PATH) {
        let error = format!(
            "it declares {} volumes, and at most {MAX_DECLARED} with paths of {MAX_DECLARED_PATH} bytes are kept",
            paths.len()
        );
        return Err(PullError::Other { image: image(), error });
    }
    Ok(paths)
}
