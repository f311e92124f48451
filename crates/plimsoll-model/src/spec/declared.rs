//! Volumes that an image declares (`VOLUME`) where the file mounts nothing. A file says nothing of them: the nodes that pulled
//! the image do, and the cell keeps their word beside the spec that services run. Each replica has a volume of its own there,
//! named after the replica's place among its kind, so that the next container finds what the last one wrote.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{ContainerSpec, MountSource, VolumeSpec};
use crate::hex::Hex;
use crate::ids::{DeploymentName, ServiceName};

/// The most volumes of one image that are kept. Images have one or two.
pub const MAX_DECLARED: usize = 32;

/// The most bytes that the path of one may have: far more than any has, and all of them stay a small part of the state.
pub const MAX_DECLARED_PATH: usize = 1_024;

/// Where an image declares volumes that the file mounts nothing at.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeclaredVolumes {
    pub paths: BTreeSet<String>,
    /// A node has said so of this very spec. Until one has, it is what the service kept before: were that taken for nothing,
    /// the first container of a new image would begin beside the old one, or on a node without its data.
    pub is_told: bool,
}

impl DeclaredVolumes {
    /// Whether what a node found of the image is news.
    pub fn lacks(&self, found: &BTreeSet<String>) -> bool {
        !found.is_subset(&self.paths) || (!self.is_told && *found != self.paths)
    }

    /// What is known once a node has found this. Nodes may have different images under one tag, so words add up.
    #[must_use]
    pub fn told(&self, found: &BTreeSet<String>) -> Self {
        let kept = self.paths.iter().filter(|_| self.is_told);
        Self { paths: kept.chain(found).cloned().collect(), is_told: true }
    }
}

/// How the volume that a replica has at a declared path is known in its deployment: by the replica's number among those of its
/// service that have data, and by the path. Numbers are given again once nobody has them, unlike the names of replicas.
pub fn declared_key(service: &ServiceName, number: u32, path: &str) -> String {
    let digest: [u8; 32] = Sha256::digest(path.as_bytes()).into();
    format!("{service}.{number}.{:.12}", Hex(&digest).to_string())
}

/// The name of that volume on an engine.
pub fn declared_name(
    deployment: &DeploymentName,
    service: &ServiceName,
    number: u32,
    path: &str,
) -> String {
    let key = declared_key(service, number, path);
    VolumeSpec::default().name_on_engine(deployment, &key)
}

impl ContainerSpec {
    /// Of the paths that an image declares, those that it mounts nothing at. A volume without a name would go with its
    /// container, so it counts for nothing. What is no absolute path, or the root itself, no engine mounts anything at.
    pub fn unmounted<'p>(&self, declared: impl Iterator<Item = &'p str>) -> BTreeSet<String> {
        let named = self.mounts.iter().filter(|mount| mount.source != MountSource::Anonymous);
        let mounted: BTreeSet<&str> = named.map(|mount| plain(&mount.target)).collect();
        let paths = declared.filter(|path| path.starts_with('/') && !plain(path).is_empty());
        paths.filter(|path| !mounted.contains(plain(path))).map(str::to_owned).collect()
    }
}

fn plain(path: &str) -> &str {
    path.trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Mount;

    fn set(paths: &[&str]) -> BTreeSet<String> {
        paths.iter().map(|path| (*path).to_owned()).collect()
    }

    #[test]
    fn what_the_file_mounts_is_not_declared_by_the_image() {
        let mount = |target: &str, source| Mount {
            source,
            target: target.to_owned(),
            read_only: false,
            consistency: None,
        };
        let named = MountSource::Volume { name: "d".to_owned(), subpath: None, nocopy: false };
        let spec = ContainerSpec {
            mounts: vec![
                mount("/named/", named),
                mount("/nameless", MountSource::Anonymous),
                mount("/tmp", MountSource::Tmpfs { size: None, mode: None, options: [].into() }),
            ],
            ..ContainerSpec::default()
        };
        let image = ["/named", "/tmp/", "/nameless", "/data", "relative", "/", "//"];
        assert_eq!(spec.unmounted(image.into_iter()), set(&["/data", "/nameless"]));
    }

    #[test]
    fn the_first_word_on_a_spec_replaces_what_was_assumed_and_later_ones_add_to_it() {
        let assumed = DeclaredVolumes { paths: set(&["/old"]), is_told: false };
        assert!(assumed.lacks(&set(&[])) && assumed.lacks(&set(&["/data"])));
        let told = assumed.told(&set(&["/data"]));
        assert_eq!(told, DeclaredVolumes { paths: set(&["/data"]), is_told: true });
        assert!(!told.lacks(&set(&["/data"])) && !told.lacks(&set(&[])));
        assert_eq!(told.told(&set(&["/more"])).paths, set(&["/data", "/more"]));
        let unknown = DeclaredVolumes::default();
        assert!(!unknown.lacks(&set(&[])), "most images declare none, and nobody has to wait");
    }

    #[test]
    fn each_replica_and_path_has_a_name_of_its_own() {
        let (deployment, service) =
            (DeploymentName::new("shop").unwrap(), ServiceName::new("db").unwrap());
        let name = |number, path| declared_name(&deployment, &service, number, path);
        assert_eq!(name(1, "/data"), "shop_db.1.bd47413b5c03");
        assert_ne!(name(1, "/data"), name(2, "/data"));
        assert_ne!(name(1, "/data"), name(1, "/data2"));
    }
}
