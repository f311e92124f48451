//! What a container finds in its file system besides its image: binds, volumes, tmpfs, and files of its own.

use std::collections::BTreeMap;

use bollard::models::{
    Mount as EngineMount, MountBindOptions, MountBindOptionsPropagationEnum as Propagation,
    MountType, MountVolumeOptions,
};
use plimsoll_model::ContainerSpec;
use plimsoll_model::spec::{Mount, MountSource};

use super::files::{self, FileDirs};
use super::volumes::Names;
use crate::runtime::StartRequest;

/// Binds in the engine's older words: only these create the path on the host, and only these know `SELinux`.
pub(super) fn binds(spec: &ContainerSpec) -> Vec<String> {
    spec.mounts.iter().filter_map(bind).collect()
}

fn bind(mount: &Mount) -> Option<String> {
    let MountSource::Bind { path, propagation, selinux, .. } = &mount.source else { return None };
    if !is_old_bind(mount) {
        return None;
    }
    let mode = if mount.read_only { "ro" } else { "rw" };
    let options = [Some(mode), propagation.as_deref(), selinux.as_deref()];
    let options: Vec<&str> = options.into_iter().flatten().collect();
    Some(format!("{path}:{}:{}", mount.target, options.join(",")))
}

/// A path with a colon cannot be said in the older words.
fn is_old_bind(mount: &Mount) -> bool {
    let MountSource::Bind { path, create_host_path, selinux, .. } = &mount.source else {
        return false;
    };
    (*create_host_path || selinux.is_some()) && !path.contains(':') && !mount.target.contains(':')
}

/// Everything else that is mounted, with the order's configs and secrets from `dirs`.
pub(super) fn mounts(order: &StartRequest, dirs: &FileDirs, volumes: &Names) -> Vec<EngineMount> {
    let spec = &*order.spec;
    let is_declared = |mount: &&Mount| {
        mount.source == MountSource::Anonymous && volumes.declared.contains_key(&mount.target)
    };
    let written = spec.mounts.iter().filter(|mount| !is_declared(mount));
    let written = written.filter_map(|mount| modern(mount, volumes));
    let declared = volumes.declared.iter().map(|(path, name)| EngineMount {
        typ: Some(MountType::VOLUME),
        source: Some(name.clone()),
        target: Some(path.clone()),
        ..EngineMount::default()
    });
    let own = files::placed(spec, dirs).map(|(file, path)| EngineMount {
        typ: Some(MountType::BIND),
        source: Some(path.display().to_string()),
        target: Some(file.target.clone()),
        read_only: Some(true),
        ..EngineMount::default()
    });
    written.chain(declared).chain(own).collect()
}

fn modern(mount: &Mount, volumes: &Names) -> Option<EngineMount> {
    let common = EngineMount {
        target: Some(mount.target.clone()),
        read_only: Some(mount.read_only),
        consistency: mount.consistency.clone(),
        ..EngineMount::default()
    };
    match &mount.source {
        MountSource::Bind { path, propagation, .. } => (!is_old_bind(mount)).then(|| EngineMount {
            typ: Some(MountType::BIND),
            source: Some(path.clone()),
            bind_options: propagation.as_deref().and_then(parse_propagation).map(|propagation| {
                MountBindOptions { propagation: Some(propagation), ..MountBindOptions::default() }
            }),
            ..common
        }),
        MountSource::Volume { name, subpath, nocopy } => Some(EngineMount {
            typ: Some(MountType::VOLUME),
            source: volumes.named.get(name).cloned(),
            volume_options: Some(MountVolumeOptions {
                no_copy: Some(*nocopy),
                subpath: subpath.clone(),
                ..MountVolumeOptions::default()
            }),
            ..common
        }),
        MountSource::Anonymous => Some(EngineMount { typ: Some(MountType::VOLUME), ..common }),
        MountSource::Tmpfs { .. } => None,
    }
}

fn parse_propagation(text: &str) -> Option<Propagation> {
    serde_json::from_value(text.into()).ok()
}

/// By target, with the options in the words of mount(8).
pub(super) fn tmpfs(spec: &ContainerSpec) -> BTreeMap<String, String> {
    let tmpfs = |mount: &Mount| {
        let MountSource::Tmpfs { size, mode, options } = &mount.source else { return None };
        let size = size.map(|size| format!("size={}", size.0));
        let mode = mode.map(|mode| format!("mode={mode:o}"));
        let read_only = mount.read_only.then(|| "ro".to_owned());
        let words = options.iter().cloned().chain(size).chain(mode).chain(read_only);
        Some((mount.target.clone(), words.collect::<Vec<_>>().join(",")))
    };
    spec.mounts.iter().filter_map(tmpfs).collect()
}

#[cfg(test)]
mod tests {
    use plimsoll_model::Bytes;

    use super::*;

    fn bound(path: &str, create_host_path: bool, selinux: Option<&str>) -> Mount {
        let source = MountSource::Bind {
            path: path.into(),
            propagation: Some("rslave".into()),
            create_host_path,
            selinux: selinux.map(str::to_owned),
        };
        Mount { source, target: "/in".into(), read_only: true, consistency: None }
    }

    #[test]
    fn a_bind_is_said_in_the_words_that_can_say_it() {
        for (case, mount, old) in [
            ("created on the host", bound("/out", true, None), Some("/out:/in:ro,rslave")),
            ("labelled", bound("/out", false, Some("Z")), Some("/out:/in:ro,rslave,Z")),
            ("must be there", bound("/out", false, None), None),
            ("a colon in its path", bound("/o:ut", true, None), None),
        ] {
            let spec = ContainerSpec { mounts: vec![mount.clone()], ..ContainerSpec::default() };
            assert_eq!(
                binds(&spec),
                old.map(str::to_owned).into_iter().collect::<Vec<_>>(),
                "{case}"
            );
            let modern = modern(&mount, &Names::default());
            assert_eq!(modern.is_none(), old.is_some(), "{case}");
            if let Some(modern) = modern {
                let options = modern.bind_options.unwrap();
                assert_eq!(options.propagation, Some(Propagation::RSLAVE), "{case}");
            }
        }
    }

    #[test]
    fn a_tmpfs_is_described_as_mount_reads_it() {
        let source = MountSource::Tmpfs {
            size: Some(Bytes(1 << 20)),
            mode: Some(0o1777),
            options: ["noexec".to_owned(), "uid=7".to_owned()].into(),
        };
        let mount = Mount { source, target: "/t".into(), read_only: true, consistency: None };
        let spec = ContainerSpec { mounts: vec![mount], ..ContainerSpec::default() };
        assert_eq!(tmpfs(&spec)["/t"], "noexec,uid=7,size=1048576,mode=1777,ro");
    }
}
