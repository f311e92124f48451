//! Changes to the secrets and configs of the cell. Rotating one is a revision of every deployment that asks for it, in
//! which the services that use it get its new version and the others stay as they are.

use std::sync::Arc;

use super::Txn;
use super::deployments::Services;
use crate::audit::AuditKind;
use crate::ceilings::MAX_FILE_BYTES;
use crate::cell_files::{
    CellFile, CellFileKind, FileBytes, MAX_CELL_FILES, MAX_CELL_FILES_BYTES, at_version,
    versions_in,
};
use crate::command::Refusal;
use crate::ids::{DeploymentName, FileName, ServiceKey};
use crate::spec::{FileContent, ServiceSpec};
use crate::state::Deployment;

impl Txn<'_> {
    pub(super) fn create_file(
        &mut self,
        kind: CellFileKind,
        name: &FileName,
        content: &FileBytes,
    ) -> Result<(), Refusal> {
        let known = self.state.files.of(kind);
        if known.contains_key(name) {
            return Err(Refusal::FileExists { kind, name: name.clone() });
        }
        if known.len() >= MAX_CELL_FILES {
            let (what, found) = (format!("{kind}s"), known.len() + 1);
            return Err(Refusal::TooMany { what, found, max: MAX_CELL_FILES });
        }
        self.check_size(kind, name, content)?;
        let versions = [(1, content.clone())].into();
        let file = CellFile { created_at: self.at, rotated_at: self.at, version: 1, versions };
        self.set_file(kind, name, Some(file));
        self.audit(AuditKind::FileCreated { kind, name: name.clone() });
        Ok(())
    }

    pub(super) fn rotate_file(
        &mut self,
        kind: CellFileKind,
        name: &FileName,
        content: &FileBytes,
    ) -> Result<(), Refusal> {
        let missing = || Refusal::NoSuchFile { kind, name: name.clone() };
        let file = self.state.files.of(kind).get(name).ok_or_else(missing)?;
        if file.content() == Some(content) {
            return Ok(());
        }
        self.check_size(kind, name, content)?;
        let mut file = file.clone();
        file.version = file.version.saturating_add(1);
        file.rotated_at = self.at;
        let version = file.version;
        file.versions.insert(version, content.clone());
        self.set_file(kind, name, Some(file));
        self.audit(AuditKind::FileRotated { kind, name: name.clone(), version });
        for deployment in self.state.deployments_with(kind, name) {
            self.refer_to(&deployment, kind, name, version)?;
        }
        self.forget_versions(kind, name);
        Ok(())
    }

    pub(super) fn remove_file(
        &mut self,
        kind: CellFileKind,
        name: &FileName,
    ) -> Result<(), Refusal> {
        if !self.state.files.of(kind).contains_key(name) {
            return Err(Refusal::NoSuchFile { kind, name: name.clone() });
        }
        let by = self.state.users_of(kind, name);
        if !by.is_empty() {
            let by = by.into_iter().collect();
            return Err(Refusal::FileInUse { kind, name: name.clone(), by });
        }
        self.set_file(kind, name, None);
        self.audit(AuditKind::FileRemoved { kind, name: name.clone() });
        Ok(())
    }

    /// What a deployment refers to is there, in its current version. Checked here, where nothing comes between the look
    /// and the write.
    pub(super) fn check_files(&self, services: &Services) -> Result<(), Refusal> {
        for spec in services.values() {
            for kind in CellFileKind::ALL {
                for mount in kind.mounts(&spec.container) {
                    let FileContent::Kept { name, version } = &mount.content else { continue };
                    let current = self.state.files.of(kind).get(name).map(|file| file.version);
                    if current.is_none() {
                        return Err(Refusal::NoSuchFile { kind, name: name.clone() });
                    }
                    if current != Some(*version) {
                        return Err(Refusal::FileRotated { kind, name: name.clone() });
                    }
                }
            }
        }
        Ok(())
    }

    /// Old versions go with the last that could run with them: a value is rotated to be rid of the one before.
    pub(super) fn forget_versions_of(&mut self, spec: &ServiceSpec) {
        for kind in CellFileKind::ALL {
            for mount in kind.mounts(&spec.container) {
                if let FileContent::Kept { name, .. } = &mount.content {
                    self.forget_versions(kind, name);
                }
            }
        }
    }

    fn forget_versions(&mut self, kind: CellFileKind, name: &FileName) {
        let Some(file) = self.state.files.of(kind).get(name) else { return };
        if file.versions.len() < 2 {
            return;
        }
        let used = self.state.versions_in_use(kind, name);
        let mut file = file.clone();
        let before = file.versions.len();
        file.versions.retain(|version, _| *version == file.version || used.contains(version));
        if file.versions.len() < before {
            self.set_file(kind, name, Some(file));
        }
    }

    /// The deployment refers to this version from now on. A service that was rolled back stays with what it returned to,
    /// in which the file has the new version as well.
    fn refer_to(
        &mut self,
        deployment: &DeploymentName,
        kind: CellFileKind,
        name: &FileName,
        version: u32,
    ) -> Result<(), Refusal> {
        let uses = |spec: &ServiceSpec| versions_in(spec, kind, name).next().is_some();
        let Some(record) = self.state.deployments.get(deployment).and_then(Deployment::current)
        else {
            return Ok(());
        };
        let (mut services, routes) = (record.services.clone(), record.routes.clone());
        for spec in services.values_mut().filter(|spec| uses(spec)) {
            *spec = at_version(spec, kind, name, version);
        }
        let revision = self.write_revision(deployment, &services, &routes)?;
        for service in services.keys() {
            let key = ServiceKey::new(deployment.clone(), service.clone());
            let desired = self.state.services.get(&key).and_then(|it| it.desired());
            let Some(desired) = desired.filter(|spec| uses(spec)).map(Arc::clone) else { continue };
            self.desire(&key, &at_version(&desired, kind, name, version), revision);
        }
        Ok(())
    }

    fn check_size(
        &self,
        kind: CellFileKind,
        name: &FileName,
        content: &FileBytes,
    ) -> Result<(), Refusal> {
        let found = content.0.len() as u64;
        if found > MAX_FILE_BYTES as u64 {
            let (what, max) = (format!("{kind} {name}"), MAX_FILE_BYTES as u64);
            return Err(Refusal::Quota { what, found, max });
        }
        let found = self.state.files.bytes().saturating_add(found);
        if found > MAX_CELL_FILES_BYTES {
            let what = format!("with {kind} {name}, what the cell keeps of secrets and configs");
            return Err(Refusal::Quota { what, found, max: MAX_CELL_FILES_BYTES });
        }
        Ok(())
    }
}
