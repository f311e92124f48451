use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::post;
use hyper::{HeaderMap, Method, StatusCode};
use plimsoll_router::RouterStage;
use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::kit::PATIENCE;
use crate::pki::testkit::cell;
use crate::{Inward, Limits, Outward, PeerClient, PeerServer, Stay, Target, answer_stream};

/// Far more than may be under way, so that a side that does not read makes the other wait.
const MUCH: usize = 16 << 20;

/// Both ends of streams between two nodes.
struct Ends {
    client: PeerClient,
    target: Target,
    arrived: mpsc::UnboundedReceiver<Inward>,
    end: watch::Sender<bool>,
    stage: watch::Sender<RouterStage>,
    present: mpsc::Receiver<()>,
}

impl Ends {
    fn new() -> Self {
        let blue = cell("blue");
        let ash = blue.node("ash");
        let server =
            PeerServer::bind("127.0.0.1:0".parse().unwrap(), &ash, Limits::default()).unwrap();
        let address = server.local_addr().unwrap().to_string();
        let (sender, arrived) = mpsc::unbounded_channel();
        let open = move |request: Request| async move {
            let (stream, body) = answer_stream(request.into_body());
            sender.send(stream).unwrap();
            Response::new(Body::new(body))
        };
        let (end, ending) = watch::channel(false);
        let (stage, stages) = watch::channel(RouterStage::Open);
        let (sign, present) = mpsc::channel(1);
        let stay = Stay { stage: stages, present: sign };
        let router = Router::new().route("/tunnel", post(open));
        tokio::spawn(server.serve_beside(router, ending, stay));
        let target = Target { node: ash.node().clone(), address };
        let client = PeerClient::new(blue.node("birch")).for_tunnels();
        Self { client, target, arrived, end, stage, present }
    }

    async fn open(&mut self) -> (Outward, Inward) {
        let headers = HeaderMap::new();
        let opening = self.client.tunnel(&self.target, Method::POST, "/tunnel", headers, PATIENCE);
        let (status, outward) = opening.await.unwrap();
        assert_eq!(status, StatusCode::OK);
        (outward, self.arrived.recv().await.unwrap())
    }
}

async fn rest(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut all)).await;
    read.expect("it ends or fails").map(|_| all)
}

#[tokio::test]
async fn each_direction_of_a_tunnel_ends_by_itself() {
    let mut ends = Ends::new();
    for first in ["who asked", "who answers"] {
        let (mut outward, mut inward) = ends.open().await;
        if first == "who asked" {
            outward.write_all(b"there").await.unwrap();
            outward.shutdown().await.unwrap();
            assert_eq!(rest(&mut inward).await.unwrap(), b"there");
            inward.write_all(b"back").await.unwrap();
            inward.shutdown().await.unwrap();
            drop(inward);
            assert_eq!(rest(&mut outward).await.unwrap(), b"back");
        } else {
            inward.write_all(b"back").await.unwrap();
            inward.shutdown().await.unwrap();
            assert_eq!(rest(&mut outward).await.unwrap(), b"back");
            outward.write_all(b"there").await.unwrap();
            outward.shutdown().await.unwrap();
            // What waits to be sent is sent, though nobody is there any more.
            drop(outward);
            assert_eq!(rest(&mut inward).await.unwrap(), b"there");
        }
    }
}

#[tokio::test]
async fn a_tunnel_that_is_dropped_is_an_error_on_the_other_side_and_no_end() {
    let mut ends = Ends::new();
    // Again and again: whether an end or an error is seen must not be a matter of luck.
    for round in 0..100 {
        let (mut outward, mut inward) = ends.open().await;
        if round % 2 == 0 {
            outward.write_all(b"half of").await.unwrap();
            drop(outward);
            assert!(rest(&mut inward).await.is_err(), "round {round}");
        } else {
            inward.write_all(b"half of").await.unwrap();
            drop(inward);
            assert!(rest(&mut outward).await.is_err(), "round {round}");
        }
    }
}

#[tokio::test]
async fn much_goes_through_a_tunnel_whole_and_a_slow_reader_makes_the_writer_wait() {
    let mut ends = Ends::new();
    let (outward, inward) = ends.open().await;
    let (mut from, mut to) = split(outward);
    let (mut far_from, mut far_to) = split(inward);
    let bytes: Vec<u8> = (0..MUCH).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let sent = bytes.clone();
    let mut writing = tokio::spawn(async move {
        to.write_all(&sent).await.unwrap();
        to.shutdown().await.unwrap();
    });
    let waits = timeout(std::time::Duration::from_millis(300), &mut writing).await;
    assert!(waits.is_err(), "nobody has read anything yet");
    let echo = tokio::spawn(async move {
        tokio::io::copy(&mut far_from, &mut far_to).await.unwrap();
        far_to.shutdown().await.unwrap();
    });
    assert!(rest(&mut from).await.unwrap() == bytes, "it comes back as it went");
    writing.await.unwrap();
    echo.await.unwrap();
}

#[tokio::test]
async fn tunnels_that_nobody_reads_hold_up_no_other() {
    let mut ends = Ends::new();
    let mut stuck = Vec::new();
    for _ in 0..64 {
        let (mut outward, mut inward) = ends.open().await;
        // Each is written to until it takes no more, in both directions.
        let fill = vec![0; MUCH];
        let patience = std::time::Duration::from_millis(20);
        assert!(timeout(patience, outward.write_all(&fill)).await.is_err(), "it takes everything");
        assert!(timeout(patience, inward.write_all(&fill)).await.is_err(), "it takes everything");
        stuck.push((outward, inward));
    }
    let (mut outward, mut inward) = ends.open().await;
    outward.write_all(b"there").await.unwrap();
    outward.shutdown().await.unwrap();
    assert_eq!(rest(&mut inward).await.unwrap(), b"there");
    inward.write_all(b"back").await.unwrap();
    inward.shutdown().await.unwrap();
    assert_eq!(rest(&mut outward).await.unwrap(), b"back");
}

#[tokio::test]
async fn tunnels_outlive_the_control_plane_and_new_ones_are_opened_elsewhere_once_told() {
    let mut ends = Ends::new();
    let (mut outward, mut inward) = ends.open().await;
    ends.end.send_replace(true);
    let (second, second_inward) = ends.open().await;
    outward.write_all(b"there").await.unwrap();
    let mut heard = [0; 5];
    inward.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"there", "both are carried by who is there");

    // Another process has the port by then; here nobody has, and so a new connection is refused.
    ends.stage.send_replace(RouterStage::HandingOver);
    let opening = || {
        let headers = HeaderMap::new();
        ends.client.tunnel(&ends.target, Method::POST, "/tunnel", headers, PATIENCE)
    };
    timeout(PATIENCE, async { while opening().await.is_ok() {} }).await.expect("told to go");
    inward.write_all(b"still").await.unwrap();
    outward.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"still", "what is under way goes on");
    assert_eq!(ends.present.try_recv(), Err(TryRecvError::Empty), "and is waited for");
    drop((outward, inward, second, second_inward));
    let gone = timeout(PATIENCE, ends.present.recv()).await.expect("all have left");
    assert_eq!(gone, None);
}
