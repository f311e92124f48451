//! Lays out a service's working directory: a file for every config, and a link for every mount and secret, at its target
//! without the leading slash. `/data` in the spec is `data` for the service, and `$PLIMSOLL_FILES/data` from anywhere.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_files::modes;
use plimsoll_model::ContainerSpec;
use plimsoll_model::spec::{FileContent, FileMount, MountSource};
use rustix::fs::{Mode, OFlags};
use rustix::process::geteuid;

use super::beneath::{Beneath, Owner};
use super::paths::{Home, make_passage};
use super::refusal::below;
use super::users::ProcessUser;
use crate::runtime::Tag;

/// What a secret is to the service's own user, where the compose file does not say. Nobody else enters its directory.
const SECRET: u32 = 0o400;
const CONFIG: u32 = 0o444;

/// What a directory of the host is made with that a bind asks for, as Docker does.
const HOST_DIR: u32 = 0o755;

/// Makes what is missing and leaves what is there: a restart finds its files again.
pub(super) fn workdir(
    home: &Home,
    work: &Path,
    tag: &Tag,
    spec: &ContainerSpec,
    owner: Option<&ProcessUser>,
) -> io::Result<()> {
    let owner = Owner::of(owner);
    make_private(work, owner)?;
    let inside = Beneath::open(work)?;
    for mount in &spec.mounts {
        let Some(place) = below(&mount.target) else { continue };
        match &mount.source {
            MountSource::Bind { path, create_host_path, .. } => {
                let path = Path::new(path);
                if *create_host_path && !path.exists() {
                    plimsoll_files::create_dir(path, HOST_DIR)?;
                }
                inside.link(path, place)?;
            }
            MountSource::Volume { name, subpath, .. } => {
                let mut path = volume(home, tag, spec, name, owner)?;
                if let Some(subpath) = subpath {
                    // Services write in a volume, so the way into it is theirs to change.
                    Beneath::open(&path)?.make_dir(Path::new(subpath), owner)?;
                    path.push(subpath);
                }
                inside.link(&path, place)?;
            }
            MountSource::Anonymous | MountSource::Tmpfs { .. } => inside.make_dir(place, owner)?,
        }
    }
    for file in &spec.configs {
        if let Some(place) = below(&file.target) {
            write(&inside, place, file, CONFIG, owner)?;
        }
    }
    if spec.secrets.is_empty() {
        return Ok(());
    }
    let dir = home.secrets().make(tag.generation, geteuid().is_root())?;
    give(&dir, owner)?;
    let memory = Beneath::open(&dir)?;
    for (number, file) in spec.secrets.iter().enumerate() {
        let Some(place) = below(&file.target) else { continue };
        // Names may be anything, so files are numbered.
        let name = number.to_string();
        write(&memory, Path::new(&name), file, SECRET, owner)?;
        inside.link(&dir.join(name), place)?;
    }
    Ok(())
}

/// The directory of a named volume: the deployment's own, or the host's where the file names it for all.
fn volume(
    home: &Home,
    tag: &Tag,
    spec: &ContainerSpec,
    name: &str,
    owner: Owner,
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
    if let Some(dir) = path.parent() {
        make_passage(dir)?;
    }
    make_private(&path, owner)?;
    Ok(path)
}

/// An empty volume, for whoever is to own it.
pub(super) fn make_volume(path: &Path) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        make_passage(dir)?;
    }
    plimsoll_files::create_dir(path, modes::DIR)
}

/// A directory in one of ours, for its owner alone. Who comes first owns it; what is there already keeps its owner.
fn make_private(path: &Path, owner: Owner) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    plimsoll_files::create_dir(path, modes::DIR)?;
    give(path, owner)
}

fn give(dir: &Path, owner: Owner) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    owner.take(File::from(rustix::fs::open(dir, flags, Mode::empty())?))
}

fn write(
    inside: &Beneath,
    place: &Path,
    file: &FileMount,
    mode: u32,
    owner: Owner,
) -> io::Result<()> {
    let FileContent::Inline(content) = &file.content else {
        let text = format!("the content of {} did not come with it", file.name);
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    };
    let id = |text: &Option<String>| text.as_ref().and_then(|text| text.parse::<u32>().ok());
    let said = Owner { uid: id(&file.uid).or(owner.uid), gid: id(&file.gid).or(owner.gid) };
    // Only root gives files away; any other daemon runs its services as itself.
    let owner = if geteuid().is_root() { said } else { Owner::default() };
    inside.write(place, content, file.mode.unwrap_or(mode), owner)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

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
                mode: None,
            }],
            ..ContainerSpec::default()
        };
        for round in ["the first time", "and again"] {
            workdir(&home, &work, &tag, &spec, None).unwrap();
            let secret = fs::read(work.join("run/secrets/key")).unwrap();
            assert_eq!(secret, b"s3cret", "{round}");
            let lies = fs::read_link(work.join("run/secrets/key")).unwrap();
            assert!(!lies.starts_with(root.path()), "{round}: on disk at {}", lies.display());
            let volume = home.0.join("volumes/shop/data");
            assert_eq!(fs::read_link(work.join("var/lib/data")).unwrap(), volume, "{round}");
            let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode(work.join("run/secrets/key")), 0o400, "{round}");
            assert_eq!((mode(work.clone()), mode(volume)), (0o700, 0o700), "{round}");
            assert!(work.join("scratch").is_dir() && work.join("made").is_dir(), "{round}");
        }
        home.secrets().remove(tag.generation);
        let lay = home.secrets().generation(tag.generation).unwrap();
        fs::remove_dir(lay.parent().unwrap()).unwrap();
        let external = VolumeSpec { external: true, ..VolumeSpec::default() };
        spec.volumes = BTreeMap::from([("data".into(), external)]);
        let error = workdir(&home, &work, &tag, &spec, None).unwrap_err().to_string();
        assert!(error.starts_with("volume data is external and not there; create "), "{error}");
    }
}
