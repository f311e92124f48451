//! Answers questions for names on one network, and asks this host's own name servers for what is no service's.

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

use crate::Inner;
use crate::directory::Directory;
use crate::message::{self, Answer, Question};

/// How long one name server of this host may take before the next is asked.
const WAIT: Duration = Duration::from_secs(2);

/// Questions of one network that wait for others at once. What is beyond is lost, and asked again.
const WAITING: usize = 256;

/// The largest message that travels as one datagram.
const LARGEST: usize = 4_096;

/// How long a client may keep a stream open.
const STREAM: Duration = Duration::from_secs(10);

/// How long a container that was just started may ask from an address that is not known yet.
const PLACED: Duration = Duration::from_millis(500);

/// A socket that cannot receive rests for so long.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) const PORT: u16 = 53;

/// Whom a resolver asks what it does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    Others,
    /// The client has name servers of its own.
    Nobody,
}

/// Answers what comes as datagrams, for as long as it is polled.
pub(crate) async fn serve(
    inner: Arc<Inner>,
    bridge: Arc<Bridge>,
    socket: Arc<UdpSocket>,
    asks: Asks,
) {
    let waiting = Arc::new(Semaphore::new(WAITING));
    let mut space = vec![0; LARGEST];
    loop {
        let (length, client) = match socket.recv_from(&mut space).await {
            Ok(received) => received,
            Err(error) => {
                tracing::debug!(network = bridge.name, %error, "cannot receive");
                sleep(PAUSE).await;
                continue;
            }
        };
        let text = &space[..length];
        if let Some(answer) = at_once(&inner, &bridge, text, client.ip()) {
            let _ = socket.send_to(&answer, client).await;
            continue;
        }
        let Ok(permit) = Arc::clone(&waiting).try_acquire_owned() else { continue };
        let (inner, bridge, socket) =
            (Arc::clone(&inner), Arc::clone(&bridge), Arc::clone(&socket));
        let text = text.to_vec();
        tokio::spawn(async move {
            if let Some(answer) =
                answer(&inner, &bridge, &text, client.ip(), asks, Way::Datagram).await
            {
                let _ = socket.send_to(&answer, client).await;
            }
            drop(permit);
        });
    }
}

/// Answers what comes on a stream, each with its length before it.
pub(crate) async fn serve_stream(
    inner: &Inner,
    bridge: &Bridge,
    mut stream: TcpStream,
    asks: Asks,
) {
    let Ok(from) = stream.peer_addr().map(|address| address.ip()) else { return };
    let all = async {
        loop {
            let text = read(&mut stream).await?;
            let Some(answer) = answer(inner, bridge, &text, from, asks, Way::Stream).await else {
                return io::Result::Ok(());
            };
            write(&mut stream, &answer).await?;
        }
    };
    let _ = timeout(STREAM, all).await;
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

/// The answer to a question for a service that is known.
fn at_once(inner: &Inner, bridge: &Bridge, text: &[u8], from: IpAddr) -> Option<Vec<u8>> {
    let question = message::question(text)?;
    let given = known(inner, bridge, &question, from)?;
    Some(message::answer(text, &question, given))
}

fn known(inner: &Inner, bridge: &Bridge, question: &Question, from: IpAddr) -> Option<Answer> {
    let directory: Arc<Directory> = inner.directory.borrow().clone();
    let IpAddr::V4(from) = from else { return None };
    let (network, service) = directory.find(&bridge.name, &question.name, from)?;
    if !question.is_for_address {
        return Some(Answer::Nothing);
    }
    let address = inner.address(network, service);
    if address.is_none() {
        tracing::warn!(network, %service, "no address is left to stand for this service");
    }
    Some(address.map_or(Answer::Failed, Answer::Address))
}

/// How a question travels on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Datagram,
    Stream,
}

async fn answer(
    inner: &Inner,
    bridge: &Bridge,
    text: &[u8],
    from: IpAddr,
    asks: Asks,
    way: Way,
) -> Option<Vec<u8>> {
    let question = message::question(text);
    inner.until_known(&bridge.name).await;
    if let Some(question) = &question
        && let Some(given) = after_a_look(inner, bridge, question, from).await
    {
        return Some(message::answer(text, question, given));
    }
    let passed = match asks {
        Asks::Nobody => None,
        Asks::Others => others(&inner.root, text, way).await,
    };
    passed.or_else(|| {
        let otherwise = if asks == Asks::Nobody { Answer::Refused } else { Answer::Failed };
        Some(message::answer(text, question.as_ref()?, otherwise))
    })
}

/// Of a container that only just began it may not be known yet which other networks it is in.
async fn after_a_look(
    inner: &Inner,
    bridge: &Bridge,
    question: &Question,
    from: IpAddr,
) -> Option<Answer> {
    let given = known(inner, bridge, question, from);
    if given.is_some() || !inner.directory.borrow().knows(&question.name) {
        return given;
    }
    let IpAddr::V4(address) = from else { return None };
    let mut directory = inner.directory.subscribe();
    let is_placed = |known: &Arc<Directory>| known.placed.contains(&address);
    let _ = timeout(PLACED, directory.wait_for(is_placed)).await;
    known(inner, bridge, question, from)
}

/// What the first of this host's name servers says that says anything.
async fn others(root: &Path, text: &[u8], way: Way) -> Option<Vec<u8>> {
    for server in name_servers(root) {
        let asking = ask((server, PORT).into(), text, way);
        match timeout(WAIT, asking).await {
            Ok(Ok(answer)) => return Some(answer),
            Ok(Err(error)) => tracing::debug!(%server, %error, "a name server does not answer"),
            Err(_) => tracing::debug!(%server, "a name server does not answer in time"),
        }
    }
    None
}

async fn ask(server: SocketAddr, text: &[u8], way: Way) -> io::Result<Vec<u8>> {
    if way == Way::Stream {
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
    let mut space = vec![0; LARGEST];
    loop {
        let length = socket.recv(&mut space).await?;
        // An answer has the number of its question.
        if length > 2 && space[..2] == text[..2.min(text.len())] {
            space.truncate(length);
            return Ok(space);
        }
    }
}
