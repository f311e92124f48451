//! A daemon's API without the command line or a client between: one request, one answer.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Silence {
    /// Nobody was there to ask.
    NotAsked,
    /// It was asked, and what became of that nobody knows.
    NotAnswered,
}

/// The answer's status and body.
pub(crate) fn ask(
    socket: &Path,
    verb: &str,
    path: &str,
    body: &[u8],
    patience: Duration,
) -> Result<(u16, Vec<u8>), Silence> {
    let mut stream = UnixStream::connect(socket).map_err(|_| Silence::NotAsked)?;
    exchange(&mut stream, verb, path, body, patience).ok_or(Silence::NotAnswered)
}

fn exchange(
    stream: &mut UnixStream,
    verb: &str,
    path: &str,
    body: &[u8],
    patience: Duration,
) -> Option<(u16, Vec<u8>)> {
    stream.set_read_timeout(Some(patience)).ok()?;
    let length = body.len();
    let head = format!(
        "{verb} {path} HTTP/1.1\r\nhost: lab\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).ok()?;
    // A body that is too long is not read to its end.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let code = String::from_utf8_lossy(answer.get(9..12)?).parse().ok()?;
    Some((code, answer[end + 4..].to_vec()))
}
