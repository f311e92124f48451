//! Secrets and configs that the cell keeps by name. A compose file refers to one with `external: true`; the spec that is
//! written has its name and version instead of its content, so that rotating one changes exactly the specs that use it.
//!
//! Changes to them are made in [`apply`](crate::apply); content leaves the state with the order to run a replica, and
//! then only to the node that runs it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{DeploymentName, FileName, ServiceKey, ServiceName};
use crate::replica::Replica;
use crate::spec::{ContainerSpec, FileContent, FileMount, ServiceSpec, SpecHash};
use crate::state::{Deployment, Service, State};
use crate::units::Timestamp;

/// The most secrets and configs a cell keeps, each kind by itself.
pub const MAX_CELL_FILES: usize = 10_000;

/// The most bytes all of them may have together, old versions that something still runs with included.
pub const MAX_CELL_FILES_BYTES: u64 = 64 << 20;

/// What a kept file is to its services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CellFileKind {
    /// Its content is never shown again.
    Secret,
    Config,
}

impl CellFileKind {
    pub const ALL: [Self; 2] = [Self::Secret, Self::Config];

    pub fn word(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::Config => "config",
        }
    }

    /// What a container mounts of this kind.
    pub fn mounts(self, container: &ContainerSpec) -> &[FileMount] {
        match self {
            Self::Secret => &container.secrets,
            Self::Config => &container.configs,
        }
    }

    fn mounts_mut(self, container: &mut ContainerSpec) -> &mut [FileMount] {
        match self {
            Self::Secret => &mut container.secrets,
            Self::Config => &mut container.configs,
        }
    }
}

impl fmt::Display for CellFileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The bytes of a file. They stay out of every log and debug print.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileBytes(pub Arc<[u8]>);

impl fmt::Debug for FileBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl From<Vec<u8>> for FileBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

/// A secret or config of the cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellFile {
    pub created_at: Timestamp,
    pub rotated_at: Timestamp,
    /// The one that is applied from now on. Versions count from 1.
    pub version: u32,
    /// The current one, and older ones that something still runs with or may return to.
    pub versions: BTreeMap<u32, FileBytes>,
}

impl CellFile {
    pub fn content(&self) -> Option<&FileBytes> {
        self.versions.get(&self.version)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.versions.values().map(|content| content.0.len() as u64).sum()
    }
}

/// All of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CellFiles {
    pub secrets: BTreeMap<FileName, CellFile>,
    pub configs: BTreeMap<FileName, CellFile>,
}

impl CellFiles {
    pub fn of(&self, kind: CellFileKind) -> &BTreeMap<FileName, CellFile> {
        match kind {
            CellFileKind::Secret => &self.secrets,
            CellFileKind::Config => &self.configs,
        }
    }

    pub(crate) fn of_mut(&mut self, kind: CellFileKind) -> &mut BTreeMap<FileName, CellFile> {
        match kind {
            CellFileKind::Secret => &mut self.secrets,
            CellFileKind::Config => &mut self.configs,
        }
    }

    pub fn get(&self, kind: CellFileKind, name: &str) -> Option<&CellFile> {
        self.of(kind).get(name)
    }

    /// What all of them take, as they are.
    pub(crate) fn bytes(&self) -> u64 {
        self.secrets.values().chain(self.configs.values()).map(CellFile::bytes).sum()
    }
}

/// A service refers to a file that the cell does not keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingFile {
    pub service: ServiceName,
    pub kind: CellFileKind,
    /// As the file names it, which may be no name that the cell could keep one under.
    pub name: String,
}

impl State {
    pub fn files(&self) -> &CellFiles {
        &self.files
    }

    /// The services as they are written: each reference to a kept file in its current version. Every missing one is named.
    pub fn with_current_files(
        &self,
        services: BTreeMap<ServiceName, Arc<ServiceSpec>>,
    ) -> Result<BTreeMap<ServiceName, Arc<ServiceSpec>>, Vec<MissingFile>> {
        let mut missing = Vec::new();
        let mut current = BTreeMap::new();
        for (service, mut spec) in services {
            let mut lacks = |kind, name: &str| {
                missing.push(MissingFile { service: service.clone(), kind, name: name.to_owned() });
            };
            self.update_files(&mut spec, &mut lacks);
            current.insert(service, spec);
        }
        if missing.is_empty() { Ok(current) } else { Err(missing) }
    }

    /// Leaves a spec alone that refers to none, or to the current versions only.
    fn update_files(&self, spec: &mut Arc<ServiceSpec>, lacks: &mut dyn FnMut(CellFileKind, &str)) {
        for kind in CellFileKind::ALL {
            for at in 0..kind.mounts(&spec.container).len() {
                let mount = &kind.mounts(&spec.container)[at];
                let name = match &mount.content {
                    FileContent::Inline(_) => continue,
                    FileContent::External(name) => name.as_str(),
                    FileContent::Kept { name, .. } => name.as_str(),
                };
                let Some((name, file)) = self.files.of(kind).get_key_value(name) else {
                    lacks(kind, name);
                    continue;
                };
                let kept = FileContent::Kept { name: name.clone(), version: file.version };
                if mount.content != kept {
                    let changed = Arc::make_mut(spec);
                    kind.mounts_mut(&mut changed.container)[at].content = kept;
                    changed.hash = SpecHash::of(&changed.container);
                }
            }
        }
    }

    /// The spec as the node needs it that runs it: with the content of every kept file in it. Its hash is that of the
    /// spec as it is written, by which all others know it.
    pub fn with_contents(&self, spec: &Arc<ServiceSpec>) -> Arc<ServiceSpec> {
        let mut whole = Arc::clone(spec);
        for kind in CellFileKind::ALL {
            for (at, mount) in kind.mounts(&spec.container).iter().enumerate() {
                let FileContent::Kept { name, version } = &mount.content else { continue };
                let file = self.files.of(kind).get(name);
                // What is lacking stays a reference, which the node refuses to run with a reason.
                let Some(content) = file.and_then(|file| file.versions.get(version)) else {
                    continue;
                };
                let filled = Arc::make_mut(&mut whole);
                kind.mounts_mut(&mut filled.container)[at].content =
                    FileContent::Inline(content.0.to_vec());
            }
        }
        whole
    }

    /// The services that use the file: by what their deployments ask for, what they run, or what they may return to.
    pub fn users_of(&self, kind: CellFileKind, name: &FileName) -> BTreeSet<ServiceKey> {
        let uses = |spec: &ServiceSpec| versions_in(spec, kind, name).next().is_some();
        let deployments = self.deployments.iter();
        let asked = deployments.filter_map(|(of, it)| Some((of, it.current()?))).flat_map(
            |(of, record): (&DeploymentName, _)| {
                let services = record.services.iter().filter(|(_, spec)| uses(spec));
                services.map(|(service, _)| ServiceKey::new(of.clone(), service.clone()))
            },
        );
        let services = self.services.iter();
        let run = services.filter(|(_, it)| specs_needed(it).any(|it| uses(it)));
        asked.chain(run.map(|(key, _)| key.clone())).collect()
    }

    /// The versions of the file that something runs with or may return to.
    pub(crate) fn versions_in_use(&self, kind: CellFileKind, name: &FileName) -> BTreeSet<u32> {
        let specs = self.services.values().flat_map(specs_needed);
        specs.flat_map(|spec| versions_in(spec, kind, name).collect::<Vec<_>>()).collect()
    }

    /// The deployments that ask for the file.
    pub(crate) fn deployments_with(
        &self,
        kind: CellFileKind,
        name: &FileName,
    ) -> Vec<DeploymentName> {
        let asks = |deployment: &Deployment| {
            let services = deployment.current().into_iter().flat_map(|it| it.services.values());
            services.into_iter().any(|spec| versions_in(spec, kind, name).next().is_some())
        };
        let deployments = self.deployments.iter().filter(|(_, deployment)| asks(deployment));
        deployments.map(|(of, _)| of.clone()).collect()
    }
}

/// What the service should run, what its replicas run, and what an unfinished rollout may return to.
fn specs_needed(service: &Service) -> impl Iterator<Item = &Arc<ServiceSpec>> {
    let of = |replica: &Replica| {
        let next = replica.successor.as_ref().map(|successor| successor.assignment.spec);
        replica.assignment.as_ref().map(|it| it.spec).into_iter().chain(next).collect::<Vec<_>>()
    };
    let run: BTreeSet<SpecHash> = service.replicas.values().flat_map(of).collect();
    let run = service.row.specs.iter().filter(move |(hash, _)| run.contains(*hash));
    let rollout = service.row.rollout.as_ref().filter(|rollout| !rollout.is_over());
    let before = rollout.and_then(|rollout| rollout.from.as_ref()).map(|before| &before.spec);
    service.desired().into_iter().chain(run.map(|(_, spec)| spec)).chain(before)
}

/// In which versions the spec refers to the file.
pub(crate) fn versions_in<'a>(
    spec: &'a ServiceSpec,
    kind: CellFileKind,
    file: &'a FileName,
) -> impl Iterator<Item = u32> + 'a {
    kind.mounts(&spec.container).iter().filter_map(move |mount| match &mount.content {
        FileContent::Kept { name, version } if name == file => Some(*version),
        _ => None,
    })
}

/// The spec with the file in this version.
pub(crate) fn at_version(
    spec: &Arc<ServiceSpec>,
    kind: CellFileKind,
    file: &FileName,
    to: u32,
) -> Arc<ServiceSpec> {
    let mut spec = ServiceSpec::clone(spec);
    for mount in kind.mounts_mut(&mut spec.container) {
        if let FileContent::Kept { name, version } = &mut mount.content
            && name == file
        {
            *version = to;
        }
    }
    spec.hash = SpecHash::of(&spec.container);
    Arc::new(spec)
}

#[cfg(test)]
mod tests;
