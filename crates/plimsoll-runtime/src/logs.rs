//! What a service printed, as people ask for it.

use plimsoll_model::Timestamp;
use tokio::sync::mpsc;

use crate::error::Result;

/// Lines that may wait for a slow reader; a runtime reads no further until it has room.
pub(crate) const LINES_AHEAD: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogQuery {
    /// Only what was printed at this time or later.
    pub since: Option<Timestamp>,
    /// Only the last so many lines.
    pub tail: Option<usize>,
    /// Go on with what is printed from now on, until the service ends.
    pub follow: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Output {
    Stdout,
    Stderr,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// By the clock of the node it was printed on.
    pub at: Timestamp,
    pub from: Output,
    /// Without its line end. Bytes, because services print what they like.
    pub text: Vec<u8>,
}

/// Lines in the order they were printed.
#[derive(Debug)]
pub struct Logs(mpsc::Receiver<Result<LogLine>>);

pub(crate) type LogSender = mpsc::Sender<Result<LogLine>>;

impl Logs {
    /// The next line, or why there is none; none after the last.
    pub async fn next(&mut self) -> Option<Result<LogLine>> {
        self.0.recv().await
    }

    pub(crate) fn channel() -> (LogSender, Self) {
        let (sender, receiver) = mpsc::channel(LINES_AHEAD);
        (sender, Self(receiver))
    }
}
