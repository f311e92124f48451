//! Configs and secrets as files on this node, mounted read-only into one container each: configs from disk, secrets from
//! memory.
//!
//! They lie below directories that only we can enter, are written anew at every start, and go with the container.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use plimsoll_model::spec::{FileContent, FileMount};
use plimsoll_model::{ContainerSpec, Generation};
use rustix::process::geteuid;

use super::engine_error::EngineError;
use crate::memory_dir::{MemoryDir, generations_in};

/// What a file may be by default: all in the container read it, as with Compose.
const MODE: u32 = 0o444;

/// What a secret may be where the user is known by number: theirs alone. A name means something to the image only.
const SECRET_MODE: u32 = 0o400;

/// The files of all containers of a cell on this node.
#[derive(Debug, Clone)]
pub(super) struct ContainerFiles {
    configs: PathBuf,
    secrets: MemoryDir,
}

/// Where the files of one container lie.
#[derive(Debug, Clone)]
pub(super) struct FileDirs {
    pub(super) configs: PathBuf,
    pub(super) secrets: PathBuf,
}

/// What a file is where the compose file does not say.
#[derive(Debug, Clone, Copy)]
struct Defaults {
    uid: u32,
    gid: u32,
    mode: u32,
}

impl ContainerFiles {
    /// Below the directory of a cell.
    pub(super) fn new(home: &Path) -> Self {
        Self { configs: home.join("files"), secrets: MemoryDir::of(home) }
    }

    pub(super) fn of(&self, generation: Generation) -> Result<FileDirs, EngineError> {
        let secrets = self.secrets.generation(generation);
        Ok(FileDirs {
            configs: self.configs.join(generation.to_string()),
            secrets: secrets.map_err(failed("secrets"))?,
        })
    }

    /// Writes what the spec carries. A spec without files leaves nothing behind.
    pub(super) fn write(
        &self,
        generation: Generation,
        spec: &ContainerSpec,
    ) -> Result<FileDirs, EngineError> {
        if spec.secrets.is_empty() {
            // Who has none needs no memory for them.
            let configs = self.configs.join(generation.to_string());
            let dirs = FileDirs { configs, secrets: PathBuf::new() };
            return write_configs(&dirs, spec).map(|()| dirs);
        }
        let dirs = self.of(generation)?;
        self.secrets.make(generation, false).map_err(failed("secrets"))?;
        let defaults = of_secrets(spec.user.as_deref(), geteuid().is_root());
        for (file, path) in numbered(&spec.secrets, &dirs.secrets) {
            write(&path, file, defaults).map_err(failed(&file.name))?;
        }
        write_configs(&dirs, spec).map(|()| dirs)
    }

    /// Best effort: what cannot be removed now is found by the next daemon.
    pub(super) fn remove(&self, generation: Generation) {
        let _ = fs::remove_dir_all(self.configs.join(generation.to_string()));
        self.secrets.remove(generation);
    }

    /// Those that have files here.
    pub(super) fn generations(&self) -> Vec<Generation> {
        let mut all = generations_in(&self.configs);
        all.extend(self.secrets.generations());
        all.sort_unstable();
        all.dedup();
        all
    }
}

fn write_configs(dirs: &FileDirs, spec: &ContainerSpec) -> Result<(), EngineError> {
    if spec.configs.is_empty() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    let dir = &dirs.configs;
    builder.create(dir).map_err(failed(&dir.display().to_string()))?;
    for (file, path) in numbered(&spec.configs, dir) {
        let defaults = Defaults { uid: 0, gid: 0, mode: MODE };
        write(&path, file, defaults).map_err(failed(&file.name))?;
    }
    Ok(())
}

/// Each file and where it lies.
pub(super) fn placed<'a>(
    spec: &'a ContainerSpec,
    dirs: &'a FileDirs,
) -> impl Iterator<Item = (&'a FileMount, PathBuf)> + 'a {
    numbered(&spec.configs, &dirs.configs).chain(numbered(&spec.secrets, &dirs.secrets))
}

/// Names may be anything, so files are numbered.
fn numbered<'a>(
    files: &'a [FileMount],
    dir: &'a Path,
) -> impl Iterator<Item = (&'a FileMount, PathBuf)> + 'a {
    files.iter().enumerate().map(move |(number, file)| (file, dir.join(number.to_string())))
}

/// A secret is its service's user's alone, where we know who that is and can give it to them.
fn of_secrets(user: Option<&str>, is_root: bool) -> Defaults {
    let (uid, gid) = user.map_or((None, None), |user| match user.split_once(':') {
        Some((uid, gid)) => (uid.parse::<u32>().ok(), gid.parse::<u32>().ok()),
        None => (user.parse::<u32>().ok(), None),
    });
    match uid.filter(|_| is_root) {
        Some(uid) => Defaults { uid, gid: gid.unwrap_or(0), mode: SECRET_MODE },
        None => Defaults { uid: 0, gid: 0, mode: MODE },
    }
}

/// Never readable by others, not even for a moment.
fn write(path: &Path, file: &FileMount, defaults: Defaults) -> io::Result<()> {
    let FileContent::Inline(content) = &file.content else {
        return Err(io::Error::new(io::ErrorKind::NotFound, "its content did not come with it"));
    };
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut open = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    open.write_all(content)?;
    let id = |text: &Option<String>| text.as_ref().and_then(|text| text.parse::<u32>().ok());
    if geteuid().is_root() {
        let (uid, gid) = (id(&file.uid), id(&file.gid));
        chown(path, Some(uid.unwrap_or(defaults.uid)), Some(gid.unwrap_or(defaults.gid)))?;
    }
    // Whose number is given in the file, Compose lets everybody read.
    let mode = if file.uid.is_some() { MODE } else { defaults.mode };
    open.set_permissions(fs::Permissions::from_mode(file.mode.unwrap_or(mode)))
}

fn failed(name: &str) -> impl Fn(io::Error) -> EngineError + use<> {
    let name = name.to_owned();
    move |source| EngineError::File { name: name.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &[u8], mode: Option<u32>) -> FileMount {
        FileMount {
            name: "key".into(),
            target: "/run/secrets/key".into(),
            content: FileContent::Inline(content.to_vec()),
            uid: None,
            gid: None,
            mode,
        }
    }

    #[test]
    fn files_are_written_anew_and_go_with_their_container_and_no_secret_touches_the_disk() {
        let root = tempfile::tempdir().unwrap();
        let files = ContainerFiles::new(root.path());
        for content in [b"first".as_slice(), b"2nd"] {
            let secrets = vec![file(content, Some(0o400)), file(content, None)];
            let spec = ContainerSpec {
                configs: vec![file(b"config", None)],
                secrets,
                ..ContainerSpec::default()
            };
            let dirs = files.write(Generation(1), &spec).unwrap();
            assert!(!dirs.secrets.starts_with(root.path()), "{}", dirs.secrets.display());
            assert!(dirs.configs.starts_with(root.path()), "{}", dirs.configs.display());
            for (name, mode) in [("0", 0o400), ("1", 0o444)] {
                assert_eq!(fs::read(dirs.secrets.join(name)).unwrap(), content);
                let permissions = fs::metadata(dirs.secrets.join(name)).unwrap().permissions();
                assert_eq!(permissions.mode() & 0o777, mode);
            }
            for dir in [&dirs.secrets, &dirs.configs] {
                assert_eq!(fs::metadata(dir).unwrap().permissions().mode() & 0o777, 0o700);
            }
            files.write(Generation(2), &spec).unwrap();
        }
        files.remove(Generation(1));
        files.write(Generation(3), &ContainerSpec::default()).unwrap();
        assert_eq!(files.generations(), [Generation(2)]);
        files.remove(Generation(2));
        assert_eq!(files.generations(), []);
        let mut lost = ContainerSpec { secrets: vec![file(b"", None)], ..ContainerSpec::default() };
        lost.secrets[0].content = FileContent::External("vault".into());
        assert!(files.write(Generation(4), &lost).is_err(), "nobody starts without its secret");
        files.remove(Generation(4));
        let secrets = files.of(Generation(4)).unwrap().secrets;
        fs::remove_dir(secrets.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_secret_is_for_the_user_of_its_service_where_that_is_a_number() {
        for (user, is_root, expected) in [
            (None, true, (0, 0, 0o444)),
            (Some("1000"), true, (1000, 0, 0o400)),
            (Some("1000:2000"), true, (1000, 2000, 0o400)),
            (Some("www-data"), true, (0, 0, 0o444)),
            (Some("1000"), false, (0, 0, 0o444)),
        ] {
            let Defaults { uid, gid, mode } = of_secrets(user, is_root);
            assert_eq!((uid, gid, mode), expected, "{user:?}");
        }
    }
}
