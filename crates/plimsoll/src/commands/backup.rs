//! `plimsoll backup`: the whole state of a cell in one file.

use std::path::{Path, PathBuf};

use plimsoll_api::client::Client;
use plimsoll_daemon::node::store_dir;
use plimsoll_files::modes;
use plimsoll_store::backup::{self, Summary};
use serde::Serialize;

use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{Format, print};
use crate::unlock::UnlockArgs;

const EXAMPLES: &str = "\
Examples:
  plimsoll backup cell.backup                                    of the running cell
  plimsoll backup cell.backup --data-dir /var/lib/plimsoll       of a daemon that is stopped
  plimsoll restore cell.backup --data-dir /var/lib/plimsoll.new  and back

It holds what is deployed and where, not what is in volumes.";

/// Back up the state of the cell to a file.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// File to write
    file: PathBuf,
    /// Data directory of a stopped daemon, to back up without a running one
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    unlock: UnlockArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

/// What a backup is of.
#[derive(Debug, Serialize)]
pub(super) struct BackupFacts {
    file: PathBuf,
    bytes: u64,
    cell: String,
    applied: u64,
    term: u64,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let file = &args.file;
    if file.exists() {
        let message = format!("{} exists already", file.display());
        return Err(CliError::refused(message).hint("name another file, or move that one away"));
    }
    let summary = match &args.data_dir {
        Some(dir) if !store_dir(dir).is_dir() => {
            let message = format!("{} is no data directory of plimsoll", dir.display());
            return Err(
                CliError::refused(message).hint("name the one `plimsoll up` was started with")
            );
        }
        Some(dir) => {
            let unlock = args.unlock.key()?;
            let taken = backup::take_stopped(&store_dir(dir), file, unlock.as_ref());
            taken.map_err(|error| trouble(&error))?
        }
        None => {
            let client = args.host.client()?;
            live::block_on(from_daemon(&client, file))?
        }
    };
    print(args.output, &facts(file, &summary), |facts| {
        let BackupFacts { file, bytes, cell, applied, .. } = facts;
        let file = file.display();
        format!("{file} holds cell {cell} as of entry {applied}: {bytes} bytes, checked\n")
    })
}

pub(super) fn facts(file: &Path, summary: &Summary) -> BackupFacts {
    BackupFacts {
        file: file.to_owned(),
        bytes: std::fs::metadata(file).map_or(0, |it| it.len()),
        cell: summary.cell_id.to_string(),
        applied: summary.applied,
        term: summary.term.0,
    }
}

/// A file is only there under its name once it is whole, checked and on the disk.
pub(super) async fn from_daemon(client: &Client, file: &Path) -> Result<Summary, CliError> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = file.with_file_name(name);
    let summary = copied(client, &part).await;
    let summary = summary.and_then(|summary| {
        let renamed = plimsoll_files::replace(&part, file);
        renamed.map(|()| summary).map_err(|error| unwritable(file, &error))
    });
    if summary.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    summary
}

async fn copied(client: &Client, part: &Path) -> Result<Summary, CliError> {
    let unwritable = |error| unwritable(part, &error);
    let file = plimsoll_files::create(part, modes::FILE).map_err(unwritable)?;
    let mut to = tokio::fs::File::from_std(file);
    if let Err(error) = client.backup(&mut to).await {
        let is_away = error.code().is_none();
        let trouble = CliError::from(error);
        return Err(if is_away {
            trouble.hint("of a daemon that is stopped: `plimsoll backup FILE --data-dir DIR`")
        } else {
            trouble
        });
    }
    to.sync_all().await.map_err(unwritable)?;
    backup::verify(part).map_err(|error| trouble(&error))
}

fn unwritable(file: &Path, error: &std::io::Error) -> CliError {
    CliError::failed(format!("cannot write {}: {error}", file.display()))
}

/// The error and its causes, in a line.
pub(super) fn trouble(error: &backup::Error) -> CliError {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    match error {
        backup::Error::NotEmpty { .. } => {
            CliError::refused(text).hint("name a directory that is empty or not there yet")
        }
        backup::Error::File(_) => {
            CliError::refused(text).hint("name a file that `plimsoll backup` wrote")
        }
        backup::Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            CliError::refused(text).hint("check the path")
        }
        backup::Error::Io { .. } | backup::Error::Store(_) | backup::Error::Refused(_) => {
            CliError::failed(text)
        }
    }
}
