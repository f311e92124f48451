use std::io;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::{Request, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::kit::{PATIENCE, Served, text};
use crate::pki::testkit::cell;
use crate::pki::{Authority, join_config};
use crate::{Limits, PeerClient};

/// The most that any of this may cost, with other tests running beside it.
const MAX_GROWTH_KB: usize = 96 << 10;

/// Kernels tell sizes in pages.
const PAGE_KB: usize = 4;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// An HTTP/2 connection for speaking it badly.
async fn stranger(authority: &Authority, served: &Served) -> TlsStream<TcpStream> {
    let config = join_config(authority.fingerprint()).unwrap();
    let stream = TcpStream::connect(served.address).await.unwrap();
    let name = "node.plimsoll.internal".try_into().unwrap();
    let mut stream = TlsConnector::from(config).connect(name, stream).await.unwrap();
    stream.write_all(PREFACE).await.unwrap();
    // Our settings: none.
    stream.write_all(&frame(4, 0, 0, &[])).await.unwrap();
    stream
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Whether the other side closes the connection in time, whatever else it says.
async fn is_closed(stream: &mut (impl AsyncReadExt + Unpin)) -> bool {
    let read = async {
        let mut bytes = [0; 4_096];
        while !matches!(stream.read(&mut bytes).await, Ok(0) | Err(_)) {}
    };
    timeout(PATIENCE, read).await.is_ok()
}

/// Bytes that nobody chose.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..len).map(step).collect()
}

#[tokio::test]
async fn noise_and_plaintext_on_the_port_leave_it_serving_others() {
    let blue = cell("blue");
    let ash = Served::new(&blue.node("ash"));
    let client = PeerClient::new(blue.node("birch"));
    let before = resident_kb();
    let mut as_handshake = noise(5, 1 << 16);
    as_handshake[0] = 22;
    let mut long_record = vec![22, 3, 1, 0xff, 0xff];
    long_record.extend(noise(6, 1 << 17));
    // A hello that announces sixteen megabytes of itself.
    let mut long_hello = vec![22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff];
    long_hello.extend(noise(7, 1 << 17));
    let http = b"GET / HTTP/1.1\r\nHost: ash\r\n\r\n".to_vec();
    for (case, bytes) in [
        ("noise", noise(3, 1 << 20)),
        ("noise that begins like TLS", as_handshake),
        ("a record that is too long", long_record),
        ("a hello that is too long", long_hello),
        ("HTTP without TLS", http),
        ("HTTP/2 without TLS", PREFACE.to_vec()),
        ("one byte", vec![0]),
    ] {
        for _ in 0..20 {
            let mut stream = TcpStream::connect(ash.address).await.unwrap();
            let _ = stream.write_all(&bytes).await;
            assert!(is_closed(&mut stream).await, "{case}");
        }
        assert_eq!(text(&client, &ash.target, "/known").await, "birch", "{case}");
    }
    assert!(resident_kb().saturating_sub(before) < MAX_GROWTH_KB);
}

#[tokio::test]
async fn frames_that_break_the_rules_close_the_connection_that_sent_them_and_no_other() {
    let blue = cell("blue");
    let ash = Served::new(&blue.node("ash"));
    let client = PeerClient::new(blue.node("birch"));
    let before = resident_kb();
    // HEADERS of POST /echo on stream 1, as HPACK has it: :method POST, :scheme https, :path /echo, :authority a.
    let mut headers = vec![0x83, 0x87, 0x04, 5];
    headers.extend(b"/echo");
    headers.extend([0x41, 1, b'a']);
    let mut announced = vec![0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1];
    announced.extend(vec![7; 1 << 20]);
    let mut endless_headers = frame(1, 0, 1, &headers);
    for _ in 0..20_000 {
        // CONTINUATION without an end, each with another header.
        endless_headers.extend(frame(9, 0, 1, &[0x40, 1, b'x', 1, b'y']));
    }
    let mut flood = frame(1, 4, 1, &headers);
    for _ in 0..2_000 {
        // More than the window of 64 kB that was granted.
        flood.extend(frame(0, 0, 1, &[7; 16_384]));
    }
    for (case, bytes) in [
        ("noise inside TLS", noise(11, 1 << 16)),
        ("a frame that announces 16 MB", announced),
        ("headers without end", endless_headers),
        ("more data than the window allows", flood),
    ] {
        for _ in 0..3 {
            let mut stream = stranger(&blue, &ash).await;
            let _ = timeout(PATIENCE, stream.write_all(&bytes)).await;
            assert!(is_closed(&mut stream).await, "{case}");
        }
        assert_eq!(text(&client, &ash.target, "/known").await, "birch", "{case}");
    }
    let grown = resident_kb().saturating_sub(before);
    assert!(grown < MAX_GROWTH_KB, "{grown} kB");
}

#[tokio::test]
async fn a_gigabyte_that_is_really_sent_is_refused_at_the_handlers_limit() {
    let blue = cell("blue");
    let ash = Served::new(&blue.node("ash"));
    let client = PeerClient::new(blue.node("birch"));
    let before = resident_kb();
    let piece = Bytes::from(vec![7; 1 << 20]);
    let pieces = (0..1_024).map(move |_| Ok::<_, io::Error>(piece.clone()));
    let body = Body::from_stream(futures_util::stream::iter(pieces));
    let request = Request::post("/echo").body(body).unwrap();
    let answer = client.forward(&ash.target, request, PATIENCE).await.unwrap();
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let grown = resident_kb().saturating_sub(before);
    assert!(grown < MAX_GROWTH_KB, "{grown} kB");
    assert_eq!(text(&client, &ash.target, "/known").await, "birch");
}

#[tokio::test]
async fn those_who_dawdle_make_room_for_those_who_do_not() {
    let blue = cell("blue");
    let limits = Limits {
        handshakes: 8,
        crowded_patience: Duration::from_millis(50),
        handshake_patience: Duration::from_mins(1),
        ..Limits::default()
    };
    let ash = Served::with(&blue.node("ash"), limits);
    let mut dawdlers = Vec::new();
    for _ in 0..32 {
        let mut stream = TcpStream::connect(ash.address).await.unwrap();
        stream.write_all(&[22, 3]).await.unwrap();
        dawdlers.push(stream);
    }
    let client = PeerClient::new(blue.node("birch"));
    assert_eq!(text(&client, &ash.target, "/known").await, "birch");
    assert!(is_closed(&mut dawdlers[0]).await, "the first had to go");
}

#[tokio::test]
async fn a_handshake_that_is_not_finished_is_given_up() {
    let blue = cell("blue");
    let patience = Duration::from_millis(200);
    let limits = Limits { handshake_patience: patience, ..Limits::default() };
    let ash = Served::with(&blue.node("ash"), limits);
    for said in [&[][..], &[22], &[22, 3, 1, 2, 0, 1, 0]] {
        let mut stream = TcpStream::connect(ash.address).await.unwrap();
        stream.write_all(said).await.unwrap();
        assert!(is_closed(&mut stream).await);
    }
}

#[tokio::test]
async fn strangers_are_few_and_do_not_stay() {
    let blue = cell("blue");
    let limits = Limits {
        unauthenticated: 2,
        unauthenticated_patience: Duration::from_millis(500),
        ..Limits::default()
    };
    let ash = Served::with(&blue.node("ash"), limits);
    let mut first = stranger(&blue, &ash).await;
    let mut second = stranger(&blue, &ash).await;
    let mut third = stranger(&blue, &ash).await;
    assert!(is_closed(&mut third).await, "there is no room");
    let client = PeerClient::new(blue.node("birch"));
    assert_eq!(text(&client, &ash.target, "/known").await, "birch", "nodes have their own");
    assert!(is_closed(&mut first).await && is_closed(&mut second).await, "their time is over");
    stranger(&blue, &ash).await;
}

/// Memory of this process that is really there.
fn resident_kb() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * PAGE_KB
}
