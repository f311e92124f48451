//! Tells the service manager how the daemon stands, in the words of `sd_notify(3)`. Where none asked for it, nobody is told.

use std::ffi::OsStr;
use std::io::{self, ErrorKind::WouldBlock};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Where a service manager listens.
const SOCKET: &str = "NOTIFY_SOCKET";

/// What there is to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SystemdState {
    /// It serves.
    Ready,
    /// It serves, in the place of the process that was the service so far.
    ReadyInstead,
    /// It hands over to another.
    Reloading,
    Stopping,
    /// It has not hung.
    Alive,
}

pub(super) fn tell(standing: SystemdState) {
    let Some(socket) = std::env::var_os(SOCKET).filter(|socket| !socket.is_empty()) else { return };
    match send(&socket, standing) {
        Ok(()) => {}
        // It has many of these waiting.
        Err(error) if standing == SystemdState::Alive && error.kind() == WouldBlock => {}
        Err(error) => tracing::warn!(?socket, %error, "cannot notify the service manager"),
    }
}

fn text(standing: SystemdState) -> String {
    match standing {
        SystemdState::Ready => "READY=1".to_owned(),
        SystemdState::ReadyInstead => format!("MAINPID={}\nREADY=1", std::process::id()),
        SystemdState::Reloading => "RELOADING=1".to_owned(),
        SystemdState::Stopping => "STOPPING=1".to_owned(),
        SystemdState::Alive => "WATCHDOG=1".to_owned(),
    }
}

/// A path, or a name after an `@` that no file has.
fn send(socket: &OsStr, standing: SystemdState) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let sender = UnixDatagram::unbound()?;
    // A manager that does not listen must not hold up a daemon that lives.
    sender.set_nonblocking(standing == SystemdState::Alive)?;
    sender.send_to_addr(text(standing).as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_manager_is_told_at_a_path_and_at_a_name_without_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("plimsoll-notify-{}", std::process::id());
        let at_name = SocketAddr::from_abstract_name(&name).unwrap();
        for (socket, manager) in [
            (path.clone().into_os_string(), UnixDatagram::bind(&path).unwrap()),
            (format!("@{name}").into(), UnixDatagram::bind_addr(&at_name).unwrap()),
        ] {
            send(&socket, SystemdState::ReadyInstead).unwrap();
            let mut heard = [0; 100];
            let length = manager.recv(&mut heard).unwrap();
            let expected = format!("MAINPID={}\nREADY=1", std::process::id());
            assert_eq!(String::from_utf8_lossy(&heard[..length]), expected);
        }
        assert!(send(dir.path().join("nobody").as_os_str(), SystemdState::Ready).is_err());
    }
}
