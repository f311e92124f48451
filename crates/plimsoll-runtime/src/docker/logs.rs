//! What a container printed, as the engine kept it.

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::query_parameters::LogsOptions;
use futures_util::StreamExt;
use plimsoll_model::Timestamp;

use super::engine_error::EngineError;
use super::list;
use crate::error::Operation;
use crate::logs::{LogLine, LogQuery, LogSender, Output};
use crate::runtime::Tag;

/// Sends lines until there are no more, or nobody listens.
pub(super) async fn answer(docker: Docker, id: String, tag: Tag, query: LogQuery, to: LogSender) {
    let since = query.since.unwrap_or_default();
    if query.tail == Some(0) && !query.follow {
        return;
    }
    let options = LogsOptions {
        follow: query.follow,
        stdout: true,
        stderr: true,
        // The engine counts in seconds; what it sends too much of is dropped below.
        since: i32::try_from(since.0 / 1_000).unwrap_or(i32::MAX),
        until: 0,
        timestamps: true,
        tail: query.tail.map_or_else(|| "all".to_owned(), |tail| tail.to_string()),
    };
    let mut outputs = Box::pin(docker.logs(&id, Some(options)));
    loop {
        let output = tokio::select! {
            output = outputs.next() => output,
            () = to.closed() => return,
        };
        let line = match output {
            None => return,
            Some(Ok(output)) => line(&output),
            Some(Err(error)) => Err(EngineError::from(error)),
        };
        let is_over = line.is_err();
        let line = line.map_err(|fault| fault.error(Operation::Logs, &tag));
        if line.as_ref().is_ok_and(|line| line.at < since) {
            continue;
        }
        if to.send(line).await.is_err() || is_over {
            return;
        }
    }
}

/// The engine sends a line at a time, or a part of a long one, each with its time in front.
fn line(output: &LogOutput) -> Result<LogLine, EngineError> {
    let (from, bytes, is_terminal) = match output {
        LogOutput::StdErr { message } => (Output::Stderr, message, false),
        LogOutput::StdOut { message } | LogOutput::StdIn { message } => {
            (Output::Stdout, message, false)
        }
        LogOutput::Console { message } => (Output::Stdout, message, true),
    };
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    // A terminal ends its lines with two characters.
    let bytes = if is_terminal { bytes.strip_suffix(b"\r").unwrap_or(bytes) } else { bytes };
    let (time, text) = match bytes.iter().position(|byte| *byte == b' ') {
        Some(space) => (&bytes[..space], &bytes[space + 1..]),
        None => (bytes, &[][..]),
    };
    let at: Timestamp = list::time(std::str::from_utf8(time).ok())?;
    Ok(LogLine { at, from, text: text.to_vec() })
}
