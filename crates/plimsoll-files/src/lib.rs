//! Replaces files atomically: after a crash at any moment, the old content or the new is there, whole. And keeps other users
//! of the host out of them, whatever the umask is: see [`modes`].
//!
//! A crate of its own, because what needs it shares no other: the runtime's supervisor, the names of services, a node's
//! identity, the daemon's own files and the command line. The store writes through its own `Disk`, so that tests can
//! tear its writes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub mod modes;
#[cfg(test)]
mod tests;

/// Writes a file beside its target, syncs it, and puts it in place with [`replace`]. The mode is that of a new file: the
/// umask can only take from it, and it is there before the content. On failure the target is as it was and nothing is left
/// beside it.
///
/// Two writers of one path at the same time must agree on who goes first: they share the temporary file.
pub fn write(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let temporary = beside(path);
    let written = write_new(&temporary, content, mode).and_then(|()| replace(&temporary, path));
    if written.is_err() {
        // Where it could not even be created, there is nothing to remove.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// A new, empty file, with this mode whatever the umask is. One of that name is emptied and gets the mode too.
pub fn create(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).mode(mode);
    let file = options.open(path)?;
    match file.set_permissions(fs::Permissions::from_mode(mode)) {
        // A backup may go to a disk whose file system has no modes.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        set => set?,
    }
    Ok(file)
}

/// Makes a directory, and what is missing above it, with this mode whatever the umask is. Returns once the names are safe.
/// What is there already stays as it is.
pub fn create_dir(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    if let Some(parent) = parent {
        create_dir(parent, mode)?;
    }
    // Closed to all until its mode is set.
    match fs::DirBuilder::new().mode(0o700).create(path) {
        // Somebody else came first.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {
            return Ok(());
        }
        created => created?,
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Renames what is finished and synced, a file or a directory, and returns once the name is safe too.
pub fn replace(finished: &Path, path: &Path) -> io::Result<()> {
    fs::rename(finished, path)?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

fn write_new(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    // One that a crash left behind may have another mode, which opening it would keep.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}
