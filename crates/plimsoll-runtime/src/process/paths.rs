//! Where the process runtime keeps things. One directory a generation: generations are counted once for the whole
//! cell, so their number alone tells any two apart.
//!
//! ```text
//! <data dir>/<cell>/replicas/g17/   launch.json  what to run, and how to stop it
//!                                      record.json  who runs it: process ids and their start times
//!                                      exit.json    how it ended
//!                                      lock         held by its supervisor, for as long as that lives
//!                                      log/         what it printed
//!                                      work/        its working directory
//! <data dir>/<cell>/volumes/<deployment>/<volume>/
//! ```
//!
//! Its secrets lie in memory, and links in its working directory lead to them.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use plimsoll_files::modes::{self, Mended, Reach};
use plimsoll_model::{DeploymentName, Generation};
use rustix::process::geteuid;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::memory_dir::MemoryDir;
use crate::runtime::VolumeRef;

/// Where volumes live that the compose file names for the whole host. No deployment's name begins with a dot.
const SHARED: &str = ".shared";

/// The directory of one cell on this node.
#[derive(Debug, Clone)]
pub(super) struct Home(pub(super) PathBuf);

impl Home {
    pub(super) fn replicas(&self) -> PathBuf {
        self.0.join("replicas")
    }

    pub(super) fn run(&self, generation: Generation) -> RunDir {
        RunDir(self.replicas().join(generation.to_string()))
    }

    /// Every generation that has a directory, in order.
    pub(super) fn runs(&self) -> io::Result<Vec<RunDir>> {
        let mut generations = Vec::new();
        for entry in fs::read_dir(self.replicas())? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix('g')?.parse().ok());
            generations.extend(number.map(Generation));
        }
        generations.sort_unstable();
        Ok(generations.into_iter().map(|generation| self.run(generation)).collect())
    }

    /// Where the secrets of its services lie.
    pub(super) fn secrets(&self) -> MemoryDir {
        MemoryDir::of(&self.0)
    }

    pub(super) fn volumes(&self, deployment: &DeploymentName) -> PathBuf {
        self.0.join("volumes").join(deployment.as_str())
    }

    /// Where a volume lies: the deployment's own under its own name, others with those that the host shares.
    pub(super) fn volume(&self, volume: &VolumeRef) -> io::Result<PathBuf> {
        let (dir, name) = match volume.key() {
            Some(key) => (self.volumes(&volume.deployment), key),
            None => (self.shared_volumes(), volume.name.as_str()),
        };
        // No service was ever started with a name that leads elsewhere.
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
            let text = format!("{name:?} is not a valid volume name");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(dir.join(name))
    }

    pub(super) fn shared_volumes(&self) -> PathBuf {
        self.0.join("volumes").join(SHARED)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunDir(pub(super) PathBuf);

impl RunDir {
    pub(super) fn launch(&self) -> PathBuf {
        self.0.join("launch.json")
    }

    pub(super) fn record(&self) -> PathBuf {
        self.0.join("record.json")
    }

    pub(super) fn exit(&self) -> PathBuf {
        self.0.join("exit.json")
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// What the supervisor itself had to complain about.
    pub(super) fn complaints(&self) -> PathBuf {
        self.0.join("supervisor.log")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    pub(super) fn work(&self) -> PathBuf {
        self.0.join("work")
    }
}

/// Makes a directory that services pass through to their own, and sees that it is one if it is there. A daemon of root has
/// services of other users, who must get through without seeing what else is in it; any other has only its own.
pub(super) fn make_passage(path: &Path) -> io::Result<()> {
    let wanted = if geteuid().is_root() { modes::PASSAGE } else { modes::DIR };
    plimsoll_files::create_dir(path, wanted)?;
    if fs::symlink_metadata(path)?.permissions().mode() & 0o777 == wanted {
        return Ok(());
    }
    fs::set_permissions(path, PermissionsExt::from_mode(wanted))
}

/// The mode in which earlier releases left the directories of services.
const OPEN: u32 = 0o755;

/// Closes to other users what an earlier release left open, and opens the way to services of other users. What services made
/// themselves stays as they made it.
pub(super) fn mend(home: &Home) -> io::Result<Mended> {
    let mut mended = Mended::default();
    make_passage(home.0.parent().unwrap_or(&home.0))?;
    make_passage(&home.0)?;
    make_passage(&home.replicas())?;
    for run in home.runs()? {
        make_passage(&run.0)?;
        for path in
            [run.launch(), run.record(), run.exit(), run.lock(), run.complaints(), run.log()]
        {
            mended.add(modes::narrow(&path, modes::DIR, Reach::Tree)?);
        }
        mended.add(close_if_open(&run.work())?);
    }
    for deployment in directories(&home.0.join("volumes"))? {
        make_passage(&deployment)?;
        for volume in directories(&deployment)? {
            mended.add(close_if_open(&volume)?);
        }
    }
    Ok(mended)
}

/// A service may have opened its directory for others on purpose, in another way than we did.
fn close_if_open(path: &Path) -> io::Result<Mended> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Mended::default()),
        found => found?,
    };
    if found.permissions().mode() & 0o777 != OPEN {
        return Ok(Mended::default());
    }
    modes::narrow(path, modes::DIR, Reach::Itself)
}

/// The directories in one; none where there is none.
fn directories(path: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Writes a value as one: who reads it finds the old text or the new one. For our own eyes, since a launch holds the
/// service's environment.
pub(super) fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    plimsoll_files::write(path, &serde_json::to_vec(value)?, modes::FILE)
}

/// None where there is no such file.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| {
            let text = format!("{} is not readable: {error}", path.display());
            io::Error::new(io::ErrorKind::InvalidData, text)
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Nothing to remove is as good as removed.
pub(super) fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
