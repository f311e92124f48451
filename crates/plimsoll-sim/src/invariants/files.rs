//! Whatever a node is asked to run, and whatever a rollout may return to, finds the secrets and configs that it refers to.

use plimsoll_model::cell_files::CellFileKind;
use plimsoll_model::spec::FileContent;
use plimsoll_model::{Event, ServiceSpec, State};

use super::Invariant;
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct Files;

impl Invariant for Files {
    fn name(&self) -> &'static str {
        "files"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        for event in world.applied.iter().flat_map(|applied| &applied.events) {
            let Event::Service(key) = event else { continue };
            let Some(service) = world.state.service(key) else { continue };
            let rollout = service.row.rollout.as_ref().filter(|rollout| !rollout.is_over());
            let before = rollout.and_then(|rollout| rollout.from.as_ref()).map(|it| &it.spec);
            let replicas = service.replicas.values();
            let wanted = replicas.flat_map(|replica| {
                let next = replica.successor.as_ref().map(|successor| &successor.assignment);
                replica.assignment.iter().chain(next).filter_map(|it| service.spec_of(it))
            });
            for spec in service.desired().into_iter().chain(before).chain(wanted) {
                if let Some(lost) = lost(&world.state, spec) {
                    return Err(format!("{key} refers to {lost}, which is gone"));
                }
            }
        }
        Ok(())
    }
}

fn lost(state: &State, spec: &ServiceSpec) -> Option<String> {
    CellFileKind::ALL.into_iter().find_map(|kind| {
        kind.mounts(&spec.container).iter().find_map(|mount| match &mount.content {
            FileContent::Kept { name, version } => {
                let file = state.files().of(kind).get(name);
                let is_there = file.is_some_and(|file| file.versions.contains_key(version));
                (!is_there).then(|| format!("version {version} of {kind} {name}"))
            }
            FileContent::External(name) => Some(format!("{kind} {name} without a version")),
            FileContent::Inline(_) => None,
        })
    })
}
