//! `plimsoll exec`: runs a command beside a replica, and ends as it does.

use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plimsoll_api::view::{Exec, Replica, Status};
use plimsoll_model::Millis;

use crate::age::length;
use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{note, written};
use crate::replica_line::ReplicaLine;
use crate::subject;

const EXAMPLES: &str = "\
Examples:
  plimsoll exec shop-web-2 -- cat /etc/hostname
  plimsoll exec shop/web -- env                       in the first of its replicas that runs
  plimsoll exec shop-db-1 --timeout 5m -- sh -c 'pg_dump shop | wc -c'

The exit code is that of the command. It has no terminal and no input; its output is printed when it ends.";

/// Run a command in a replica.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A replica (shop-web-2), or a service (shop/web)
    #[arg(value_name = "REPLICA|SERVICE")]
    subject: String,
    /// Time limit, such as 90s or 10m
    #[arg(long, value_name = "LENGTH", value_parser = length)]
    timeout: Option<Millis>,
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let client = args.host.client()?;
    let executed = live::block_on(async {
        let status = client.status().await?;
        let replica = running(&status, &args.subject)?;
        let exec = Exec {
            command: args.command.clone(),
            timeout_seconds: args.timeout.map(|length| length.0.div_ceil(1_000)),
        };
        Ok(client.exec(&replica.id, &exec).await?)
    })?;
    let bytes = |text: &str| {
        let unreadable = |_| CliError::failed("the daemon sent output that cannot be read");
        STANDARD.decode(text).map_err(unreadable)
    };
    // As it was printed: it may be anything.
    written(std::io::stderr().lock().write_all(&bytes(&executed.stderr)?))?;
    let mut out = std::io::stdout().lock();
    written(out.write_all(&bytes(&executed.stdout)?).and_then(|()| out.flush()))?;
    if executed.is_cut {
        note("note: it printed more than is kept; the rest is cut off");
    }
    match executed.status {
        Some(0) => Ok(()),
        Some(code) => Err(CliError::passed_on(u8::try_from(code & 0xff).unwrap_or(u8::MAX))),
        None => Err(CliError::failed("it took too long and was killed")
            .hint("give it longer with `--timeout`")),
    }
}

/// The replica meant; of several, the first that runs.
fn running<'s>(status: &'s Status, text: &str) -> Result<&'s Replica, CliError> {
    let subject = subject::find(status, text)?;
    let is_running = |replica: &&&Replica| ReplicaLine::of(replica).state == "running";
    let replicas = subject.replicas();
    // One that was named is asked however it is: it may have been running a moment ago.
    let found = replicas.iter().find(is_running).or(match replicas.as_slice() {
        [one] => Some(one),
        _ => None,
    });
    found.copied().ok_or_else(|| {
        let name = subject.name();
        CliError::refused(format!("no replica of {name} runs"))
            .hint(format!("`plimsoll status {}` says why", subject.deployment().name))
    })
}
