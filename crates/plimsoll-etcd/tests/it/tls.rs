//! Certificates on both sides.

use std::path::Path;

use plimsoll_etcd::testkit::EtcdLab;
use plimsoll_etcd::{Error, EtcdClient, EtcdConfig, EtcdTls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

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
        std::fs::write(dir.join(format!("{file}.pem")), certificate.pem()).unwrap();
        std::fs::write(dir.join(format!("{file}.key")), key.serialize_pem()).unwrap();
    }
}

#[tokio::test]
async fn a_client_and_etcd_show_each_other_certificates_or_do_not_speak() {
    let Some(net) = EtcdLab::net() else { return };
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (authority, stranger) = (Authority::new(), Authority::new());
    std::fs::write(dir.join("ca.pem"), authority.0.pem()).unwrap();
    std::fs::write(dir.join("stranger.pem"), stranger.0.pem()).unwrap();
    authority.issue(dir, "server", &format!("{net}.1"));
    authority.issue(dir, "client", "ash");
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let flags = [
        "--cert-file".to_owned(),
        path("server.pem"),
        "--key-file".to_owned(),
        path("server.key"),
        "--client-cert-auth".to_owned(),
        "--trusted-ca-file".to_owned(),
        path("ca.pem"),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let Some(lab) = EtcdLab::start_in(Some(&net), 1, &flags) else { return };

    let (certificate, key) = (dir.join("client.pem"), dir.join("client.key"));
    let identity = Some((certificate.as_path(), key.as_path()));
    let client = |ca: &str, identity| {
        let tls = Some(EtcdTls::from_files(&dir.join(ca), identity).unwrap());
        EtcdClient::new(EtcdConfig { tls, ..lab.config() }).unwrap()
    };
    let good = client("ca.pem", identity);
    good.put("/a", "x").await.unwrap();
    let error = client("stranger.pem", identity).put("/a", "y").await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { sent: false, .. }), "{error:?}");
    assert!(error.to_string().contains("certificate"), "{error}");
    // Etcd hangs up on us once it finds that we show none, and its reason may be lost with the connection.
    let error = client("ca.pem", None).put("/a", "y").await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert_eq!(&good.get("/a").await.unwrap().unwrap().value[..], b"x");
}
