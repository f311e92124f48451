//! Starting a service: everything is laid out on disk, then a supervisor is started and asked how it went.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use plimsoll_files::modes;
use rustix::process::geteuid;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::launch::Launch;
use super::paths::{RunDir, make_passage, write_json};
use super::reader::blocking;
use super::stop::settled;
use super::supervisor::StartReport;
use super::watch::ExitWatch;
use super::workdir::workdir;
use super::{ProcessInner, RunLookup, refusal, users};
use crate::error::{Error, Operation, Reason, Result};
use crate::runtime::{RuntimeEvent, StartRequest, Tag};

/// How long a supervisor may take to start its service. Only a disk or network file system that hangs takes longer.
const START_WAIT: Duration = Duration::from_secs(30);

impl ProcessInner {
    pub(super) async fn start(&self, order: StartRequest) -> Result<()> {
        let tag = order.tag.clone();
        let turn = self.turn(tag.generation);
        let _turn = turn.lock().await;
        let run = match self.own(Operation::Start, &tag)? {
            RunLookup::Here(run) | RunLookup::Free(run) => run,
            RunLookup::Held(other) => {
                let text = format!("its generation is in use by {other}; remove that first");
                return Err(failed(&tag)(io::Error::other(text)));
            }
        };
        if settled(&run).await.map_err(failed(&tag))?.is_some() {
            return Ok(());
        }
        let reasons = refusal::reasons(&order.spec, Path::new("/etc"), geteuid().is_root());
        if !reasons.is_empty() {
            return Err(Error::Refused { tag, reasons });
        }

        let (home, cgroups, settings) =
            (self.home.clone(), self.cgroups.clone(), self.settings.clone());
        let place = run.clone();
        let launch = blocking(move || {
            let spec = &order.spec;
            let owner = users::credentials(Path::new("/etc"), spec, geteuid().is_root())
                .map_err(refused)?;
            make_passage(&place.0)?;
            workdir(&home, &place.work(), &order.tag, spec, owner.as_ref())?;
            let joined = cgroups.make(&order.tag.generation.to_string(), spec);
            let (log, words) = (settings.log, &settings.supervisor);
            let launch = Launch::new(&order, &place.work(), owner, joined, log, words);
            let launch = launch.map_err(refused)?;
            write_json(&place.launch(), &launch)?;
            Ok(launch)
        });
        let launch = launch.await.map_err(failed(&tag))?;
        self.supervise(run, &launch).await
    }

    async fn supervise(&self, run: RunDir, launch: &Launch) -> Result<()> {
        let tag = &launch.tag;
        let mut child = spawn(&run, launch).map_err(failed(tag))?;
        let mut text = Vec::new();
        let mut stdout = child.stdout.take().expect("its output was asked for");
        let heard = timeout(START_WAIT, stdout.read_to_end(&mut text)).await;
        let report = match heard {
            Ok(Ok(_)) => serde_json::from_slice(&text).ok(),
            Ok(Err(_)) => None,
            Err(_) => {
                // It dies with everything below it, so nothing half-started is left.
                let _ = child.start_kill();
                Some(StartReport::Failed(format!("no answer within {} s", START_WAIT.as_secs())))
            }
        };
        match report {
            Some(StartReport::Started) => {
                self.bus.tell(RuntimeEvent::Started { tag: tag.clone() });
                self.watch(run, tag.clone(), ExitWatch::Child(Box::new(child)));
                Ok(())
            }
            Some(StartReport::Taken) => {
                let _ = child.wait().await;
                self.join(run, tag).await
            }
            Some(StartReport::Failed(text)) => {
                let _ = child.wait().await;
                Err(failed(tag)(io::Error::other(text)))
            }
            None => {
                let _ = child.wait().await;
                let complaint = std::fs::read_to_string(run.complaints()).unwrap_or_default();
                let text = format!("its supervisor exited without a report; {}", complaint.trim());
                Err(failed(tag)(io::Error::other(text)))
            }
        }
    }
}

impl ProcessInner {
    /// A supervisor that an earlier daemon started in its last moment was faster. What it runs is what was asked for.
    async fn join(&self, run: RunDir, tag: &Tag) -> Result<()> {
        let Some(record) = settled(&run).await.map_err(failed(tag))? else {
            let text = "another supervisor tried to start it and failed";
            return Err(failed(tag)(io::Error::other(text)));
        };
        let watch = ExitWatch::on(&record.supervisor).map_err(failed(tag))?;
        self.bus.tell(RuntimeEvent::Started { tag: tag.clone() });
        self.watch(run, tag.clone(), watch);
        Ok(())
    }
}

fn spawn(run: &RunDir, launch: &Launch) -> io::Result<Child> {
    let (program, words) = launch.supervisor.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    Command::new(program)
        .args(words)
        .arg("run")
        .arg(&run.0)
        .arg(&launch.ticket)
        .arg0("plimsoll")
        // Nothing of the daemon's environment is a service's business.
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(plimsoll_files::create(&run.complaints(), modes::FILE)?)
        .spawn()
}

fn failed(tag: &Tag) -> impl Fn(io::Error) -> Error {
    let tag = tag.clone();
    move |error| Error::failed(Operation::Start, &tag, error)
}

/// Looked at before; only a change of the host's users in between leads here.
fn refused(reason: Reason) -> io::Error {
    io::Error::other(reason)
}
