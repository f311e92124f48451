//! A command beside a service whose input and output are passed on as they come: what goes in, what comes out.

use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::mpsc;

use crate::logs::Output;

/// A command to run beside a service while somebody is at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachRequest {
    pub command: Vec<String>,
    /// It is killed when it takes longer.
    pub timeout: Option<Duration>,
    /// Whether input comes. Without it the command finds its input empty.
    pub has_input: bool,
    /// A terminal of this size; none for pipes. What is printed on a terminal is one output.
    pub terminal: Option<WindowSize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSize {
    pub rows: u16,
    pub columns: u16,
}

/// A signal that is passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachSignal {
    Hangup,
    Interrupt,
    Quit,
    Terminate,
    User1,
    User2,
}

impl AttachSignal {
    pub(crate) fn signal(self) -> Signal {
        match self {
            Self::Hangup => Signal::HUP,
            Self::Interrupt => Signal::INT,
            Self::Quit => Signal::QUIT,
            Self::Terminate => Signal::TERM,
            Self::User1 => Signal::USR1,
            Self::User2 => Signal::USR2,
        }
    }

    pub(crate) fn number(self) -> i32 {
        self.signal().as_raw()
    }
}

/// What is sent to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttachInput {
    Bytes(Vec<u8>),
    /// There is no more input.
    End,
    Resize(WindowSize),
    Signal(AttachSignal),
}

/// A runtime's ends of what is passed on. An input that closes without an [`AttachInput::End`] is a person who left, and so is
/// an output that nobody takes.
#[derive(Debug)]
pub struct AttachStreams {
    pub input: mpsc::Receiver<AttachInput>,
    pub output: mpsc::Sender<(Output, Vec<u8>)>,
}

impl AttachStreams {
    /// False once nobody is there to read it.
    pub(crate) async fn print(&self, from: Output, bytes: Vec<u8>) -> bool {
        self.output.send((from, bytes)).await.is_ok()
    }
}
