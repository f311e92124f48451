//! Answers a question about a service's logs from its journal.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use tokio::task::spawn_blocking;

use super::journal::Cursor;
use super::paths::RunDir;
use super::record::RunState;
use crate::error::{Error, Operation};
use crate::logs::{LogLine, LogQuery, LogSender};
use crate::runtime::Tag;

/// How often a follower looks for more. Short enough to look live, long enough to cost nothing.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

pub(super) async fn answer(dir: RunDir, tag: Tag, query: LogQuery, to: LogSender) {
    if let Err(error) = stream(dir, query, &to).await {
        let _ = to.send(Err(Error::failed(Operation::Logs, tag, error))).await;
    }
}

async fn stream(dir: RunDir, query: LogQuery, to: &LogSender) -> io::Result<()> {
    let since = query.since.unwrap_or_default();
    let mut cursor = Cursor::new(dir.log());
    if let Some(tail) = query.tail {
        let mut last = VecDeque::new();
        loop {
            let (after, lines) = read(cursor).await?;
            cursor = after;
            if lines.is_empty() {
                break;
            }
            last.extend(lines.into_iter().filter(|line| line.at >= since));
            last.drain(..last.len().saturating_sub(tail));
        }
        if !send(to, last).await {
            return Ok(());
        }
    }
    loop {
        // Asked before reading: what is printed up to the end is in the journal when the end is written.
        let is_over = !query.follow || is_over(&dir).await?;
        loop {
            let (after, lines) = read(cursor).await?;
            cursor = after;
            if lines.is_empty() {
                break;
            }
            if !send(to, lines.into_iter().filter(|line| line.at >= since)).await {
                return Ok(());
            }
        }
        if is_over {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_AGAIN) => {}
            () = to.closed() => return Ok(()),
        }
    }
}

async fn read(mut cursor: Cursor) -> io::Result<(Cursor, Vec<LogLine>)> {
    blocking(move || {
        let lines = cursor.read()?;
        Ok((cursor, lines))
    })
    .await
}

async fn is_over(dir: &RunDir) -> io::Result<bool> {
    let dir = dir.clone();
    blocking(move || {
        Ok(match dir.run_state()? {
            RunState::Starting | RunState::Running(..) => false,
            RunState::Idle(_) | RunState::Lost(_) => true,
        })
    })
    .await
}

/// False when nobody listens any more.
async fn send(to: &LogSender, lines: impl IntoIterator<Item = LogLine>) -> bool {
    for line in lines {
        if to.send(Ok(line)).await.is_err() {
            return false;
        }
    }
    true
}

/// Disks may be slow; the node's other work does not wait for them.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(work).await.map_err(io::Error::other)?
}
