//! Certificates of a real ACME authority, Debian's pebble: issued over HTTP and over TLS, served by every node, renewed under
//! load, gone on with by the next leader. Left out where there is none; `lab/acme with` and `./test` see to it.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use crate::harness::{Cell, NodeSetup, Site, loopback};

mod agents;
mod orders;
mod renewal;

/// Where the authority asks hosts, and so where nodes take requests.
const HTTP: u16 = 5002;
const HTTPS: u16 = 5001;

/// How long one answer may take on a busy machine.
const ANSWER: Duration = Duration::from_secs(20);

/// An authority that is there for one test.
struct Pebble {
    script: String,
    name: String,
    address: String,
    dir: PathBuf,
}

impl Pebble {
    /// None where there is no pebble. Every name is where the first node is, until it is pointed elsewhere.
    fn start(environment: &[(&str, &str)]) -> Option<Self> {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let script = std::env::var("PLIMSOLL_LAB_ACME").ok().filter(|script| !script.is_empty());
        let Some(script) = script else {
            eprintln!("PLIMSOLL_LAB_ACME names no ACME authority; left out");
            return None;
        };
        let nth = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = format!("test-{}-{nth}", std::process::id());
        let lab = std::env::var("PLIMSOLL_LAB").unwrap_or_else(|_| "/var/tmp/plimsoll-lab".into());
        let dir = PathBuf::from(lab).join("acme").join(&name);
        let (http, tls) = (HTTP.to_string(), HTTPS.to_string());
        let args = ["start", &name, &http, &tls, &ip(0)];
        let address = run(&script, &args, environment);
        Some(Self { script, name, address, dir })
    }

    /// From now on the host is where this node is.
    fn point(&self, host: &str, address: &str) {
        run(&self.script, &["point", &self.name, host, address], &[]);
    }

    /// What nodes are told of it.
    fn flags(&self) -> Vec<String> {
        let directory = format!("https://{}:14000/dir", self.address);
        let ca = self.dir.join("ca.pem").display().to_string();
        let flags = ["--acme-email", "ops@example.org", "--acme-directory", &directory];
        flags.into_iter().chain(["--acme-ca", &ca]).map(str::to_owned).collect()
    }

    fn said(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// How many certificates it has issued.
    fn issued(&self) -> usize {
        self.said().matches("Issued certificate serial").count()
    }

    /// What clients of the hosts trust.
    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        let pem = fs::read(self.dir.join("roots.pem")).unwrap();
        for root in CertificateDer::pem_slice_iter(&pem) {
            roots.add(root.unwrap()).unwrap();
        }
        roots
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        // By the status alone: a test that failed must not panic twice.
        Command::new(&self.script).args(["stop", &self.name]).status().ok();
    }
}

fn run(script: &str, args: &[&str], environment: &[(&str, &str)]) -> String {
    let output = Command::new(script).args(args).envs(environment.iter().copied()).output();
    let output = output.expect("the lab's script runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "lab/acme {args:?}: {complaint}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The address of a node without its port.
fn ip(at: usize) -> String {
    loopback(at).rsplit_once(':').unwrap().0.to_owned()
}

/// Where a node takes requests.
fn listens(at: usize, kinds: &[&str]) -> Vec<String> {
    let port = |kind: &str| if kind == "--http" { HTTP } else { HTTPS };
    let flags = kinds.iter();
    flags.flat_map(|kind| [(*kind).to_owned(), format!("{}:{}", ip(at), port(kind))]).collect()
}

/// So many nodes that listen so and ask this authority.
fn cell(count: usize, pebble: &Pebble, kinds: &[&str], more: &[&str]) -> Cell {
    let mut cell = Cell::idle(Site::Loopback);
    for at in 0..count {
        let args = listens(at, kinds).into_iter().chain(pebble.flags());
        let args = args.chain(more.iter().map(|word| (*word).to_owned())).collect();
        cell.setups[at] = NodeSetup { args, ..NodeSetup::default() };
    }
    cell.form(count);
    cell
}

/// Routes for these hosts.
fn apply(cell: &Cell, hosts: &[(&str, &str)]) {
    let routes = hosts
        .iter()
        .map(|(host, tls)| format!("    - {{host: {host}, service: web, port: 80, tls: {tls}}}\n"));
    let file = format!(
        "name: shop\nservices:\n  web: {{image: any, command: [sh, -c, 'exec sleep 1000'], deploy: {{replicas: 1}}}}\n\
         x-plimsoll:\n  routes:\n{}",
        routes.collect::<String>()
    );
    fs::write(cell.dir.path().join("compose.yaml"), file).unwrap();
    let applied = cell.run(0, "apply -f compose.yaml");
    assert_eq!(applied.code(), 0, "{}", applied.text());
}

/// What this node tells of a host's certificate.
fn told(cell: &Cell, at: usize, host: &str) -> Value {
    let all = cell.get(at, "/v1/certificates").unwrap_or_default();
    let all = all.as_array().cloned().unwrap_or_default();
    all.into_iter().find(|it| it["host"] == host).unwrap_or_default()
}

/// The certificate that a node shows for a host, to a client that trusts these roots.
fn shown(at: usize, host: &str, roots: RootCertStore) -> io::Result<CertificateDer<'static>> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let client = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let address: SocketAddr = format!("{}:{HTTPS}", ip(at)).parse().unwrap();
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWER))?;
    let mut stream = StreamOwned::new(client, stream);
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    let chain = stream.conn.peer_certificates().unwrap_or_default();
    Ok(chain[0].clone().into_owned())
}

/// Waits until every one of these nodes shows a certificate of the authority for the host.
#[track_caller]
fn until_shown(cell: &Cell, nodes: &[usize], host: &str, pebble: &Pebble) {
    cell.until(&format!("all nodes show a certificate for {host}"), |_| {
        nodes.iter().all(|at| shown(*at, host, pebble.roots()).is_ok())
    });
}
