//! Handshakes under way at a port: bounded in number, and where there is no room for another, the one that has taken longest
//! has to go. Shared by the port of the nodes and the one of operators.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

/// Those that are not over, each with what it comes to.
#[derive(Debug)]
pub struct Handshakes<T> {
    at_once: usize,
    crowded_patience: Duration,
    running: JoinSet<Option<T>>,
    /// By when they began. Those that are over are taken out as they come to the front.
    by_age: VecDeque<(Instant, AbortHandle)>,
}

/// Of a handshake that came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unfinished;

/// Whether there was room for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crowd {
    HadRoom,
    OldestWent,
}

impl<T: Send + 'static> Handshakes<T> {
    /// So many at once. Where there are as many, one that has taken this long has to go: honest ones take milliseconds, and
    /// those who mean to keep others out must not succeed by doing nothing.
    pub fn new(at_once: usize, crowded_patience: Duration) -> Self {
        let (running, by_age) = (JoinSet::new(), VecDeque::new());
        Self { at_once, crowded_patience, running, by_age }
    }

    /// When there will be room for another at the latest; `None` when there is some now.
    pub fn room_at(&mut self) -> Option<Instant> {
        while self.by_age.front().is_some_and(|(_, handshake)| handshake.is_finished()) {
            self.by_age.pop_front();
        }
        if self.running.len() < self.at_once {
            return None;
        }
        self.by_age.front().map(|(since, _)| *since + self.crowded_patience)
    }

    pub fn begin(&mut self, handshake: impl Future<Output = Option<T>> + Send + 'static) -> Crowd {
        let mut crowd = Crowd::HadRoom;
        if self.running.len() >= self.at_once
            && let Some((_, oldest)) = self.by_age.pop_front()
        {
            oldest.abort();
            crowd = Crowd::OldestWent;
        }
        let handshake = self.running.spawn(handshake);
        self.by_age.push_back((Instant::now(), handshake));
        crowd
    }

    /// What the next that is over came to; `None` where none is under way.
    pub async fn over(&mut self) -> Option<Result<T, Unfinished>> {
        let shaken = self.running.join_next().await?;
        Some(shaken.ok().flatten().ok_or(Unfinished))
    }
}

/// The next who comes, once there is room.
pub async fn accept(
    listener: &TcpListener,
    room_at: Option<Instant>,
) -> io::Result<(TcpStream, SocketAddr)> {
    if let Some(room_at) = room_at {
        sleep_until(room_at).await;
    }
    listener.accept().await
}
