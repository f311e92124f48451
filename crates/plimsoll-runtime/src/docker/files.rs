//! Configs and secrets as files on this node, mounted read-only into one container each.
//!
//! They lie below a directory that only we can enter, are written anew at every start, and go with the container.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use plimsoll_model::spec::{FileContent, FileMount};
use plimsoll_model::{ContainerSpec, Generation};

use super::engine_error::EngineError;

/// What a file may be by default: all in the container read it, as with Compose.
const MODE: u32 = 0o444;

/// The files of all containers of a cell on this node.
#[derive(Debug, Clone)]
pub(super) struct ContainerFiles(pub(super) PathBuf);

impl ContainerFiles {
    pub(super) fn of(&self, generation: Generation) -> PathBuf {
        self.0.join(generation.to_string())
    }

    /// Writes what the spec carries. A spec without files leaves nothing behind.
    pub(super) fn write(
        &self,
        generation: Generation,
        spec: &ContainerSpec,
    ) -> Result<(), EngineError> {
        let dir = self.of(generation);
        if spec.configs.is_empty() && spec.secrets.is_empty() {
            return Ok(());
        }
        let failed = |name: &str| {
            let name = name.to_owned();
            move |source| EngineError::File { name, source }
        };
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(&dir).map_err(failed(&dir.display().to_string()))?;
        for (file, path) in placed(spec, &dir) {
            write(&path, file).map_err(failed(&file.name))?;
        }
        Ok(())
    }

    /// Best effort: what cannot be removed now is found by the next daemon.
    pub(super) fn remove(&self, generation: Generation) {
        let _ = fs::remove_dir_all(self.of(generation));
    }

    /// Those that have files here.
    pub(super) fn generations(&self) -> Vec<Generation> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let number = |name: OsString| name.to_str()?.strip_prefix('g')?.parse().ok();
        entries.filter_map(|entry| number(entry.file_name())).map(Generation).collect()
    }
}

/// Each file and where it lies. Names may be anything, so files are numbered.
pub(super) fn placed<'a>(
    spec: &'a ContainerSpec,
    dir: &'a Path,
) -> impl Iterator<Item = (&'a FileMount, PathBuf)> + 'a {
    let files = spec.configs.iter().chain(&spec.secrets).enumerate();
    files.map(move |(number, file)| (file, dir.join(number.to_string())))
}

/// Never readable by others, not even for a moment.
fn write(path: &Path, file: &FileMount) -> io::Result<()> {
    let FileContent::Inline(content) = &file.content else { return Ok(()) };
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut open = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    open.write_all(content)?;
    let id = |text: &Option<String>| text.as_ref().and_then(|text| text.parse::<u32>().ok());
    if rustix::process::geteuid().is_root() {
        chown(path, Some(id(&file.uid).unwrap_or(0)), Some(id(&file.gid).unwrap_or(0)))?;
    }
    open.set_permissions(fs::Permissions::from_mode(file.mode.unwrap_or(MODE)))
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
    fn files_are_written_anew_and_go_with_their_container() {
        let root = tempfile::tempdir().unwrap();
        let files = ContainerFiles(root.path().join("files"));
        for content in [b"first".as_slice(), b"2nd"] {
            let secrets = vec![file(content, Some(0o400)), file(content, None)];
            let spec = ContainerSpec { secrets, ..ContainerSpec::default() };
            files.write(Generation(1), &spec).unwrap();
            let dir = files.of(Generation(1));
            for (name, mode) in [("0", 0o400), ("1", 0o444)] {
                assert_eq!(fs::read(dir.join(name)).unwrap(), content);
                let permissions = fs::metadata(dir.join(name)).unwrap().permissions();
                assert_eq!(permissions.mode() & 0o777, mode);
            }
            assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
            files.write(Generation(2), &spec).unwrap();
        }
        files.remove(Generation(1));
        files.write(Generation(3), &ContainerSpec::default()).unwrap();
        assert_eq!(files.generations(), [Generation(2)]);
    }
}
