//! Puts what is in a backup in the place of a volume. It is written beside the volume first, checked to the last byte, and on disk;
//! then the two directories change places in one step of the file system. Whenever this is cut short, the volume is the old one or
//! the new one, whole.
//!
//! The step is the agent's to take, who also starts containers: it takes it while the hold stands and nothing here is to run with
//! the volume. A note on disk says where something was written beside a volume; the next daemon clears it away.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::Body;
use plimsoll_api::view::{Problem, ProblemCode};
use plimsoll_model::Generation;
use plimsoll_model::volume_holds::HoldPurpose;
use plimsoll_runtime::{Runtime, VolumeRef, chain};
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::context::NodeContext;
use crate::volume_archive::VolumeTotals;
use crate::volume_backup;
use crate::volume_copy::{ASK_AGAIN, AskedContent, CopyNotes};
use crate::volume_door::{SwapRefusal, VolumeDoor, VolumeSwap};
use crate::volume_orders::HeldVolume;
use crate::volume_stream::{self, PieceReader, feed};

/// How long this node may take to hear of a hold that the leader knows of.
pub(crate) const UNTOLD: Duration = Duration::from_secs(10);

/// Whether this node was told of the hold, and of this volume.
pub(crate) fn admitted<'d>(
    door: &'d VolumeDoor,
    asked: &AskedContent,
    is_restore: bool,
) -> Option<&'d HeldVolume> {
    let held = door.holds.get(&asked.order)?;
    let is_same = held.deployment == asked.volume.deployment && held.volume == asked.volume.name;
    let is_meant = (held.purpose == HoldPurpose::Restore) == is_restore;
    (is_same && is_meant).then_some(held)
}

/// The hold, once this node knows of it: whoever asks may have heard of it first.
async fn told(
    cell: &NodeContext,
    asked: &AskedContent,
    is_restore: bool,
) -> Result<HeldVolume, Problem> {
    let deadline = Instant::now() + UNTOLD;
    loop {
        if let Some(held) = admitted(&cell.volume_door.lock(), asked, is_restore) {
            return Ok(held.clone());
        }
        if Instant::now() >= deadline {
            return Err(not_held(&asked.volume));
        }
        sleep(ASK_AGAIN).await;
    }
}

fn not_held(volume: &VolumeRef) -> Problem {
    Problem::new(ProblemCode::VolumeNotHeld, format!("the hold on volume {} is over", volume.name))
}

fn failed(volume: &VolumeRef, why: &str) -> Problem {
    Problem::new(ProblemCode::VolumeFailed, format!("volume {}: {why}", volume.name))
}

/// What is in a volume of this node that somebody holds for a backup.
pub(crate) async fn content(cell: &NodeContext, asked: &AskedContent) -> Result<Body, Problem> {
    let held = told(cell, asked, false).await?;
    match cell.runtime.volume_dir(&asked.volume).await {
        Ok(Some(dir)) => {
            tracing::info!(volume = %asked.volume, "a volume is read for a backup");
            Ok(volume_stream::content(dir, held.purpose == HoldPurpose::LiveBackup))
        }
        Ok(None) => Err(failed(&asked.volume, "this node has no volume of this name")),
        Err(error) => Err(failed(&asked.volume, &chain(&error))),
    }
}

/// Replaces what is in a volume of this node by the backup that comes.
pub(crate) async fn restore(
    cell: &NodeContext,
    asked: &AskedContent,
    body: Body,
) -> Result<VolumeTotals, Problem> {
    let held = told(cell, asked, true).await?;
    let data_dir = cell.volume_door.lock().data_dir.clone();
    let notes = data_dir.as_deref().map(CopyNotes::below).unwrap_or_default();
    let Prepared { dir, is_made } = prepare(&*cell.runtime, &notes, asked, held.is_new).await?;
    let restored = replace(cell, data_dir.as_deref(), asked, &dir, body).await;
    if restored.is_err() && is_made {
        // A volume that was made for this is nobody's.
        if let Err(error) = cell.runtime.remove_volume(&asked.volume).await {
            let error = chain(&error);
            tracing::warn!(volume = %asked.volume, error, "cannot remove an empty volume; retrying later");
        }
    }
    restored
}

struct Prepared {
    dir: PathBuf,
    /// It was not there.
    is_made: bool,
}

/// The volume's directory. One that is not there is made.
async fn prepare(
    runtime: &dyn Runtime,
    notes: &CopyNotes,
    asked: &AskedContent,
    is_new: bool,
) -> Result<Prepared, Problem> {
    let AskedContent { volume, order } = asked;
    let cannot = |error: plimsoll_runtime::Error| failed(volume, &chain(&error));
    match runtime.volume_dir(volume).await.map_err(cannot)? {
        Some(dir) if !is_new || notes.has(*order, &volume.name) => {
            Ok(Prepared { dir, is_made: false })
        }
        Some(_) => {
            let message = format!(
                "the node has a volume {} that the cell knows nothing of; it stays as it is",
                volume.name
            );
            Err(Problem::new(ProblemCode::VolumeThere, message))
        }
        None => {
            let added = notes.add(*order, &volume.name);
            added.map_err(|error| failed(volume, &format!("cannot note it: {error}")))?;
            let dir = runtime.create_volume(volume).await.map_err(cannot)?;
            Ok(Prepared { dir, is_made: true })
        }
    }
}

async fn replace(
    cell: &NodeContext,
    data_dir: Option<&Path>,
    asked: &AskedContent,
    dir: &Path,
    body: Body,
) -> Result<VolumeTotals, Problem> {
    let volume = &asked.volume;
    let staged = Staged::make(data_dir, asked.order, dir);
    let staged =
        staged.map_err(|error| failed(volume, &format!("cannot write beside it: {error}")))?;
    let (pieces, reader) = PieceReader::new();
    let into = staged.path.clone();
    let reading = tokio::task::spawn_blocking(move || volume_backup::read(&into, reader));
    feed(body, "the client", pieces).await;
    let backup = match reading.await {
        Ok(read) => read.map_err(|error| refused(volume, &error))?,
        Err(_) => return Err(failed(volume, "it broke off")),
    };
    swap(cell, asked, dir, &staged.path).await?;
    tracing::info!(%volume, totals = ?backup.totals, of = %backup.label.volume, "volume restored");
    let parent = dir.parent().map(Path::to_path_buf);
    let _ = tokio::task::spawn_blocking(move || {
        // It is durable before anybody is told so; what was there before goes after that.
        if let Some(parent) = parent
            && let Err(error) = std::fs::File::open(&parent).and_then(|dir| dir.sync_all())
        {
            tracing::warn!(dir = %parent.display(), %error, "cannot sync a directory");
        }
        staged.clear();
    })
    .await;
    Ok(backup.totals)
}

/// A bad backup is the client's, a full disk is the node's.
fn refused(volume: &VolumeRef, error: &io::Error) -> Problem {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            Problem::new(ProblemCode::BadVolumeBackup, error.to_string())
        }
        _ => failed(volume, &error.to_string()),
    }
}

/// Has the agent exchange the two, as soon as it knows of the hold.
async fn swap(
    cell: &NodeContext,
    asked: &AskedContent,
    dir: &Path,
    staged: &Path,
) -> Result<(), Problem> {
    let deadline = Instant::now() + UNTOLD;
    loop {
        let (done, answer) = oneshot::channel();
        let AskedContent { volume, order } = asked.clone();
        let (dir, staged) = (dir.to_owned(), staged.to_owned());
        let swap = VolumeSwap { order, volume, dir, staged, done };
        let door = cell.volume_door.lock().swaps.clone();
        let is_sent = door.is_some_and(|door| door.send(swap).is_ok());
        match answer.await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(SwapRefusal::Disk(error))) => return Err(failed(&asked.volume, &error)),
            Ok(Err(SwapRefusal::NotHeld)) if Instant::now() < deadline => sleep(ASK_AGAIN).await,
            Ok(Err(SwapRefusal::NotHeld)) => return Err(not_held(&asked.volume)),
            Err(_) if is_sent => return Err(failed(&asked.volume, "the daemon is shutting down")),
            Err(_) => return Err(failed(&asked.volume, "this node runs nothing")),
        }
    }
}

/// Exchanges two directories of one file system in one step.
pub(crate) fn exchange(dir: &Path, staged: &Path) -> Result<(), String> {
    match rustix::fs::renameat_with(CWD, staged, CWD, dir, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(()),
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => Err(format!(
            "the file system of {} cannot exchange two directories in one step",
            dir.display()
        )),
        Err(error) => Err(format!("cannot exchange {}: {error}", dir.display())),
    }
}

/// A directory beside a volume. It goes when this does, whatever is in it then.
#[derive(Debug)]
struct Staged {
    path: PathBuf,
    note: Option<PathBuf>,
    is_gone: bool,
}

fn notes_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("volume-restores")
}

impl Staged {
    fn make(data_dir: Option<&Path>, order: Generation, dir: &Path) -> io::Result<Self> {
        let parent = dir.parent().ok_or(io::ErrorKind::NotFound)?;
        // No volume is called so: names begin with a letter or digit.
        let path = parent.join(format!(".plimsoll-restore.{order}"));
        let mut staged = Self { path, note: None, is_gone: false };
        if let Some(data_dir) = data_dir {
            let notes = notes_dir(data_dir);
            if !notes.is_dir() {
                plimsoll_files::create_dir(&notes, plimsoll_files::modes::DIR)?;
            }
            let note = notes.join(order.to_string());
            let bytes = staged.path.as_os_str().as_bytes();
            plimsoll_files::write(&note, bytes, plimsoll_files::modes::FILE)?;
            staged.note = Some(note);
        }
        remove_if_there(&staged.path)?;
        plimsoll_files::create_dir(&staged.path, plimsoll_files::modes::DIR)?;
        Ok(staged)
    }

    /// Removes it now, for whoever may wait.
    fn clear(mut self) {
        self.is_gone = true;
        clear(&self.path, self.note.as_deref());
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if self.is_gone {
            return;
        }
        let (path, note) = (self.path.clone(), self.note.take());
        // It may be large, and whoever drops it may not wait.
        match tokio::runtime::Handle::try_current() {
            Ok(handle) => drop(handle.spawn_blocking(move || clear(&path, note.as_deref()))),
            Err(_) => clear(&path, note.as_deref()),
        }
    }
}

fn clear(path: &Path, note: Option<&Path>) {
    match remove_if_there(path) {
        Ok(()) => drop(note.map(std::fs::remove_file)),
        // The note stays, and the next daemon tries again.
        Err(error) => {
            tracing::warn!(dir = %path.display(), %error, "cannot remove what is left of a restore");
        }
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Clears away what an earlier daemon left beside volumes: half a backup, or what a whole one has replaced.
pub(crate) fn clear_left(data_dir: &Path) {
    let Ok(notes) = std::fs::read_dir(notes_dir(data_dir)) else { return };
    let left: Vec<PathBuf> = notes.flatten().map(|note| note.path()).collect();
    for note in left {
        let Ok(bytes) = std::fs::read(&note) else { continue };
        let path = PathBuf::from(OsString::from_vec(bytes));
        let is_ours = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b".plimsoll-restore."));
        if is_ours {
            drop(Staged { path, note: Some(note), is_gone: false });
        }
    }
}

#[cfg(test)]
mod tests;
