//! Looks at this host, asks the daemon on it if there is one, and its peers with the node's own certificate.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::{BodyExt, Empty};
use hyper::header::{HOST, HeaderMap};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use plimsoll_api::client::{Client, Endpoint};
use plimsoll_api::view::{Cell, Certificate, Node, Ready, Status, Time};
use plimsoll_daemon::clock::{CLOCK, machine_time};
use plimsoll_daemon::servers::{ServerList, has_address};
use plimsoll_model::{NodeId, Timestamp};
use plimsoll_peer::pki::{Credentials, Identity};
use plimsoll_peer::{DEFAULT_PORT, PeerClient, Target};
use plimsoll_store::Peer;
use plimsoll_store::embedded::Timing;
use rustix::process::{Resource, getrlimit};
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::NodeArgs;
use super::facts::{
    AgentFact, BackFact, CertificateFact, ClockFact, DaemonFact, EngineFact, Facts, FileLimit,
    IptablesFact, PeerFact, PortFact, PortState, Space,
};
use crate::error::CliError;
use crate::wait::now;

/// How long an engine or another node may take to answer: who runs the doctor waits for all of them.
const PATIENCE: Duration = Duration::from_secs(3);

/// What the daemon says of itself and of the cell; what it refuses to tell is missing.
#[derive(Default)]
struct Told {
    ready: Option<Ready>,
    status: Option<Status>,
    cell: Option<Cell>,
    certificates: Vec<Certificate>,
}

impl Told {
    async fn by(client: &Client) -> (Self, DaemonFact) {
        let ready = match client.ready(false).await {
            Ok(ready) => ready,
            Err(error) => {
                let is_absent = matches!(&error, plimsoll_api::client::Error::Unreachable { .. });
                let fact = if is_absent {
                    DaemonFact::Down { socket: client.endpoint().to_string() }
                } else {
                    DaemonFact::Unheard { why: CliError::from(error).first_line() }
                };
                return (Self::default(), fact);
            }
        };
        let fact = DaemonFact::Up {
            node: ready.health.node.clone(),
            role: ready.health.role.clone(),
            version: ready.health.version.clone(),
            leader: ready.health.leader.clone(),
            missing: ready.why.iter().map(crate::replica_line::said).collect(),
        };
        let told = Self {
            ready: Some(ready),
            status: client.status().await.ok(),
            cell: client.cell().await.ok(),
            certificates: client.certificates().await.unwrap_or_default(),
        };
        (told, fact)
    }

    fn own(&self) -> Option<&Node> {
        let own = &self.ready.as_ref()?.health.node;
        self.status.as_ref()?.nodes.iter().find(|node| node.name == *own)
    }
}

pub(super) async fn facts(client: &Client, args: &NodeArgs, binds: &[SocketAddr]) -> Facts {
    let dir = args.data_dir();
    let (told, daemon) = Told::by(client).await;
    let engine = engine(args, &dir, &told).await;
    let identity = identity(&dir);
    let (peers, no_identity) = match &identity {
        Ok(Some(identity)) => (peers(identity, &dir, &told).await, None),
        Ok(None) => (Vec::new(), None),
        Err(why) => (Vec::new(), Some(why.clone())),
    };
    let servers: Vec<&str> = peers.iter().map(|peer| peer.node.as_str()).collect();
    let own = told.ready.as_ref().map(|ready| ready.health.node.clone());
    let nodes = told.status.iter().flat_map(|status| &status.nodes);
    let is_agent = |node: &&Node| {
        node.role == "agent"
            && Some(&node.name) != own.as_ref()
            && !servers.contains(&node.name.as_str())
    };
    let agents = nodes.filter(is_agent).map(|node| AgentFact {
        node: node.name.clone(),
        status: node.status.clone(),
        last_heard: node.last_heard,
    });
    Facts {
        now: now(),
        iptables: iptables(&engine),
        agents: agents.collect(),
        ports: ports(binds, &told),
        disk: nearest(&dir)
            .and_then(|dir| Timing::foretell(&dir).map_err(|error| error.to_string())),
        space: nearest(&dir).and_then(|dir| space(&dir)),
        files: file_limit(client).await,
        certificates: certificates(identity.ok().flatten().as_ref(), &told),
        daemon,
        engine,
        peers,
        no_identity,
    }
}

/// The directory, or the nearest one above it: before the first start it is not there yet.
fn nearest(dir: &Path) -> Result<PathBuf, String> {
    let found = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let found = found.ancestors().find(|above| above.is_dir()).map(Path::to_owned);
    found.ok_or_else(|| format!("there is no directory {}", dir.display()))
}

async fn engine(args: &NodeArgs, dir: &Path, told: &Told) -> EngineFact {
    if let Some(runtime) = told.own().and_then(|node| node.runtime.as_ref()) {
        if runtime.name == "process" {
            return EngineFact::Process;
        }
        if let (Some(version), None) = (&runtime.version, &runtime.trouble) {
            let (name, version) = (runtime.name.clone(), version.clone());
            return EngineFact::Answers { name, version, api: None };
        }
    }
    if remembered_runtime(dir).as_deref() == Some("process") {
        return EngineFact::Process;
    }
    let socket = args.docker_socket.clone().or_else(plimsoll_runtime::docker::detect);
    let Some(socket) = socket else { return EngineFact::Absent };
    match timeout(PATIENCE, engine_version(&socket)).await {
        Ok(Ok(fact)) => fact,
        Ok(Err(why)) => EngineFact::Silent { socket: socket.display().to_string(), why },
        Err(_) => {
            let why = format!("no answer within {} s", PATIENCE.as_secs());
            EngineFact::Silent { socket: socket.display().to_string(), why }
        }
    }
}

/// What a node that was started before runs containers with.
fn remembered_runtime(dir: &Path) -> Option<String> {
    let memory: Value = serde_json::from_slice(&fs::read(dir.join("node.json")).ok()?).ok()?;
    memory["runtime"].as_str().map(str::to_lowercase)
}

async fn engine_version(socket: &Path) -> Result<EngineFact, String> {
    let stream = UnixStream::connect(socket).await.map_err(|error| error.to_string())?;
    let connected = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = connected.map_err(|error| error.to_string())?;
    let driver = tokio::spawn(async { connection.await.is_ok() });
    let request = Request::get("/version").header(HOST, "engine").body(Empty::<Bytes>::new());
    let request = request.map_err(|error| error.to_string())?;
    let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
    let body = answer.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
    driver.abort();
    let version: Value = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
    let components = version["Components"].as_array().into_iter().flatten();
    let is_podman = components
        .into_iter()
        .any(|part| part["Name"].as_str().is_some_and(|name| name.starts_with("Podman")));
    let text = |field: &str| version[field].as_str().map(str::to_owned);
    let Some(number) = text("Version") else { return Err("it does not say its version".into()) };
    let name = if is_podman { "podman" } else { "docker" }.to_owned();
    Ok(EngineFact::Answers { name, version: number, api: text("ApiVersion") })
}

fn iptables(engine: &EngineFact) -> IptablesFact {
    if *engine == EngineFact::Process {
        return IptablesFact::Unneeded;
    }
    let run = |args: &[&str]| Command::new("iptables").args(args).output();
    let Ok(said) = run(&["--version"]) else { return IptablesFact::Absent };
    let version = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    if !rustix::process::geteuid().is_root() {
        return IptablesFact::Untried { version };
    }
    match run(&["-w", "-t", "nat", "-S"]) {
        Ok(listed) if listed.status.success() => IptablesFact::Works { version },
        Ok(listed) => {
            let why = String::from_utf8_lossy(&listed.stderr);
            IptablesFact::Fails { why: crate::replica_line::plain(&why) }
        }
        Err(error) => IptablesFact::Fails { why: error.to_string() },
    }
}

/// The peer port, and what was asked for. What a running daemon holds is not tried.
fn ports(binds: &[SocketAddr], told: &Told) -> Vec<PortFact> {
    let everywhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), DEFAULT_PORT);
    let own = told.ready.as_ref().map(|ready| ready.health.node.as_str());
    let servers = told.cell.iter().flat_map(|cell| &cell.servers);
    let held = servers.into_iter().find(|server| Some(server.node.as_str()) == own);
    let peer = match (held, own) {
        (Some(held), _) => {
            PortFact { what: "peer port", address: held.address.clone(), state: PortState::Held }
        }
        // An agent's is not told, and may be any.
        (None, Some(_)) => PortFact {
            what: "peer port",
            address: "of this agent".to_owned(),
            state: PortState::Held,
        },
        (None, None) => bind("peer port", everywhere),
    };
    [peer].into_iter().chain(binds.iter().map(|address| bind("address", *address))).collect()
}

fn bind(what: &'static str, address: SocketAddr) -> PortFact {
    let state = match TcpListener::bind(address) {
        Ok(_) => PortState::Free,
        Err(error) => PortState::Refused { why: error.to_string() },
    };
    PortFact { what, address: address.to_string(), state }
}

fn space(dir: &Path) -> Result<Space, String> {
    let found = rustix::fs::statvfs(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    Ok(Space {
        path: dir.display().to_string(),
        free: found.f_bavail.saturating_mul(found.f_frsize),
        total: found.f_blocks.saturating_mul(found.f_frsize),
        free_files: found.f_favail,
        total_files: found.f_files,
    })
}

/// Of the process at the other end of the socket, else what a daemon started from here could raise its own to.
async fn file_limit(client: &Client) -> FileLimit {
    let own = || FileLimit { most: getrlimit(Resource::Nofile).maximum, is_daemons: false };
    let Endpoint::Unix(socket) = client.endpoint() else { return own() };
    let Ok(stream) = UnixStream::connect(socket).await else { return own() };
    let Some(pid) = stream.peer_cred().ok().and_then(|who| who.pid()) else { return own() };
    let Ok(limits) = fs::read_to_string(format!("/proc/{pid}/limits")) else { return own() };
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let Some(line) = line else { return own() };
    let most = line.split_whitespace().next().and_then(|number| number.parse().ok());
    FileLimit { most, is_daemons: true }
}

/// None where the node has not been started yet.
fn identity(dir: &Path) -> Result<Option<Identity>, String> {
    Identity::load(dir).map_err(|error| {
        format!("the node's certificate cannot be read, so peers are not asked: {error}")
    })
}

/// Every other server, asked at once.
async fn peers(identity: &Identity, dir: &Path, told: &Told) -> Vec<PeerFact> {
    let own = identity.caller().node.to_string();
    let Ok(credentials) = Credentials::new(identity) else { return Vec::new() };
    let client = PeerClient::new(credentials);
    let known = match &told.cell {
        Some(cell) => {
            let servers = cell.servers.iter();
            servers.map(|it| Peer { name: it.node.clone(), address: it.address.clone() }).collect()
        }
        None => remembered_servers(dir),
    };
    let others = known.into_iter().filter(|peer| peer.name != own && has_address(peer));
    let mut facts = join_all(others.map(|peer| ask(&client, peer, &own))).await;
    facts.sort_by(|one, other| one.node.cmp(&other.node));
    facts
}

/// As the leader told them last.
fn remembered_servers(dir: &Path) -> Vec<Peer> {
    let bytes = fs::read(dir.join("servers.json")).unwrap_or_default();
    let list: ServerList = serde_json::from_slice(&bytes).unwrap_or_default();
    list.servers
}

async fn ask(client: &PeerClient, peer: Peer, own: &str) -> PeerFact {
    let Peer { name, address } = peer;
    let unknown = |why: &str| BackFact::Unknown { why: why.to_owned() };
    let fact = |there, back, clock| PeerFact {
        node: name.clone(),
        address: address.clone(),
        there,
        back,
        clock,
    };
    let Ok(node) = NodeId::new(&name) else {
        return fact(Err("its name is no name".into()), unknown("not asked"), None);
    };
    let to = Target { node, address: address.clone() };
    // The first call opens the connection, and is not what a request takes.
    let opened = client.call(&to, Method::GET, "/healthz", Bytes::new(), PATIENCE).await;
    if let Err(error) = opened {
        return fact(Err(error.to_string()), unknown("not asked"), None);
    }
    let (asked, begun) = (machine_time(), Instant::now());
    let answer = client.stream(&to, Method::GET, "/healthz", HeaderMap::new(), PATIENCE).await;
    let took = begun.elapsed();
    let clock = answer.ok().and_then(|answer| clock(&answer.headers, asked, took));
    let sees = client.call(&to, Method::GET, "/v1/cell", Bytes::new(), PATIENCE).await;
    let sees = sees.ok().and_then(|answer| serde_json::from_slice::<Cell>(&answer.body).ok());
    let back = match sees {
        None => unknown("it does not say"),
        Some(cell) => match cell.servers.iter().find(|server| server.node == own) {
            None => unknown("this node holds no log, and calls the leader itself"),
            Some(server) if server.role.is_some() => BackFact::Reaches,
            Some(_) => BackFact::DoesNot,
        },
    };
    fact(Ok(took), back, clock)
}

/// By what the other said of its clock while the answer was on its way.
fn clock(headers: &HeaderMap, asked: Timestamp, took: Duration) -> Option<ClockFact> {
    let told: Time = headers.get(CLOCK)?.to_str().ok()?.parse().ok()?;
    let millis = |time: Timestamp| i64::try_from(time.0).ok();
    let half = i64::try_from(took.as_millis()).ok()? / 2;
    Some(ClockFact { ahead_ms: millis(told.0)? - (millis(asked)? + half), give_ms: half })
}

fn certificates(identity: Option<&Identity>, told: &Told) -> Vec<CertificateFact> {
    let own = identity.map(|identity| CertificateFact {
        of: format!("node {}", identity.caller().node),
        expires_at: Some(Time(identity.expires_at())),
        is_overdue: false,
        trouble: None,
    });
    let routes = told.certificates.iter().map(|it| CertificateFact {
        of: format!("route {}", it.host),
        expires_at: it.expires_at,
        is_overdue: it.renew_at.is_some_and(|at| at.0 < now()),
        trouble: it.last_error.clone(),
    });
    own.into_iter().chain(routes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_compared_with_the_middle_of_the_way() {
        let mut headers = HeaderMap::new();
        headers.insert(CLOCK, "2026-11-18T06:30:10.500Z".parse().unwrap());
        let at = "2026-11-18T06:30:00Z".parse::<Time>().unwrap().0;
        let found = clock(&headers, at, Duration::from_millis(200)).unwrap();
        assert_eq!(found, ClockFact { ahead_ms: 10_400, give_ms: 100 });
        headers.insert(CLOCK, "yesterday".parse().unwrap());
        assert_eq!(clock(&headers, at, Duration::ZERO), None);
    }
}
