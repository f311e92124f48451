//! What a daemon is told by signals: to stop, or to hand over to another process.

use std::fs::{self, File};

use rustix::termios::tcgetattr;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::CliError;

/// The bit of SIGHUP in a set of signals as the kernel shows it.
const HANGUP_BIT: u64 = 1;

#[derive(Debug)]
pub(super) struct DaemonSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    terminal: Terminal,
}

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DaemonSignal {
    Stop,
    HandOver,
}

impl DaemonSignals {
    pub(super) fn listen() -> Result<Self, CliError> {
        // Before it is listened for, since then it is ignored no more.
        let terminal = Terminal::of_process();
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
            terminal,
        })
    }

    pub(super) async fn next(&mut self) -> DaemonSignal {
        loop {
            tokio::select! {
                biased;
                _ = self.interrupt.recv() => return DaemonSignal::Stop,
                _ = self.terminate.recv() => return DaemonSignal::Stop,
                _ = self.hangup.recv() => {}
            }
            // The same signal says that the terminal is gone.
            match (self.terminal.is_gone(), self.terminal.is_nohup) {
                (false, _) => return DaemonSignal::HandOver,
                (true, false) => return DaemonSignal::Stop,
                (true, true) => tracing::info!("the terminal has closed; going on, as nohup asks"),
            }
        }
    }

    /// Returns once it is to stop; another hand-over cannot be had meanwhile.
    pub(super) async fn stop(&mut self) {
        while self.next().await != DaemonSignal::Stop {
            tracing::warn!("already at it: this process cannot hand over now");
        }
    }
}

/// The terminal that the daemon was started from, if it was.
#[derive(Debug)]
struct Terminal {
    open: Option<File>,
    /// Whoever started it does not want it to end with the terminal.
    is_nohup: bool,
}

impl Terminal {
    fn of_process() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self { open: File::open("/dev/tty").ok(), is_nohup: ignores_hangup(&status) }
    }

    fn is_gone(&self) -> bool {
        self.open.as_ref().is_some_and(|terminal| tcgetattr(terminal).is_err())
    }
}

fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & HANGUP_BIT != 0)
}

fn listen(kind: SignalKind) -> Result<Signal, CliError> {
    signal(kind).map_err(|error| CliError::failed(format!("cannot listen for signals: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_started_with_nohup_is_known_by_the_signals_it_ignores() {
        for (status, ignores) in [
            ("Name:\tplimsoll\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000000\n", true),
            ("Name:\tplimsoll\nSigIgn:\t0000000000001000\nSigCgt:\t0000000000000001\n", false),
            ("", false),
        ] {
            assert_eq!(ignores_hangup(status), ignores, "{status}");
        }
    }
}
