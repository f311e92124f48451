//! `plimsoll backup`: the whole state of a cell in one file.

use std::path::{Path, PathBuf};

use plimsoll_api::client::Client;
use plimsoll_daemon::node::store_dir;
use plimsoll_files::modes;
use plimsoll_store::backup::{self, Label};
use serde::Serialize;

use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{Format, note, print};
use crate::unlock::UnlockArgs;

const EXAMPLES: &str = "\
Examples:
  plimsoll backup cell.backup                                    of the running cell
  plimsoll backup cell.backup --data-dir /var/lib/plimsoll       of a daemon that is stopped
  plimsoll cell backup-key > backup.key                          the key that opens it
  plimsoll restore cell.backup --key-file backup.key --data-dir /var/lib/plimsoll.new

It holds what is deployed and where, with all secrets, and not what is in volumes. It is encrypted with the backup key of the
cell: keep that key somewhere else, since without it the backup cannot be restored.";

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
    /// The backup key that opens it.
    key: String,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let file = &args.file;
    if file.exists() {
        let message = format!("{} exists already", file.display());
        return Err(CliError::refused(message).hint("name another file, or move that one away"));
    }
    let label = match &args.data_dir {
        Some(dir) if !store_dir(dir).is_dir() => {
            let message = format!("{} is no data directory of plimsoll", dir.display());
            return Err(
                CliError::refused(message).hint("name the one `plimsoll up` was started with")
            );
        }
        Some(dir) => {
            let unlock = args.unlock.key()?;
            let taken = backup::take_stopped(&store_dir(dir), file, unlock.as_ref());
            taken.and_then(|_| backup::verify(file)).map_err(|error| trouble(&error))?
        }
        None => {
            let client = args.host.client()?;
            live::block_on(from_daemon(&client, file))?
        }
    };
    print(args.output, &facts(file, &label), |facts| {
        let BackupFacts { file, bytes, cell, applied, .. } = facts;
        let file = file.display();
        format!("{file} holds cell {cell} as of entry {applied}: {bytes} bytes, checked\n")
    })?;
    note(&format!(
        "hint: it opens with backup key {}, which `plimsoll cell backup-key` prints; keep that elsewhere",
        label.key
    ));
    Ok(())
}

pub(super) fn facts(file: &Path, label: &Label) -> BackupFacts {
    let summary = &label.summary;
    BackupFacts {
        file: file.to_owned(),
        bytes: std::fs::metadata(file).map_or(0, |it| it.len()),
        cell: summary.cell_id.to_string(),
        applied: summary.applied,
        term: summary.term.0,
        key: label.key.to_string(),
    }
}

/// A file is only there under its name once it is whole, checked and on the disk.
pub(super) async fn from_daemon(client: &Client, file: &Path) -> Result<Label, CliError> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = file.with_file_name(name);
    let label = copied(client, &part).await;
    let label = label.and_then(|label| {
        let renamed = plimsoll_files::replace(&part, file);
        renamed.map(|()| label).map_err(|error| unwritable(file, &error))
    });
    if label.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    label
}

async fn copied(client: &Client, part: &Path) -> Result<Label, CliError> {
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
        backup::Error::Locked { .. } => CliError::refused(text).hint(
            "give the key with --key-file FILE; `plimsoll cell backup-key` prints that of a running cell, and with --data-dir that of \
             a stopped server",
        ),
        backup::Error::Changed { .. } => {
            CliError::refused(text).hint("use another copy of the backup; nothing was restored")
        }
        backup::Error::NoKey => CliError::refused(text),
        backup::Error::Io { .. } | backup::Error::Store(_) | backup::Error::Refused(_) => {
            CliError::failed(text)
        }
    }
}
