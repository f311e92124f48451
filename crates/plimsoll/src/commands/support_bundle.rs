//! `plimsoll support-bundle`: one file for whoever is asked for help. It has what the API tells a reader, which leaves secrets out, and
//! not one file of the data directory; what looks like a token or key in any of it is blotted out all the same.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::Method;
use plimsoll_api::client::Client;
use plimsoll_api::view::{AuditQuery, PressureQuery};
use plimsoll_files::modes;
use plimsoll_model::audit::MAX_AUDIT;
use serde::Serialize;
use tokio::time::timeout;

use super::doctor::{Diagnosis, NodeArgs};
use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{count, data, note};
use crate::wait::now;

mod blot;
mod tar;

use blot::blotted;
use tar::Tar;

/// How much of a log is taken, from its end.
const MAX_LOG: usize = 16 << 20;

/// The lines of the journal: about a day of a busy leader.
const JOURNAL_LINES: &str = "50000";

/// The most of an answer that is passed on unread.
const MAX_TEXT: usize = 16 << 20;

/// How long one question may take: a cell that is in trouble is what a bundle is made of.
const PATIENCE: Duration = Duration::from_secs(20);

const README: &str = "\
What `plimsoll support-bundle` collected on one node of a cell.

  versions.json      of plimsoll, of the nodes, and of this host
  doctor.json        what `plimsoll doctor` found
  state/             what the API tells: status, cell, nodes, levels, audit, rescheduling, routes, certificates, volumes, the snapshot
                     that decisions are made on, and the revisions of deployments; no values of variables, configs or secrets
  metrics.txt        /metrics of the node
  logs/              of the daemon, as far as they were found; what services print is not collected
  missing.txt        what could not be collected, and why

Tokens and keys of plimsoll are replaced by [blotted]. Look through it before you give it away.
";

const EXAMPLES: &str = "\
Examples:
  plimsoll support-bundle                                  plimsoll-support-NODE-TIME.tar.gz in this directory
  plimsoll support-bundle -f bundle.tar.gz
  plimsoll support-bundle --log /var/log/plimsoll.log      for a daemon whose log is not in the journal

It has no secrets of the cell, no values of variables and nothing that services print.";

/// Collect logs, state, metrics and versions into one file.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// File to write, which must not be there yet
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Log file of the daemon, in addition to the journal; repeatable
    #[arg(long = "log", value_name = "FILE")]
    logs: Vec<PathBuf>,
    #[command(flatten)]
    node: NodeArgs,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let client = args.node.host(&args.host).client()?;
    let bundle = live::block_on(async {
        let mut bundle = Bundle::default();
        Box::pin(bundle.state(&client)).await;
        match Diagnosis::make(&args.node, &args.host, &[]).await {
            Ok(diagnosis) => bundle.json("doctor.json", &diagnosis),
            Err(error) => bundle.lacks("doctor.json", &error.first_line()),
        }
        Ok(bundle)
    });
    let mut bundle = bundle?;
    bundle.journal();
    for path in &args.logs {
        bundle.log_file(path);
    }
    let time = plimsoll_api::view::Time(now()).to_string();
    let stem = format!("plimsoll-support-{}-{}", bundle.node(), time.get(..19).unwrap_or(&time));
    let stem = stem.replace(':', "");
    let file = args.file.clone().unwrap_or_else(|| PathBuf::from(format!("{stem}.tar.gz")));
    let missing = bundle.missing.len();
    let bytes = bundle.packed(&stem, now().0 / 1_000)?;
    write(&file, &bytes)?;
    if missing > 0 {
        note(&format!("{} not collected: see missing.txt in it", count(missing, "part")));
    }
    data(&format!("{}\n", file.display()))
}

/// For its owner alone, and over nobody's file.
fn write(file: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let failed = |error: std::io::Error| {
        CliError::refused(format!("cannot write {}: {error}", file.display()))
            .hint("name another with -f")
    };
    let mut options = std::fs::OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(modes::FILE).open(file);
    opened.and_then(|mut opened| opened.write_all(bytes)).map_err(failed)
}

/// What was collected so far.
#[derive(Debug, Default)]
struct Bundle {
    parts: Vec<(String, Vec<u8>)>,
    missing: Vec<(String, String)>,
    node: Option<String>,
}

impl Bundle {
    fn node(&self) -> &str {
        self.node.as_deref().unwrap_or("node")
    }

    /// Everything passes through here: nothing gets in that was not looked at.
    fn add(&mut self, name: &str, bytes: &[u8]) {
        self.parts.push((name.to_owned(), blotted(&String::from_utf8_lossy(bytes)).into_bytes()));
    }

    fn lacks(&mut self, name: &str, why: &str) {
        self.missing.push((name.to_owned(), blotted(why)));
    }

    fn json(&mut self, name: &str, value: &impl Serialize) {
        match serde_json::to_vec_pretty(value) {
            Ok(bytes) => self.add(name, &bytes),
            Err(error) => self.lacks(name, &error.to_string()),
        }
    }

    async fn ask<T: Serialize>(
        &mut self,
        name: &str,
        asked: Pin<Box<impl Future<Output = plimsoll_api::client::Result<T>>>>,
    ) -> Option<T> {
        match timeout(PATIENCE, asked).await {
            Ok(Ok(value)) => {
                self.json(name, &value);
                return Some(value);
            }
            Ok(Err(error)) => self.lacks(name, &CliError::from(error).first_line()),
            Err(_) => self.lacks(name, "it took too long"),
        }
        None
    }

    async fn state(&mut self, client: &Client) {
        let ready = self.ask("state/ready.json", Box::pin(client.ready(true))).await;
        self.node = ready.map(|ready| ready.health.node);
        let status = self.ask("state/status.json", Box::pin(client.status())).await;
        let nodes = status.iter().flat_map(|status| &status.nodes);
        let versions = Versions {
            plimsoll: plimsoll_model::level::VERSION,
            host: host(),
            nodes: nodes.map(|node| (node.name.clone(), node.version.clone())).collect(),
        };
        self.json("versions.json", &versions);
        self.ask("state/cell.json", Box::pin(client.cell())).await;
        self.ask("state/nodes.json", Box::pin(client.nodes())).await;
        let levels = PressureQuery { history: true, ..PressureQuery::default() };
        self.ask("state/pressure.json", Box::pin(client.pressure(&levels))).await;
        let limit = u32::try_from(MAX_AUDIT).ok();
        let events = AuditQuery { limit, ..AuditQuery::default() };
        self.ask("state/audit.json", Box::pin(client.audit(&events))).await;
        self.ask("state/reschedule.json", Box::pin(client.rescheduling())).await;
        self.ask("state/routes.json", Box::pin(client.routes())).await;
        self.ask("state/certificates.json", Box::pin(client.certificates())).await;
        self.ask("state/volumes.json", Box::pin(client.volumes())).await;
        self.ask("state/snapshot.json", Box::pin(client.snapshot())).await;
        for deployment in status.iter().flat_map(|status| &status.deployments) {
            let name = format!("state/deployments/{}.json", deployment.name);
            self.ask(&name, Box::pin(client.revision(&deployment.name, deployment.revision))).await;
        }
        match timeout(PATIENCE, text(client, "/metrics")).await {
            Ok(Ok(page)) => self.add("metrics.txt", &page),
            Ok(Err(why)) => self.lacks("metrics.txt", &why),
            Err(_) => self.lacks("metrics.txt", "it took too long"),
        }
    }

    fn journal(&mut self) {
        const NAME: &str = "logs/journal.log";
        let args = ["-u", "plimsoll", "-n", JOURNAL_LINES, "--no-pager", "-o", "short-iso"];
        match Command::new("journalctl").args(args).output() {
            Ok(said) if said.status.success() => self.add(NAME, end_of(&said.stdout)),
            Ok(said) => self.lacks(NAME, String::from_utf8_lossy(&said.stderr).trim()),
            Err(error) => self.lacks(NAME, &format!("journalctl: {error}")),
        }
    }

    fn log_file(&mut self, path: &Path) {
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = format!("logs/{}", file.unwrap_or_else(|| "log".to_owned()));
        match std::fs::read(path) {
            Ok(bytes) => self.add(&name, end_of(&bytes)),
            Err(error) => self.lacks(&name, &format!("{}: {error}", path.display())),
        }
    }

    fn packed(mut self, stem: &str, seconds: u64) -> Result<Vec<u8>, CliError> {
        let lines = self.missing.iter().map(|(name, why)| format!("{name}: {why}\n"));
        let missing: String = lines.collect();
        self.parts.insert(0, ("README.txt".to_owned(), README.as_bytes().to_vec()));
        self.parts.push(("missing.txt".to_owned(), missing.into_bytes()));
        let mut tar = Tar::new(GzEncoder::new(Vec::new(), Compression::default()), seconds);
        for (name, bytes) in &self.parts {
            tar.add(&format!("{stem}/{name}"), bytes).map_err(|error| unpacked(&error))?;
        }
        let packed = tar.finish().and_then(GzEncoder::finish);
        packed.map_err(|error| unpacked(&error))
    }
}

fn unpacked(error: &std::io::Error) -> CliError {
    CliError::failed(format!("cannot pack the bundle: {error}"))
}

#[derive(Debug, Serialize)]
struct Versions {
    plimsoll: &'static str,
    host: Host,
    nodes: std::collections::BTreeMap<String, Option<String>>,
}

#[derive(Debug, Serialize)]
struct Host {
    system: String,
    kernel: String,
    machine: String,
    cpus: usize,
}

fn host() -> Host {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    Host {
        system: pretty.unwrap_or("unknown").trim_matches('"').to_owned(),
        kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")
            .unwrap_or_default()
            .trim()
            .to_owned(),
        machine: std::env::consts::ARCH.to_owned(),
        cpus: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
    }
}

/// A page that is not JSON, as it is.
async fn text(client: &Client, path: &str) -> Result<Vec<u8>, String> {
    let said = |error: plimsoll_api::client::Error| CliError::from(error).first_line();
    let mut answer =
        client.pass(Method::GET, path, "text/plain", Vec::new()).await.map_err(said)?;
    if answer.status != 200 {
        return Err(format!("answered with status {}", answer.status));
    }
    let mut text = Vec::new();
    while let Some(piece) = answer.piece().await.map_err(said)? {
        text.extend_from_slice(&piece);
        if text.len() > MAX_TEXT {
            return Err(format!("is longer than {MAX_TEXT} bytes"));
        }
    }
    Ok(text)
}

/// Its last lines, where there are more than are taken.
fn end_of(bytes: &[u8]) -> &[u8] {
    let tail = &bytes[bytes.len().saturating_sub(MAX_LOG)..];
    if tail.len() == bytes.len() {
        return tail;
    }
    // Not the rest of a line: what it began with may have been what a token is known by.
    let first = tail.iter().position(|byte| *byte == b'\n').map_or(tail.len(), |at| at + 1);
    &tail[first..]
}
