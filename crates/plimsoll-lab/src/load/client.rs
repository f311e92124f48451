//! One client: connects, asks, and reads the answer whole.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::report::{LoadReport, RequestFailure};
use super::{Aim, LoadProgress, Manner, PATIENCE};

/// The longest answer there is.
const ANSWER: usize = 64 << 10;

/// A client that was refused is not let loose at once: it would fail thousands of times a second, and say nothing new.
const BREATH: Duration = Duration::from_millis(20);

/// All clients of one thread, until it is over.
pub(super) fn all(aims: &[Aim], progress: &LoadProgress) -> LoadReport {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a thread can wait for sockets");
    runtime.block_on(async {
        let mut outcome = LoadReport::default();
        let mut asking: FuturesUnordered<_> = aims.iter().map(|aim| live(aim, progress)).collect();
        while let Some(one) = asking.next().await {
            outcome.add(one);
        }
        outcome
    })
}

async fn live(aim: &Aim, progress: &LoadProgress) -> LoadReport {
    let mut outcome = LoadReport::default();
    let mut kept = None;
    while !progress.is_over() {
        let begun = Instant::now();
        let asked = begun.duration_since(progress.begun);
        let exchange = timeout(PATIENCE, ask(aim, kept.take())).await;
        let took = begun.elapsed();
        match exchange.unwrap_or_else(|_| Err("not answered in time".to_owned())) {
            Ok(connection) => {
                kept = connection;
                outcome.answered_after(asked, took);
                progress.answered.fetch_add(1, Relaxed);
            }
            Err(why) => {
                outcome.note(RequestFailure { at: aim.at, asked, took, why });
                progress.failed.fetch_add(1, Relaxed);
                sleep(BREATH).await;
            }
        }
    }
    outcome
}

/// One request and its answer; the connection, if it is good for another.
async fn ask(aim: &Aim, kept: Option<TcpStream>) -> Result<Option<TcpStream>, String> {
    let said = |what: &str, error: &io::Error| format!("cannot {what}: {error}");
    let mut stream = match kept {
        Some(stream) => stream,
        None => TcpStream::connect(aim.at).await.map_err(|error| said("connect", &error))?,
    };
    let fate = match aim.manner {
        Manner::OneShot => "close",
        Manner::KeepAlive => "keep-alive",
    };
    let words = format!("GET / HTTP/1.1\r\nHost: {}\r\nConnection: {fate}\r\n\r\n", aim.host);
    stream.write_all(words.as_bytes()).await.map_err(|error| said("ask", &error))?;
    let (mut heard, mut space) = (Vec::new(), [0; 4_096]);
    loop {
        let count = stream.read(&mut space).await.map_err(|error| said("hear", &error))?;
        heard.extend_from_slice(&space[..count]);
        match answer(&heard, count == 0)? {
            Some(HttpResponse { is_last }) => {
                return Ok((aim.manner == Manner::KeepAlive && !is_last).then_some(stream));
            }
            None if heard.len() > ANSWER => return Err("an answer without an end".to_owned()),
            None => {}
        }
    }
}

struct HttpResponse {
    /// No other comes on its connection.
    is_last: bool,
}

/// What was heard, once that is all of it.
fn answer(heard: &[u8], has_ended: bool) -> Result<Option<HttpResponse>, String> {
    let cut = || {
        let text = String::from_utf8_lossy(heard).into_owned();
        format!("cut off after {} bytes: {text:?}", heard.len())
    };
    let Some(end) = heard.windows(4).position(|four| four == b"\r\n\r\n") else {
        return if has_ended { Err(cut()) } else { Ok(None) };
    };
    let fields = String::from_utf8_lossy(&heard[..end]).to_ascii_lowercase();
    let mut lines = fields.lines();
    let status = lines.next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(String::from_utf8_lossy(heard).into_owned());
    }
    let field = |name: &str| {
        let found = lines.clone().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        found.map(|value| value.trim().to_owned())
    };
    let body = heard.len() - end - 4;
    let length = field("content-length").and_then(|length| length.parse::<usize>().ok());
    let is_last = has_ended
        || length.is_none()
        || status.starts_with("http/1.0")
        || field("connection").is_some_and(|fate| fate == "close");
    match length {
        Some(length) if body >= length => Ok(Some(HttpResponse { is_last })),
        Some(_) if has_ended => Err(cut()),
        None if has_ended => Ok(Some(HttpResponse { is_last })),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_once_it_is_whole_and_only_if_it_is_good() {
        let whole = |text: &str, has_ended| match answer(text.as_bytes(), has_ended) {
            Ok(None) => "goes on",
            Ok(Some(HttpResponse { is_last: true })) => "last",
            Ok(Some(HttpResponse { is_last: false })) => "good",
            Err(_) => "failed",
        };
        for (case, text, has_ended, expected) in [
            ("nothing yet", "", false, "goes on"),
            ("nothing at all", "", true, "failed"),
            ("half a head", "HTTP/1.1 200 OK\r\nCont", true, "failed"),
            ("all", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", false, "good"),
            ("half a body", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nh", false, "goes on"),
            ("and no more", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nh", true, "failed"),
            ("no length", "HTTP/1.0 200 OK\r\n\r\nh", false, "goes on"),
            ("no length, ended", "HTTP/1.0 200 OK\r\n\r\nh", true, "last"),
            (
                "said so",
                "HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n",
                false,
                "last",
            ),
            ("another status", "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", false, "failed"),
        ] {
            assert_eq!(whole(text, has_ended), expected, "{case}");
        }
    }
}
