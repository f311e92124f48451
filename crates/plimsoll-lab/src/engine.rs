//! A Docker engine of its own, which a test may kill. `lab/engine` starts and ends it; it is gone when this is.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Error;

/// Where `lab/engine` keeps its things unless it is told otherwise.
const LAB: &str = "/var/tmp/plimsoll-lab";

#[derive(Debug)]
pub struct LabEngine {
    name: String,
    /// The file of a network namespace, in which it has its networks; none: one of its own that leads nowhere.
    network: Option<PathBuf>,
}

impl LabEngine {
    /// Not started yet. The name is its own among all engines of this machine.
    pub fn new(name: impl Into<String>, network: Option<PathBuf>) -> Self {
        Self { name: name.into(), network }
    }

    /// Where it listens once it is started.
    pub fn socket(&self) -> PathBuf {
        self.dir().join("docker.sock")
    }

    /// Where it has a directory for each of its containers, by their ids.
    pub(crate) fn containers(&self) -> PathBuf {
        self.dir().join("data/containers")
    }

    fn dir(&self) -> PathBuf {
        let lab = std::env::var_os("PLIMSOLL_LAB").map_or_else(|| LAB.into(), PathBuf::from);
        lab.join(&self.name)
    }

    /// Starts it, with the images of the tests, and waits until it answers.
    pub fn start(&self) -> Result<(), Error> {
        self.lab("start")
    }

    /// Has the registries of the lab answer in its network too, under the same addresses and with the same images.
    pub fn serve_registries(&self) -> Result<(), Error> {
        self.lab("registries")
    }

    /// Ends it as a crash would. What it ran runs on, and its files are kept for the next start.
    pub fn kill(&self) -> Result<(), Error> {
        self.lab("kill")
    }

    /// Ends it as an init does, and its containers with it. Its files are kept for the next start.
    pub fn halt(&self) -> Result<(), Error> {
        self.lab("halt")
    }

    fn lab(&self, verb: &'static str) -> Result<(), Error> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/engine");
        let network = self.network.as_ref().filter(|_| verb == "start");
        let mut command = Command::new(script);
        let output = command.arg(verb).arg(&self.name).args(network).stdin(Stdio::null()).output();
        let failed = |said: String| Error::Engine { verb, name: self.name.clone(), said };
        let output = output.map_err(|error| failed(error.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }
}

impl Drop for LabEngine {
    fn drop(&mut self) {
        if let Err(error) = self.lab("stop") {
            eprintln!("{error}");
        }
    }
}
