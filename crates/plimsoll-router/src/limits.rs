//! Every bound of the data plane: how long, how many, how much. The defaults suit a node that serves strangers.

use std::time::Duration;

use rustix::process::{Resource, getrlimit};

/// See each field.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Clients connected at once, all doors and ports together. One more takes the place of the one that has been idle
    /// longest; if none is idle it waits to be let in.
    pub connections: usize,
    /// For one upstream to accept a connection, before the next is tried.
    pub connect: Duration,
    /// The same through another node, whose daemon has to connect in turn.
    pub connect_via: Duration,
    /// For an upstream to accept while there is another that could be tried. It is far more than it takes, and far less
    /// than anybody waits for: what is late is most often gone.
    pub late: Duration,
    /// How many upstreams are tried for one connection or request.
    pub tries: usize,
    /// For a client to say all of what it wants, once it has begun: what a slow-loris runs into.
    pub header_read: Duration,
    /// For a client to begin at all, or again.
    pub keep_alive: Duration,
    /// For an upstream to begin its answer, once it has all of the request.
    pub response_head: Duration,
    /// For anything to move on a connection whose request is under way.
    pub idle: Duration,
    /// For anything to move in a tunnel (WebSocket), either way.
    pub tunnel_idle: Duration,
    /// The head of a request or an answer, in bytes. Of fields it has at most 100, as hyper has it.
    pub header_bytes: usize,
    /// Requests at once on one connection of HTTP/2.
    pub streams: u32,
    /// Idle connections kept to one upstream, and for how long. Less than what servers commonly keep (nginx 75 s,
    /// Node 5 s): who closes first loses no request.
    pub kept: usize,
    pub kept_for: Duration,
    /// Clients of a published UDP port that are remembered at once; one more takes the place of the quietest.
    pub udp_sessions: usize,
    /// For how long a quiet one is.
    pub udp_idle: Duration,
}

/// Of the files that this process may open, one in so many is a client's: another may be its connection to an upstream,
/// and all else that a node does needs some as well.
const FILES_A_CLIENT: u64 = 3;

impl Limits {
    /// As many clients as this process may have files for: if more were let in, there would be none left to let in those
    /// who could make them give way.
    pub fn of_this_process() -> Self {
        Self::default().within(getrlimit(Resource::Nofile).current)
    }

    /// The same with so many files; none: as many as one likes.
    fn within(self, files: Option<u64>) -> Self {
        let most = files.and_then(|files| usize::try_from(files / FILES_A_CLIENT).ok());
        let connections = most.map_or(self.connections, |most| self.connections.min(most.max(1)));
        Self { connections, ..self }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 60_000,
            connect: Duration::from_secs(1),
            connect_via: Duration::from_secs(3),
            late: Duration::from_millis(300),
            tries: 4,
            header_read: Duration::from_secs(10),
            keep_alive: Duration::from_mins(1),
            response_head: Duration::from_mins(1),
            idle: Duration::from_mins(5),
            tunnel_idle: Duration::from_hours(1),
            header_bytes: 64 << 10,
            streams: 128,
            kept: 1_024,
            kept_for: Duration::from_secs(4),
            udp_sessions: 4_096,
            udp_idle: Duration::from_mins(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_clients_are_let_in_than_there_are_files_for() {
        let clients = |files| Limits::default().within(files).connections;
        assert_eq!(clients(None), 60_000);
        assert_eq!(
            [1 << 20, 30_000, 1_024, 0].map(|files| clients(Some(files))),
            [60_000, 10_000, 341, 1]
        );
    }
}
