//! Runs a command beside a service with its input, its terminal and its output passed on as they come.
//!
//! The command opens its input by name: the daemon's end of a pipe below `/proc`, or a terminal below `/dev/pts`. That way it
//! needs no more than the socket by which it is told who it is to be.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as Socket;
use std::process::Stdio;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::process::Command;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::enter::{EnterFailure, EnterRequest, InputFile};
use super::exec::{Group, OUTPUT_WAIT, send, shell_status};
use super::launch::{Launch, ProcessSetup};
use crate::attach::{AttachInput, AttachRequest, AttachStreams, WindowSize};
use crate::logs::Output;
use crate::runtime::ExecOutcome;

/// The longest piece that is passed on at once.
const PIECE: usize = 32 << 10;

/// What ends the input of a terminal, as a person at one would type it.
const END_OF_INPUT: &[u8] = &[4];

/// What a command says that was killed.
const KILLED: i32 = 137;

type Told = mpsc::Sender<(Output, Vec<u8>)>;

/// How it ended.
enum Ending {
    Itself(Result<i32, EnterFailure>),
    /// Nobody is at the other end any more.
    Left,
    TimedOut,
}

pub(super) async fn run(
    launch: Launch,
    request: &AttachRequest,
    streams: AttachStreams,
) -> io::Result<ExecOutcome> {
    let (ours, theirs) = Socket::pair()?;
    ours.set_nonblocking(true)?;
    let ours = UnixStream::from_std(ours)?;
    let (program, words) = launch.supervisor.split_first().ok_or(io::ErrorKind::InvalidData)?;
    let OpenedInput { end, file, held, screen } = OpenedInput::of(request)?;
    let output = || if request.terminal.is_some() { Stdio::null() } else { Stdio::piped() };
    let mut child = Command::new(program)
        .args(words)
        .arg("enter")
        .arg0("plimsoll")
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(output())
        .stderr(output())
        .spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut group = Group(child);
    let pid = group.0.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));

    let command = request.command.clone();
    let entry = ProcessSetup { command, dies_with_parent: false, ..launch.entry };
    let brief = EnterRequest { entry, parent: std::process::id(), input: file };
    let (over, is_over) = watch::channel(false);
    let AttachStreams { input: asked, output: told } = streams;
    let ended = async {
        let answer = send(ours, &brief).await?;
        // It has opened its input by now, and sees the end of that only once nobody else holds it.
        drop(held);
        let status = group.0.wait().await?;
        over.send_replace(true);
        Ok::<_, io::Error>(answer.map(|()| shell_status(status)))
    };
    let outputs = async {
        tokio::join!(
            print(stdout, Output::Stdout, &told, is_over.clone()),
            print(stderr, Output::Stderr, &told, is_over.clone()),
            print(screen, Output::Stdout, &told, is_over.clone()),
        )
    };
    let whole = async {
        tokio::select! {
            (ended, _) = async { tokio::join!(ended, outputs) } => ended.map(Ending::Itself),
            () = feed(asked, end, pid, &is_over) => Ok(Ending::Left),
        }
    };
    let ending = match request.timeout {
        None => whole.await?,
        Some(limit) => timeout(limit, whole).await.unwrap_or(Ok(Ending::TimedOut))?,
    };
    let outcome = match ending {
        Ending::Itself(Ok(status)) => return Ok(ExecOutcome::Done { status }),
        Ending::Itself(Err(EnterFailure { text, status })) => {
            let _ = told.send((Output::Stderr, text.into_bytes())).await;
            return Ok(ExecOutcome::Done { status });
        }
        Ending::Left => ExecOutcome::Done { status: KILLED },
        Ending::TimedOut => ExecOutcome::TimedOut,
    };
    group.kill();
    group.0.wait().await?;
    Ok(outcome)
}

/// Passes on what is printed, until its end; once the command is over, until nothing more comes. Waits for whoever reads.
async fn print(
    source: Option<impl AsyncRead + Unpin>,
    from: Output,
    told: &Told,
    mut is_over: watch::Receiver<bool>,
) {
    let Some(mut source) = source else { return };
    let mut piece = vec![0; PIECE];
    loop {
        let read = tokio::select! {
            biased;
            read = source.read(&mut piece) => read,
            // What it left running may hold its output open.
            () = ended(&mut is_over) => {
                match timeout(OUTPUT_WAIT, source.read(&mut piece)).await {
                    Ok(read) => read,
                    Err(_) => return,
                }
            }
        };
        match read {
            Ok(read @ 1..) if told.send((from, piece[..read].to_vec())).await.is_ok() => {}
            _ => return,
        }
    }
}

async fn ended(is_over: &mut watch::Receiver<bool>) {
    let _ = is_over.wait_for(|over| *over).await;
}

/// Passes on what is sent. Returns once nobody is there any more.
async fn feed(
    mut asked: mpsc::Receiver<AttachInput>,
    mut end: InputEnd,
    pid: Option<Pid>,
    is_over: &watch::Receiver<bool>,
) {
    while let Some(next) = asked.recv().await {
        match next {
            AttachInput::Bytes(bytes) => end.write(&bytes).await,
            AttachInput::End => end.close().await,
            AttachInput::Resize(size) => end.resize(size),
            // Once it was collected its number may be another's.
            AttachInput::Signal(signal) if !*is_over.borrow() => {
                if let Some(pid) = pid {
                    let _ = kill_process_group(pid, signal.signal());
                }
            }
            AttachInput::Signal(_) => {}
        }
    }
}

/// What the command reads from.
struct OpenedInput {
    end: InputEnd,
    file: Option<InputFile>,
    /// The command's side, held until it has opened it.
    held: Option<OwnedFd>,
    /// What the command prints, where that is on a terminal.
    screen: Option<pipe::Receiver>,
}

impl OpenedInput {
    fn of(request: &AttachRequest) -> io::Result<Self> {
        if let Some(size) = request.terminal {
            let (terminal, screen, path) = Terminal::open(size)?;
            let (end, file) = (InputEnd::Terminal(terminal), InputFile { path, is_terminal: true });
            return Ok(Self { end, file: Some(file), held: None, screen: Some(screen) });
        }
        if !request.has_input {
            return Ok(Self { end: InputEnd::Nothing, file: None, held: None, screen: None });
        }
        let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), theirs.as_raw_fd());
        let file = Some(InputFile { path, is_terminal: false });
        let end = InputEnd::Pipe(Some(pipe::Sender::from_owned_fd(ours)?));
        Ok(Self { end, file, held: Some(theirs), screen: None })
    }
}

/// Our end of what the command reads.
enum InputEnd {
    Nothing,
    /// None once it is closed.
    Pipe(Option<pipe::Sender>),
    Terminal(Terminal),
}

impl InputEnd {
    /// One that reads no more is not sent any more; it goes on all the same.
    async fn write(&mut self, bytes: &[u8]) {
        match self {
            Self::Nothing => {}
            Self::Pipe(open) => {
                if let Some(sender) = open
                    && sender.write_all(bytes).await.is_err()
                {
                    *open = None;
                }
            }
            Self::Terminal(terminal) => drop(terminal.keys.write_all(bytes).await),
        }
    }

    async fn close(&mut self) {
        match self {
            Self::Nothing => {}
            Self::Pipe(open) => *open = None,
            Self::Terminal(terminal) => drop(terminal.keys.write_all(END_OF_INPUT).await),
        }
    }

    fn resize(&self, size: WindowSize) {
        if let Self::Terminal(terminal) = self {
            terminal.resize(size);
        }
    }
}

/// The side of a terminal at which a person would sit: its keys.
#[derive(Debug)]
struct Terminal {
    keys: pipe::Sender,
    master: OwnedFd,
}

impl Terminal {
    /// Opens one; what appears on it, and where its other side is.
    fn open(size: WindowSize) -> io::Result<(Self, pipe::Receiver, String)> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let path = ptsname(&master, Vec::new())?;
        let path = path.into_string().map_err(io::Error::other)?;
        // It is no pipe, and is read and written as one. What appears ends with an error once the last process on it is gone.
        let screen = pipe::Receiver::from_owned_fd_unchecked(master.try_clone()?)?;
        let keys = pipe::Sender::from_owned_fd_unchecked(master.try_clone()?)?;
        let terminal = Self { keys, master };
        terminal.resize(size);
        Ok((terminal, screen, path))
    }

    fn resize(&self, WindowSize { rows, columns }: WindowSize) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        if let Err(error) = tcsetwinsize(&self.master, size) {
            tracing::debug!(%error, "cannot resize the terminal of a command");
        }
    }
}
