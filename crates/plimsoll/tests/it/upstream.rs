//! What a route of a test leads to: a server of the test itself, which says "ok".

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

/// A server on a port of this host that answers each connection once. It ends with the test.
pub(crate) fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    at
}

fn answer(mut stream: TcpStream) {
    let (mut head, mut space) = (Vec::new(), [0; 4_096]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut space) {
            Ok(0) | Err(_) => return,
            Ok(count) => head.extend_from_slice(&space[..count]),
        }
    }
    let _ =
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
}
