//! Work of ours in a directory that a service can write. The service may have put a symbolic link where a directory of ours
//! was, to have root write or give away a file elsewhere; so every name is taken from the directory above it, which is open,
//! and none is followed if it is a link. That is what `openat2` calls `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS`, a name at
//! a time, since missing directories are made on the way.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, Uid, fchmod, fchown, mkdirat, openat, readlinkat, symlinkat,
    unlinkat,
};
use rustix::io::Errno;

use super::users::ProcessUser;

/// What we make inside: the directory at the top keeps others out, and the service may open that to whom it likes.
const INSIDE: u32 = 0o755;

/// Who gets what is made; none: whoever makes it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Owner {
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
}

impl Owner {
    pub(super) fn of(user: Option<&ProcessUser>) -> Self {
        Self { uid: user.map(|who| who.uid), gid: user.map(|who| who.gid) }
    }

    /// By what is open, never by a path.
    pub(super) fn take(self, open: impl AsFd) -> io::Result<()> {
        if self.uid.is_none() && self.gid.is_none() {
            return Ok(());
        }
        Ok(fchown(open, self.uid.map(Uid::from_raw), self.gid.map(Gid::from_raw))?)
    }
}

/// A directory that is open, and whatever is below it.
#[derive(Debug)]
pub(super) struct Beneath {
    dir: OwnedFd,
    path: PathBuf,
}

impl Beneath {
    /// Its own path leads through directories that are ours alone.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { dir, path: path.to_owned() })
    }

    /// Makes a directory for its owner, and what is missing above it. What is there already keeps its owner.
    pub(super) fn make_dir(&self, below: &Path, owner: Owner) -> io::Result<()> {
        let (parent, name) = self.parent(below)?;
        self.step(&parent, name, below, owner).map(drop)
    }

    /// Puts a link in the place of whatever file is there.
    pub(super) fn link(&self, to: &Path, below: &Path) -> io::Result<()> {
        let (parent, name) = self.parent(below)?;
        let is_there = readlinkat(&parent, name, Vec::new())
            .is_ok_and(|present| OsStr::from_bytes(present.to_bytes()) == to);
        if is_there {
            return Ok(());
        }
        remove(&parent, name).map_err(|error| self.unusable(below, error))?;
        Ok(symlinkat(to, &parent, name)?)
    }

    /// Writes a file anew. It is never readable by others, not even for a moment: it may be a secret.
    pub(super) fn write(
        &self,
        below: &Path,
        content: &[u8],
        mode: u32,
        owner: Owner,
    ) -> io::Result<()> {
        let (parent, name) = self.parent(below)?;
        remove(&parent, name).map_err(|error| self.unusable(below, error))?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&parent, name, flags, Mode::from_raw_mode(0o600))?;
        let mut file = File::from(file);
        file.write_all(content)?;
        owner.take(&file)?;
        Ok(fchmod(&file, Mode::from_raw_mode(mode))?)
    }

    /// The directory that a name is in, made if it is missing, and the name.
    fn parent<'p>(&self, below: &'p Path) -> io::Result<(OwnedFd, &'p OsStr)> {
        let plain = below.components().all(|part| matches!(part, Component::Normal(_)));
        let Some(name) = below.file_name().filter(|_| plain) else {
            return Err(self.unusable(below, Errno::INVAL));
        };
        let mut dir = self.dir.try_clone()?;
        let mut so_far = PathBuf::new();
        for part in below.parent().into_iter().flat_map(Path::components) {
            so_far.push(part);
            dir = self.step(&dir, part.as_os_str(), &so_far, Owner::default())?;
        }
        Ok((dir, name))
    }

    /// One name further down.
    fn step(&self, dir: &OwnedFd, name: &OsStr, below: &Path, owner: Owner) -> io::Result<OwnedFd> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(dir, name, flags | OFlags::PATH, Mode::empty()) {
            Err(Errno::NOENT) => {}
            opened => return opened.map_err(|error| self.unusable(below, error)),
        }
        mkdirat(dir, name, Mode::from_raw_mode(0o700))
            .map_err(|error| self.unusable(below, error))?;
        let made = openat(dir, name, flags | OFlags::RDONLY, Mode::empty());
        let made = made.map_err(|error| self.unusable(below, error))?;
        owner.take(&made)?;
        fchmod(&made, Mode::from_raw_mode(INSIDE))?;
        Ok(made)
    }

    fn unusable(&self, below: &Path, error: Errno) -> io::Error {
        let path = self.path.join(below);
        let text = match error {
            Errno::LOOP | Errno::NOTDIR => format!(
                "{} is not a directory but a link or a file, which the service made; remove it there",
                path.display()
            ),
            _ => format!("cannot make {}: {error}", path.display()),
        };
        io::Error::new(io::Error::from(error).kind(), text)
    }
}

fn remove(dir: &OwnedFd, name: &OsStr) -> rustix::io::Result<()> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    #[test]
    fn no_link_of_a_service_leads_out_of_its_directory() {
        let root = tempfile::tempdir().unwrap();
        let (work, outside) = (root.path().join("work"), root.path().join("etc"));
        fs::create_dir(&work).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("passwd"), "root").unwrap();
        let inside = Beneath::open(&work).unwrap();
        symlink(&outside, work.join("run")).unwrap();
        symlink("../etc", work.join("up")).unwrap();
        symlink(outside.join("passwd"), work.join("key")).unwrap();
        for below in
            ["run/key", "run/deep/key", "up/key", "up/../key", "../etc/key", "/etc/key", ""]
        {
            let below = Path::new(below);
            inside.write(below, b"evil", 0o644, Owner::default()).unwrap_err();
            inside.link(Path::new("/evil"), below).unwrap_err();
            inside.make_dir(below, Owner::default()).unwrap_err();
        }
        inside.make_dir(Path::new("run"), Owner::default()).unwrap_err();
        inside.write(Path::new("key"), b"ours", 0o400, Owner::default()).unwrap();
        assert_eq!(fs::read(outside.join("passwd")).unwrap(), b"root", "the link is replaced");
        assert_eq!(fs::read(work.join("key")).unwrap(), b"ours");
        let names: Vec<_> =
            fs::read_dir(&outside).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(names, ["passwd"], "nothing was made outside");
        let error = inside.make_dir(Path::new("run/x"), Owner::default()).unwrap_err().to_string();
        assert!(error.ends_with("work/run is not a directory but a link or a file, which the service made; remove it there"), "{error}");
    }

    #[test]
    fn what_is_made_has_its_mode_and_owner_and_is_found_again() {
        let root = tempfile::tempdir().unwrap();
        let inside = Beneath::open(root.path()).unwrap();
        let is_root = rustix::process::geteuid().is_root();
        let owner =
            if is_root { Owner { uid: Some(65_534), gid: Some(65_533) } } else { Owner::default() };
        for _ in 0..2 {
            inside.make_dir(Path::new("a/b"), owner).unwrap();
            inside.write(Path::new("a/key"), b"secret", 0o400, owner).unwrap();
            inside.link(Path::new("/data"), Path::new("var/lib/data")).unwrap();
            let (dir, key) = (root.path().join("a/b"), root.path().join("a/key"));
            assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o400);
            assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o755);
            assert_eq!(
                fs::read_link(root.path().join("var/lib/data")).unwrap(),
                Path::new("/data")
            );
            if is_root {
                for path in [dir, key] {
                    let found = fs::metadata(path).unwrap();
                    assert_eq!((found.uid(), found.gid()), (65_534, 65_533));
                }
                assert_eq!(
                    fs::metadata(root.path().join("a")).unwrap().uid(),
                    0,
                    "only what was asked for"
                );
            }
        }
    }
}
