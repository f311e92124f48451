//! What an upstream may see: requests that the router made, in the one form that every reader takes alike. It reads them by
//! splitting lines, and with none of the router's code.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What the head of a request says.
pub(super) enum Seen {
    Request {
        is_head: bool,
        body: Framing,
    },
    /// Nothing that the router would have sent.
    Wrong(String),
}

#[derive(Clone, Copy)]
pub(super) enum Framing {
    Length(usize),
    Chunked,
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|it| it.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(it))
}

/// Reads a head without its last empty line.
pub(super) fn read_head(head: &[u8]) -> Seen {
    let text: String = head.iter().map(|byte| char::from(*byte)).collect();
    match read(&text) {
        Ok((is_head, body)) => Seen::Request { is_head, body },
        Err(why) => Seen::Wrong(format!("{why}: {}", head.escape_ascii())),
    }
}

fn read(text: &str) -> Result<(bool, Framing), &'static str> {
    let mut lines = text.split("\r\n");
    let first: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let &[method, target, "HTTP/1.1"] = first.as_slice() else { return Err("no request line") };
    let path = target.split('?').next().unwrap_or_default();
    let is_path = path.starts_with('/') && target.chars().all(|it| it > ' ' && it != '\u{7f}');
    if !is_token(method) || !is_path {
        return Err("a method or target of another kind");
    }
    if path.contains("//") || path.split('/').any(|segment| segment == "." || segment == "..") {
        return Err("a path that was not resolved");
    }
    let mut fields = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':').ok_or("a line that is no field")?;
        let is_text = |it: char| it == '\t' || (it >= ' ' && it != '\u{7f}');
        if !is_token(name) || !value.chars().all(is_text) {
            return Err("a field that readers may differ about");
        }
        fields.push((name.to_ascii_lowercase(), value.trim()));
    }
    let all = |name: &str| -> Vec<&str> {
        fields.iter().filter(|field| field.0 == name).map(|field| field.1).collect()
    };
    if all("x-forwarded-for") != ["127.0.0.1"] {
        return Err("the router did not see it");
    }
    if all("host").len() > 1 || all("host") != all("x-forwarded-host") {
        return Err("more than one host");
    }
    let forged = ["forwarded", "x-real-ip", "x_forwarded_for"];
    if forged.iter().any(|name| !all(name).is_empty()) {
        return Err("a forged field");
    }
    let body = match (all("content-length").as_slice(), all("transfer-encoding").as_slice()) {
        ([], []) => Framing::Length(0),
        ([length], []) if length.chars().all(|it| it.is_ascii_digit()) => {
            Framing::Length(length.parse().map_err(|_| "a length beyond all")?)
        }
        ([], ["chunked"]) => Framing::Chunked,
        _ => return Err("two lengths, or none that is one"),
    };
    Ok((method == "HEAD", body))
}

/// A connection of the router, read byte by byte from a buffer.
struct Reading {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Reading {
    /// What comes before this mark, which is taken as well; none at the end.
    async fn until(&mut self, mark: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.bytes.windows(mark.len()).position(|part| part == mark) {
                let rest = self.bytes.split_off(at + mark.len());
                let mut part = std::mem::replace(&mut self.bytes, rest);
                part.truncate(at);
                return Some(part);
            }
            if self.stream.read_buf(&mut self.bytes).await.ok()? == 0 {
                return None;
            }
        }
    }

    async fn skip(&mut self, count: usize) -> Option<()> {
        while self.bytes.len() < count {
            if self.stream.read_buf(&mut self.bytes).await.ok()? == 0 {
                return None;
            }
        }
        self.bytes.drain(..count);
        Some(())
    }

    async fn skip_body(&mut self, framing: Framing) -> Option<()> {
        let Framing::Chunked = framing else {
            let Framing::Length(length) = framing else { return None };
            return self.skip(length).await;
        };
        loop {
            let size = self.until(b"\r\n").await?;
            let size = usize::from_str_radix(std::str::from_utf8(&size).ok()?, 16).ok()?;
            self.skip(size).await?;
            if size == 0 {
                while !self.until(b"\r\n").await?.is_empty() {}
                return Some(());
            }
            if !self.until(b"\r\n").await?.is_empty() {
                return None;
            }
        }
    }
}

/// Reads requests and answers each until the connection ends, and notes those that are wrong.
pub(super) async fn read_requests(stream: TcpStream, wrong: Arc<Mutex<Vec<String>>>) {
    let mut reading = Reading { stream, bytes: Vec::new() };
    while let Some(head) = reading.until(b"\r\n\r\n").await {
        let (is_head, body) = match read_head(&head) {
            Seen::Request { is_head, body } => (is_head, body),
            Seen::Wrong(why) => return wrong.lock().unwrap().push(why),
        };
        if reading.skip_body(body).await.is_none() {
            return;
        }
        let answer = if is_head {
            &b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"[..]
        } else {
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        };
        if reading.stream.write_all(answer).await.is_err() {
            return;
        }
    }
}

/// Whether the bytes are one request without a body that changes nothing, and no more.
pub(super) fn is_one_safe_request(bytes: &[u8]) -> bool {
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    let Some(head) = text.strip_suffix("\r\n\r\n") else { return false };
    let more = ["content-length", "transfer-encoding", "upgrade", "expect"];
    ["GET ", "HEAD ", "OPTIONS "].iter().any(|method| head.starts_with(method))
        && !head.contains("\r\n\r\n")
        && head.split("\r\n").skip(1).all(|line| {
            let name = line.split(':').next().unwrap_or_default().trim().to_ascii_lowercase();
            !more.contains(&name.as_str())
        })
}
