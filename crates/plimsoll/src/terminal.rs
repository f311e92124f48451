//! The terminal at the other end, if there is one: its size, its keys, and whether it takes colour.

use std::io::{IsTerminal, Read, Write};

use anstream::{AutoStream, ColorChoice};
use rustix::termios::{self, LocalModes, OptionalActions, Termios};
use tokio::sync::mpsc;

/// Where something can be drawn again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Stdout,
    Stderr,
}

impl Target {
    /// Whether it is a terminal that a cursor can be moved on.
    pub(crate) fn is_drawable(self) -> bool {
        let is_terminal = match self {
            Self::Stdout => std::io::stdout().is_terminal(),
            Self::Stderr => std::io::stderr().is_terminal(),
        };
        is_terminal && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
    }

    /// Columns and lines.
    pub(crate) fn size(self) -> Option<(usize, usize)> {
        let size = match self {
            Self::Stdout => termios::tcgetwinsize(std::io::stdout()),
            Self::Stderr => termios::tcgetwinsize(std::io::stderr()),
        };
        let size = size.ok().filter(|size| size.ws_col > 0 && size.ws_row > 0)?;
        Some((size.ws_col.into(), size.ws_row.into()))
    }

    pub(crate) fn has_colour(self) -> bool {
        let choice = match self {
            Self::Stdout => AutoStream::choice(&std::io::stdout()),
            Self::Stderr => AutoStream::choice(&std::io::stderr()),
        };
        choice != ColorChoice::Never
    }

    /// Lines as this terminal takes them; what moves its cursor is added later and always goes through.
    pub(crate) fn lines(self, lines: Vec<String>) -> Vec<String> {
        if self.has_colour() {
            return lines;
        }
        lines.iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect()
    }

    /// Writes it as it is. A terminal that has gone away ends us by a signal, so there is nobody to tell.
    pub(crate) fn write(self, text: &str) {
        if text.is_empty() {
            return;
        }
        let _ = match self {
            Self::Stdout => {
                let mut out = std::io::stdout().lock();
                out.write_all(text.as_bytes()).and_then(|()| out.flush())
            }
            Self::Stderr => std::io::stderr().lock().write_all(text.as_bytes()),
        };
    }
}

/// Keys as they are pressed, without waiting for a whole line. Ctrl-C stays a signal.
#[derive(Debug)]
pub(crate) struct Keys {
    before: Option<Termios>,
    pressed: mpsc::Receiver<u8>,
}

impl Keys {
    pub(crate) fn listen() -> Self {
        let (sender, pressed) = mpsc::channel(16);
        let stdin = std::io::stdin();
        let before = if stdin.is_terminal() { termios::tcgetattr(&stdin).ok() } else { None };
        if let Some(before) = &before {
            let mut modes = before.clone();
            modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            let _ = termios::tcsetattr(&stdin, OptionalActions::Now, &modes);
            // A thread, because a read of a terminal cannot be called off; it ends with the process.
            std::thread::spawn(move || {
                for byte in std::io::stdin().lock().bytes().map_while(Result::ok) {
                    if sender.blocking_send(byte).is_err() {
                        break;
                    }
                }
            });
        }
        Self { before, pressed }
    }

    /// The next key; never, where there is no keyboard.
    pub(crate) async fn next(&mut self) -> u8 {
        match self.pressed.recv().await {
            Some(key) => key,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = termios::tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}
