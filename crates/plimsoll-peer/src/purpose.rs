//! What a connection between nodes is for, and how much may be under way on it. Both sides know from the handshake on.

use std::time::Duration;

use rustls::{ClientConfig, ServerConfig};

/// What a connection carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Purpose {
    /// Requests of one daemon to another.
    #[default]
    Requests,
    /// Connections of clients to replicas.
    Tunnels,
}

/// How much may arrive, on one stream and on all, before somebody has read it. A window is no memory: only what is there
/// and not read takes some.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windows {
    pub(super) stream: u32,
    pub(super) connection: u32,
    /// Streams at once.
    pub(super) streams: u32,
}

impl Purpose {
    /// What they speak inside TLS: HTTP/2 both, under two names.
    fn name(self) -> &'static [u8] {
        match self {
            Self::Requests => b"h2",
            Self::Tunnels => b"plimsoll-tunnels",
        }
    }

    pub(super) fn windows(self) -> Windows {
        match self {
            // A piece of a snapshot with room to spare, so that a distant peer need not stop and wait; as many streams
            // as the API has clients, whose requests may be passed on.
            Self::Requests => Windows { stream: 2 << 20, connection: 8 << 20, streams: 1_024 },
            // A thousand that nobody reads hold up no other.
            Self::Tunnels => Windows { stream: 256 << 10, connection: 256 << 20, streams: 16_384 },
        }
    }

    /// How long what is under way may take once the authority that vouched for the other side is not trusted any more. A
    /// tunnel was let in when it was opened, and a client is at its end.
    pub(super) fn drain(self) -> Duration {
        match self {
            Self::Requests => Duration::from_secs(5),
            Self::Tunnels => Duration::from_mins(10),
        }
    }

    /// Has a client say what its connection is for.
    pub(super) fn announce(self, config: &mut ClientConfig) {
        config.alpn_protocols = vec![self.name().to_vec()];
    }

    /// Has a server take both.
    pub(super) fn accept_all(config: &mut ServerConfig) {
        config.alpn_protocols =
            [Self::Requests, Self::Tunnels].map(|one| one.name().to_vec()).to_vec();
    }

    /// What the client said.
    pub(super) fn announced(name: Option<&[u8]>) -> Self {
        if name == Some(Self::Tunnels.name()) { Self::Tunnels } else { Self::Requests }
    }
}
