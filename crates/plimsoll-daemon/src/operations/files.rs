//! Secrets and configs of the cell: kept under a name, rotated and removed; and which of them a deployment may refer to.
//!
//! They are the cell's, so whoever may deploy may change them. An operator who is bound to deployments is bound to secrets
//! and configs by the same names and prefixes: `shop-*` is bound to `shop-db-password` as to `shop-eu`.

use plimsoll_model::access::Scope;
use plimsoll_model::cell_files::{CellFile, CellFileKind, MissingFile};
use plimsoll_model::spec::{FileContent, SpecHash};
use plimsoll_model::{Change, FileName, ServiceKey, ServiceSpec, State};

use super::{Caller, Error, Services};
use crate::context::NodeContext;
use plimsoll_api::suggest;
use plimsoll_api::view::{self, NewFile, RotatedFile, Time};

pub async fn create_file(
    cell: &NodeContext,
    caller: &Caller,
    kind: CellFileKind,
    asked: NewFile,
) -> Result<view::CellFile, Error> {
    let name = FileName::new(&asked.name)?;
    let content = asked.content.into();
    caller.write(cell, vec![Change::CreateFile { kind, name, content }.free()]).await?;
    cell.engine.machine().read(|state| file(state, kind, &asked.name))
}

/// Gives it other content, which rolls the services that use it.
pub async fn rotate_file(
    cell: &NodeContext,
    caller: &Caller,
    kind: CellFileKind,
    name: &str,
    content: Vec<u8>,
) -> Result<RotatedFile, Error> {
    let (name, before) = cell.engine.machine().read(|state| {
        let (name, file) = find(state, kind, name)?;
        Ok::<_, Error>((name.clone(), file.version))
    })?;
    let content = content.into();
    let change = Change::RotateFile { kind, name: name.clone(), content };
    let index = caller.write(cell, vec![change.free()]).await?;
    cell.engine.machine().read(|state| {
        let (name, file) = find(state, kind, name.as_str())?;
        let is_changed = file.version > before;
        let services = if is_changed { users(state, kind, name) } else { Vec::new() };
        Ok(RotatedFile {
            name: name.to_string(),
            version: file.version,
            is_changed,
            services,
            index,
        })
    })
}

pub async fn remove_file(
    cell: &NodeContext,
    caller: &Caller,
    kind: CellFileKind,
    name: &str,
) -> Result<view::CellFile, Error> {
    let (name, gone) = cell.engine.machine().read(|state| {
        let (name, _) = find(state, kind, name)?;
        Ok::<_, Error>((name.clone(), file(state, kind, name.as_str())?))
    })?;
    caller.write(cell, vec![Change::RemoveFile { kind, name }.free()]).await?;
    Ok(gone)
}

/// All of a kind, within the bounds of who asks.
pub fn files(state: &State, kind: CellFileKind, scope: &Scope) -> Vec<view::CellFile> {
    let within = state.files().of(kind).iter().filter(|(name, _)| scope.admits(name.as_str()));
    within.map(|(name, file)| told(state, kind, name, file)).collect()
}

pub fn file(state: &State, kind: CellFileKind, name: &str) -> Result<view::CellFile, Error> {
    let (name, file) = find(state, kind, name)?;
    Ok(told(state, kind, name, file))
}

/// A config, with what is in it.
pub fn config(state: &State, name: &str) -> Result<view::ConfigFile, Error> {
    let kind = CellFileKind::Config;
    let (name, file) = find(state, kind, name)?;
    let content = file.content().map(|content| content.0.to_vec()).unwrap_or_default();
    Ok(view::ConfigFile { file: told(state, kind, name, file), content })
}

/// The services with what they refer to in its current version; every missing one is named.
pub(super) fn resolve(state: &State, services: Services) -> Result<Services, Error> {
    state.with_current_files(services).map_err(|missing| Error::MissingFiles { missing })
}

impl Caller {
    /// Whoever is bound to deployments gets no other secret into a container of theirs. What a container has already,
    /// whoever put it there, it keeps.
    pub(super) fn check_files(
        &self,
        before: Option<&Services>,
        after: &Services,
    ) -> Result<(), Error> {
        let mut files = Vec::new();
        for (service, spec) in after {
            let known = before.and_then(|before| before.get(service));
            if known.is_some_and(|known| is_same_container(known, spec)) {
                continue;
            }
            for kind in CellFileKind::ALL {
                for mount in kind.mounts(&spec.container) {
                    if let FileContent::Kept { name, .. } = &mount.content
                        && !self.scope.admits(name.as_str())
                    {
                        let (service, name) = (service.clone(), name.to_string());
                        files.push(MissingFile { service, kind, name });
                    }
                }
            }
        }
        let scope = self.scope.clone();
        if files.is_empty() { Ok(()) } else { Err(Error::ForeignFiles { files, scope }) }
    }
}

/// In whoever's name it was asked for.
fn is_same_container(known: &ServiceSpec, spec: &ServiceSpec) -> bool {
    let anonymous = |spec: &ServiceSpec| {
        let mut container = spec.container.clone();
        container.asked_by = None;
        SpecHash::of(&container)
    };
    anonymous(known) == anonymous(spec)
}

fn find<'s>(
    state: &'s State,
    kind: CellFileKind,
    name: &str,
) -> Result<(&'s FileName, &'s CellFile), Error> {
    let kept = state.files().of(kind);
    kept.get_key_value(name).ok_or_else(|| {
        let hint = suggest::hint(name, kind.word(), kept.keys().map(FileName::as_str));
        Error::NoSuchFile { kind, name: name.to_owned(), hint }
    })
}

fn told(state: &State, kind: CellFileKind, name: &FileName, file: &CellFile) -> view::CellFile {
    view::CellFile {
        name: name.to_string(),
        version: file.version,
        bytes: file.content().map_or(0, |content| content.0.len() as u64),
        created_at: Time(file.created_at),
        rotated_at: Time(file.rotated_at),
        services: users(state, kind, name),
    }
}

fn users(state: &State, kind: CellFileKind, name: &FileName) -> Vec<String> {
    state.users_of(kind, name).iter().map(ServiceKey::to_string).collect()
}

/// A line for each.
pub(super) fn missing(missing: &[MissingFile]) -> String {
    let line = |it: &MissingFile| format!("\n  {}: {} {}", it.service, it.kind, it.name);
    missing.iter().map(line).collect()
}
