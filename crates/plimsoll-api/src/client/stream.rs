//! Answers that come a piece at a time: JSON lines and server-sent events.

use std::collections::VecDeque;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use super::error::Error;
use super::transport::StreamingResponse;
use crate::view::Problem;

/// The most one piece may have; no daemon sends as much, so beyond it something else speaks.
const MAX_PIECE: usize = 16 << 20;

/// Pieces in the order they were sent. Dropping it tells the daemon to stop.
#[derive(Debug)]
pub struct Stream<T> {
    answer: StreamingResponse,
    frames: Frames,
    is_over: bool,
    of: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Stream<T> {
    pub(super) fn new(answer: StreamingResponse) -> Self {
        let frames = Frames::new(answer.is_events);
        Self { answer, frames, is_over: false, of: PhantomData }
    }

    /// The next piece; none once the daemon has sent the last. After an error there is none either.
    pub async fn next(&mut self) -> Option<Result<T, Error>> {
        loop {
            if let Some(text) = self.frames.take() {
                return Some(self.read(&text));
            }
            if self.is_over {
                return None;
            }
            match self.answer.piece().await {
                Ok(Some(bytes)) => self.frames.push(&bytes),
                Ok(None) => {
                    self.is_over = true;
                    self.frames.end();
                }
                Err(error) => return Some(Err(self.over(error))),
            }
            if self.frames.partial.len() > MAX_PIECE {
                let what = format!("a piece of more than {MAX_PIECE} bytes");
                let error = self.answer.misunderstood(what);
                return Some(Err(self.over(error)));
            }
        }
    }

    fn read(&mut self, text: &[u8]) -> Result<T, Error> {
        serde_json::from_slice(text).map_err(|error| {
            // What goes wrong under way comes as a last piece of another kind.
            let problem = serde_json::from_slice::<Problem>(text).map(Error::Problem);
            let error = problem.unwrap_or_else(|_| self.answer.misunderstood(error.to_string()));
            self.over(error)
        })
    }

    fn over(&mut self, error: Error) -> Error {
        self.is_over = true;
        self.frames = Frames::new(false);
        error
    }
}

/// Cuts bytes into the texts of pieces.
#[derive(Debug, Default)]
struct Frames {
    is_events: bool,
    /// A line that has not ended yet.
    partial: Vec<u8>,
    /// The data lines of an event that has not ended yet.
    event: Vec<u8>,
    whole: VecDeque<Vec<u8>>,
}

impl Frames {
    fn new(is_events: bool) -> Self {
        Self { is_events, ..Self::default() }
    }

    fn push(&mut self, bytes: &[u8]) {
        let mut lines = bytes.split(|byte| *byte == b'\n');
        // What is after the last line end, if only nothing, begins the next line.
        let rest = lines.next_back().unwrap_or_default();
        for line in lines {
            self.partial.extend_from_slice(line);
            let line = std::mem::take(&mut self.partial);
            self.line(line.strip_suffix(b"\r").unwrap_or(&line));
        }
        self.partial.extend_from_slice(rest);
    }

    fn line(&mut self, line: &[u8]) {
        if !self.is_events {
            if !line.is_empty() {
                self.whole.push_back(line.to_vec());
            }
        } else if line.is_empty() {
            if !self.event.is_empty() {
                self.whole.push_back(std::mem::take(&mut self.event));
            }
        } else if let Some(data) = line.strip_prefix(b"data:") {
            if !self.event.is_empty() {
                self.event.push(b'\n');
            }
            self.event.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        }
        // Ids are in the data as well, and comments only keep the connection alive.
    }

    /// A last line may lack its end; an event that lacks its own was cut off and does not count.
    fn end(&mut self) {
        let line = std::mem::take(&mut self.partial);
        if !self.is_events {
            self.line(&line);
        }
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        self.whole.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(is_events: bool, bytes: &str, size: usize) -> Vec<String> {
        let mut frames = Frames::new(is_events);
        bytes.as_bytes().chunks(size).for_each(|piece| frames.push(piece));
        frames.end();
        let whole = std::iter::from_fn(|| frames.take());
        whole.map(|text| String::from_utf8(text).unwrap()).collect()
    }

    #[test]
    fn pieces_are_cut_where_they_end_however_they_arrive() {
        let events =
            ": hello\n\nid: 4\nevent: changed\ndata: {\"a\":\ndata: 1}\n\ndata:2\r\n\r\ndata: 3";
        for size in 1..events.len() {
            assert_eq!(texts(true, events, size), ["{\"a\":\n1}", "2"], "{size}");
            assert_eq!(texts(false, "{}\n\n[1]\n[2", size), ["{}", "[1]", "[2"], "{size}");
        }
    }
}
