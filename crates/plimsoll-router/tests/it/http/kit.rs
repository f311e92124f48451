//! A router with a door for HTTP, upstreams that answer it, and a client that says exactly what it is told.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll_router::{
    HttpListenerKind, NoTunnel, PoolMember, RouteConfig, RouteTls, Router, RouterConfig,
    RouterLimits, RouterStage, Tunnel,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::kit::{PATIENCE, address, connect, web};

pub(crate) type Body = BoxBody<Bytes, hyper::Error>;

pub(crate) fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never| match never {}).boxed()
}

/// A route for every host.
pub(crate) fn everything() -> RouteConfig {
    RouteConfig {
        host: None,
        path: "/".to_owned(),
        strip_path: false,
        pool: web(),
        tls: RouteTls::Off,
    }
}

/// A router that serves routes to one pool.
pub(crate) struct Site {
    pub(crate) router: Router,
    pub(crate) at: SocketAddr,
    pub(crate) stage: watch::Sender<RouterStage>,
    pub(crate) routes: Vec<RouteConfig>,
}

impl Site {
    pub(crate) async fn new(limits: RouterLimits, members: &[PoolMember]) -> Self {
        Self::with(limits, Arc::new(NoTunnel), vec![everything()], members).await
    }

    pub(crate) async fn with(
        limits: RouterLimits,
        tunnel: Arc<dyn Tunnel>,
        routes: Vec<RouteConfig>,
        members: &[PoolMember],
    ) -> Self {
        let (site, at) = (Router::new(limits, tunnel), address());
        let listener = TcpListener::bind(at).await.unwrap();
        let (stage, stages) = watch::channel(RouterStage::Open);
        let serving = site.clone();
        let door = HttpListenerKind::Plain { https_port: Some(8443) };
        tokio::spawn(async move { serving.serve(listener, door, stages).await });
        let site = Self { router: site, at, stage, routes };
        site.update(members);
        site
    }

    pub(crate) fn update(&self, members: &[PoolMember]) {
        self.router.update(&RouterConfig {
            pools: [(web(), members.into())].into(),
            routes: self.routes.clone(),
            ..RouterConfig::default()
        });
    }

    pub(crate) async fn client(&self) -> Client {
        Client(BufReader::new(connect(self.at).await))
    }

    /// One request on a connection of its own.
    pub(crate) async fn ask(&self, head: &str) -> Heard {
        self.client().await.ask(head).await
    }

    pub(crate) async fn get(&self, path: &str) -> Heard {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n")).await
    }
}

/// A client that says exactly what it is told.
pub(crate) struct Client(pub(crate) BufReader<TcpStream>);

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Heard {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let named = self.head.lines().filter_map(|line| line.split_once(": "));
        named.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }
}

impl Client {
    pub(crate) async fn say(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    pub(crate) async fn ask(&mut self, head: &str) -> Heard {
        self.say(head).await;
        self.hear().await
    }

    /// The next answer.
    pub(crate) async fn hear(&mut self) -> Heard {
        timeout(PATIENCE, hear(&mut self.0)).await.expect("in time")
    }
}

/// Reads one answer: its head, and its body by length, in chunks or to the end.
pub(crate) async fn hear(stream: &mut (impl AsyncRead + Unpin)) -> Heard {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        assert!(stream.read(&mut byte).await.unwrap() > 0, "it ended within the head: {head:?}");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut answer = Heard { status, head, body: String::new() };
    let length = answer.field("content-length").map(|length| length.parse().unwrap());
    let mut body = Vec::new();
    if answer.field("transfer-encoding").is_some() {
        body = chunks(stream).await;
    } else if let Some(length) = length {
        body.resize(length, 0);
        stream.read_exact(&mut body).await.unwrap();
    }
    answer.body = String::from_utf8(body).unwrap();
    answer
}

async fn line(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(line).unwrap().trim_end().to_owned()
}

async fn chunks(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let size = usize::from_str_radix(&line(stream).await, 16).unwrap();
        let start = body.len();
        body.resize(start + size, 0);
        stream.read_exact(&mut body[start..]).await.unwrap();
        if size > 0 {
            assert_eq!(line(stream).await, "");
            continue;
        }
        while !line(stream).await.is_empty() {}
        return body;
    }
}

/// An upstream made of hyper, which can be stopped in order.
pub(crate) struct Server {
    pub(crate) at: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    ending: watch::Sender<bool>,
}

impl Server {
    pub(crate) async fn new<F>(answer: fn(Request<Incoming>) -> F) -> Self
    where
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let (at, connections) = (address(), Arc::new(AtomicUsize::new(0)));
        let listener = TcpListener::bind(at).await.unwrap();
        let (ending, ends) = watch::channel(false);
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            let mut is_over = ends.clone();
            loop {
                let stream = tokio::select! {
                    _ = is_over.wait_for(|over| *over) => return,
                    accepted = listener.accept() => accepted.unwrap().0,
                };
                count.fetch_add(1, Relaxed);
                tokio::spawn(serve(stream, answer, ends.clone()));
            }
        });
        Self { at, connections, ending }
    }

    /// Takes nothing new, ends what is under way, and closes what is idle: as a good server does when told to stop.
    pub(crate) fn stop(&self) {
        self.ending.send_replace(true);
    }
}

async fn serve<F>(
    stream: TcpStream,
    answer: fn(Request<Incoming>) -> F,
    ends: watch::Receiver<bool>,
) where
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let service = service_fn(move |request| {
        let answering = answer(request);
        async move { Ok::<_, Infallible>(answering.await) }
    });
    let mut start = [0; 3];
    let _ = stream.peek(&mut start).await;
    let io = TokioIo::new(stream);
    if start == *b"PRI" {
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let mut connection = pin!(builder.serve_connection(io, service));
        tokio::select! {
            _ = connection.as_mut() => {}
            () = over(ends) => {
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            }
        }
        return;
    }
    let builder = hyper::server::conn::http1::Builder::new();
    let mut connection = pin!(builder.serve_connection(io, service).with_upgrades());
    tokio::select! {
        _ = connection.as_mut() => {}
        () = over(ends) => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

async fn over(mut ends: watch::Receiver<bool>) {
    let _ = ends.wait_for(|over| *over).await;
}

/// Says what it was asked, as it came: the request line, then each field.
pub(crate) async fn mirror(request: Request<Incoming>) -> Response<Body> {
    let mut text = format!("{} {} {:?}\n", request.method(), request.uri(), request.version());
    for (name, value) in request.headers() {
        writeln!(text, "{name}: {}", value.to_str().unwrap()).unwrap();
    }
    Response::new(full(text))
}

/// Sends back the body it gets, as it gets it.
pub(crate) async fn echo(request: Request<Incoming>) -> Response<Body> {
    Response::new(request.into_body().boxed())
}

/// An upstream that does with each connection what it is told, by hand.
pub(crate) async fn by_hand<F>(talk: fn(TcpStream, usize) -> F) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let (at, count) = (address(), Arc::new(AtomicUsize::new(0)));
    let listener = TcpListener::bind(at).await.unwrap();
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let number = counted.fetch_add(1, Relaxed);
            tokio::spawn(talk(stream, number));
        }
    });
    (at, count)
}

/// Reads the head of a request.
pub(crate) async fn head_of(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).await.ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    Some(String::from_utf8(head).unwrap())
}
