//! A backup of the whole state, as one encrypted file that is written whole before any of it is sent; and the key that opens
//! it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::unfold;
use hyper::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, HeaderValue};
use plimsoll_model::{AuditEntry, Change, Writer};
use tokio::fs::File;
use tokio::io::AsyncReadExt;

use super::answer::{Answer, json, with_type};
use super::context::Context;
use super::extract::By;
use crate::cell::backup_key;
use crate::context::WriteError;
use crate::operations::Error;
use plimsoll_api::view::{self, Problem, ProblemCode, Time};
use plimsoll_store::backup as store_backup;

/// What the files are called until they are sent.
const UNSENT: &str = "backup.unsent.";

const PIECE: usize = 64 << 10;

/// Tells one request's file from another's.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Removes what a daemon that was killed left behind.
pub(super) fn clear(data_dir: &Path) {
    let entries = fs::read_dir(data_dir).into_iter().flatten().flatten();
    for entry in entries.filter(|e| e.file_name().as_encoded_bytes().starts_with(UNSENT.as_bytes()))
    {
        let _ = fs::remove_file(entry.path());
    }
}

/// A backup of the cell's whole state, in one encrypted file
#[utoipa::path(post, path = "/v1/backup", tag = "read",
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>)))]
pub(super) async fn backup(State(context): State<Arc<Context>>, By(caller): By) -> Answer {
    let level = context.cell.engine.machine().level();
    let entry = Change::Record { entry: AuditEntry::backup(level) };
    let noted = context.cell.write(Writer::Operator, &caller.identity, vec![entry.free()]).await;
    if let Err(error) = noted {
        tracing::warn!(by = %caller.identity, %error, "cannot write the backup to the audit log");
    }
    if let Err(error) = backup_key::ensure(&context.cell).await {
        tracing::warn!(%error, "the cell has no backup key yet");
    }
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = context.data_dir.join(format!("{UNSENT}{number}"));
    let written = context.cell.engine.backup(&path).await;
    let opened = match &written {
        Ok(_) => File::open(&path).await,
        Err(_) => Err(std::io::ErrorKind::NotFound.into()),
    };
    // Once it is open its name is not needed, and without one nothing of it can stay behind.
    let _ = fs::remove_file(&path);
    written.map_err(|error| Error::Write(WriteError::Store(error)))?;
    let disk = |source| Error::Disk { action: "read", path: path.clone(), source };
    let file = opened.map_err(disk)?;
    let length = file.metadata().await.map_err(disk)?.len();
    Ok(sent(file, length))
}

/// The key that backups are encrypted with
#[utoipa::path(get, path = "/v1/backup/key", tag = "read",
    responses((status = 200, body = view::BackupKey)))]
pub(super) async fn key(State(context): State<Arc<Context>>, By(caller): By) -> Answer {
    let entry = Change::Record { entry: AuditEntry::ShowBackupKey };
    let noted = context.cell.write(Writer::Operator, &caller.identity, vec![entry.free()]).await;
    if let Err(error) = noted {
        tracing::warn!(by = %caller.identity, %error, "cannot write to the audit log that the backup key was shown");
    }
    Ok(json(&context.cell.engine.machine().read(shown)))
}

/// Encrypt backups with a new key from now on
#[utoipa::path(post, path = "/v1/backup/key", tag = "write",
    responses((status = 200, body = view::BackupKey)))]
pub(super) async fn rotate_key(State(context): State<Arc<Context>>, By(caller): By) -> Answer {
    let unmade = |error: std::io::Error| Problem::new(ProblemCode::Bug, error.to_string());
    let change = Change::RotateBackupKey { secret: backup_key::fresh().map_err(unmade)? };
    let written = context.cell.write(Writer::Operator, &caller.identity, vec![change.free()]).await;
    written.map_err(Error::Write)?;
    Ok(json(&context.cell.engine.machine().read(shown)))
}

fn shown(state: &plimsoll_model::State) -> view::BackupKey {
    let created_at = state.access().backup_key.as_ref().map(|key| Time(key.created_at));
    let key = store_backup::key_of(state);
    view::BackupKey {
        id: key.as_ref().map(|key| key.id().to_string()),
        key: key.map(|key| key.to_string()),
        created_at,
    }
}

fn sent(file: File, length: u64) -> Response {
    let pieces = unfold(file, async |mut file| {
        let mut piece = vec![0; PIECE];
        match file.read(&mut piece).await {
            Ok(0) => None,
            Ok(read) => {
                piece.truncate(read);
                Some((Ok(Bytes::from(piece)), file))
            }
            Err(error) => Some((Err(error), file)),
        }
    });
    let mut response = with_type("application/octet-stream", Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    let name = HeaderValue::from_static("attachment; filename=\"plimsoll.backup\"");
    headers.insert(CONTENT_DISPOSITION, name);
    response
}
