//! Where etcd is, how it is reached and as whom: given by people, so every mistake is named.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::error::Error;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(2);

/// How often a connection with a request under way is tried. Etcd closes those that are tried every five seconds.
const PING: Duration = Duration::from_secs(10);

/// How long the answer to such a try may take before the connection counts as dead.
const PING_ANSWER: Duration = Duration::from_secs(5);

/// A few transactions of the largest size may be on their way at once.
const WINDOW: u32 = 8 << 20;

#[derive(Debug, Clone)]
pub struct EtcdConfig {
    /// `http://…` or `https://…`, of members of one cluster.
    pub endpoints: Vec<String>,
    /// How long a call may take, whichever members it tries.
    pub limit: Duration,
    pub tls: Option<EtcdTls>,
    pub credentials: Option<EtcdCredentials>,
}

/// Whom to trust, and what to show.
#[derive(Clone)]
pub struct EtcdTls {
    /// The authority that signed the members' certificates, as PEM.
    pub ca: Vec<u8>,
    /// A certificate of our own and its key, as PEM, where etcd asks for one.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

#[derive(Clone, PartialEq, Eq)]
pub struct EtcdCredentials {
    pub user: String,
    pub password: String,
}

impl fmt::Debug for EtcdTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdTls")
            .field("identity", &self.identity.is_some())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for EtcdCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdCredentials").field("user", &self.user).finish_non_exhaustive()
    }
}

impl EtcdTls {
    /// Reads PEM files: the authority, and perhaps a certificate with its key.
    pub fn from_files(ca: &Path, identity: Option<(&Path, &Path)>) -> Result<Self, Error> {
        let identity = match identity {
            Some((certificate, key)) => Some((read(certificate)?, read(key)?)),
            None => None,
        };
        Ok(Self { ca: read(ca)?, identity })
    }

    fn config(&self) -> ClientTlsConfig {
        let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.ca));
        match &self.identity {
            Some((certificate, key)) => config.identity(Identity::from_pem(certificate, key)),
            None => config,
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let failed = |why: std::io::Error| wrong(&path.display().to_string(), &why.to_string());
    std::fs::read(path).map_err(failed)
}

fn wrong(what: &str, why: &str) -> Error {
    Error::Config { what: what.to_owned(), why: why.to_owned() }
}

/// Whether what is sent to this endpoint can be read on its way: it goes in the clear, and to another host. A name other than
/// `localhost` may be any host's.
pub fn is_exposed(endpoint: &str) -> bool {
    let Some(("http", rest)) = endpoint.split_once("://") else { return false };
    let authority = rest.split('/').next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let is_loopback = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    // Who has a user in it hides the host behind it.
    authority.contains('@') || !(is_loopback || host.eq_ignore_ascii_case("localhost"))
}

impl EtcdConfig {
    /// A cluster that anyone may use.
    pub fn open(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let endpoints = endpoints.into_iter().map(Into::into).collect();
        Self { endpoints, limit: Duration::from_secs(5), tls: None, credentials: None }
    }

    pub(crate) fn checked(&self) -> Result<Vec<Endpoint>, Error> {
        if self.endpoints.is_empty() {
            return Err(wrong("no endpoint", "name at least one, such as http://127.0.0.1:2379"));
        }
        self.endpoints.iter().map(|endpoint| self.endpoint(endpoint)).collect()
    }

    fn endpoint(&self, text: &str) -> Result<Endpoint, Error> {
        let wants_tls = match text.split_once("://") {
            Some(("http", _)) => false,
            Some(("https", _)) => true,
            _ => {
                return Err(wrong(text, "an endpoint begins with http:// or https://"));
            }
        };
        let endpoint = Endpoint::from_shared(text.to_owned());
        let endpoint = endpoint.map_err(|error| wrong(text, &error.to_string()))?;
        let endpoint = endpoint
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING)
            .keep_alive_timeout(PING_ANSWER)
            .initial_connection_window_size(WINDOW)
            .initial_stream_window_size(WINDOW);
        match (&self.tls, wants_tls) {
            (None, false) => Ok(endpoint),
            (Some(tls), true) => endpoint.tls_config(tls.config()).map_err(|error| {
                wrong(
                    "these certificates",
                    &crate::error::words(&tonic::Status::from_error(error.into())),
                )
            }),
            (None, true) => {
                Err(wrong(text, "https needs the authority that signed etcd's certificate"))
            }
            (Some(_), false) => {
                Err(wrong(text, "certificates are given, so endpoints begin with https://"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(config: &EtcdConfig) -> String {
        config.checked().map(drop).unwrap_err().to_string()
    }

    #[test]
    fn a_mistake_in_the_settings_is_named_before_anything_is_sent() {
        let none: [&str; 0] = [];
        assert!(says(&EtcdConfig::open(none)).contains("name at least one"));
        assert!(says(&EtcdConfig::open(["etcd:2379"])).contains("begins with http:// or https://"));
        assert!(says(&EtcdConfig::open(["https://etcd:2379"])).contains("the authority"));
        let tls = Some(EtcdTls { ca: b"nonsense".to_vec(), identity: None });
        let mixed = EtcdConfig { tls: tls.clone(), ..EtcdConfig::open(["http://etcd:2379"]) };
        assert!(says(&mixed).contains("begin with https://"));
        let identity = Some((b"nonsense".to_vec(), b"nonsense".to_vec()));
        let tls = tls.map(|tls| EtcdTls { identity, ..tls });
        let broken = EtcdConfig { tls, ..EtcdConfig::open(["https://etcd:2379"]) };
        assert!(says(&broken).starts_with("cannot use these certificates"), "{}", says(&broken));
        let missing = EtcdTls::from_files(Path::new("/nonexistent/ca.pem"), None).unwrap_err();
        assert!(missing.to_string().contains("/nonexistent/ca.pem"), "{missing}");
    }

    #[test]
    fn what_leaves_this_host_in_the_clear_is_exposed() {
        for (endpoint, expected) in [
            ("http://127.0.0.1:2379", false),
            ("http://127.45.3.1:2379", false),
            ("http://localhost:2379", false),
            ("http://[::1]:2379", false),
            ("https://10.0.0.1:2379", false),
            ("http://10.0.0.1:2379", true),
            ("http://[fd00::1]:2379", true),
            ("http://etcd:2379", true),
            ("http://localhost.example:2379", true),
            ("http://127.0.0.1.example:2379/", true),
            ("http://127.0.0.1@10.0.0.1:2379", true),
            ("http://127.0.0.1:x@10.0.0.1:2379", true),
        ] {
            assert_eq!(is_exposed(endpoint), expected, "{endpoint}");
        }
    }

    #[test]
    fn what_is_secret_is_not_printed() {
        let credentials = EtcdCredentials { user: "ash".into(), password: "birch".into() };
        let tls = EtcdTls { ca: Vec::new(), identity: Some((Vec::new(), b"cedar".to_vec())) };
        let config = EtcdConfig {
            credentials: Some(credentials),
            tls: Some(tls),
            ..EtcdConfig::open(["https://etcd:2379"])
        };
        let text = format!("{config:?}");
        assert!(text.contains("ash") && !text.contains("birch") && !text.contains("99"), "{text}");
    }
}
