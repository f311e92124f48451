//! Where secrets lie while something runs with them: in memory, below a directory that is ours. A disk that is taken out or
//! copied has none of them, and after a reboot they are gone until the cell hands them out again.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use plimsoll_files::modes;
use plimsoll_model::Generation;
use rustix::process::geteuid;

/// The file systems that live in memory, as `statfs` numbers them.
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;

/// Where a host has one for its daemons, and one for everybody.
const SYSTEM: &str = "/run";
const SHARED: &str = "/dev/shm";

/// What is made there.
const OURS: &str = "plimsoll-secrets";

/// The longest name that is made of a path. Longer ones keep their end, which tells more of them apart.
const MAX_NAME: usize = 200;

/// The secrets of one runtime: a directory in memory that belongs to its directory on disk.
#[derive(Debug, Clone)]
pub(crate) struct MemoryDir {
    /// None where no such file system is mounted.
    top: Option<PathBuf>,
    name: String,
}

impl MemoryDir {
    /// For what keeps its other files in this directory. Nothing is made yet.
    pub(crate) fn of(home: &Path) -> Self {
        let home = std::path::absolute(home).unwrap_or_else(|_| home.to_owned());
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty());
        let own = if geteuid().is_root() {
            Some(PathBuf::from(SYSTEM))
        } else {
            runtime.map(PathBuf::from).filter(|path| path.is_absolute())
        };
        let own = own.filter(|base| is_in_memory(base)).map(|base| base.join(OURS));
        // Others write there as well, so each user's has a name of its own.
        let shared = || {
            let base = Path::new(SHARED);
            let ours = || base.join(format!("{OURS}-{}", geteuid().as_raw()));
            is_in_memory(base).then(ours)
        };
        Self { top: own.or_else(shared), name: escaped(&home) }
    }

    /// The directory of a generation, whether it is there or not.
    pub(crate) fn generation(&self, generation: Generation) -> io::Result<PathBuf> {
        let top = self.top.as_ref().ok_or_else(|| {
            let text = format!(
                "neither {SYSTEM} nor {SHARED} is a tmpfs, and secrets are kept in memory only; mount one: mount -t tmpfs \
                 tmpfs {SHARED}"
            );
            io::Error::new(io::ErrorKind::Unsupported, text)
        })?;
        Ok(top.join(&self.name).join(generation.to_string()))
    }

    /// Makes the directory of a generation. Others may pass on the way to it where services run as other users.
    pub(crate) fn make(&self, generation: Generation, has_passage: bool) -> io::Result<PathBuf> {
        let dir = self.generation(generation)?;
        let mode = if has_passage { modes::PASSAGE } else { modes::DIR };
        for above in dir.ancestors().skip(1).take(2).collect::<Vec<_>>().into_iter().rev() {
            plimsoll_files::create_dir(above, mode)?;
            check(above)?;
            if has_passage && fs::symlink_metadata(above)?.mode() & 0o777 != mode {
                fs::set_permissions(above, PermissionsExt::from_mode(mode))?;
            }
        }
        plimsoll_files::create_dir(&dir, modes::DIR)?;
        Ok(dir)
    }

    /// Best effort: what cannot be removed now is found by the next daemon, or gone with the next boot.
    pub(crate) fn remove(&self, generation: Generation) {
        if let Ok(dir) = self.generation(generation) {
            let _ = fs::remove_dir_all(dir);
        }
    }

    /// Those that have secrets here.
    pub(crate) fn generations(&self) -> Vec<Generation> {
        let home = self.top.as_ref().map(|top| top.join(&self.name));
        home.map(|home| generations_in(&home)).unwrap_or_default()
    }
}

/// The generations that have a directory in this one.
pub(crate) fn generations_in(dir: &Path) -> Vec<Generation> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let number = |name: OsString| name.to_str()?.strip_prefix('g')?.parse().ok();
    entries.filter_map(|entry| number(entry.file_name())).map(Generation).collect()
}

fn is_in_memory(path: &Path) -> bool {
    let kind = rustix::fs::statfs(path).ok().and_then(|found| u64::try_from(found.f_type).ok());
    matches!(kind, Some(TMPFS | RAMFS))
}

/// Whoever made it first where everybody may would read what is put into it.
fn check(dir: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(dir)?;
    if found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    let text = format!("{} is not a directory of this user alone; remove it", dir.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// A path as one name: equal for equal paths only, but for very long ones.
fn escaped(path: &Path) -> String {
    let mut name = String::new();
    for byte in path.as_os_str().as_encoded_bytes().iter().skip_while(|byte| **byte == b'/') {
        match byte {
            b'/' => name.push('-'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' => name.push(char::from(*byte)),
            other => name.extend(['%', digit(other >> 4), digit(other & 0xf)]),
        }
    }
    let from = name.len().saturating_sub(MAX_NAME);
    name.split_off(from)
}

fn digit(half: u8) -> char {
    char::from_digit(half.into(), 16).unwrap_or('0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_name_and_another_path_another() {
        for (path, name) in [
            ("/var/lib/plimsoll/docker", "var-lib-plimsoll-docker"),
            ("/var/lib-plimsoll", "var-lib%2dplimsoll"),
            ("/tmp/a b", "tmp-a%20b"),
        ] {
            assert_eq!(escaped(Path::new(path)), name);
        }
        assert_eq!(escaped(Path::new(&"/long".repeat(100))).len(), MAX_NAME);
    }

    #[test]
    fn what_is_made_is_in_memory_and_for_its_owner_alone() {
        let home = tempfile::tempdir().unwrap();
        let memory = MemoryDir::of(home.path());
        let dir = memory.make(Generation(3), false).unwrap();
        assert!(is_in_memory(&dir), "{}", dir.display());
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);
        assert_eq!(memory.generations(), [Generation(3)]);
        memory.remove(Generation(3));
        assert!(memory.generations().is_empty());
        fs::remove_dir(dir.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_host_without_memory_for_it_is_told_so() {
        let memory = MemoryDir { top: None, name: String::new() };
        let error = memory.make(Generation(1), false).unwrap_err();
        assert!(error.to_string().contains("is a tmpfs, and secrets are kept in memory only"));
    }

    #[test]
    fn a_directory_that_somebody_else_could_have_made_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let open = top.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).unwrap();
        let memory = MemoryDir { top: Some(open), name: "x".to_owned() };
        let error = memory.make(Generation(1), false).unwrap_err().to_string();
        assert!(error.ends_with("is not a directory of this user alone; remove it"), "{error}");
    }
}
