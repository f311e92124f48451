//! What of a service outlives its containers, and what that asks of where it runs: binds and volumes on a node's own disk tie
//! it to the node, and what it writes there it must not write twice at once.

use std::collections::BTreeSet;

use super::{
    ContainerSpec, Mode, Mount, MountSource, ServiceSpec, UpdateOrder, VolumeScope, VolumeSpec,
};
use crate::ids::{DeploymentName, ServiceName};

/// Types of file systems that every node can reach alike, as the `type` option of a volume names them.
const NETWORK_FILE_SYSTEMS: [&str; 9] =
    ["nfs", "nfs4", "cifs", "smb3", "glusterfs", "ceph", "9p", "lustre", "beegfs"];

impl ServiceSpec {
    /// Whether its data lives on the node it runs on. Such a replica is never moved by an automatic loop.
    pub fn is_stateful(&self) -> bool {
        self.has_declared() || self.mounts_data()
    }

    /// Whether the file mounts what is on the node it runs on.
    pub fn mounts_data(&self) -> bool {
        self.container.mounts.iter().any(|mount| self.container.is_on_node(mount))
    }

    /// Whether an old and a new copy can run at once: not where both would write the same data or do the same job.
    pub fn can_run_twice(&self) -> bool {
        if self.is_job() {
            return false;
        }
        let writes_data = self.container.mounts.iter().any(Mount::is_written);
        !writes_data && !self.has_declared() && self.update.order == UpdateOrder::StartFirst
    }

    /// Whether its image declares volumes that the file does not mount, as far as is known.
    pub fn has_declared(&self) -> bool {
        !self.declared.paths.is_empty()
    }

    /// Whether an old and a new copy can run side by side on one node, so that a change can start before it stops.
    pub fn can_overlap(&self) -> bool {
        self.host_ports().next().is_none() && self.can_run_twice()
    }
}

impl Mount {
    /// Whether what is written there is there for the next container.
    fn is_kept(&self) -> bool {
        matches!(self.source, MountSource::Bind { .. } | MountSource::Volume { .. })
    }

    fn is_written(&self) -> bool {
        self.is_kept() && !self.read_only
    }
}

/// A named volume that a container mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountedVolume<'a> {
    /// As the file names it.
    pub key: &'a str,
    /// What is declared of it, where something is.
    declared: Option<&'a VolumeSpec>,
}

impl MountedVolume<'_> {
    /// The deployment did not make it, and does not remove it.
    pub fn is_external(&self) -> bool {
        self.declared.is_some_and(|volume| volume.external)
    }

    /// Whether each node has its own disk behind the name.
    pub fn is_local(&self) -> bool {
        self.declared.is_none_or(VolumeSpec::is_local)
    }

    /// The name it has on an engine.
    pub fn name(&self, deployment: &DeploymentName) -> String {
        self.declared.unwrap_or(&VolumeSpec::default()).name_on_engine(deployment, self.key)
    }
}

impl ContainerSpec {
    /// The named volumes it mounts, in the order of its mounts.
    pub fn mounted_volumes(&self) -> impl Iterator<Item = MountedVolume<'_>> {
        self.mounts.iter().filter_map(|mount| self.volume_of(mount))
    }

    /// The named volumes it mounts that are the deployment's own, as the file names them.
    pub fn own_volumes(&self) -> impl Iterator<Item = &str> {
        self.mounted_volumes().filter(|volume| !volume.is_external()).map(|volume| volume.key)
    }

    /// Those of which each node has its own, by the names they have on an engine.
    pub fn local_volumes(&self, deployment: &DeploymentName) -> impl Iterator<Item = String> {
        self.mounted_volumes().filter(MountedVolume::is_local).map(|it| it.name(deployment))
    }

    /// What it writes on the disk of its node and leaves there: volumes by the names they have on an engine, and paths of the
    /// node, which begin with a slash as no volume does.
    pub fn written_data(&self, deployment: &DeploymentName) -> BTreeSet<String> {
        let written = self.mounts.iter().filter(|mount| mount.is_written());
        let named = written.filter_map(|mount| match (&mount.source, self.volume_of(mount)) {
            (MountSource::Bind { path, .. }, _) => Some(path.clone()),
            (_, Some(volume)) => volume.is_local().then(|| volume.name(deployment)),
            _ => None,
        });
        named.collect()
    }

    pub fn has_volumes(&self) -> bool {
        self.own_volumes().next().is_some()
    }

    fn volume_of<'a>(&'a self, mount: &'a Mount) -> Option<MountedVolume<'a>> {
        let MountSource::Volume { name, .. } = &mount.source else { return None };
        Some(MountedVolume { key: name, declared: self.volumes.get(name) })
    }

    /// Whether another node would have something else there.
    fn is_on_node(&self, mount: &Mount) -> bool {
        match self.volume_of(mount) {
            Some(volume) => volume.is_local(),
            None => matches!(mount.source, MountSource::Bind { .. }),
        }
    }
}

impl VolumeSpec {
    /// The name a volume has on an engine: the file's own word for it, else scoped by the deployment, as Compose does. An
    /// external one is nobody's to rename.
    pub fn name_on_engine(&self, deployment: &DeploymentName, key: &str) -> String {
        match &self.name {
            Some(given) => given.clone(),
            None if self.external => key.to_owned(),
            None => format!("{deployment}_{key}"),
        }
    }

    /// The driver `local` keeps a volume on its node, whatever the file says: told otherwise, another node would begin it
    /// empty. What is external may be of any driver.
    pub fn can_have_scope(&self) -> bool {
        let is_driven = self.driver.as_deref().is_some_and(|driver| driver != "local");
        self.scope.is_none() || self.external || is_driven
    }

    /// Whether each node has its own disk behind the name. A driver that we know nothing of is taken to be so, unless the file
    /// says otherwise: a service that stays where it need not is no loss.
    pub fn is_local(&self) -> bool {
        if self.scope == Some(VolumeScope::Global) {
            return false;
        }
        let is_plain = self.driver.as_deref().is_none_or(|driver| driver == "local");
        let kind = self.driver_opts.get("type").map(String::as_str);
        !(is_plain && kind.is_some_and(|kind| NETWORK_FILE_SYSTEMS.contains(&kind)))
    }
}

/// Services that have to run on one node, because each shares a local volume with another of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeGroup<'a> {
    pub services: Vec<(&'a ServiceName, &'a ServiceSpec)>,
    /// All that any of them mounts, by the names on an engine.
    pub volumes: BTreeSet<String>,
}

impl<'a> VolumeGroup<'a> {
    /// Every service of the deployment that mounts a local volume, with those it is tied to. One that is on every node is in
    /// none, and its volumes tie nobody: they are on every node too.
    pub fn all(
        deployment: &DeploymentName,
        services: impl Iterator<Item = (&'a ServiceName, &'a ServiceSpec)>,
    ) -> Vec<Self> {
        let (global, others): (Vec<_>, Vec<_>) =
            services.partition(|(_, spec)| spec.placement.mode == Mode::Global);
        let local = |spec: &'a ServiceSpec| spec.container.local_volumes(deployment);
        let everywhere: BTreeSet<String> =
            global.into_iter().flat_map(|(_, spec)| local(spec)).collect();
        let mut groups: Vec<Self> = Vec::new();
        for (name, spec) in others {
            let volumes: BTreeSet<String> =
                local(spec).filter(|volume| !everywhere.contains(volume)).collect();
            if volumes.is_empty() {
                continue;
            }
            let mut group = Self { services: vec![(name, spec)], volumes };
            // It may be what ties groups together that had nothing in common.
            let (tied, apart): (Vec<Self>, Vec<Self>) =
                groups.into_iter().partition(|it| !it.volumes.is_disjoint(&group.volumes));
            for other in tied {
                group.services.extend(other.services);
                group.volumes.extend(other.volumes);
            }
            groups = apart;
            groups.push(group);
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::spread;

    fn of(volume: VolumeSpec) -> ServiceSpec {
        let mut spec = spread(1).volume("data");
        spec.container.volumes.insert("data".to_owned(), volume);
        spec
    }

    fn network(kind: &str) -> VolumeSpec {
        let driver_opts = [("type".to_owned(), kind.to_owned())].into();
        VolumeSpec { driver_opts, ..VolumeSpec::default() }
    }

    #[test]
    fn a_volume_that_every_node_reaches_ties_a_service_to_none_and_is_still_written_by_one_copy() {
        for kind in ["nfs", "cifs", "glusterfs"] {
            let spec = of(network(kind));
            assert!(!spec.is_stateful(), "{kind}");
            assert!(!spec.can_run_twice(), "{kind}");
        }
        for spec in [of(VolumeSpec::default()), of(network("tmpfs")), of(network("none"))] {
            assert!(spec.is_stateful() && !spec.can_run_twice());
        }
        let plugin = VolumeSpec { driver: Some("rexray".to_owned()), ..network("nfs") };
        assert!(
            of(plugin.clone()).is_stateful(),
            "what a plugin makes of `type` is its own affair"
        );
        let global = of(VolumeSpec { scope: Some(VolumeScope::Global), ..plugin });
        assert!(!global.is_stateful() && !global.can_run_twice(), "the file says so");
        let (shop, db) = (DeploymentName::new("shop").unwrap(), ServiceName::new("db").unwrap());
        assert_eq!(VolumeGroup::all(&shop, [(&db, &global)].into_iter()), []);
    }

    #[test]
    fn what_is_only_read_ties_a_service_to_its_node_and_may_be_read_twice() {
        let mut spec = of(VolumeSpec::default());
        spec.container.mounts[0].read_only = true;
        assert!(spec.is_stateful() && spec.can_run_twice());
    }

    #[test]
    fn a_volume_goes_by_the_name_its_owner_gave_it() {
        let deployment = DeploymentName::new("shop").unwrap();
        let named = |name: Option<&str>, external| VolumeSpec {
            name: name.map(str::to_owned),
            external,
            ..VolumeSpec::default()
        };
        for (spec, expected) in [
            (named(None, false), "shop_data"),
            (named(Some("mine"), false), "mine"),
            (named(Some("theirs"), true), "theirs"),
            (named(None, true), "data"),
        ] {
            assert_eq!(spec.name_on_engine(&deployment, "data"), expected);
        }
    }
}
