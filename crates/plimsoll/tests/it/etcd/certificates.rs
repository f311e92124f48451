//! A cell on an etcd that speaks https and asks who calls.

use std::fs;
use std::path::Path;

use plimsoll_etcd::testkit::EtcdLab;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::faults::{apply_shop, must_agree};
use super::{cell_with, flags};
use crate::harness::Cell;

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Writes a certificate for a name or an address, and its key.
    fn issue(&self, dir: &Path, file: &str, name: &str) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        fs::write(dir.join(file).with_extension("pem"), certificate.pem()).unwrap();
        fs::write(dir.join(file).with_extension("key"), key.serialize_pem()).unwrap();
    }
}

#[test]
fn a_cell_on_an_etcd_with_certificates_on_both_sides_outlives_its_leader_and_remembers_them() {
    let Some(net) = EtcdLab::net() else { return };
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let authority = Authority::new();
    fs::write(dir.join("ca.pem"), authority.0.pem()).unwrap();
    authority.issue(dir, "server", &format!("{net}.1"));
    authority.issue(dir, "node", "node");
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let files = [path("server.pem"), path("server.key"), path("ca.pem")];
    let asked = [
        "--cert-file",
        &files[0],
        "--key-file",
        &files[1],
        "--client-cert-auth",
        "--trusted-ca-file",
        &files[2],
    ];
    let Some(lab) = EtcdLab::start_in(Some(&net), 1, &asked) else { return };
    assert!(lab.endpoints[0].starts_with("https://"), "{:?}", lab.endpoints);

    let shown = [("--etcd-ca", "ca.pem"), ("--etcd-cert", "node.pem"), ("--etcd-key", "node.key")];
    let shown = shown.map(|(flag, file)| [flag.to_owned(), path(file)]).concat();
    let told = |cell: &mut Cell| {
        for at in 0..2 {
            cell.setups[at].args = [flags(&lab), shown.clone()].concat();
        }
    };
    let mut cell = cell_with(2, &lab, told);
    apply_shop(&cell, 1);
    must_agree(&cell, &[0, 1], 6);
    let leader = cell.until_led(&[0, 1]);
    cell.kill(leader);
    let other = cell.others(leader)[0];
    cell.until("a write succeeds", |cell| cell.run(other, "scale shop web=7 -d").code() == 0);
    // The next start needs none of it.
    cell.setups[leader].args.clear();
    cell.up(leader, None);
    must_agree(&cell, &[0, 1], 7);
}
