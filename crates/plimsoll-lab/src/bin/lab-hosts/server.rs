//! The process that holds the hosts and does what it is asked.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_lab::{Host, Lab, LinkRule};

use crate::SOCKET;

struct LabServer {
    lab: Lab,
    /// Where engines are, each in a directory of its own.
    dir: PathBuf,
    /// The script that starts engines, where hosts have them.
    engine: Option<PathBuf>,
}

/// Until somebody asks for the end.
pub(crate) fn serve(dir: &Path, count: usize, engine: Option<PathBuf>) -> io::Result<()> {
    let socket = &dir.join(SOCKET);
    let _ = fs::remove_file(socket);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = u64::from(since.subsec_nanos());
    let lab = Lab::new(count, seed).map_err(io::Error::other)?;
    let server = LabServer { lab, dir: dir.to_owned(), engine };
    for host in server.lab.hosts() {
        server.start_engine(host).map_err(io::Error::other)?;
    }
    for stream in UnixListener::bind(socket)?.incoming() {
        // One at a time: whoever asks has hosts changed in the order they ask.
        if server.answer(stream?).unwrap_or(false) {
            break;
        }
    }
    fs::remove_file(socket)
}

impl LabServer {
    /// Whether that was the end.
    fn answer(&self, mut stream: UnixStream) -> io::Result<bool> {
        let mut asked = String::new();
        stream.read_to_string(&mut asked)?;
        let words: Vec<&str> = asked.lines().collect();
        let said = self.done(&words).unwrap_or_else(|error| format!("error {error}\n"));
        stream.write_all(said.as_bytes())?;
        Ok(words == ["down"])
    }

    fn done(&self, words: &[&str]) -> Result<String, String> {
        let find = |name: &str| self.lab.find(name).map_err(|error| error.to_string());
        let pair = |a: &str, b: &str| match (find(a)?, find(b)?) {
            (a, b) if a == b => Err("a host has no link to itself".to_owned()),
            pair => Ok(pair),
        };
        let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
        match words {
            ["list"] => return Ok(self.list()),
            ["enter", host] => return self.enter(self.lab.host(find(host)?)),
            ["down"] => {
                let stop = |host| self.run_engine("stop", host, None);
                self.lab.hosts().iter().try_for_each(stop)?;
            }
            ["isolate", host] => self.lab.isolate(find(host)?),
            ["cut", a, b] => pair(a, b).map(|(a, b)| self.lab.cut(a, b))?,
            ["cut-one-way", a, b] => pair(a, b).map(|(a, b)| self.lab.cut_one_way(a, b))?,
            ["heal", a, b] => pair(a, b).map(|(a, b)| self.lab.heal(a, b))?,
            ["heal-all"] => self.lab.heal_all(),
            ["delay", a, b, micros] => {
                let by = Duration::from_micros(number(micros)?);
                pair(a, b).map(|(a, b)| self.lab.delay(a, b, by))?;
            }
            ["loss", a, b, percent] => {
                let percent = u8::try_from(number(percent)?).unwrap_or(100);
                pair(a, b).map(|(a, b)| self.lab.lose(a, b, percent))?;
            }
            ["kill", host] => {
                let host = self.lab.host(find(host)?);
                self.run_engine("kill", host, None)?;
                host.switch_off();
            }
            ["start", host] => {
                let host = self.lab.host(find(host)?);
                host.switch_on().map_err(|error| error.to_string())?;
                self.start_engine(host)?;
            }
            other => return Err(format!("unknown request {other:?}")),
        }
        Ok(String::new())
    }

    fn list(&self) -> String {
        let mut text = self.lab.to_string();
        let hosts = self.lab.hosts();
        for (from, a) in hosts.iter().enumerate() {
            for (to, b) in hosts.iter().enumerate() {
                let rule = self.lab.rule(from, to);
                if rule != LinkRule::default() {
                    let _ = writeln!(text, "{} to {}: {rule}", a.name(), b.name());
                }
            }
        }
        text
    }

    /// Where its namespaces are, and what its processes find in their environment.
    fn enter(&self, host: &Host) -> Result<String, String> {
        let off = || format!("{0} is switched off; `lab/hosts start {0}`", host.name());
        let namespaces = host.namespaces().ok_or_else(off)?;
        let mut text = format!("{}\n", namespaces.display());
        if self.engine.is_some() {
            let socket = self.dir.join(engine_name(host)).join("docker.sock");
            let _ = writeln!(text, "DOCKER_HOST=unix://{}", socket.display());
        }
        Ok(text)
    }

    fn start_engine(&self, host: &Host) -> Result<(), String> {
        let namespaces = host.namespaces().map(|namespaces| namespaces.join("net"));
        self.run_engine("start", host, namespaces.as_deref())
    }

    fn run_engine(&self, what: &str, host: &Host, network: Option<&Path>) -> Result<(), String> {
        let Some(engine) = &self.engine else { return Ok(()) };
        let mut command = Command::new(engine);
        command.arg(what).arg(engine_name(host)).args(network).env("PLIMSOLL_LAB", &self.dir);
        let failed =
            |error: &dyn std::fmt::Display| format!("cannot {what} {}: {error}", host.name());
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
        let status = status.map_err(|error| failed(&error))?;
        if status.success() { Ok(()) } else { Err(failed(&status)) }
    }
}

fn engine_name(host: &Host) -> String {
    format!("host-{}", host.name())
}
