//! The DNS resolver of one network: answers queries for services, and forwards all others to this host's name servers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_runtime::Bridge;
use plimsoll_runtime::bridge::name_servers;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::DnsInner;
use crate::directory::Directory;
use crate::message::{self, DnsAnswer, DnsQuestion};

/// How long to wait for one name server of this host before the next is asked.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);

/// Queries of one network that are forwarded at once. One more is dropped, and the client retries.
const MAX_FORWARDED: usize = 256;

/// The largest message accepted over UDP.
const MAX_UDP_MESSAGE: usize = 4_096;

/// How long a client may keep a TCP connection open.
const TCP_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait until the directory knows the address of a container that was just started.
const ADDRESS_TIMEOUT: Duration = Duration::from_millis(500);

/// How long to wait after a failed receive.
const RECEIVE_RETRY: Duration = Duration::from_millis(50);

pub(crate) const PORT: u16 = 53;

/// What a resolver does with queries for names that are not services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recursion {
    /// Forwards them to this host's name servers.
    Forward,
    /// Refuses them: the client has other name servers.
    Refuse,
}

/// Answers queries over UDP, for as long as it is polled.
pub(crate) async fn serve(
    inner: Arc<DnsInner>,
    bridge: Arc<Bridge>,
    socket: Arc<UdpSocket>,
    recursion: Recursion,
) {
    let forwarded = Arc::new(Semaphore::new(MAX_FORWARDED));
    let mut space = vec![0; MAX_UDP_MESSAGE];
    loop {
        let (length, client) = match socket.recv_from(&mut space).await {
            Ok(received) => received,
            Err(error) => {
                tracing::debug!(network = bridge.name, %error, "cannot receive DNS queries");
                sleep(RECEIVE_RETRY).await;
                continue;
            }
        };
        let text = &space[..length];
        if let Some(answer) = answer_service(&inner, &bridge, text, client.ip()) {
            let _ = socket.send_to(&answer, client).await;
            continue;
        }
        let Ok(permit) = Arc::clone(&forwarded).try_acquire_owned() else { continue };
        let (inner, bridge, socket) =
            (Arc::clone(&inner), Arc::clone(&bridge), Arc::clone(&socket));
        let text = text.to_vec();
        tokio::spawn(async move {
            if let Some(answer) =
                answer(&inner, &bridge, &text, client.ip(), recursion, DnsTransport::Udp).await
            {
                let _ = socket.send_to(&answer, client).await;
            }
            drop(permit);
        });
    }
}

/// Answers queries on a TCP connection, each with its length before it.
pub(crate) async fn serve_stream(
    inner: &DnsInner,
    bridge: &Bridge,
    mut stream: TcpStream,
    recursion: Recursion,
) {
    let Ok(from) = stream.peer_addr().map(|address| address.ip()) else { return };
    let all = async {
        loop {
            let text = read(&mut stream).await?;
            let Some(answer) =
                answer(inner, bridge, &text, from, recursion, DnsTransport::Tcp).await
            else {
                return io::Result::Ok(());
            };
            write(&mut stream, &answer).await?;
        }
    };
    let _ = timeout(TCP_TIMEOUT, all).await;
}

async fn read(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut text = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut text).await?;
    Ok(text)
}

async fn write(stream: &mut TcpStream, text: &[u8]) -> io::Result<()> {
    let length = u16::try_from(text.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), text].concat()).await
}

/// The answer to a query for a known service.
fn answer_service(inner: &DnsInner, bridge: &Bridge, text: &[u8], from: IpAddr) -> Option<Vec<u8>> {
    let question = message::question(text)?;
    let given = known(inner, bridge, &question, from)?;
    Some(message::answer(text, &question, given))
}

fn known(
    inner: &DnsInner,
    bridge: &Bridge,
    question: &DnsQuestion,
    from: IpAddr,
) -> Option<DnsAnswer> {
    let directory: Arc<Directory> = inner.directory.borrow().clone();
    let IpAddr::V4(from) = from else { return None };
    let (network, service) = directory.find(&bridge.name, &question.name, from)?;
    if !question.is_for_address {
        return Some(DnsAnswer::NoRecord);
    }
    let address = inner.virtual_ip(network, service);
    if address.is_none() {
        tracing::warn!(network, %service, "no virtual IP is left for this service");
    }
    Some(address.map_or(DnsAnswer::Failed, DnsAnswer::Address))
}

/// How a query is forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DnsTransport {
    Udp,
    Tcp,
}

async fn answer(
    inner: &DnsInner,
    bridge: &Bridge,
    text: &[u8],
    from: IpAddr,
    recursion: Recursion,
    transport: DnsTransport,
) -> Option<Vec<u8>> {
    let question = message::question(text);
    inner.wait_for_directory(&bridge.name).await;
    if let Some(question) = &question
        && let Some(given) = known_after_update(inner, bridge, question, from).await
    {
        return Some(message::answer(text, question, given));
    }
    let forwarded = match recursion {
        Recursion::Refuse => None,
        Recursion::Forward => forward(&inner.root, text, transport).await,
    };
    forwarded.or_else(|| {
        let otherwise =
            if recursion == Recursion::Refuse { DnsAnswer::Refused } else { DnsAnswer::Failed };
        Some(message::answer(text, question.as_ref()?, otherwise))
    })
}

/// The directory may not know yet which other networks a container is in that was just started.
async fn known_after_update(
    inner: &DnsInner,
    bridge: &Bridge,
    question: &DnsQuestion,
    from: IpAddr,
) -> Option<DnsAnswer> {
    let given = known(inner, bridge, question, from);
    if given.is_some() || !inner.directory.borrow().has_name(&question.name) {
        return given;
    }
    let IpAddr::V4(address) = from else { return None };
    let mut directory = inner.directory.subscribe();
    let is_placed = |known: &Arc<Directory>| known.placed.contains(&address);
    let _ = timeout(ADDRESS_TIMEOUT, directory.wait_for(is_placed)).await;
    known(inner, bridge, question, from)
}

/// The answer of the first of this host's name servers that answers.
async fn forward(root: &Path, text: &[u8], transport: DnsTransport) -> Option<Vec<u8>> {
    for server in name_servers(root) {
        let asking = ask((server, PORT).into(), text, transport);
        match timeout(SERVER_TIMEOUT, asking).await {
            Ok(Ok(answer)) => return Some(answer),
            Ok(Err(error)) => tracing::debug!(%server, %error, "a name server failed"),
            Err(_) => tracing::debug!(%server, "a name server timed out"),
        }
    }
    None
}

async fn ask(server: SocketAddr, text: &[u8], transport: DnsTransport) -> io::Result<Vec<u8>> {
    if transport == DnsTransport::Tcp {
        let mut stream = TcpStream::connect(server).await?;
        write(&mut stream, text).await?;
        return read(&mut stream).await;
    }
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(text).await?;
    let mut space = vec![0; MAX_UDP_MESSAGE];
    loop {
        let length = socket.recv(&mut space).await?;
        // An answer has the id of its query.
        if length > 2 && space[..2] == text[..2.min(text.len())] {
            space.truncate(length);
            return Ok(space);
        }
    }
}
