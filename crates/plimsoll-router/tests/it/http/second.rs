//! HTTP/2 with prior knowledge, and calls that need it all the way.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll_router::{RouterLimits, metrics};
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::mpsc;

use super::kit::{Body, Server, Site, full, mirror};
use crate::kit::{connect, inside};

pub(super) type Sender = http2::SendRequest<Body>;

pub(super) async fn speak(io: impl plimsoll_router::ByteStream + 'static) -> Sender {
    let builder = http2::Builder::new(TokioExecutor::new());
    let (sender, connection) = builder.handshake(TokioIo::new(io)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn nothing() -> Body {
    Empty::new().map_err(|never: Infallible| match never {}).boxed()
}

/// A body whose parts come through a channel.
struct Parts(mpsc::Receiver<Frame<Bytes>>);

impl hyper::body::Body for Parts {
    type Data = Bytes;
    type Error = hyper::Error;
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

/// Answers each message of a call with itself, and says at the end how many there were, as gRPC does.
async fn call(request: Request<Incoming>) -> Response<Body> {
    assert_eq!(request.version(), hyper::Version::HTTP_2);
    assert_eq!(request.headers()["te"], "trailers");
    let (to, parts) = mpsc::channel(8);
    tokio::spawn(async move {
        let mut body = request.into_body();
        let mut count = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.unwrap();
            // The end may come as a part of its own, with nothing in it.
            count += usize::from(frame.data_ref().is_some_and(|data| !data.is_empty()));
            if to.send(frame).await.is_err() {
                return;
            }
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        trailers.insert("x-count", count.to_string().parse().unwrap());
        let _ = to.send(Frame::trailers(trailers)).await;
    });
    let mut response = Response::new(Parts(parts).boxed());
    response.headers_mut().insert(CONTENT_TYPE, "application/grpc".parse().unwrap());
    response
}

fn grpc(body: Body) -> Request<Body> {
    Request::post("http://a.example/shop.Cart/Add")
        .header(CONTENT_TYPE, "application/grpc")
        .header("te", "trailers")
        .body(body)
        .unwrap()
}

#[tokio::test]
async fn many_requests_share_a_connection_and_the_upstream_speaks_the_first_version() {
    let server = Server::new(mirror).await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", server.at)]).await;
    let sender = speak(connect(site.at).await).await;
    let asked = (0..200).map(|number| {
        let mut sender = sender.clone();
        tokio::spawn(async move {
            let uri = format!("http://a.example/{number}");
            let response = sender.send_request(Request::get(uri).body(nothing()).unwrap()).await;
            let response = response.unwrap();
            assert_eq!(response.status(), 200);
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let text = String::from_utf8(body.to_vec()).unwrap();
            assert!(text.starts_with(&format!("GET /{number} HTTP/1.1\n")), "{text}");
            assert!(text.contains("host: a.example\n"), "{text}");
        })
    });
    for one in asked.collect::<Vec<_>>() {
        one.await.unwrap();
    }
}

#[tokio::test]
async fn a_call_streams_both_ways_and_keeps_its_trailers() {
    let server = Server::new(call).await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", server.at)]).await;
    let mut sender = speak(connect(site.at).await).await;
    let (say, parts) = mpsc::channel(1);
    let response = sender.send_request(grpc(Parts(parts).boxed())).await.unwrap();
    assert_eq!(response.headers()[CONTENT_TYPE], "application/grpc");
    let mut body = response.into_body();
    for word in ["one", "two", "three"] {
        say.send(Frame::data(Bytes::from(word))).await.unwrap();
        let heard = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(heard, word, "answered before the next is said");
    }
    drop(say);
    let trailers = loop {
        let frame = body.frame().await.expect("there are trailers").unwrap();
        if let Ok(trailers) = frame.into_trailers() {
            break trailers;
        }
    };
    assert_eq!(
        (&trailers["grpc-status"], &trailers["x-count"]),
        (&"0".parse().unwrap(), &"3".parse().unwrap())
    );
}

#[tokio::test]
async fn calls_share_a_connection_to_the_upstream() {
    let server = Server::new(call).await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", server.at)]).await;
    let mut sender = speak(connect(site.at).await).await;
    for _ in 0..50 {
        let response = sender.send_request(grpc(full("hi"))).await.unwrap();
        let collected = response.into_body().collect().await.unwrap();
        assert_eq!(collected.trailers().unwrap()["grpc-status"], "0");
    }
    assert_eq!(server.connections.load(Relaxed), 1);
    assert_eq!(metrics::read(&site.router.table()).upstreams[0].classes[1], 50);
}

#[tokio::test]
async fn calls_move_on_when_their_upstream_stops() {
    let (one, two) = (Server::new(call).await, Server::new(call).await);
    let site = Site::new(RouterLimits::default(), &[inside("web-1", one.at)]).await;
    let mut sender = speak(connect(site.at).await).await;
    for round in 0..20 {
        if round == 10 {
            site.update(&[inside("web-2", two.at)]);
            one.stop();
        }
        let response = sender.send_request(grpc(full("hi"))).await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(response.into_body().collect().await.is_ok());
    }
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused_and_the_connection_goes_on() {
    let server = Server::new(mirror).await;
    let site = Site::new(RouterLimits::default(), &[inside("web-1", server.at)]).await;
    let mut sender = speak(connect(site.at).await).await;
    let bomb = Request::get("http://a.example/").header("x-bomb", "x".repeat(200 << 10));
    let refused = sender.send_request(bomb.body(nothing()).unwrap()).await;
    assert!(refused.is_err() || refused.unwrap().status() == 431);
    let mut sender = speak(connect(site.at).await).await;
    let get =
        Request::get("http://a.example/").body(Full::from("").map_err(|n| match n {}).boxed());
    assert_eq!(sender.send_request(get.unwrap()).await.unwrap().status(), 200);
}

#[tokio::test]
async fn an_idle_connection_is_told_to_go_and_not_cut() {
    use std::time::Duration;
    let server = Server::new(mirror).await;
    let limits = RouterLimits {
        keep_alive: Duration::from_millis(600),
        header_read: Duration::from_millis(100),
        ..RouterLimits::default()
    };
    let site = Site::new(limits, &[inside("web-1", server.at)]).await;
    let builder = http2::Builder::new(TokioExecutor::new());
    let io = TokioIo::new(connect(site.at).await);
    let (mut sender, connection) = builder.handshake::<_, Body>(io).await.unwrap();
    let connection = tokio::spawn(connection);
    // What it says between requests is no head that it is slow with.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let get = Request::get("http://a.example/").body(nothing()).unwrap();
    assert_eq!(sender.send_request(get).await.unwrap().status(), 200);
    let ended = tokio::time::timeout(crate::kit::PATIENCE, connection).await.expect("in time");
    assert!(ended.unwrap().is_ok(), "it ended in order");
}

#[tokio::test]
async fn calls_to_an_upstream_that_does_not_accept_wait_side_by_side() {
    use std::time::Duration;
    let limits = RouterLimits { connect: Duration::from_millis(400), ..RouterLimits::default() };
    let (deaf, _full) = crate::kit::deaf().await;
    let site = Site::new(limits, &[inside("web-1", deaf)]).await;
    let sender = speak(connect(site.at).await).await;
    let began = tokio::time::Instant::now();
    let calls = (0..20).map(|_| {
        let mut sender = sender.clone();
        tokio::spawn(async move { sender.send_request(grpc(full("hi"))).await.unwrap().status() })
    });
    for one in calls.collect::<Vec<_>>() {
        assert_eq!(one.await.unwrap(), 503);
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}: one after the other");
}
