//! Three etcd members that show each other certificates, and a client of the one that leads.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use plimsoll_etcd::{EtcdClient, EtcdConfig};
use plimsoll_lab::Process;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::{Round, press, value};
use crate::cell::daemons::until;

const COUNT: usize = 3;

/// Connections that the writers share.
const CONNECTIONS: usize = 4;

pub(super) struct Cluster {
    clients: Vec<EtcdClient>,
    members: Vec<Process>,
}

pub(super) fn is_installed() -> bool {
    let mut command = Command::new("etcd");
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

impl Cluster {
    pub(super) async fn start(dir: &Path) -> Self {
        let dir = dir.join("etcd");
        std::fs::create_dir(&dir).expect("a directory can be made");
        let net = format!("127.124.{}", std::process::id() % 250 + 1);
        certify(&dir, &net);
        let members = (1..=COUNT).map(|nth| Process::new(member(&dir, &net, nth))).collect();
        let mut cluster = Self { clients: Vec::new(), members };
        let all = EtcdClient::new(EtcdConfig::open((1..=COUNT).map(|nth| endpoint(&net, nth))));
        let all = all.expect("the endpoints are good");
        let mut leader = None;
        until("etcd has a leader", async || {
            let mut told = all.status().await.into_iter();
            leader = told.find_map(|(endpoint, health)| {
                let health = health.ok()?;
                (health.leader == Some(health.member)).then_some(endpoint)
            });
            leader.is_some()
        })
        .await;
        let endpoint = leader.expect("it was there a moment ago");
        let config = EtcdConfig { limit: Duration::from_mins(1), ..EtcdConfig::open([endpoint]) };
        let client = || EtcdClient::new(config.clone()).expect("the endpoint is good");
        cluster.clients = (0..CONNECTIONS).map(|_| client()).collect();
        cluster
    }

    pub(super) async fn round(&self) -> Round {
        let clients = self.clients.clone();
        press(move |writer, number| {
            let client = clients[writer % CONNECTIONS].clone();
            async move {
                let put = client.put(format!("n{writer}"), value(number)).await;
                put.expect("etcd writes it");
            }
        })
        .await
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.members.iter().for_each(Process::kill);
    }
}

fn endpoint(net: &str, nth: usize) -> String {
    format!("http://{net}.{nth}:2379")
}

/// An authority, and one certificate for all three addresses and the one that loopback connections come from, which members
/// hold against the certificate.
fn certify(dir: &Path, net: &str) {
    let key = || KeyPair::generate().expect("a key can be made");
    let mut params = CertificateParams::new(Vec::new()).expect("no name is a bad one");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, key()).expect("an authority can be made");
    let members = (1..=COUNT).map(|nth| format!("{net}.{nth}"));
    let names: Vec<String> = members.chain(["127.0.0.1".to_owned()]).collect();
    let key = key();
    let params = CertificateParams::new(names).expect("these are addresses");
    let certificate = params.signed_by(&key, &authority).expect("a certificate can be made");
    for (file, text) in [
        ("ca.pem", authority.pem()),
        ("peer.pem", certificate.pem()),
        ("peer.key", key.serialize_pem()),
    ] {
        std::fs::write(dir.join(file), text).expect("a file can be written");
    }
}

/// As etcd comes, with mutual TLS between members.
fn member(dir: &Path, net: &str, nth: usize) -> std::process::Child {
    let peer = |nth: usize| format!("https://{net}.{nth}:2380");
    let all: Vec<String> = (1..=COUNT).map(|nth| format!("m{nth}={}", peer(nth))).collect();
    let mut command = Command::new("etcd");
    command.args(["--name", &format!("m{nth}"), "--data-dir"]).arg(dir.join(format!("m{nth}")));
    command.args(["--listen-peer-urls", &peer(nth), "--initial-advertise-peer-urls", &peer(nth)]);
    for flag in ["--listen-client-urls", "--advertise-client-urls"] {
        command.args([flag, &endpoint(net, nth)]);
    }
    command.args(["--initial-cluster", &all.join(","), "--peer-client-cert-auth"]);
    for (flag, file) in [
        ("--peer-trusted-ca-file", "ca.pem"),
        ("--peer-cert-file", "peer.pem"),
        ("--peer-key-file", "peer.key"),
    ] {
        command.arg(flag).arg(dir.join(file));
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("etcd starts")
}
