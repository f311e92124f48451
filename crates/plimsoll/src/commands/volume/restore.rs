//! `plimsoll volume restore`: what is in a backup takes the place of what is in a volume.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use plimsoll_api::client::Client;
use plimsoll_api::view::{HoldPurpose, HoldVolume, Time, VolumeSize};
use plimsoll_daemon::volume_backup::{self, VolumeBackup};
use tokio::sync::mpsc;

use super::hold::Held;
use super::{VolumeName, size};
use crate::error::CliError;
use crate::live::HostArgs;
use crate::output::note;

/// How much is sent at once, and how many of these wait.
const PIECE: usize = 256 << 10;
const AHEAD: usize = 4;

const EXAMPLES: &str = "\
Examples:
  plimsoll volume restore shop_db -i db.volume
  plimsoll volume restore shop_db -i db.volume --node birch      where shop_db is nowhere yet
  ssh vault 'cat db.volume' | plimsoll volume restore shop_db -i -

What uses the volume is stopped, and starts again when the backup is in its place. The backup is written beside the volume, checked,
and takes its place in one step; what was in the volume is removed then. Whatever fails before, the volume is as it was.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    volume: VolumeName,
    /// File to read; - for stdin
    #[arg(short, long, value_name = "FILE")]
    input: PathBuf,
    /// Node whose copy is replaced, where several have one; where it is to be, where none has
    #[arg(long)]
    node: Option<String>,
    #[command(flatten)]
    pub(super) host: HostArgs,
}

pub(super) async fn run(client: &Client, args: &RestoreArgs) -> Result<(), CliError> {
    let is_stdin = args.input == Path::new("-");
    let checked = if is_stdin { None } else { Some(checked(&args.input).await?) };
    if let Some(VolumeBackup { label, totals, .. }) = &checked {
        let facts = size(Some(VolumeSize { files: totals.files, bytes: totals.bytes }));
        let (volume, at) = (&label.volume, Time(label.taken_at));
        let how = if label.is_live { ", while it was in use" } else { "" };
        note(&format!("backup of {volume} of {}, taken {at}{how}: {facts}", label.deployment));
    }
    let deployment = deployment(client, args, checked.as_ref()).await?;
    let asked = HoldVolume { purpose: HoldPurpose::Restore, node: args.node.clone() };
    let name = &args.volume.name;
    let from: Box<dyn Read + Send> =
        if is_stdin { Box::new(io::stdin()) } else { Box::new(opened(&args.input)?) };
    let held = Held::begin(client, &deployment, name, &asked).await?;
    if held.hold.is_new {
        note(&format!("{name} is nowhere yet: it goes to {}", held.hold.node));
    }
    let restored = held.during(async |held| send(client, held, &deployment, name, from).await);
    let (held, restored) = restored.await?;
    note(&format!("{name} on {} restored: {}", held.hold.node, size(Some(restored))));
    Ok(())
}

/// A file is looked at from end to end before anything is stopped.
async fn checked(path: &Path) -> Result<VolumeBackup, CliError> {
    let file = opened(path)?;
    let checking = tokio::task::spawn_blocking(move || volume_backup::check(BufReader::new(file)));
    let checked = checking.await.unwrap_or_else(|_| Err(io::Error::other("it broke off")));
    checked.map_err(|error| {
        CliError::refused(format!("{}: {error}", path.display()))
            .hint("use another copy of the backup; nothing was stopped or restored")
    })
}

fn opened(path: &Path) -> Result<File, CliError> {
    let unreadable = |error| CliError::refused(format!("cannot read {}: {error}", path.display()));
    File::open(path).map_err(unreadable)
}

/// Whose the volume is, or will be.
async fn deployment(
    client: &Client,
    args: &RestoreArgs,
    backup: Option<&VolumeBackup>,
) -> Result<String, CliError> {
    if let Some(named) = &args.volume.deployment {
        return Ok(named.clone());
    }
    let name = &args.volume.name;
    let all = client.volumes().await?;
    let mut known: Vec<&str> =
        all.iter().filter(|it| it.name == *name).map(|it| it.deployment.as_str()).collect();
    let of_backup = || backup.map(|backup| backup.label.deployment.as_str());
    match (known.pop(), known.is_empty()) {
        (Some(only), true) => Ok(only.to_owned()),
        (None, _) if let Some(of_backup) = of_backup() => Ok(of_backup.to_owned()),
        (None, _) => Err(CliError::refused(format!("there is no volume {name}"))
            .hint("name the deployment that it is for with `--deployment`")),
        (Some(_), false) => Err(CliError::refused(format!("several deployments have {name}"))
            .hint("name one of them with `--deployment`")),
    }
}

async fn send(
    client: &Client,
    held: &Held,
    deployment: &str,
    volume: &str,
    mut from: Box<dyn Read + Send>,
) -> Result<VolumeSize, CliError> {
    let (pieces, queued) = mpsc::channel::<Bytes>(AHEAD);
    let (failed, mut failure) = mpsc::channel::<io::Error>(1);
    // A thread of its own: one that waits for stdin keeps nobody from ending.
    std::thread::spawn(move || {
        let mut piece = vec![0; PIECE];
        loop {
            match from.read(&mut piece) {
                Ok(0) => return,
                Ok(read) => {
                    let bytes = Bytes::copy_from_slice(&piece[..read]);
                    // Whoever does not take any more says why.
                    if pieces.blocking_send(bytes).is_err() {
                        return;
                    }
                }
                Err(error) => return drop(failed.try_send(error)),
            }
        }
    });
    match client.restore_volume(deployment, volume, held.hold.order, queued).await {
        Ok(restored) => Ok(restored),
        // What could not be read here arrived as half a backup, and was refused for that.
        Err(error) => Err(match failure.try_recv() {
            Ok(unread) => CliError::failed(format!("cannot read the backup: {unread}")),
            Err(_) => error.into(),
        }),
    }
}
