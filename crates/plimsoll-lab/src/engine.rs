//! A Docker engine of its own, which a test may kill. `lab/engine` starts and ends it; it is gone when this is.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Error;

/// Where `lab/engine` keeps its things unless it is told otherwise.
const LAB: &str = "/var/tmp/plimsoll-lab";

/// What every engine's program is told besides.
const ARGS: &str = "PLIMSOLL_LAB_DOCKERD_ARGS";

#[derive(Debug)]
pub struct LabEngine {
    name: String,
    /// The file of a network namespace, in which it has its networks; none: one of its own that leads nowhere.
    network: Option<PathBuf>,
    /// What its program is told besides.
    args: Vec<String>,
}

impl LabEngine {
    /// Not started yet. The name is its own among all engines of this machine.
    pub fn new(name: impl Into<String>, network: Option<PathBuf>) -> Self {
        Self { name: name.into(), network, args: Vec::new() }
    }

    /// Its program is told this besides.
    #[must_use]
    pub fn with_args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.args = args.into_iter().map(Into::into).collect();
        self
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

    /// Ends it and all it runs as a power cut would. What is on its disk is kept for the next start.
    pub fn cut_power(&self) -> Result<(), Error> {
        self.lab("cut")
    }

    /// Gives it the images that `lab/software` made.
    pub fn load_software(&self) -> Result<(), Error> {
        let mut command = script("software");
        command.arg("load").arg(self.socket());
        self.run("load the software of", command)
    }

    fn lab(&self, verb: &'static str) -> Result<(), Error> {
        let network = self.network.as_ref().filter(|_| verb == "start");
        let mut command = script("engine");
        command.arg(verb).arg(&self.name).args(network);
        if !self.args.is_empty() {
            let told = std::env::var(ARGS).unwrap_or_default();
            command.env(ARGS, format!("{told} {}", self.args.join(" ")));
        }
        self.run(verb, command)
    }

    fn run(&self, verb: &'static str, mut command: Command) -> Result<(), Error> {
        let output = command.stdin(Stdio::null()).output();
        let failed = |said: String| Error::Engine { verb, name: self.name.clone(), said };
        let output = output.map_err(|error| failed(error.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }
}

fn script(name: &str) -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab").join(name))
}

impl Drop for LabEngine {
    fn drop(&mut self) {
        if let Err(error) = self.lab("stop") {
            eprintln!("{error}");
        }
    }
}
