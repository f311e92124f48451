//! What goes to and fro while a command runs in a replica: its input, the size of its terminal and signals one way, what it
//! prints and how it ends the other. Both are frames in the body of one request and its answer, so that nothing waits for
//! the end of anything.
//!
//! A frame is one byte for its kind, four for the length of what follows, the largest first, and that many bytes.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::problem::Problem;

/// The content type of a request that is such a stream, and of its answer.
pub const EXEC_STREAM: &str = "application/vnd.plimsoll.exec";

/// The most bytes a frame may hold. A command line fits, and so does any piece of input.
pub const MAX_FRAME: usize = 4 << 20;

/// The most bytes of input or output that one frame is given: small enough that a signal is not held up behind it.
pub const PIECE: usize = 32 << 10;

/// What is to be run, and how. The first frame of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecStart {
    pub command: Vec<String>,
    pub timeout_seconds: Option<u64>,
    /// Whether input follows. Without it the command finds its input empty.
    pub has_input: bool,
    /// A terminal of this size; none for plain pipes.
    pub terminal: Option<TerminalSize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

/// A signal that can be passed on to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecSignal {
    Hangup,
    Interrupt,
    Quit,
    Terminate,
    User1,
    User2,
}

/// From the one who asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecInput {
    Start(ExecStart),
    Bytes(Vec<u8>),
    /// There is no more input.
    End,
    Resize(TerminalSize),
    Signal(ExecSignal),
}

/// From the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecEvent {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    /// The last frame: its status; none where it took too long and was killed.
    Ended {
        status: Option<i32>,
    },
    /// The last frame: it could not be run, or its end is not known.
    Failed(Box<Problem>),
}

/// Why what came is no frame.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FrameError {
    #[error("a frame of {length} bytes is longer than {MAX_FRAME}")]
    TooLong { length: usize },
    #[error("there is no frame of kind {kind}")]
    Kind { kind: u8 },
    #[error("a frame cannot be read: {why}")]
    Content { why: String },
}

const START: u8 = 0;
const INPUT: u8 = 1;
const INPUT_END: u8 = 2;
const RESIZE: u8 = 3;
const SIGNAL: u8 = 4;
const STDOUT: u8 = 16;
const STDERR: u8 = 17;
const ENDED: u8 = 18;
const FAILED: u8 = 19;

/// One side's kind of frame.
pub trait ExecFrame: Sized {
    fn encode(&self) -> Vec<u8>;
    fn decode(kind: u8, content: Vec<u8>) -> Result<Self, FrameError>;
}

impl ExecFrame for ExecInput {
    fn encode(&self) -> Vec<u8> {
        match self {
            Self::Start(start) => json_frame(START, start),
            Self::Bytes(bytes) => frame(INPUT, bytes),
            Self::End => frame(INPUT_END, &[]),
            Self::Resize(size) => json_frame(RESIZE, size),
            Self::Signal(signal) => json_frame(SIGNAL, signal),
        }
    }

    fn decode(kind: u8, content: Vec<u8>) -> Result<Self, FrameError> {
        Ok(match kind {
            START => Self::Start(json(&content)?),
            INPUT => Self::Bytes(content),
            INPUT_END => Self::End,
            RESIZE => Self::Resize(json(&content)?),
            SIGNAL => Self::Signal(json(&content)?),
            kind => return Err(FrameError::Kind { kind }),
        })
    }
}

impl ExecFrame for ExecEvent {
    fn encode(&self) -> Vec<u8> {
        match self {
            Self::Stdout(bytes) => frame(STDOUT, bytes),
            Self::Stderr(bytes) => frame(STDERR, bytes),
            Self::Ended { status } => json_frame(ENDED, status),
            Self::Failed(problem) => json_frame(FAILED, problem),
        }
    }

    fn decode(kind: u8, content: Vec<u8>) -> Result<Self, FrameError> {
        Ok(match kind {
            STDOUT => Self::Stdout(content),
            STDERR => Self::Stderr(content),
            ENDED => Self::Ended { status: json(&content)? },
            FAILED => Self::Failed(json(&content)?),
            kind => return Err(FrameError::Kind { kind }),
        })
    }
}

fn json_frame(kind: u8, value: &impl Serialize) -> Vec<u8> {
    frame(kind, &serde_json::to_vec(value).expect("frames have string keys only"))
}

fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("a frame is far shorter");
    [&[kind], &length.to_be_bytes()[..], content].concat()
}

fn json<'a, T: Deserialize<'a>>(content: &'a [u8]) -> Result<T, FrameError> {
    serde_json::from_slice(content).map_err(|error| FrameError::Content { why: error.to_string() })
}

/// Puts frames together from pieces of any length.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    /// How much of them was read already.
    read: usize,
}

impl FrameBuffer {
    pub fn push(&mut self, piece: &[u8]) {
        if self.read > 0 {
            self.bytes.drain(..self.read);
            self.read = 0;
        }
        self.bytes.extend_from_slice(piece);
    }

    /// The next whole frame; none until more has come.
    pub fn next_frame<F: ExecFrame>(&mut self) -> Result<Option<F>, FrameError> {
        let rest = &self.bytes[self.read..];
        let Some((&[kind, a, b, c, d], content)) = rest.split_first_chunk::<5>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > MAX_FRAME {
            return Err(FrameError::TooLong { length });
        }
        let Some(content) = content.get(..length) else { return Ok(None) };
        let content = content.to_vec();
        self.read += 5 + length;
        F::decode(kind, content).map(Some)
    }

    /// Whether nothing of a frame is left over.
    pub fn is_empty(&self) -> bool {
        self.read == self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::ProblemCode;

    #[test]
    fn frames_are_read_as_they_were_written_however_they_come() {
        let terminal = Some(TerminalSize { rows: 24, columns: 80 });
        let command = vec!["cat".to_owned()];
        let start = ExecStart { command, timeout_seconds: Some(9), has_input: true, terminal };
        let inputs = [
            ExecInput::Start(start),
            ExecInput::Bytes(vec![0, 255, 10]),
            ExecInput::Bytes(Vec::new()),
            ExecInput::Resize(TerminalSize { rows: 1, columns: u16::MAX }),
            ExecInput::Signal(ExecSignal::Interrupt),
            ExecInput::End,
        ];
        let problem = Box::new(Problem::new(ProblemCode::NotHere, "it is gone"));
        let events = [
            ExecEvent::Stdout(b"out".to_vec()),
            ExecEvent::Stderr(b"err".to_vec()),
            ExecEvent::Ended { status: Some(137) },
            ExecEvent::Ended { status: None },
            ExecEvent::Failed(problem),
        ];
        for step in [1, 2, 7, 4_096] {
            assert_eq!(through(&inputs, step), inputs, "in pieces of {step}");
            assert_eq!(through(&events, step), events, "in pieces of {step}");
        }
    }

    fn through<F: ExecFrame>(frames: &[F], step: usize) -> Vec<F> {
        let bytes: Vec<u8> = frames.iter().flat_map(ExecFrame::encode).collect();
        let (mut buffer, mut read) = (FrameBuffer::default(), Vec::new());
        for piece in bytes.chunks(step) {
            buffer.push(piece);
            while let Some(frame) = buffer.next_frame().unwrap() {
                read.push(frame);
            }
        }
        assert!(buffer.is_empty());
        read
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let long = [INPUT, 255, 255, 255, 255];
        for (case, bytes) in [
            ("too long", long.to_vec()),
            ("of no kind", frame(99, b"")),
            ("no start", frame(START, b"{}")),
            ("another side's", frame(STDOUT, b"x")),
        ] {
            let mut buffer = FrameBuffer::default();
            buffer.push(&bytes);
            assert!(buffer.next_frame::<ExecInput>().is_err(), "{case}");
        }
    }
}
