//! Timeouts and limits of the data plane. The defaults suit a node that is reachable from the internet.

use std::time::Duration;

use rustix::process::{Resource, getrlimit};

use crate::trusted_proxies::TrustedProxies;

/// Timeouts and limits; see each field.
#[derive(Debug, Clone)]
pub struct RouterLimits {
    /// Clients connected at once, on all listeners together. One more evicts the connection that has been idle longest; if
    /// none is idle it waits.
    pub connections: usize,
    /// Of these, how many one source may have: an IPv4 address, or a /64 of IPv6. Trusted proxies may have all.
    pub source_connections: usize,
    /// Of these, how many one port may have.
    pub port_connections: usize,
    /// How many more there may be to services by their names, from inside the cell: however many clients come from outside,
    /// services reach each other.
    pub reserved_connections: usize,
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
    /// For bytes to be sent or received while an HTTP/1 request is in flight.
    pub idle: Duration,
    /// For bytes to be sent or received on an upgraded connection (WebSocket), either way, and for a part of any body on an
    /// HTTP/2 connection while requests are in flight: calls may be silent for long, and pings are no sign of them.
    pub tunnel_idle: Duration,
    /// For bytes to be sent or received on a connection that is carried as it is, either way. Protocols that are silent for
    /// longer have keep-alives of their own.
    pub carried_idle: Duration,
    /// After this it may be evicted in favour of another client, where there is no room.
    pub carried_quiet: Duration,
    /// For a client to send the body of a request, not counting the time in which the upstream took none of it. Once this has
    /// passed, the body must have come at the rate at least, in bytes a second: the bound on a slow upload.
    pub body_grace: Duration,
    pub body_rate: u64,
    /// Requests of one HTTP/2 connection that the client may reset before they are answered. Beyond it, a connection with more
    /// of these than of answered ones is closed.
    pub resets: u32,
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
    /// Proxies in front of this node: their forwarding headers are believed, and they stand for many clients.
    pub trusted_proxies: TrustedProxies,
}

/// The longest time that a part of a small answer is held, so that one that breaks off can be asked for again elsewhere. Small
/// answers are mostly one write. Between the two halves of one, a node may fall silent: it must be known to be gone before the
/// first half is given to the client, so this is longer than a tunnel takes to find out.
pub const HELD_ANSWER: Duration = Duration::from_secs(4);

/// Of the file descriptors of this process, one in so many is a client's: another may be its connection to an upstream, and
/// the rest of the node needs some as well.
const FILES_A_CLIENT: u64 = 3;

/// Of the connections, one source may have one in so many: four sources of bad will fill a node, one does not.
const SOURCE_PART: usize = 4;

/// Of the connections, those that one port must leave to the others, one in so many.
const OTHER_PORTS_PART: usize = 4;

/// The reserve for service names: one for so many connections.
const RESERVED_PART: usize = 8;

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
        self.shared(connections)
    }

    /// With so many connections, and the shares of them.
    fn shared(self, connections: usize) -> Self {
        Self {
            connections,
            source_connections: connections.div_ceil(SOURCE_PART),
            port_connections: connections - connections / OTHER_PORTS_PART,
            reserved_connections: connections.div_ceil(RESERVED_PART),
            ..self
        }
    }
}

impl Default for RouterLimits {
    fn default() -> Self {
        Self {
            connections: 60_000,
            source_connections: 60_000 / SOURCE_PART,
            port_connections: 60_000 - 60_000 / OTHER_PORTS_PART,
            reserved_connections: 60_000 / RESERVED_PART,
            connect: Duration::from_secs(1),
            connect_via: Duration::from_secs(3),
            late: Duration::from_millis(300),
            tries: 4,
            header_read: Duration::from_secs(10),
            keep_alive: Duration::from_mins(1),
            response_head: Duration::from_mins(1),
            idle: Duration::from_mins(5),
            tunnel_idle: Duration::from_hours(1),
            carried_idle: Duration::from_hours(24),
            carried_quiet: Duration::from_mins(15),
            body_grace: Duration::from_secs(30),
            body_rate: 500,
            resets: 200,
            header_bytes: 64 << 10,
            streams: 128,
            kept: 1_024,
            kept_for: Duration::from_secs(4),
            udp_sessions: 4_096,
            udp_idle: Duration::from_mins(1),
            trusted_proxies: TrustedProxies::default(),
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
    #[test]
    fn a_source_and_a_port_have_a_share_of_the_connections_and_names_a_reserve_beside_them() {
        for (files, shares) in [
            (None, [60_000, 15_000, 45_000, 7_500]),
            (Some(1_024), [341, 86, 256, 43]),
            (Some(0), [1, 1, 1, 1]),
        ] {
            let limits = RouterLimits::default().within(files);
            let RouterLimits {
                connections,
                source_connections,
                port_connections,
                reserved_connections,
                ..
            } = limits;
            let found = [connections, source_connections, port_connections, reserved_connections];
            assert_eq!(found, shares, "{files:?}");
        }
    }
    #[test]
    fn the_guide_quotes_the_limits() {
        let guide = include_str!("../../../docs/guide/routes.md");
        let limits = RouterLimits::default();
        let seconds = |span: Duration| format!("{} s", span.as_secs());
        let minutes = |span: Duration| format!("{} min", span.as_secs() / 60);
        let rate = format!("a request body: after this, at least {} bytes", limits.body_rate);
        for (row, default) in [
            ("connections of clients", limits.connections.to_string()),
            ("of these from one source", limits.source_connections.to_string()),
            ("of these at one port", limits.port_connections.to_string()),
            ("more of them to services by name", limits.reserved_connections.to_string()),
            ("a whole request head", seconds(limits.header_read)),
            ("the next request", seconds(limits.keep_alive)),
            (&rate, seconds(limits.body_grace)),
            ("bytes either way while an HTTP/1", minutes(limits.idle)),
            ("bytes either way on a WebSocket", minutes(limits.tunnel_idle)),
            (
                "bytes either way on a connection to",
                format!("{} h", limits.carried_idle.as_secs() / 3_600),
            ),
            ("the same, before it makes room", minutes(limits.carried_quiet)),
            ("requests that an HTTP/2 client resets", limits.resets.to_string()),
        ] {
            let line = guide.lines().find(|line| line.starts_with(&format!("| {row}")));
            let line = line.unwrap_or_else(|| panic!("the guide has no row {row:?}"));
            assert!(line.ends_with(&format!("| {default} |")), "{line}: it is {default}");
        }
    }
}
