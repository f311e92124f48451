//! `plimsoll volume backup`: what is in a volume, in one file on this side.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use plimsoll_api::client::Client;
use plimsoll_api::view::{HoldPurpose, HoldVolume, VolumeSize};
use plimsoll_daemon::volume_backup::{BackupWriter, VolumeBackup, VolumeLabel};
use plimsoll_daemon::volume_stream::PieceReader;
use plimsoll_files::modes;
use plimsoll_model::NodeId;

use super::hold::Held;
use super::{VolumeName, find, size};
use crate::error::CliError;
use crate::live::HostArgs;
use crate::output::note;
use crate::wait::now;

const EXAMPLES: &str = "\
Examples:
  plimsoll volume backup shop_db -o db.volume
  plimsoll volume backup shop_db -o - | ssh vault 'cat > db.volume'
  plimsoll volume backup shop_db --live -o db.volume

What uses the volume is stopped while it is copied, and starts again where it was: what is in the file is what a clean stop has left.
With --live nothing is stopped. What is written meanwhile may be in the file, or half of it: good for files that are written once,
and not for a database.

The file is readable by its owner alone, and not encrypted.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    volume: VolumeName,
    /// File to write; - for stdout
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Stop nothing: what is written meanwhile may be torn
    #[arg(long)]
    live: bool,
    /// Node whose copy is read, where several have one
    #[arg(long)]
    node: Option<String>,
    #[command(flatten)]
    pub(super) host: HostArgs,
}

pub(super) async fn run(client: &Client, args: &BackupArgs) -> Result<(), CliError> {
    let found = find(client, &args.volume).await?;
    let to = Destination::open(&args.output)?;
    let purpose = if args.live { HoldPurpose::LiveBackup } else { HoldPurpose::Backup };
    let asked = HoldVolume { purpose, node: args.node.clone() };
    if args.live {
        note(&format!(
            "warning: what uses {} runs on: what it writes meanwhile may be torn in the backup",
            found.name
        ));
    }
    let sink = to.sink()?;
    let held = Held::begin(client, &found.deployment, &found.name, &asked).await?;
    let copied = held
        .during(async |held| {
            let label = VolumeLabel {
                volume: found.name.clone(),
                deployment: found.deployment.clone(),
                node: NodeId::new(&held.hold.node).map_err(|error| {
                    CliError::failed(format!("the daemon named a node that cannot be: {error}"))
                })?,
                taken_at: now(),
                is_live: args.live,
            };
            copy(client, held, label, sink).await
        })
        .await;
    let (held, writer) = copied?;
    // Only now it is certain that nothing ran with the volume in between: before, it is no backup.
    held.end().await?;
    let backup = finish(&to, writer)?;
    let VolumeBackup { totals, sha256, .. } = backup;
    let facts = size(Some(VolumeSize { files: totals.files, bytes: totals.bytes }));
    let node = &held.hold.node;
    note(&format!("{} on {node}: {facts}, SHA-256 {sha256}", found.name));
    Ok(())
}

type Sink = BufWriter<Box<dyn Write + Send>>;

async fn copy(
    client: &Client,
    held: &Held,
    label: VolumeLabel,
    sink: Sink,
) -> Result<BackupWriter<Sink>, CliError> {
    let (deployment, volume) = (label.deployment.clone(), label.volume.clone());
    let mut content = client.volume_content(&deployment, &volume, held.hold.order).await?;
    let (pieces, reader) = PieceReader::new();
    let copying = tokio::task::spawn_blocking(move || BackupWriter::copy(sink, label, reader));
    while let Some(piece) = content.piece().await? {
        // Who does not read any more says why.
        if pieces.send(Ok(piece)).await.is_err() {
            break;
        }
    }
    drop(pieces);
    let copied = copying.await.unwrap_or_else(|_| Err(io::Error::other("it broke off")));
    copied.map_err(|error| CliError::failed(format!("cannot back up {volume}: {error}")))
}

/// Where a backup goes. A file is there under its name once it is whole and on disk.
enum Destination {
    Stdout,
    File { path: PathBuf, part: PathBuf },
}

impl Destination {
    fn open(path: &Path) -> Result<Self, CliError> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        if path.exists() {
            let message = format!("{} exists already", path.display());
            return Err(CliError::refused(message).hint("name another file, or move that one away"));
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".part");
        Ok(Self::File { path: path.to_owned(), part: path.with_file_name(name) })
    }

    fn sink(&self) -> Result<Sink, CliError> {
        let to: Box<dyn Write + Send> = match self {
            Self::Stdout => Box::new(io::stdout()),
            Self::File { part, .. } => {
                let made = plimsoll_files::create(part, modes::FILE);
                Box::new(made.map_err(|error| unwritable(part, &error))?)
            }
        };
        Ok(BufWriter::new(to))
    }
}

/// Half a backup is nobody's.
impl Drop for Destination {
    fn drop(&mut self) {
        if let Self::File { part, .. } = self {
            let _ = std::fs::remove_file(part);
        }
    }
}

fn finish(to: &Destination, writer: BackupWriter<Sink>) -> Result<VolumeBackup, CliError> {
    let (_, backup) = writer.finish().map_err(|error| match to {
        Destination::Stdout => unwritable(Path::new("stdout"), &error),
        Destination::File { path, .. } => unwritable(path, &error),
    })?;
    if let Destination::File { path, part } = to {
        let synced = File::open(part).and_then(|file| file.sync_all());
        let placed = synced.and_then(|()| plimsoll_files::replace(part, path));
        placed.map_err(|error| unwritable(path, &error))?;
    }
    Ok(backup)
}

fn unwritable(file: &Path, error: &io::Error) -> CliError {
    CliError::failed(format!("cannot write {}: {error}", file.display()))
}
