//! `plimsoll doctor`: whether a node can run, or runs, as it should. Facts are gathered in [`gather`] and judged in [`judge`].

use std::net::SocketAddr;
use std::path::PathBuf;

use owo_colors::OwoColorize;
use serde::Serialize;

use crate::default_paths::Who;
use crate::error::{CliError, FAILED};
use crate::live::{self, HostArgs};
use crate::output::{Format, print};
use crate::table::Table;
use crate::terminal::Target;

mod facts;
mod gather;
pub(crate) mod judge;

use judge::{CheckResult, Finding};

const EXAMPLES: &str = "\
Examples:
  plimsoll doctor                                 before `plimsoll up`, or beside it, as the daemon's user
  plimsoll doctor --data-dir ./node               of a node with a data directory of its own
  plimsoll doctor --bind 0.0.0.0:80               and whether it could serve routes there
  plimsoll doctor -o json

It exits with 2 if a check fails. Warnings are no failure.";

/// Check engine, ports, disk, clocks, peers and certificates of this node.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) node: NodeArgs,
    /// Check as well that this address can be bound; repeatable
    #[arg(long = "bind", value_name = "ADDRESS:PORT")]
    binds: Vec<SocketAddr>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

/// Where the node is that is looked at.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct NodeArgs {
    /// Data directory [default: /var/lib/plimsoll as root, else ~/.local/share/plimsoll]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Docker Engine socket [default: the usual paths of Docker and Podman]
    #[arg(long, value_name = "PATH")]
    docker_socket: Option<PathBuf>,
}

impl NodeArgs {
    fn data_dir(&self) -> PathBuf {
        self.data_dir.clone().unwrap_or_else(|| Who::of_process().data_dir())
    }

    /// The socket of a node with a data directory of its own is in it.
    pub(crate) fn host(&self, host: &HostArgs) -> HostArgs {
        let beside = self.data_dir.as_ref().map(|dir| dir.join("plimsoll.sock"));
        host.or_socket(beside.filter(|path| path.exists()))
    }
}

/// What was found, and whether it will do.
#[derive(Debug, Serialize)]
pub(crate) struct Diagnosis {
    pub(crate) version: &'static str,
    /// The worst of all findings.
    pub(crate) result: CheckResult,
    pub(crate) findings: Vec<Finding>,
}

impl Diagnosis {
    /// Of this host, and of the daemon on it if there is one.
    pub(crate) async fn make(
        node: &NodeArgs,
        host: &HostArgs,
        binds: &[SocketAddr],
    ) -> Result<Self, CliError> {
        let client = node.host(host).client()?;
        let facts = gather::facts(&client, node, binds).await;
        let findings = judge::findings(&facts);
        let result = findings.iter().map(|it| it.result).max().unwrap_or(CheckResult::Ok);
        Ok(Self { version: plimsoll_model::level::VERSION, result, findings })
    }

    fn text(&self, width: Option<usize>) -> String {
        let mut table = Table::new(["RESULT", "CHECK", "FOUND"]);
        for Finding { check, result, found, advice } in &self.findings {
            let word = result.word();
            let word = match result {
                CheckResult::Ok => word.green().to_string(),
                CheckResult::Warn => word.yellow().to_string(),
                CheckResult::Fail => word.red().to_string(),
            };
            table.row([word, (*check).to_owned(), found.clone()]);
            if let Some(advice) = advice {
                table.row([String::new(), String::new(), format!("→ {advice}")]);
            }
        }
        table.within(width)
    }
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let diagnosis = live::block_on(Diagnosis::make(&args.node, &args.host, &args.binds))?;
    let width = Target::Stdout.size().map(|(width, _)| width);
    print(args.output, &diagnosis, |it| it.text(width))?;
    match diagnosis.result {
        CheckResult::Ok | CheckResult::Warn => Ok(()),
        CheckResult::Fail => Err(CliError::passed_on(FAILED)),
    }
}
