//! The way to a replica on another node: a stream over the connection that the two daemons have, named by headers.

use std::io;
use std::time::Duration;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use plimsoll_model::NodeId;
use plimsoll_router::{ByteStream, Protocol, RemoteUpstream, Tunnel, TunnelFuture, UpstreamKey};

use crate::endpoint_feed::EndpointFeed;
use plimsoll_peer::{Error, PeerClient, Target};

/// Where another node takes streams to its replicas.
pub const TUNNEL: &str = "/peer/tunnel";

const REPLICA: HeaderName = HeaderName::from_static("plimsoll-replica");
const GENERATION: HeaderName = HeaderName::from_static("plimsoll-generation");
const PORT: HeaderName = HeaderName::from_static("plimsoll-port");
const PROTOCOL: HeaderName = HeaderName::from_static("plimsoll-protocol");

/// For the other node to connect. The router gives up before.
const ANSWER: Duration = Duration::from_secs(5);

/// Opens streams to replicas on other nodes.
#[derive(Debug)]
pub struct Tunnels {
    /// Who knows where nodes are.
    pub endpoints: EndpointFeed,
    pub client: PeerClient,
}

impl Tunnel for Tunnels {
    fn open(&self, far: RemoteUpstream) -> TunnelFuture<'_> {
        Box::pin(async move { Ok(Box::new(self.connect(&far).await?) as Box<dyn ByteStream>) })
    }
}

impl Tunnels {
    async fn connect(&self, far: &RemoteUpstream) -> io::Result<impl ByteStream + use<>> {
        let target = self.target(&far.node).ok_or_else(|| unreached(far, "it has no address"))?;
        let headers = named(&far.upstream, far.protocol).map_err(io::Error::other)?;
        let open = || self.client.tunnel(&target, Method::POST, TUNNEL, headers.clone(), ANSWER);
        let opened = match open().await {
            // Its daemon may have handed over to another at this moment, and nothing of the client was sent yet.
            Err(Error::Closed { .. }) => open().await,
            opened => opened,
        };
        let (status, stream) = opened.map_err(io::Error::other)?;
        if status == StatusCode::OK {
            Ok(stream)
        } else {
            Err(unreached(far, &format!("it answered {status}")))
        }
    }

    fn target(&self, node: &str) -> Option<Target> {
        let node = NodeId::new(node).ok()?;
        let address = self.endpoints.latest()?.nodes.get(&node)?.clone();
        Some(Target { node, address })
    }
}

fn unreached(far: &RemoteUpstream, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionRefused, format!("cannot reach {far}: {why}"))
}

/// What is asked for, as headers.
fn named(
    key: &UpstreamKey,
    protocol: Protocol,
) -> Result<HeaderMap, hyper::header::InvalidHeaderValue> {
    let protocol = match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
    };
    Ok(HeaderMap::from_iter([
        (REPLICA, HeaderValue::try_from(&*key.replica)?),
        (GENERATION, HeaderValue::from(key.generation)),
        (PORT, HeaderValue::from(key.port)),
        (PROTOCOL, HeaderValue::from_static(protocol)),
    ]))
}

/// What headers ask for; none if that cannot be read.
pub(super) fn read(headers: &HeaderMap) -> Option<(UpstreamKey, Protocol)> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok();
    let protocol = match text(PROTOCOL)? {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        _ => return None,
    };
    let (generation, port) = (text(GENERATION)?.parse().ok()?, text(PORT)?.parse().ok()?);
    Some((UpstreamKey { replica: text(REPLICA)?.into(), generation, port }, protocol))
}

#[cfg(test)]
mod tests {
    use plimsoll_fuzz::Fuzz;

    use super::*;

    #[test]
    fn no_broken_request_for_a_tunnel_names_what_it_does_not_say() {
        let whole = "shop-web-1\n18446744073709551615\n65535\ntcp";
        let fuzz = Fuzz::new("tunnel request").one_of(4).words(&["\n", "udp", "+", "-", " "]);
        fuzz.input(whole).input("a\n1\n0\nudp").run(|input| {
            let names = [REPLICA, GENERATION, PORT, PROTOCOL];
            let lines = input.split(|byte| *byte == b'\n');
            let fields = names
                .into_iter()
                .zip(lines)
                .filter_map(|(name, line)| Some((name, HeaderValue::from_bytes(line).ok()?)));
            let headers: HeaderMap = fields.collect();
            if let Some((key, protocol)) = read(&headers) {
                let again = named(&key, protocol).unwrap();
                assert_eq!(read(&again), Some((key, protocol)));
            }
        });
    }

    #[test]
    fn what_headers_name_is_read_as_it_was_meant() {
        let key = UpstreamKey { replica: "shop-web-1".into(), generation: u64::MAX, port: 65_535 };
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let headers = named(&key, protocol).unwrap();
            assert_eq!(read(&headers), Some((key.clone(), protocol)));
            for missing in [REPLICA, GENERATION, PORT, PROTOCOL] {
                let mut headers = headers.clone();
                headers.remove(&missing);
                assert_eq!(read(&headers), None, "without {missing}");
            }
        }
    }
}
