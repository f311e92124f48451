//! Lays out a service's working directory: a link or a file for every mount, config and secret, at its target without
//! the leading slash. `/data` in the spec is `data` for the service, and `$PLIMSOLL_FILES/data` from anywhere.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use plimsoll_model::ContainerSpec;
use plimsoll_model::spec::{FileContent, FileMount, MountSource};

use super::paths::{Home, absent_is_fine, make_traversable};
use super::refusal::below;
use super::users::ProcessUser;
use crate::runtime::Tag;

/// Makes what is missing and leaves what is there: a restart finds its files again.
pub(super) fn workdir(
    home: &Home,
    work: &Path,
    tag: &Tag,
    spec: &ContainerSpec,
    owner: Option<&ProcessUser>,
) -> io::Result<()> {
    directory(work, owner)?;
    for mount in &spec.mounts {
        let Some(place) = below(&mount.target) else { continue };
        let place = work.join(place);
        match &mount.source {
            MountSource::Bind { path, create_host_path, .. } => {
                let path = Path::new(path);
                if *create_host_path && !path.exists() {
                    fs::create_dir_all(path)?;
                }
                link(path, &place)?;
            }
            MountSource::Volume { name, subpath, .. } => {
                let mut path = volume(home, tag, spec, name, owner)?;
                if let Some(subpath) = subpath {
                    path.push(subpath);
                    directory(&path, owner)?;
                }
                link(&path, &place)?;
            }
            MountSource::Anonymous | MountSource::Tmpfs { .. } => directory(&place, owner)?,
        }
    }
    for file in spec.configs.iter().chain(&spec.secrets) {
        if let Some(place) = below(&file.target) {
            write(&work.join(place), file, owner)?;
        }
    }
    Ok(())
}

/// The directory of a named volume: the deployment's own, or the host's where the file names it for all.
fn volume(
    home: &Home,
    tag: &Tag,
    spec: &ContainerSpec,
    name: &str,
    owner: Option<&ProcessUser>,
) -> io::Result<PathBuf> {
    let declared = spec.volumes.get(name);
    let is_external = declared.is_some_and(|volume| volume.external);
    let named = declared.and_then(|volume| volume.name.as_deref());
    let path = match named {
        Some(named) => home.shared_volumes().join(named),
        None if is_external => home.shared_volumes().join(name),
        None => home.volumes(tag.deployment()).join(name),
    };
    if is_external && !path.is_dir() {
        let text = format!(
            "volume {name} is external and not there; create {} or drop external",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    directory(&path, owner)?;
    Ok(path)
}

/// Who comes first owns it; what is there already keeps its owner.
fn directory(path: &Path, owner: Option<&ProcessUser>) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_traversable(parent)?;
    }
    fs::create_dir_all(path)?;
    owned(path, owner)
}

fn owned(path: &Path, owner: Option<&ProcessUser>) -> io::Result<()> {
    owner.map_or(Ok(()), |who| chown(path, Some(who.uid), Some(who.gid)))
}

fn link(to: &Path, place: &Path) -> io::Result<()> {
    if let Some(parent) = place.parent() {
        make_traversable(parent)?;
    }
    if fs::read_link(place).is_ok_and(|present| present == to) {
        return Ok(());
    }
    absent_is_fine(fs::remove_file(place))?;
    symlink(to, place)
}

/// Never readable by others, not even for a moment: it may be a secret.
fn write(place: &Path, file: &FileMount, owner: Option<&ProcessUser>) -> io::Result<()> {
    let FileContent::Inline(content) = &file.content else { return Ok(()) };
    if let Some(parent) = place.parent() {
        make_traversable(parent)?;
    }
    absent_is_fine(fs::remove_file(place))?;
    let mut open = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(place)?;
    open.write_all(content)?;
    if rustix::process::geteuid().is_root() {
        let id = |text: &Option<String>| text.as_ref().and_then(|text| text.parse::<u32>().ok());
        let uid = id(&file.uid).or(owner.map(|who| who.uid));
        let gid = id(&file.gid).or(owner.map(|who| who.gid));
        chown(place, uid, gid)?;
    }
    open.set_permissions(fs::Permissions::from_mode(file.mode.unwrap_or(0o444)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use plimsoll_model::spec::{Mount, VolumeSpec};
    use plimsoll_model::testkit::replica_id;
    use plimsoll_model::{CellId, Generation};

    use super::*;

    fn mount(source: MountSource, target: &str) -> Mount {
        Mount { source, target: target.into(), read_only: false, consistency: None }
    }

    #[test]
    fn a_working_directory_leads_to_everything_that_is_mounted() {
        let root = tempfile::tempdir().unwrap();
        let home = Home(root.path().join("cell"));
        let work = root.path().join("work");
        let cell_id = CellId::new("test").unwrap();
        let tag = Tag { cell_id, replica: replica_id("shop/web/1"), generation: Generation(1) };
        let data = MountSource::Volume { name: "data".into(), subpath: None, nocopy: false };
        let bind = MountSource::Bind {
            path: root.path().join("made").display().to_string(),
            propagation: None,
            create_host_path: true,
            selinux: None,
        };
        let mut spec = ContainerSpec {
            mounts: vec![
                mount(data, "/var/lib/data"),
                mount(bind, "/made"),
                mount(MountSource::Anonymous, "/scratch"),
            ],
            secrets: vec![FileMount {
                name: "key".into(),
                target: "/run/secrets/key".into(),
                content: FileContent::Inline(b"s3cret".to_vec()),
                uid: None,
                gid: None,
                mode: Some(0o400),
            }],
            ..ContainerSpec::default()
        };
        for round in ["the first time", "and again"] {
            workdir(&home, &work, &tag, &spec, None).unwrap();
            let secret = fs::read(work.join("run/secrets/key")).unwrap();
            assert_eq!(secret, b"s3cret", "{round}");
            let volume = home.0.join("volumes/shop/data");
            assert_eq!(fs::read_link(work.join("var/lib/data")).unwrap(), volume, "{round}");
            assert!(work.join("scratch").is_dir() && work.join("made").is_dir(), "{round}");
        }
        let external = VolumeSpec { external: true, ..VolumeSpec::default() };
        spec.volumes = BTreeMap::from([("data".into(), external)]);
        let error = workdir(&home, &work, &tag, &spec, None).unwrap_err().to_string();
        assert!(error.starts_with("volume data is external and not there; create "), "{error}");
    }
}
