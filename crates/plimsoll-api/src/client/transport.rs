//! How a request gets to the daemon and its answer back: HTTP/1.1 over a Unix connection made for it alone, or one under TLS.
//! Of several nodes the first that answers and is of the cell gets it; nobody else gets anything.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, OtherError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::endpoint::{ChosenEndpoint, Endpoint};
use super::error::Error;
use crate::view::page::TOTAL;
use crate::view::{AUTHORITIES, AuthorityNotice, Freshness, Problem};

/// A daemon that is there accepts at once; beyond this the network has lost it.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// The same for each of several, of which another may be there.
const NEXT_PATIENCE: Duration = Duration::from_secs(2);

/// What stands where a host would: who is meant is settled by the certificate.
const NOMINAL: &str = "node.plimsoll.internal";

/// How long a daemon may take to begin its answer to a write: far more than any takes to commit.
const WRITE_PATIENCE: Duration = Duration::from_mins(1);

/// The same for a read, and for each piece of its answer. A daemon may wait 10 s for a leader that hangs before it answers
/// from what it knows itself.
const READ_PATIENCE: Duration = Duration::from_secs(15);

/// The most an answer that is read whole may have: the status of a full cell fits ten times over.
const MAX_ANSWER: usize = 1 << 30;

#[derive(Debug, Clone)]
pub(super) struct Transport {
    endpoint: ChosenEndpoint,
    /// Which of several addresses answered last. Shared by clones.
    answered: Arc<AtomicUsize>,
    /// Sent on a Unix socket too: a node that does not hold the log passes it on to one that does.
    token: Option<Token>,
    /// Shared by clones: one who asks and one who remarks on the answer may hold one each.
    fresh: Arc<Mutex<Option<Freshness>>>,
    follow: Option<Follow>,
    /// Who is a node of the cell by what was heard since. Shared by clones.
    trust: Arc<Mutex<Option<Arc<ClientConfig>>>>,
}

/// Hears what a node says of the cell's authorities, with the certificates it was recognised by, and says by what the nodes of the
/// cell are recognised from now on; none: as before.
#[derive(Clone)]
pub(super) struct Follow(pub(super) Arc<FollowFn>);

pub(super) type FollowFn =
    dyn Fn(&AuthorityNotice, &[CertificateDer<'static>]) -> Option<Arc<ClientConfig>> + Send + Sync;

/// A connection for one request.
struct Connected {
    sender: http1::SendRequest<RequestBody>,
    driver: Driver,
    /// What the node was recognised by; nothing on a socket.
    shown: Vec<CertificateDer<'static>>,
}

impl fmt::Debug for Follow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Follow")
    }
}

/// What its bearer is known by. It shows itself to nobody.
#[derive(Clone)]
struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// What is sent: all of it at once, or as it comes.
#[derive(Debug)]
enum RequestBody {
    Whole(Full<Bytes>),
    Fed(mpsc::Receiver<Bytes>),
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body).poll_frame(cx),
            Self::Fed(pieces) => {
                pieces.poll_recv(cx).map(|piece| piece.map(|it| Ok(Frame::data(it))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Fed(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Fed(_) => SizeHint::default(),
        }
    }
}

#[derive(Debug)]
pub(super) struct ApiRequest {
    method: Method,
    path: String,
    body: Vec<u8>,
    /// What comes instead of the body, and its content type.
    fed: Option<(mpsc::Receiver<Bytes>, &'static str)>,
    accept: &'static str,
    patience: Duration,
}

/// An answer whose body is still to come. Dropping it ends the connection.
#[derive(Debug)]
pub(super) struct StreamingResponse {
    endpoint: ChosenEndpoint,
    pub(super) is_events: bool,
    pub(super) headers: HeaderMap,
    /// How many there are of what it has a part of.
    pub(super) total: Option<usize>,
    body: Incoming,
    _driver: Driver,
}

/// The task that moves a connection's bytes. A stream that nobody reads any more ends with it, also while it is idle.
#[derive(Debug)]
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ApiRequest {
    pub(super) fn new(method: Method, path: &str) -> Self {
        let (path, body) = (path.to_owned(), Vec::new());
        let patience = if method == Method::GET { READ_PATIENCE } else { WRITE_PATIENCE };
        Self { method, path, body, fed: None, accept: "application/json", patience }
    }

    /// Sends what is put there until that is closed.
    pub(super) fn fed(mut self, pieces: mpsc::Receiver<Bytes>, kind: &'static str) -> Self {
        (self.fed, self.accept) = (Some((pieces, kind)), kind);
        self
    }

    pub(super) fn json(mut self, body: &impl Serialize) -> Self {
        self.body = serde_json::to_vec(body).expect("what the API takes has string keys only");
        self
    }

    /// Of somebody else, who also says what they take.
    pub(super) fn raw(mut self, accept: &'static str, body: Vec<u8>) -> Self {
        (self.accept, self.body) = (accept, body);
        self
    }

    pub(super) fn events(mut self) -> Self {
        self.accept = "text/event-stream";
        self
    }

    pub(super) fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }
}

impl Transport {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        let endpoint = ChosenEndpoint { endpoint, by: None };
        let (answered, fresh, trust) = (Arc::default(), Arc::default(), Arc::default());
        Self { endpoint, answered, token: None, fresh, follow: None, trust }
    }

    pub(super) fn chosen_by(self, by: &str) -> Self {
        let endpoint = ChosenEndpoint { by: Some(by.into()), ..self.endpoint };
        Self { endpoint, ..self }
    }

    pub(super) fn with_token(self, token: String) -> Self {
        Self { token: Some(Token(token)), ..self }
    }

    pub(super) fn following(self, follow: Follow) -> Self {
        Self { follow: Some(follow), ..self }
    }

    /// Takes note of what this answer says of the cell's authorities.
    fn heed(&self, headers: &HeaderMap, shown: &[CertificateDer<'static>]) {
        let notice = headers.get(AUTHORITIES).and_then(|told| told.to_str().ok());
        let notice = notice.and_then(|told| told.parse::<AuthorityNotice>().ok());
        if let (Some(Follow(follow)), Some(notice)) = (&self.follow, notice)
            && let Some(tls) = follow(&notice, shown)
        {
            *self.trust.lock().expect("no holder of it panics") = Some(tls);
        }
    }

    /// What the last answer said that said anything.
    pub(super) fn freshness(&self) -> Option<Freshness> {
        self.fresh.lock().expect("no holder of it panics").clone()
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint.endpoint
    }

    /// The answer, if it is a good one.
    pub(super) async fn send(&self, request: ApiRequest) -> Result<StreamingResponse, Error> {
        let (status, answer) = self.ask(request).await?;
        if status.is_success() {
            return Ok(answer);
        }
        let endpoint = self.endpoint.clone();
        let body = answer.whole().await?;
        let problem: Problem = serde_json::from_slice(&body).map_err(|_| {
            let what = format!("status {status} without a reason");
            Error::Protocol { endpoint, what }
        })?;
        Err(Error::Problem(problem))
    }

    /// The answer, whatever its status.
    pub(super) async fn send_any(&self, request: ApiRequest) -> Result<StreamingResponse, Error> {
        Ok(self.ask(request).await?.1)
    }

    /// The answer and its status, whatever that is.
    pub(super) async fn ask(
        &self,
        request: ApiRequest,
    ) -> Result<(StatusCode, StreamingResponse), Error> {
        let unreachable = |source| Error::Unreachable { endpoint: self.endpoint.clone(), source };
        let Connected { mut sender, driver, shown } = self.connect().await?;
        let (within, is_write) = (request.patience, request.method != Method::GET);
        let late = |_| Error::TimedOut { endpoint: self.endpoint.clone(), within, is_write };
        let request = self.written(request)?;
        let answering = timeout(within, sender.send_request(request)).await.map_err(late)?;
        let response = answering.map_err(|error| unreachable(io::Error::other(error)))?;
        if let Some(fresh) = Freshness::read(response.headers()) {
            *self.fresh.lock().expect("no holder of it panics") = Some(fresh);
        }
        self.heed(response.headers(), &shown);
        let status = response.status();
        Ok((status, self.answer(response, driver)))
    }

    fn answer(&self, response: Response<Incoming>, driver: Driver) -> StreamingResponse {
        let (parts, body) = response.into_parts();
        let headers = parts.headers;
        let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let is_events = kind.is_some_and(|kind| kind.starts_with(b"text/event-stream"));
        let total = headers.get(TOTAL).and_then(|total| total.to_str().ok()?.parse().ok());
        let endpoint = self.endpoint.clone();
        StreamingResponse { endpoint, is_events, headers, total, body, _driver: driver }
    }

    fn written(&self, request: ApiRequest) -> Result<hyper::Request<RequestBody>, Error> {
        let host = match &self.endpoint.endpoint {
            Endpoint::Unix(_) => "localhost",
            Endpoint::Https { .. } => NOMINAL,
        };
        let token = self.token.as_ref().map(|Token(token)| token.as_str());
        let mut builder = hyper::Request::builder()
            .method(request.method)
            .uri(request.path)
            .header(HOST, host)
            .header(ACCEPT, request.accept);
        if let Some((_, kind)) = &request.fed {
            builder = builder.header(CONTENT_TYPE, *kind);
        } else if !request.body.is_empty() {
            builder = builder.header(CONTENT_TYPE, "application/json");
        }
        if let Some(token) = token {
            builder = builder.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = match request.fed {
            Some((pieces, _)) => RequestBody::Fed(pieces),
            None => RequestBody::Whole(Full::new(Bytes::from(request.body))),
        };
        builder.body(body).map_err(|error| Error::Protocol {
            endpoint: self.endpoint.clone(),
            what: format!("the request cannot be written ({error})"),
        })
    }

    async fn connect(&self) -> Result<Connected, Error> {
        let endpoint = || self.endpoint.clone();
        let unreachable = |source| Error::Unreachable { endpoint: endpoint(), source };
        let (addresses, tls) = match &self.endpoint.endpoint {
            Endpoint::Unix(path) => {
                let connecting =
                    async { shake_hands(UnixStream::connect(path).await?, Vec::new()).await };
                return within(CONNECT_PATIENCE, connecting).await.map_err(unreachable);
            }
            Endpoint::Https { addresses, tls } => (addresses, tls),
        };
        let heard = self.trust.lock().expect("no holder of it panics").clone();
        let Some(tls) = heard.or_else(|| tls.clone()) else {
            let why = "no authority is known to recognise it by".to_owned();
            return Err(Error::Untrusted { endpoint: endpoint(), why });
        };
        let patience = if addresses.len() > 1 { NEXT_PATIENCE } else { CONNECT_PATIENCE };
        let (mut failures, mut untrusted) = (Vec::new(), None);
        let first = self.answered.load(Ordering::Relaxed);
        for nth in (0..addresses.len()).map(|nth| (nth + first) % addresses.len()) {
            let address = &addresses[nth];
            match within(patience, shake_securely(address, Arc::clone(&tls))).await {
                Ok(connected) => {
                    self.answered.store(nth, Ordering::Relaxed);
                    return Ok(connected);
                }
                Err(error) => {
                    if let Some(why) = distrust(&error) {
                        untrusted.get_or_insert((address, why));
                    }
                    failures.push((address, error));
                }
            }
        }
        if let Some((address, why)) = untrusted {
            let mut endpoint = endpoint();
            let (addresses, tls) = (vec![address.clone()], None);
            endpoint.endpoint = Endpoint::Https { addresses, tls };
            return Err(Error::Untrusted { endpoint, why });
        }
        let last = failures.pop().map(|(_, error)| error);
        let last = last.unwrap_or_else(|| io::Error::other("there is no address"));
        if failures.is_empty() {
            return Err(unreachable(last));
        }
        let none = format!("none of {} addresses answers, the last: {last}", addresses.len());
        Err(unreachable(io::Error::new(last.kind(), none)))
    }
}

async fn within<T>(
    patience: Duration,
    connecting: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    timeout(patience, connecting).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn shake_securely(address: &str, tls: Arc<ClientConfig>) -> io::Result<Connected> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from(NOMINAL).map_err(io::Error::other)?;
    let stream = TlsConnector::from(tls).connect(name, stream).await?;
    let shown = stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
    shake_hands(stream, shown).await
}

/// Why the other side is not believed to be what was meant; none where it is not that.
fn distrust(error: &io::Error) -> Option<String> {
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(why))) => {
            Some(why.to_string())
        }
        rustls::Error::InvalidCertificate(why) => Some(why.to_string()),
        rustls::Error::InvalidMessage(_) => Some("it does not speak TLS".to_owned()),
        rustls::Error::PeerIncompatible(_) | rustls::Error::AlertReceived(_) => {
            Some("it does not speak TLS 1.3 as a node does".to_owned())
        }
        _ => None,
    }
}

async fn shake_hands(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    shown: Vec<CertificateDer<'static>>,
) -> io::Result<Connected> {
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = shaken.map_err(io::Error::other)?;
    // What goes wrong with the connection, the request and the body hear as well.
    let driver = Driver(tokio::spawn(async { drop(connection.await) }));
    Ok(Connected { sender, driver, shown })
}

impl StreamingResponse {
    pub(super) async fn json<T: DeserializeOwned>(self) -> Result<T, Error> {
        let endpoint = self.endpoint.clone();
        let body = self.whole().await?;
        serde_json::from_slice(&body)
            .map_err(|error| Error::Protocol { endpoint, what: error.to_string() })
    }

    async fn whole(self) -> Result<Bytes, Error> {
        let mut body = Limited::new(self.body, MAX_ANSWER);
        let endpoint = || self.endpoint.clone();
        let mut whole = BytesMut::new();
        loop {
            // By its pieces: a large answer over a slow line may take long, and one that has stopped may not.
            let late = |_| Error::TimedOut {
                endpoint: endpoint(),
                within: READ_PATIENCE,
                is_write: false,
            };
            let frame = timeout(READ_PATIENCE, body.frame()).await.map_err(late)?;
            let Some(frame) = frame else { return Ok(whole.freeze()) };
            let frame = frame.map_err(|error| Error::Unreachable {
                endpoint: endpoint(),
                source: io::Error::other(error),
            })?;
            if let Ok(bytes) = frame.into_data() {
                whole.extend_from_slice(&bytes);
            }
        }
    }

    /// The next bytes of the body; none at its end.
    pub(super) async fn piece(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.map_err(|error| Error::Unreachable {
                endpoint: self.endpoint.clone(),
                source: io::Error::other(error),
            })?;
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
    }

    pub(super) fn misunderstood(&self, what: impl Into<String>) -> Error {
        Error::Protocol { endpoint: self.endpoint.clone(), what: what.into() }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;
    use tokio::time::Instant;

    use super::*;

    /// What a client is told by a daemon that sends this much and no more, and when.
    async fn told(method: Method, sent: &'static str) -> (String, Duration) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plimsoll.sock");
        let listener = UnixListener::bind(&path).unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await;
            stream.write_all(sent.as_bytes()).await.unwrap();
            std::future::pending::<()>().await;
        });
        let begun = Instant::now();
        let request = ApiRequest::new(method, "/v1/status");
        let answer = async {
            Transport::new(Endpoint::Unix(path.clone()))
                .send(request)
                .await?
                .json::<serde_json::Value>()
                .await
        };
        let error = answer.await.unwrap_err();
        let hint = error.hint().unwrap_or_default();
        let text =
            format!("{error}; {hint}").replace(&format!("unix://{}", path.display()), "SOCKET");
        (text, begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_hangs_is_named_with_the_next_step() {
        let begun = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{";
        let silent = "the daemon at SOCKET has not answered within 15 s; it may be stopped or overloaded: look at its \
                      process and its log, or ask another node with `--host`";
        for (case, method, sent, text, seconds) in [
            ("it takes the connection alone", Method::GET, "", silent, 15),
            ("it stops in the middle", Method::GET, begun, silent, 15),
            (
                "a write may have been done",
                Method::POST,
                "",
                "the daemon at SOCKET has not answered within 60 s; whether it was done is not known: look before you ask \
                 again; the daemon may be stopped or overloaded",
                60,
            ),
        ] {
            let (told, after) = told(method, sent).await;
            assert_eq!(told, text, "{case}");
            assert_eq!(after.as_secs(), seconds, "{case}");
        }
    }
}
