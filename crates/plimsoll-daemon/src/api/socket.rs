//! The Unix socket of a daemon: who may open it, and whose it is when one is there already.

use std::fs::{self, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use plimsoll_router::sockets::{SharedSocket, SocketName, Sockets};
use thiserror::Error;
use tokio::net::{TcpListener, UnixListener, UnixStream};

/// Its owner may use it, or a group that was named too; who may use it may do anything.
const MODE: u32 = 0o600;
const GROUP_MODE: u32 = 0o660;

/// The mode of a directory that is made for it. The socket keeps others out itself, and whoever looks for a daemon should
/// find that there is one.
const DIR_MODE: u32 = 0o755;

/// The most bytes a path may have for a socket to be bound to it: the kernel's limit, less its closing zero.
const MAX_PATH: usize = 107;

/// What a socket is called until its mode is set.
const UNFINISHED: &str = ".new";

/// Why the API cannot listen.
#[derive(Debug, Error)]
pub enum BindError {
    #[error(
        "the socket's path {} has {len} bytes, at most {max} are possible; choose a shorter one",
        path.display()
    )]
    PathTooLong { path: PathBuf, len: usize, max: usize },
    #[error("another daemon listens on {} already; stop it, or choose another socket", path.display())]
    InUse { path: PathBuf },
    #[error("{} exists and is not a socket; remove it, or choose another path", path.display())]
    NotASocket { path: PathBuf },
    #[error("cannot {action} {}", path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot listen on {address}")]
    Tcp { address: SocketAddr, source: io::Error },
    #[error("cannot set up TLS for operators")]
    Tls(#[source] plimsoll_peer::pki::Error),
}

impl BindError {
    pub(super) fn file(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File { action, path: path.to_owned(), source }
    }
}

/// The socket at this path: the one that another process handed over, else a new one. Either is for this group as well.
pub(super) async fn unix(
    path: &Path,
    group: Option<u32>,
    sockets: &Sockets,
) -> Result<SharedSocket<UnixListener>, BindError> {
    let failed = |error| BindError::file("listen on", path, error);
    if let Some(inherited) = sockets.unix(path).map_err(failed)? {
        // The process before may have been told of another group, or was of an older release.
        close(path, group).map_err(|error| BindError::file("set the mode of", path, error))?;
        return Ok(inherited);
    }
    let bound = bind(path, group).await?;
    sockets.register(SocketName::Unix(path.to_owned()), bound).map_err(failed)
}

/// Group before mode: at no moment may a group use it that was not named.
fn close(path: &Path, group: Option<u32>) -> io::Result<()> {
    if let Some(group) = group {
        chown(path, None, Some(group))?;
    }
    let mode = if group.is_some() { GROUP_MODE } else { MODE };
    fs::set_permissions(path, Permissions::from_mode(mode))
}

async fn bind(path: &Path, group: Option<u32>) -> Result<UnixListener, BindError> {
    let mut unfinished = path.to_owned().into_os_string();
    unfinished.push(UNFINISHED);
    let unfinished = PathBuf::from(unfinished);
    let (len, max) = (path.as_os_str().as_bytes().len(), MAX_PATH - UNFINISHED.len());
    if len > max {
        return Err(BindError::PathTooLong { path: path.to_owned(), len, max });
    }
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        plimsoll_files::create_dir(dir, DIR_MODE)
            .map_err(|error| BindError::file("create", dir, error))?;
    }
    clear(path).await?;
    clear(&unfinished).await?;
    let listener = UnixListener::bind(&unfinished)
        .map_err(|error| BindError::file("listen on", path, error))?;
    // Only once its mode is set does it get its name: at no moment can others open it.
    let placed = close(&unfinished, group).and_then(|()| fs::rename(&unfinished, path));
    placed.map_err(|error| BindError::file("create", path, error))?;
    Ok(listener)
}

/// Removes what a daemon that was killed left behind, and nothing else.
async fn clear(path: &Path) -> Result<(), BindError> {
    let kind = match fs::symlink_metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(BindError::file("look at", path, error)),
    };
    if !kind.is_socket() {
        return Err(BindError::NotASocket { path: path.to_owned() });
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|error| BindError::file("remove", path, error))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // It answers, or is too busy to: somebody is there.
        Ok(_) | Err(_) => Err(BindError::InUse { path: path.to_owned() }),
    }
}

pub(super) fn tcp(
    address: SocketAddr,
    sockets: &Sockets,
) -> Result<SharedSocket<TcpListener>, BindError> {
    let bound = sockets.tcp(address, plimsoll_router::bind);
    bound.map_err(|source| BindError::Tcp { address, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_taken_over_only_from_the_dead() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/plimsoll.sock");
        let first = bind(&path, None).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        let second = bind(&path, None).await.unwrap_err();
        assert!(matches!(second, BindError::InUse { .. }), "{second}");
        drop(first);
        let own = rustix::process::getegid().as_raw();
        bind(&path, Some(own)).await.expect("nobody listens any more");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, GROUP_MODE);
        close(&path, None).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        let file = dir.path().join("file");
        fs::write(&file, "precious").unwrap();
        assert!(matches!(bind(&file, None).await.unwrap_err(), BindError::NotASocket { .. }));
        assert_eq!(fs::read(&file).unwrap(), b"precious");
    }

    #[tokio::test]
    async fn a_path_too_long_for_a_socket_is_refused_with_its_length() {
        let path = PathBuf::from(format!("/tmp/{}", "x".repeat(120)));
        let error = bind(&path, None).await.unwrap_err().to_string();
        assert!(error.contains("has 125 bytes, at most 103 are possible"), "{error}");
    }
}
