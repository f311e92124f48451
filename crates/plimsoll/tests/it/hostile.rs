//! Who should get nothing, at each door of a cell: a stranger on the network, somebody on a worker, a worker itself, a
//! node that was removed, and whoever holds a certificate that is not theirs. Every test here attacks running daemons.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use hyper::{Method, Request};
use plimsoll_lab::NAMES;
use plimsoll_model::NodeId;
use plimsoll_peer::pki::{Credentials, Identity, Login, operator_client_config};
use plimsoll_peer::{PeerClient, Target, read_whole};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::{Value, json};

use crate::harness::{Cell, Site};
use crate::run::{Ran, run_in};

mod api;
mod backups;
mod certificates;
mod contexts;
mod deploy;
mod files;
mod fleet;
mod join;
mod operators;
mod panics;
mod peer;
mod raft;
mod rotation;
pub(crate) mod secrets;
mod unlock;

/// The eighth node of a cell: the first that holds no log.
const AGENT: usize = 7;

/// How long one answer may take on a busy machine.
const ANSWER: Duration = Duration::from_secs(20);

/// The most bytes of an answer that are looked at.
const MAX_ANSWER: usize = 64 << 20;

/// A replica on each of eight nodes.
const SHOP: &str = r#"
name: shop
services:
  web:
    image: any
    command: [sh, -c, 'echo hello; exec sleep 1000']
    deploy: {replicas: 8}
"#;

/// A status, and what came with it.
type Answer = (u16, String);

/// Seven servers and one node that holds no log, each with a replica of the shop.
fn with_agent() -> Cell {
    let mut cell = Cell::idle(Site::Loopback);
    cell.form(8);
    std::fs::write(cell.dir.path().join("compose.yaml"), SHOP).unwrap();
    let applied = cell.run(0, "apply -f compose.yaml");
    assert_eq!(applied.code(), 0, "{}", applied.text());
    let held = cell.json(0, "cell status -o json")["servers"].clone();
    assert!(held.as_array().unwrap().iter().all(|server| server["node"] != NAMES[AGENT]));
    cell
}

/// A token of the cell.
fn token(cell: &Cell, name: &str, role: &str) -> String {
    let made = cell.run(0, &format!("token create {name} --role {role}"));
    assert_eq!(made.code(), 0, "{}", made.text());
    made.stdout().parse::<Login>().unwrap().token.to_string()
}

/// Who may ask the cell for things, by name.
fn operators(cell: &Cell) -> Vec<String> {
    let known = cell.json(0, "token list -o json");
    known.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

/// Somebody who would be an admin.
fn mallory() -> Vec<u8> {
    json!({"name": "mallory", "role": "admin"}).to_string().into_bytes()
}

/// The code of a problem, as far as there is one.
fn code((_, body): &Answer) -> String {
    let problem: Value = serde_json::from_str(body).unwrap_or_default();
    problem["code"].as_str().unwrap_or_default().to_owned()
}

/// The command line at a node's socket, with a token.
fn run_with(cell: &Cell, at: usize, token: &str, args: &str) -> Ran {
    let socket = cell.socket(at);
    let env = [("PLIMSOLL_HOST", socket.to_str().unwrap()), ("PLIMSOLL_TOKEN", token)];
    run_in(cell.dir.path(), args, "", &env)
}

/// Says exactly this to a node's API over TCP, under TLS. None: nobody answers there.
fn say_tcp(
    cell: &Cell,
    at: usize,
    line: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Option<Answer> {
    exchange(connect_tls(cell, at)?, line, headers, body)
}

/// An operator's connection to a node.
fn connect_tls(cell: &Cell, at: usize) -> Option<StreamOwned<ClientConnection, TcpStream>> {
    let tls = operator_client_config(&[cell.authority()]).unwrap();
    secured(TcpStream::connect(cell.api(at).unwrap()).ok()?, tls)
}

/// TLS over this, as it is configured.
fn secured(
    stream: TcpStream,
    tls: Arc<ClientConfig>,
) -> Option<StreamOwned<ClientConnection, TcpStream>> {
    stream.set_read_timeout(Some(ANSWER)).ok()?;
    let name = "node.plimsoll.internal".try_into().unwrap();
    Some(StreamOwned::new(ClientConnection::new(tls, name).unwrap(), stream))
}

/// The same on its socket.
fn say_unix(
    cell: &Cell,
    at: usize,
    line: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Option<Answer> {
    exchange(UnixStream::connect(cell.socket(at)).ok()?, line, headers, body)
}

fn exchange(
    mut stream: impl Read + Write,
    line: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Option<Answer> {
    let mut head = format!("{line} HTTP/1.1\r\nhost: cell\r\ncontent-length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("connection")) {
        head += "connection: close\r\n";
    }
    for (name, value) in headers {
        head.extend([*name, ": ", *value, "\r\n"]);
    }
    stream.write_all((head + "\r\n").as_bytes()).ok()?;
    stream.write_all(body).ok()?;
    read_answer(stream)
}

/// An answer with a length, or one that ends with its connection.
fn read_answer(mut stream: impl Read) -> Option<Answer> {
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let whole = length.and_then(|length| length.trim().parse::<usize>().ok());
            if whole.is_some_and(|whole| answer.len() >= end + 4 + whole) {
                let status = head.get(9..12)?.parse().ok()?;
                return Some((status, String::from_utf8_lossy(&answer[end + 4..]).into_owned()));
            }
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => {
                let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
                let status = String::from_utf8_lossy(answer.get(9..12)?).parse().ok()?;
                return Some((status, String::from_utf8_lossy(&answer[end + 4..]).into_owned()));
            }
            Ok(read) => answer.extend_from_slice(&piece[..read]),
        }
    }
}

/// Somebody with the key and certificate of a node, and no daemon.
struct Impostor(Identity);

impl Impostor {
    /// With what lies in a node's data directory.
    fn of(cell: &Cell, at: usize) -> Self {
        Self(Identity::load(&cell.path(at)).unwrap().expect("a node has an identity"))
    }

    /// Asks a node at its peer port.
    fn ask(
        &self,
        cell: &Cell,
        at: usize,
        (method, path): (Method, &str),
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Answer {
        let node = NodeId::new(NAMES[at]).unwrap();
        let target = Target { node, address: cell.address(at) };
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = PeerClient::new(Credentials::new(&self.0).unwrap());
            let answer = client.forward(&target, request, ANSWER).await.unwrap();
            let status = answer.status().as_u16();
            let body = read_whole(answer.into_body(), MAX_ANSWER).await.unwrap_or_default();
            (status, String::from_utf8_lossy(&body).into_owned())
        })
    }
}
