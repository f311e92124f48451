//! Replaces files atomically: after a crash at any moment, the old content or the new is there, whole.
//!
//! A crate of its own, because what needs it shares no other: the runtime's supervisor, the names of services, a node's
//! identity, the daemon's own files and the command line. The store writes through its own `Disk`, so that tests can
//! tear its writes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

/// Writes a file beside its target, syncs it, and puts it in place with [`replace`]. The mode is that of a new file: the
/// umask can only take from it. On failure the target is as it was and nothing is left beside it.
///
/// Two writers of one path at the same time must agree on who goes first: they share the temporary file.
pub fn write(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let temporary = beside(path);
    let written = create(&temporary, content, mode).and_then(|()| replace(&temporary, path));
    if written.is_err() {
        // Where it could not even be created, there is nothing to remove.
        let _ = fs::remove_file(&temporary);
    }
    written
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

fn create(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    // One that a crash left behind may have another mode, which opening it would keep.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}
