//! Timeouts and limits of the data plane. The defaults suit a node that is reachable from the internet.

use std::time::Duration;

use rustix::process::{Resource, getrlimit};

/// Timeouts and limits; see each field.
#[derive(Debug, Clone)]
pub struct RouterLimits {
    /// Clients connected at once, on all listeners together. One more evicts the connection that has been idle longest; if
    /// none is idle it waits.
    pub connections: usize,
    /// For one upstream to accept a connection, before the next is tried.
    pub connect: Duration,
    /// The same through another node, whose daemon has to connect in turn.
    pub connect_via: Duration,
    /// For an upstream to accept while there is another to try. Far longer than connecting takes, and far shorter than
    /// clients wait: an upstream that exceeds it is mostly down.
    pub late: Duration,
    /// How many upstreams are tried for one connection or request.
    pub tries: usize,
    /// For a client to send a whole request head, once it has begun: the bound on a slow-loris attack.
    pub header_read: Duration,
    /// For a client to begin a request, the first or the next.
    pub keep_alive: Duration,
    /// For an upstream to begin its response, once it has the whole request.
    pub response_head: Duration,
    /// For bytes to be sent or received while a request is in flight.
    pub idle: Duration,
    /// For bytes to be sent or received on an upgraded connection (WebSocket), either way.
    pub tunnel_idle: Duration,
    /// The size of a request or response head in bytes. The number of headers is limited to 100 by hyper.
    pub header_bytes: usize,
    /// Concurrent requests on one HTTP/2 connection.
    pub streams: u32,
    /// Idle connections kept to one upstream, and for how long. Less than what servers commonly keep (nginx 75 s,
    /// Node 5 s): the side that closes first loses no request.
    pub kept: usize,
    pub kept_for: Duration,
    /// Sessions of a published UDP port at once; one more evicts the one that has been idle longest.
    pub udp_sessions: usize,
    /// For a datagram to be sent or received on a UDP session.
    pub udp_idle: Duration,
}

/// Of the file descriptors of this process, one in so many is a client's: another may be its connection to an upstream, and
/// the rest of the node needs some as well.
const FILES_A_CLIENT: u64 = 3;

impl RouterLimits {
    /// As many clients as this process has file descriptors for: beyond that no connection could be accepted, not even to
    /// evict another.
    pub fn of_this_process() -> Self {
        Self::default().within(getrlimit(Resource::Nofile).current)
    }

    /// With so many file descriptors; none is unlimited.
    fn within(self, files: Option<u64>) -> Self {
        let most = files.and_then(|files| usize::try_from(files / FILES_A_CLIENT).ok());
        let connections = most.map_or(self.connections, |most| self.connections.min(most.max(1)));
        Self { connections, ..self }
    }
}

impl Default for RouterLimits {
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
    fn no_more_clients_are_accepted_than_there_are_file_descriptors_for() {
        let clients = |files| RouterLimits::default().within(files).connections;
        assert_eq!(clients(None), 60_000);
        assert_eq!(
            [1 << 20, 30_000, 1_024, 0].map(|files| clients(Some(files))),
            [60_000, 10_000, 341, 1]
        );
    }
}
