//! A command that runs in a replica, with somebody at this end of it.

use bytes::Bytes;
use tokio::sync::mpsc;

use super::Result;
use super::transport::{ApiRequest, StreamingResponse, Transport};
use crate::exec_stream::{EXEC_STREAM, ExecEvent, ExecFrame, ExecInput, ExecStart, FrameBuffer};

/// Pieces of input that may wait to be sent: few, so that whoever writes them waits for the command.
const AHEAD: usize = 4;

/// A command that runs in a replica. Dropping it ends the command.
#[derive(Debug)]
pub struct ExecSession {
    input: ExecSender,
    answer: StreamingResponse,
    buffer: FrameBuffer,
}

/// What sends input to a command. Clones send to the same.
#[derive(Debug, Clone)]
pub struct ExecSender(mpsc::Sender<Bytes>);

impl ExecSender {
    /// False once the command takes nothing any more.
    pub async fn send(&self, input: &ExecInput) -> bool {
        self.0.send(Bytes::from(input.encode())).await.is_ok()
    }
}

impl ExecSession {
    pub(super) async fn begin(
        transport: &Transport,
        request: ApiRequest,
        start: &ExecStart,
    ) -> Result<Self> {
        let (sender, pieces) = mpsc::channel(AHEAD);
        let first = Bytes::from(ExecInput::Start(start.clone()).encode());
        sender.try_send(first).expect("there is room for the first");
        let answer = transport.send(request.fed(pieces, EXEC_STREAM)).await?;
        Ok(Self { input: ExecSender(sender), answer, buffer: FrameBuffer::default() })
    }

    pub fn input(&self) -> ExecSender {
        self.input.clone()
    }

    /// What the command does next; none after its end.
    pub async fn next(&mut self) -> Result<Option<ExecEvent>> {
        loop {
            let next =
                self.buffer.next_frame().map_err(|it| self.answer.misunderstood(it.to_string()));
            if let Some(event) = next? {
                return Ok(Some(event));
            }
            match self.answer.piece().await? {
                Some(piece) => self.buffer.push(&piece),
                None => return Ok(None),
            }
        }
    }
}
