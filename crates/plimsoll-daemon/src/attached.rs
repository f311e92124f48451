//! A command beside a container with somebody at the other end: frames of a stream to what a runtime takes, and back.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::exec_stream::{
    ExecEvent, ExecFrame, ExecInput, ExecSignal, ExecStart, FrameBuffer, PIECE, TerminalSize,
};
use plimsoll_api::view::{Problem, ProblemCode};
use plimsoll_runtime::{
    AttachInput, AttachRequest, AttachSignal, AttachStreams, ExecOutcome, Output, Runtime, Tag,
    WindowSize,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, split};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::operations::Error;

/// How long a command may take when nobody says, and at most.
pub const DEFAULT_PATIENCE: Duration = Duration::from_hours(1);
pub const MAX_PATIENCE: Duration = Duration::from_hours(24);

/// How long the first frame may take to come: it is sent with the request.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// Pieces that may wait on their way. Few, so that whoever is slow slows the command down and nothing else.
const AHEAD: usize = 4;

/// Runs what the first frame asks for, and passes on what follows until it ends. Whoever leaves ends it.
pub async fn serve(
    runtime: Arc<dyn Runtime>,
    tag: Tag,
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
) {
    let (from, mut to) = split(stream);
    let mut inputs = InputReader { from, buffer: FrameBuffer::default() };
    let last = match start(&mut inputs).await {
        Ok(request) => run(runtime.as_ref(), &tag, request, inputs, &mut to).await,
        Err(problem) => ExecEvent::Failed(Box::new(problem)),
    };
    // Without a reader there is nobody to tell.
    let _ = to.write_all(&last.encode()).await;
    let _ = to.shutdown().await;
}

/// Passes the frames of one stream on to another node's, and back.
pub async fn relay(near: impl AsyncRead + AsyncWrite, far: impl AsyncRead + AsyncWrite) {
    let ((mut near_in, mut near_out), (mut far_in, mut far_out)) = (split(near), split(far));
    let told = async {
        copy(&mut far_in, &mut near_out).await?;
        near_out.shutdown().await
    };
    let asked = async {
        copy(&mut near_in, &mut far_out).await?;
        far_out.shutdown().await?;
        std::future::pending::<io::Result<()>>().await
    };
    // The command has the last word. A cut on either side ends both, and with them the command.
    let _ = tokio::select! {
        ended = told => ended,
        cut = asked => cut,
    };
}

/// Carries on until it is done, or the daemon ends.
pub async fn while_open(work: impl Future<Output = ()>, ending: impl Future<Output = ()>) {
    tokio::select! {
        () = work => {}
        () = ending => {}
    }
}

async fn start(inputs: &mut InputReader<impl AsyncRead + Unpin>) -> Result<AttachRequest, Problem> {
    let unreadable = |why: String| {
        Problem::new(ProblemCode::BadJson, format!("the first frame cannot be read: {why}"))
    };
    let first = timeout(START_PATIENCE, inputs.next()).await;
    let first = first.map_err(|_| unreadable("it does not come".to_owned()))?;
    match first.map_err(|error| unreadable(error.to_string()))? {
        Some(ExecInput::Start(start)) if start.command.is_empty() => {
            Err(Problem::from(&Error::NoCommand))
        }
        Some(ExecInput::Start(start)) => Ok(asked(start)),
        Some(_) => Err(unreadable("it does not say what is to be run".to_owned())),
        None => Err(unreadable("there is none".to_owned())),
    }
}

fn asked(start: ExecStart) -> AttachRequest {
    let patience = start.timeout_seconds.map_or(DEFAULT_PATIENCE, Duration::from_secs);
    AttachRequest {
        command: start.command,
        timeout: Some(patience.min(MAX_PATIENCE)),
        has_input: start.has_input,
        terminal: start.terminal.map(window),
    }
}

fn window(size: TerminalSize) -> WindowSize {
    WindowSize { rows: size.rows, columns: size.columns }
}

async fn run(
    runtime: &dyn Runtime,
    tag: &Tag,
    request: AttachRequest,
    mut inputs: InputReader<impl AsyncRead + Unpin>,
    to: &mut (impl AsyncWrite + Unpin),
) -> ExecEvent {
    let (asking, input) = mpsc::channel(AHEAD);
    let (output, mut told) = mpsc::channel(AHEAD);
    let command = runtime.attach(tag, &request, AttachStreams { input, output });
    // Dropping the sender is how the runtime hears that somebody left.
    let reading = async move {
        while let Ok(Some(next)) = inputs.next().await {
            let Some(next) = passed_on(next) else { return };
            if asking.send(next).await.is_err() {
                break;
            }
        }
    };
    let writing = async {
        while let Some((from, bytes)) = told.recv().await {
            for piece in bytes.chunks(PIECE) {
                let event = match from {
                    Output::Stdout => ExecEvent::Stdout(piece.to_vec()),
                    Output::Stderr => ExecEvent::Stderr(piece.to_vec()),
                };
                if to.write_all(&event.encode()).await.is_err() {
                    // What is printed from here on goes nowhere; that somebody left is seen on the other side as well.
                    told.close();
                    return;
                }
            }
        }
    };
    let reading = async {
        reading.await;
        std::future::pending::<()>().await;
    };
    let ended = tokio::select! {
        // All that was printed is sent before how it ended.
        (ended, ()) = async { tokio::join!(command, writing) } => ended,
        () = reading => unreachable!("it never ends"),
    };
    match ended {
        Ok(ExecOutcome::Done { status }) => ExecEvent::Ended { status: Some(status) },
        Ok(ExecOutcome::TimedOut) => ExecEvent::Ended { status: None },
        Err(error) => ExecEvent::Failed(Box::new(Problem::from(&Error::from(error)))),
    }
}

/// None for what has no place here: whoever sends it is taken to have left.
fn passed_on(input: ExecInput) -> Option<AttachInput> {
    Some(match input {
        ExecInput::Start(_) => return None,
        ExecInput::Bytes(bytes) => AttachInput::Bytes(bytes),
        ExecInput::End => AttachInput::End,
        ExecInput::Resize(size) => AttachInput::Resize(window(size)),
        ExecInput::Signal(signal) => AttachInput::Signal(match signal {
            ExecSignal::Hangup => AttachSignal::Hangup,
            ExecSignal::Interrupt => AttachSignal::Interrupt,
            ExecSignal::Quit => AttachSignal::Quit,
            ExecSignal::Terminate => AttachSignal::Terminate,
            ExecSignal::User1 => AttachSignal::User1,
            ExecSignal::User2 => AttachSignal::User2,
        }),
    })
}

struct InputReader<R> {
    from: R,
    buffer: FrameBuffer,
}

impl<R: AsyncRead + Unpin> InputReader<R> {
    /// The next frame; none once nobody sends any.
    async fn next(&mut self) -> io::Result<Option<ExecInput>> {
        let mut piece = vec![0; PIECE];
        loop {
            if let Some(input) = self.buffer.next_frame().map_err(io::Error::other)? {
                return Ok(Some(input));
            }
            match self.from.read(&mut piece).await? {
                0 => return Ok(None),
                read => self.buffer.push(&piece[..read]),
            }
        }
    }
}

#[cfg(test)]
mod tests;
