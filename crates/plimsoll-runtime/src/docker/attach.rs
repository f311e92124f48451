//! Runs a command in a container with its input, its terminal and its output passed on as they come.

use std::pin::Pin;
use std::time::Duration;

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, ResizeExecOptions, StartExecOptions, StartExecResults};
use futures_util::{Stream, StreamExt};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::engine_error::EngineError;
use super::exec::{LOOK_AGAIN, cannot_run, ended, kill, send_signal, status};
use crate::attach::{AttachInput, AttachRequest, AttachStreams, WindowSize};
use crate::logs::Output;
use crate::runtime::ExecOutcome;

type Printing = Pin<Box<dyn Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>>;
type Reading = Pin<Box<dyn AsyncWrite + Send>>;

pub(super) async fn run(
    docker: &Docker,
    id: &str,
    request: &AttachRequest,
    streams: AttachStreams,
) -> Result<ExecOutcome, EngineError> {
    let is_terminal = request.terminal.is_some();
    let options = CreateExecOptions {
        attach_stdin: Some(request.has_input),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        tty: Some(is_terminal),
        cmd: Some(request.command.clone()),
        ..CreateExecOptions::default()
    };
    let made = docker.create_exec(id, options).await?.id;
    let options = StartExecOptions { tty: is_terminal, ..StartExecOptions::default() };
    let started = match docker.start_exec(&made, Some(options)).await.map_err(EngineError::from) {
        // Newer engines say so at once; older ones start it and let the status tell.
        Err(EngineError::Said { message, .. }) if cannot_run(&message).is_some() => {
            let status = cannot_run(&message).unwrap_or(126);
            streams.print(Output::Stderr, message.into_bytes()).await;
            return Ok(ExecOutcome::Done { status });
        }
        result => result?,
    };
    let StartExecResults::Attached { output, input } = started else {
        return Err(EngineError::Odd("the engine did not attach to a command".to_owned()));
    };
    if let Some(size) = request.terminal {
        resize(docker, &made, size).await;
    }
    let AttachStreams { input: asked, output: told } = streams;
    let whole = async {
        tokio::select! {
            status = print(docker, &made, output, &told) => status.map(Some),
            () = feed(docker, (&made, id), asked, input) => Ok(None),
        }
    };
    let ended = match request.timeout {
        None => whole.await?.map_or(Ending::Left, Ending::Done),
        Some(limit) => match timeout(limit, whole).await {
            Ok(ended) => ended?.map_or(Ending::Left, Ending::Done),
            Err(_) => Ending::TimedOut,
        },
    };
    match ended {
        Ending::Done(status) => Ok(ExecOutcome::Done { status }),
        Ending::Left => {
            kill(docker, &made, id).await;
            Ok(ExecOutcome::Done { status: KILLED })
        }
        Ending::TimedOut => {
            kill(docker, &made, id).await;
            Ok(ExecOutcome::TimedOut)
        }
    }
}

/// What a command says that was killed.
const KILLED: i32 = 137;

enum Ending {
    Done(i32),
    /// Nobody is at the other end any more.
    Left,
    TimedOut,
}

/// Passes on what it prints until it ends, and returns its status. Waits for whoever reads, and so does the command.
async fn print(
    docker: &Docker,
    made: &str,
    mut output: Printing,
    told: &mpsc::Sender<(Output, Vec<u8>)>,
) -> Result<i32, EngineError> {
    loop {
        let next = tokio::select! {
            next = output.next() => next,
            () = sleep(LOOK_AGAIN) => {
                // What it left in the background may hold its output open.
                match ended(&docker.inspect_exec(made).await?) {
                    Some(status) => return drained(output, told).await.map(|()| status),
                    None => continue,
                }
            }
        };
        match next {
            Some(part) => pass_on(part?, told).await,
            None => return status(docker, made).await,
        }
    }
}

/// The command has ended: what it printed is on its way still, what others print is nobody's business.
async fn drained(
    mut output: Printing,
    told: &mpsc::Sender<(Output, Vec<u8>)>,
) -> Result<(), EngineError> {
    while let Ok(Some(part)) = timeout(OUTPUT_WAIT, output.next()).await {
        pass_on(part?, told).await;
    }
    Ok(())
}

const OUTPUT_WAIT: Duration = Duration::from_millis(200);

/// Where nobody reads any more, the other end of the input says so as well.
async fn pass_on(part: LogOutput, told: &mpsc::Sender<(Output, Vec<u8>)>) {
    let piece = match part {
        LogOutput::StdErr { message } => (Output::Stderr, message.to_vec()),
        LogOutput::StdOut { message }
        | LogOutput::StdIn { message }
        | LogOutput::Console { message } => (Output::Stdout, message.to_vec()),
    };
    let _ = told.send(piece).await;
}

/// Passes on what is sent to it. Returns once nobody is there any more.
async fn feed(
    docker: &Docker,
    (made, container): (&str, &str),
    mut asked: mpsc::Receiver<AttachInput>,
    input: Reading,
) {
    let mut input = Some(input);
    while let Some(next) = asked.recv().await {
        match next {
            AttachInput::Bytes(bytes) => {
                // One that has closed its input is not sent any more; it goes on all the same.
                let is_open = match &mut input {
                    Some(open) => {
                        open.write_all(&bytes).await.is_ok() && open.flush().await.is_ok()
                    }
                    None => true,
                };
                if !is_open {
                    input = None;
                }
            }
            AttachInput::End => {
                if let Some(open) = &mut input {
                    let _ = open.shutdown().await;
                }
            }
            AttachInput::Resize(size) => resize(docker, made, size).await,
            AttachInput::Signal(signal) => {
                send_signal(docker, made, container, signal.signal()).await;
            }
        }
    }
}

/// A terminal of another size is a blemish, and no reason to end what runs on it.
async fn resize(docker: &Docker, made: &str, WindowSize { rows, columns }: WindowSize) {
    let options = ResizeExecOptions { height: rows, width: columns };
    if let Err(error) = docker.resize_exec(made, options).await {
        tracing::debug!(%error, "cannot resize the terminal of a command");
    }
}
