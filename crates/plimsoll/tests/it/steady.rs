//! Clients that ask one thing after another, each on a connection of its own or all on one, and remember what went wrong.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Longer than an answer takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// Keeps its connection until it is told that it closes.
pub(crate) struct Client {
    at: SocketAddr,
    host: &'static str,
    open: Option<BufReader<TcpStream>>,
    is_kept: bool,
}

impl Client {
    pub(crate) fn new(at: SocketAddr, host: &'static str, is_kept: bool) -> Self {
        Self { at, host, open: None, is_kept }
    }

    pub(crate) fn ask(&mut self) -> Result<String, String> {
        let asked = self.exchange().map_err(|error| error.to_string());
        asked.and_then(|(status, body)| if status == "200" { Ok(body) } else { Err(status) })
    }

    fn exchange(&mut self) -> std::io::Result<(String, String)> {
        let mut stream = match self.open.take() {
            Some(stream) => stream,
            None => BufReader::new(TcpStream::connect(self.at)?),
        };
        stream.get_ref().set_read_timeout(Some(PATIENCE))?;
        let connection = if self.is_kept { "keep-alive" } else { "close" };
        let head =
            format!("GET / HTTP/1.1\r\nHost: {}\r\nConnection: {connection}\r\n\r\n", self.host);
        stream.get_mut().write_all(head.as_bytes())?;
        let (mut lines, mut line) = (Vec::new(), String::new());
        while stream.read_line(&mut line)? > 0 && line != "\r\n" {
            lines.push(line.trim_end().to_ascii_lowercase());
            line.clear();
        }
        let status = lines.first().and_then(|line| line.split(' ').nth(1)).unwrap_or("cut off");
        let status = status.to_owned();
        let field = |name: &str| lines.iter().find_map(|line| line.strip_prefix(name));
        let mut body = Vec::new();
        match field("content-length: ").and_then(|length| length.parse().ok()) {
            Some(length) => {
                body.resize(length, 0);
                stream.read_exact(&mut body)?;
            }
            None => drop(stream.read_to_end(&mut body)?),
        }
        if self.is_kept && field("connection: ") != Some("close") {
            self.open = Some(stream);
        }
        Ok((status, String::from_utf8_lossy(&body).trim().to_owned()))
    }
}

/// What came of all requests.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    answered: AtomicUsize,
    pub(crate) failed: Mutex<Vec<String>>,
}

impl Tally {
    pub(crate) fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    pub(crate) fn has_failed(&self) -> bool {
        !self.failed.lock().unwrap().is_empty()
    }

    /// Asks until it is over.
    pub(crate) fn ask(&self, name: &str, mut client: Client, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            match client.ask() {
                Ok(_) => drop(self.answered.fetch_add(1, Ordering::Relaxed)),
                Err(why) => {
                    let text = format!("{name} after {}: {why}", self.answered());
                    self.failed.lock().unwrap().push(text);
                }
            }
        }
    }
}

/// Says that it is over when it is dropped, also where a test fails: whoever asks must end.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
