//! Where a daemon is found.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use rustls::ClientConfig;
use thiserror::Error;

/// The port where none is written.
const DEFAULT_PORT: u16 = 7_654;

/// A daemon's address.
#[derive(Clone)]
pub enum Endpoint {
    /// The socket of a daemon on this host.
    Unix(PathBuf),
    /// Nodes of one cell, `host:port` each, of which any will do. `tls` says who is one of them; nothing is sent to anybody
    /// else, nor to anybody where it is missing.
    Https { addresses: Vec<String>, tls: Option<Arc<ClientConfig>> },
}

/// An address, and who chose it: a person who is told that nobody answers there must know where it came from.
#[derive(Debug, Clone)]
pub struct ChosenEndpoint {
    pub endpoint: Endpoint,
    /// `--host`, `current context prod`.
    pub by: Option<Arc<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadEndpoint {
    #[error("an endpoint cannot be empty; write unix:///path/to/socket or https://host:port")]
    Empty,
    #[error("{text:?} is not an endpoint; write unix:///path/to/socket or https://host:port")]
    Unknown { text: String },
    #[error("{text:?} is not encrypted, and the API speaks TLS only; write https://host:port")]
    Plain { text: String },
}

impl Endpoint {
    /// With what says who is a node of the cell. A Unix socket needs none.
    pub fn with_tls(self, tls: Arc<ClientConfig>) -> Self {
        match self {
            Self::Unix(path) => Self::Unix(path),
            Self::Https { addresses, .. } => Self::Https { addresses, tls: Some(tls) },
        }
    }
}

/// `unix:///path`, a path, or `https://host:port`.
impl FromStr for Endpoint {
    type Err = BadEndpoint;
    fn from_str(text: &str) -> Result<Self, BadEndpoint> {
        let unknown = || BadEndpoint::Unknown { text: text.to_owned() };
        if text.is_empty() {
            return Err(BadEndpoint::Empty);
        }
        if text.starts_with("http://") {
            return Err(BadEndpoint::Plain { text: text.to_owned() });
        }
        if let Some(path) = text.strip_prefix("unix://") {
            return if path.is_empty() { Err(unknown()) } else { Ok(Self::Unix(path.into())) };
        }
        if let Some(rest) = text.strip_prefix("https://") {
            let address = address(rest.trim_end_matches('/')).ok_or_else(unknown)?;
            return Ok(Self::Https { addresses: vec![address], tls: None });
        }
        // Anything else with a slash is a path; without one it is as likely a host, so nothing is guessed.
        if text.contains("://") || !text.contains('/') {
            return Err(unknown());
        }
        Ok(Self::Unix(text.into()))
    }
}

/// A host with its port, the default one where it names none.
pub fn address(text: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-:[]_".contains(c);
    if text.is_empty() || !text.chars().all(is_plain) {
        return None;
    }
    let (host, port) = split_port(text)?;
    Some(format!("{host}:{}", port.unwrap_or(DEFAULT_PORT)))
}

/// Host and port; the colons of `[::1]` are not before a port.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let after_host = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    match authority[after_host..].rfind(':') {
        None => Some((authority, None)),
        Some(colon) => {
            let (host, port) = authority.split_at(after_host + colon);
            let port = port[1..].parse().ok()?;
            (!host.is_empty()).then_some((host, Some(port)))
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Https { addresses, .. } => write!(f, "https://{}", addresses.join(",")),
        }
    }
}

impl fmt::Display for ChosenEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.by {
            Some(by) => write!(f, "{} ({by})", self.endpoint),
            None => self.endpoint.fmt(f),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_read_from_text() {
        for (text, read) in [
            ("unix:///run/plimsoll.sock", "unix:///run/plimsoll.sock"),
            ("/run/plimsoll.sock", "unix:///run/plimsoll.sock"),
            ("./plimsoll.sock", "unix://./plimsoll.sock"),
            ("https://ash:9000", "https://ash:9000"),
            ("https://ash/", "https://ash:7654"),
            ("https://[::1]:9000", "https://[::1]:9000"),
            ("https://[::1]", "https://[::1]:7654"),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), read);
        }
        for text in ["", "ash", "ftp://ash", "https://", "https://ash:port", "unix://"] {
            assert!(text.parse::<Endpoint>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_way_in_the_clear_is_refused_with_the_other() {
        let error = "http://ash:9000".parse::<Endpoint>().unwrap_err();
        assert!(error.to_string().contains("write https://host:port"), "{error}");
    }
}
