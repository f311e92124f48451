//! Waiting for processes that are not our children, as those of an earlier daemon.

use std::io;

use tokio::net::unix::pipe::Receiver;
use tokio::process::Child;

use super::table::ProcessIdentity;

/// Something to wait for.
#[derive(Debug)]
pub(super) enum ExitWatch {
    /// A supervisor of ours, which must be collected as well.
    Child(Box<Child>),
    /// A handle on somebody else's, which tells when it has ended; none if it has already.
    Process(Option<Receiver>),
}

impl ExitWatch {
    pub(super) fn on(process: &ProcessIdentity) -> io::Result<Self> {
        // The handle is no pipe, but becomes readable as one does, and that is all that is asked of it.
        let handle = process.open().map(Receiver::from_owned_fd_unchecked);
        handle.transpose().map(Self::Process)
    }

    pub(super) async fn ended(&mut self) {
        match self {
            Self::Child(child) => drop(child.wait().await),
            // The kernel makes the handle readable when the process ends, and never before.
            Self::Process(Some(handle)) => drop(handle.readable().await),
            Self::Process(None) => {}
        }
    }
}
