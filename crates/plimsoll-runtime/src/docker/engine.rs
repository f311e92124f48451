//! The engine behind its socket: there, gone, or there again and perhaps another version. Nothing else here connects.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bollard::models::SystemVersion;
use bollard::{API_DEFAULT_VERSION, BollardRequest, ClientVersion, Docker};

use super::engine_error::EngineError;

/// How long the engine may take to begin an answer to a question. A busy one takes seconds; one that takes longer is
/// not there for those who wait.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// How long it may take to do something: a start waits for disks, a removal for the whole file system of a container.
pub(super) const WORK_WAIT: Duration = Duration::from_mins(2);

#[derive(Debug)]
pub(super) struct EngineClient {
    socket: PathBuf,
    known: Mutex<Option<NegotiatedClient>>,
    /// Somebody asked and got no answer.
    silence: AtomicBool,
}

/// A client that has agreed on a version with the engine behind this very socket.
#[derive(Debug, Clone)]
struct NegotiatedClient {
    client: Docker,
    socket: (u64, u64),
    /// It is a Podman that answers as a Docker engine.
    is_podman: bool,
}

impl EngineClient {
    pub(super) fn new(socket: PathBuf) -> Self {
        Self { socket, known: Mutex::default(), silence: AtomicBool::new(false) }
    }

    /// A client for questions. An engine that was started again has made its socket again, and is asked its version
    /// anew: it may have been upgraded.
    pub(super) async fn client(&self) -> Result<Docker, EngineError> {
        let socket = identity(&self.socket);
        let known = self.known().clone();
        match known {
            Some(known) if Some(known.socket) == socket => Ok(known.client),
            _ => self.renew().await,
        }
    }

    /// A client for work that may take its time.
    pub(super) async fn worker(&self) -> Result<Docker, EngineError> {
        Ok(self.client().await?.with_timeout(WORK_WAIT))
    }

    /// Connects anew, whatever was known.
    pub(super) async fn renew(&self) -> Result<Docker, EngineError> {
        *self.known() = None;
        let found = identity(&self.socket);
        let (client, is_podman) = self.connect().await.map_err(|error| {
            self.silence.store(true, Ordering::Relaxed);
            EngineError::silent(&self.socket, error)
        })?;
        if let Some(socket) = found {
            let client = client.clone();
            *self.known() = Some(NegotiatedClient { client, socket, is_podman });
        }
        Ok(client)
    }

    async fn connect(&self) -> Result<(Docker, bool), bollard::errors::Error> {
        let path = self.socket.to_string_lossy();
        let client = Docker::connect_with_unix(&path, ANSWER_WAIT.as_secs(), API_DEFAULT_VERSION)?;
        let client = client.with_request_modifier(with_safe_credentials);
        let client = client.negotiate_version().await?;
        let is_podman = names_podman(&client.version().await?);
        Ok((client, is_podman))
    }

    /// Whether somebody asked in vain since this was last asked.
    pub(super) fn was_silent(&self) -> bool {
        self.silence.swap(false, Ordering::Relaxed)
    }

    /// What the engine spoke when it was last asked.
    pub(super) fn version(&self) -> Option<ClientVersion> {
        self.known().as_ref().map(|known| known.client.client_version())
    }

    /// Whether it was a Podman that answered when it was last asked.
    pub(super) fn is_podman(&self) -> bool {
        self.known().as_ref().is_some_and(|known| known.is_podman)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Option<NegotiatedClient>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The client library writes credentials in the wrong kind of base64. Engines read them in the other one, and take what
/// they cannot read for none at all: a password with a question mark in the wrong place would be no password.
fn with_safe_credentials(mut request: BollardRequest) -> BollardRequest {
    if let Some(header) = request.headers_mut().get_mut("x-registry-auth") {
        let safe = header.to_str().ok().map(|text| text.replace('+', "-").replace('/', "_"));
        if let Some(safe) = safe.and_then(|text| text.parse().ok()) {
            *header = safe;
        }
    }
    request
}

/// Whether it is a Podman that answers as a Docker engine.
pub(super) fn names_podman(version: &SystemVersion) -> bool {
    let components = version.components.iter().flatten();
    components.into_iter().any(|component| component.name.starts_with("Podman"))
}

fn identity(socket: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(socket).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// The socket of an engine on this host: what `DOCKER_HOST` names, else Docker's own, else Podman's. It may not answer.
pub fn detect() -> Option<PathBuf> {
    let named = std::env::var("DOCKER_HOST").ok().filter(|host| !host.is_empty());
    find(named.as_deref(), &["/var/run/docker.sock", "/run/podman/podman.sock"])
}

/// One that is named is the only one looked for: whoever names an engine does not mean another.
fn find(named: Option<&str>, usual: &[&str]) -> Option<PathBuf> {
    let is_socket = |path: &PathBuf| {
        use std::os::unix::fs::FileTypeExt;
        std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
    };
    match named {
        Some(host) => host.strip_prefix("unix://").map(PathBuf::from),
        None => usual.iter().map(PathBuf::from).find(is_socket),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use bollard::models::SystemVersionComponents;

    use super::*;

    /// The client library logs every request at debug level, environment and all, and must not be able to.
    #[test]
    fn nothing_that_is_sent_to_an_engine_is_logged() {
        assert!(log::STATIC_MAX_LEVEL <= log::LevelFilter::Info);
    }

    #[test]
    fn podman_is_known_by_its_parts() {
        let version = |part: &str| {
            let part = SystemVersionComponents { name: part.to_owned(), ..Default::default() };
            SystemVersion { components: Some(vec![part]), ..Default::default() }
        };
        assert!(names_podman(&version("Podman Engine")));
        assert!(!names_podman(&version("Engine")) && !names_podman(&SystemVersion::default()));
    }

    #[test]
    fn an_engine_is_found_by_its_socket() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name).display().to_string();
        std::fs::write(path("file"), "").unwrap();
        let _listener = UnixListener::bind(path("socket")).unwrap();
        let usual = [path("absent"), path("file"), path("socket")];
        let usual: Vec<&str> = usual.iter().map(String::as_str).collect();
        for (case, named, expected) in [
            ("the first that is a socket", None, Some(path("socket"))),
            ("the one that is named", Some("unix:///run/x.sock"), Some("/run/x.sock".to_owned())),
            ("not over the network", Some("tcp://127.0.0.1:2375"), None),
        ] {
            assert_eq!(find(named, &usual), expected.map(PathBuf::from), "{case}");
        }
        assert_eq!(find(None, &[]), None);
    }
}
