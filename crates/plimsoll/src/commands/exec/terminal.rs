//! The terminal that `exec` is run at: its size, its keys as they are typed, and whether anything waits to be read.

use std::os::fd::AsFd;

use plimsoll_api::exec_stream::TerminalSize;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, SeekFrom, fstat, seek};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::error::CliError;

/// What a terminal is taken to have that does not say.
const USUAL: TerminalSize = TerminalSize { rows: 24, columns: 80 };

/// The size of this terminal.
pub(super) fn size() -> TerminalSize {
    let sizes = [
        tcgetwinsize(std::io::stdin()),
        tcgetwinsize(std::io::stdout()),
        tcgetwinsize(std::io::stderr()),
    ];
    let known = sizes.into_iter().flatten().find(|size| size.ws_row > 0 && size.ws_col > 0);
    known.map_or(USUAL, |size| TerminalSize { rows: size.ws_row, columns: size.ws_col })
}

/// Whether somebody gave input: a file that is not read to its end, or a pipe in which something waits.
pub(super) fn has_input(input: &impl AsFd) -> bool {
    let Ok(status) = fstat(input) else { return false };
    match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => {
            let read = seek(input, SeekFrom::Current(0)).unwrap_or(0);
            u64::try_from(status.st_size).is_ok_and(|size| read < size)
        }
        FileType::Fifo => {
            let mut waits = [PollFd::new(input, PollFlags::IN)];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut waits, Some(&now)).is_ok() && waits[0].revents().contains(PollFlags::IN)
        }
        _ => false,
    }
}

/// While it lives, every key goes to the command: also those that would end or stop a program here.
#[derive(Debug)]
pub(super) struct RawTerminal(Termios);

impl RawTerminal {
    pub(super) fn begin() -> Result<Self, CliError> {
        let input = std::io::stdin();
        let failed = |error| CliError::failed(format!("cannot use this terminal: {error}"));
        let before = tcgetattr(&input).map_err(failed)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&input, OptionalActions::Now, &raw).map_err(failed)?;
        Ok(Self(before))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}
