//! Where a daemon is found.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

/// The port where none is written.
const DEFAULT_PORT: u16 = 7_654;

/// A daemon's address.
#[derive(Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// The socket of a daemon on this host.
    Unix(PathBuf),
    /// `address` is `host:port`; without the daemon's token it answers nothing.
    Tcp { address: String, token: Option<String> },
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadEndpoint {
    #[error("an endpoint cannot be empty; write unix:///path/to/socket or http://host:port")]
    Empty,
    #[error("{text:?} is not an endpoint; write unix:///path/to/socket or http://host:port")]
    Unknown { text: String },
    #[error("{text:?} is not reached by TLS yet; write http://host:port")]
    Tls { text: String },
}

impl Endpoint {
    /// With the token a daemon on another host asks for. A Unix socket needs none.
    pub fn with_token(self, token: impl Into<String>) -> Self {
        match self {
            Self::Unix(path) => Self::Unix(path),
            Self::Tcp { address, .. } => Self::Tcp { address, token: Some(token.into()) },
        }
    }
}

/// `unix:///path`, a path, or `http://host:port`.
impl FromStr for Endpoint {
    type Err = BadEndpoint;
    fn from_str(text: &str) -> Result<Self, BadEndpoint> {
        let unknown = || BadEndpoint::Unknown { text: text.to_owned() };
        if text.is_empty() {
            return Err(BadEndpoint::Empty);
        }
        if text.starts_with("https://") {
            return Err(BadEndpoint::Tls { text: text.to_owned() });
        }
        if let Some(path) = text.strip_prefix("unix://") {
            return if path.is_empty() { Err(unknown()) } else { Ok(Self::Unix(path.into())) };
        }
        if let Some(rest) = text.strip_prefix("http://") {
            let authority = rest.trim_end_matches('/');
            let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-:[]_".contains(c);
            if authority.is_empty() || !authority.chars().all(is_plain) {
                return Err(unknown());
            }
            let (host, port) = split_port(authority).ok_or_else(unknown)?;
            let port = port.unwrap_or(DEFAULT_PORT);
            return Ok(Self::Tcp { address: format!("{host}:{port}"), token: None });
        }
        // Anything else with a slash is a path; without one it is as likely a host, so nothing is guessed.
        if text.contains("://") || !text.contains('/') {
            return Err(unknown());
        }
        Ok(Self::Unix(text.into()))
    }
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
            Self::Tcp { address, .. } => write!(f, "http://{address}"),
        }
    }
}

/// Without its token.
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
            ("http://ash:9000", "http://ash:9000"),
            ("http://ash/", "http://ash:7654"),
            ("http://[::1]:9000", "http://[::1]:9000"),
            ("http://[::1]", "http://[::1]:7654"),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), read);
        }
        for text in ["", "ash", "https://ash", "ftp://ash", "http://", "http://ash:port", "unix://"]
        {
            assert!(text.parse::<Endpoint>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_token_is_not_printed() {
        let endpoint = "http://ash:9000".parse::<Endpoint>().unwrap().with_token("hush");
        assert!(!format!("{endpoint:?} {endpoint}").contains("hush"));
    }
}
