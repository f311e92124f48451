//! The listening sockets of this process, by name, so that they can be handed over to another process: a client that connects
//! during the handover waits in the kernel's backlog, and is refused by neither.
//!
//! [`Sockets`] has what the process before this one handed over, binds what that did not have, and keeps track of all that
//! are open. How sockets are passed from one process to another is up to the caller.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::net::{TcpListener, UdpSocket, UnixListener};

/// The address that a socket was requested for. The system may have chosen the port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SocketName {
    Tcp(SocketAddr),
    Udp(SocketAddr),
    Unix(PathBuf),
}

/// The listening sockets of a process. Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct Sockets(Arc<Mutex<SocketRegistry>>);

#[derive(Debug, Default)]
struct SocketRegistry {
    /// Handed over and not requested yet.
    inherited: Vec<(SocketName, OwnedFd)>,
    /// Duplicates of those in use.
    open: BTreeMap<u64, (SocketName, OwnedFd)>,
    next: u64,
    is_inherited: bool,
    is_kept: bool,
}

impl Sockets {
    /// With the sockets that another process handed over.
    pub fn inherited(sockets: Vec<(SocketName, OwnedFd)>) -> Self {
        let shared =
            SocketRegistry { inherited: sockets, is_inherited: true, ..SocketRegistry::default() };
        Self(Arc::new(Mutex::new(shared)))
    }

    /// Whether another process handed over its sockets, and may still be listening.
    pub fn is_inherited(&self) -> bool {
        self.shared().is_inherited
    }

    /// A listener on this address: one that was handed over, else what `bind` makes.
    pub fn tcp(
        &self,
        address: SocketAddr,
        bind: impl FnOnce(SocketAddr) -> io::Result<TcpListener>,
    ) -> io::Result<SharedSocket<TcpListener>> {
        let name = SocketName::Tcp(address);
        let listener = match self.take(&name) {
            Some(found) => {
                let found = std::net::TcpListener::from(found);
                found.set_nonblocking(true)?;
                TcpListener::from_std(found)?
            }
            None => bind(address)?,
        };
        self.register(name, listener)
    }

    pub fn udp(&self, address: SocketAddr) -> io::Result<SharedSocket<UdpSocket>> {
        let name = SocketName::Udp(address);
        let socket = match self.take(&name) {
            Some(found) => std::net::UdpSocket::from(found),
            None => std::net::UdpSocket::bind(address)?,
        };
        socket.set_nonblocking(true)?;
        self.register(name, UdpSocket::from_std(socket)?)
    }

    /// The listener at this path that was handed over, if one was. A new one is to be [registered](Self::register).
    pub fn unix(&self, path: &Path) -> io::Result<Option<SharedSocket<UnixListener>>> {
        let name = SocketName::Unix(path.to_owned());
        let Some(found) = self.take(&name) else { return Ok(None) };
        let found = std::os::unix::net::UnixListener::from(found);
        found.set_nonblocking(true)?;
        self.register(name, UnixListener::from_std(found)?).map(Some)
    }

    /// Keeps track of a socket until it is dropped.
    pub fn register<S: AsFd>(&self, name: SocketName, socket: S) -> io::Result<SharedSocket<S>> {
        let second = socket.as_fd().try_clone_to_owned()?;
        let mut shared = self.shared();
        let number = shared.next;
        shared.next += 1;
        shared.open.insert(number, (name, second));
        drop(shared);
        Ok(SharedSocket {
            socket,
            _registration: Some(SocketRegistration { sockets: self.clone(), number }),
        })
    }

    /// From now on sockets stay open when their listeners end, to be handed over.
    pub fn keep(&self) {
        self.shared().is_kept = true;
    }

    /// Whether sockets stay open to be handed over, so that what they are bound to must stay too.
    pub fn is_kept(&self) -> bool {
        self.shared().is_kept
    }

    /// All open sockets, to be handed over.
    pub fn hand_over(&self) -> Vec<(SocketName, OwnedFd)> {
        std::mem::take(&mut self.shared().open).into_values().collect()
    }

    /// Closes the sockets that were handed over and not requested.
    pub fn close_unused(&self) {
        self.shared().inherited.clear();
    }

    fn take(&self, name: &SocketName) -> Option<OwnedFd> {
        let mut shared = self.shared();
        let at = shared.inherited.iter().position(|(found, _)| found == name)?;
        Some(shared.inherited.swap_remove(at).1)
    }

    fn shared(&self) -> MutexGuard<'_, SocketRegistry> {
        self.0.lock().expect("no holder panics")
    }
}

/// A socket that is registered for handover until it is dropped.
#[derive(Debug)]
pub struct SharedSocket<S> {
    socket: S,
    _registration: Option<SocketRegistration>,
}

impl<S> Deref for SharedSocket<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.socket
    }
}

/// A socket that is not handed over.
impl<S> From<S> for SharedSocket<S> {
    fn from(socket: S) -> Self {
        Self { socket, _registration: None }
    }
}

#[derive(Debug)]
struct SocketRegistration {
    sockets: Sockets,
    number: u64,
}

impl Drop for SocketRegistration {
    fn drop(&mut self) {
        let mut shared = self.sockets.shared();
        if !shared.is_kept {
            shared.open.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpStream;

    fn any() -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }

    fn names(sockets: &[(SocketName, OwnedFd)]) -> Vec<SocketName> {
        sockets.iter().map(|(name, _)| name.clone()).collect()
    }

    #[tokio::test]
    async fn who_asks_for_what_was_handed_over_gets_it_and_the_clients_that_wait_there() {
        let before = Sockets::default();
        let (tcp, udp) = (before.tcp(any(), crate::bind).unwrap(), before.udp(any()).unwrap());
        let (at, datagrams_at) = (tcp.local_addr().unwrap(), udp.local_addr().unwrap());
        before.keep();
        drop((tcp, udp));
        let waiting = TcpStream::connect(at).await.expect("the port is still open");
        let given = before.hand_over();
        assert_eq!(names(&given), [SocketName::Tcp(any()), SocketName::Udp(any())]);

        let after = Sockets::inherited(given);
        let tcp = after.tcp(any(), |_| panic!("it is there already")).unwrap();
        let (_, from) = tcp.accept().await.unwrap();
        assert_eq!(from, waiting.local_addr().unwrap());
        assert_eq!(after.udp(any()).unwrap().local_addr().unwrap(), datagrams_at);
    }

    #[tokio::test]
    async fn what_was_handed_over_is_given_once_and_only_to_who_asks_for_the_same() {
        let before = Sockets::default();
        let tcp = before.tcp(any(), crate::bind).unwrap();
        let port = tcp.local_addr().unwrap().port();
        let after = Sockets::inherited(before.hand_over());
        let other = "127.0.0.2:0".parse().unwrap();
        assert_ne!(after.tcp(other, crate::bind).unwrap().local_addr().unwrap().port(), port);
        assert_ne!(after.udp(any()).unwrap().local_addr().unwrap().port(), port);
        let first = after.tcp(any(), crate::bind).unwrap();
        assert_eq!(first.local_addr().unwrap().port(), port);
        let second = after.tcp(any(), crate::bind).unwrap();
        assert_ne!(second.local_addr().unwrap().port(), port);
    }

    #[tokio::test]
    async fn a_port_that_nobody_listens_on_any_more_is_closed() {
        let sockets = Sockets::default();
        let tcp = sockets.tcp(any(), crate::bind).unwrap();
        let at = tcp.local_addr().unwrap();
        drop(tcp);
        assert!(TcpStream::connect(at).await.is_err());
        assert_eq!(names(&sockets.hand_over()), []);

        let tcp = sockets.tcp(any(), crate::bind).unwrap();
        let at = tcp.local_addr().unwrap();
        let after = Sockets::inherited(sockets.hand_over());
        drop(tcp);
        assert!(TcpStream::connect(at).await.is_ok(), "it was handed over");
        after.close_unused();
        assert!(TcpStream::connect(at).await.is_err(), "and nobody asked for it");
    }

    #[tokio::test]
    async fn a_path_is_handed_over_with_its_socket() {
        let dir = std::env::temp_dir().join(format!("plimsoll-sockets-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("socket");
        let before = Sockets::default();
        assert!(before.unix(&path).unwrap().is_none());
        let bound = UnixListener::bind(&path).unwrap();
        let held = before.register(SocketName::Unix(path.clone()), bound).unwrap();
        assert!(!before.is_kept());
        before.keep();
        assert!(before.is_kept());
        drop(held);
        let after = Sockets::inherited(before.hand_over()).unix(&path).unwrap().unwrap();
        let (client, accepted) =
            tokio::join!(tokio::net::UnixStream::connect(&path), after.accept());
        assert!(client.is_ok() && accepted.is_ok());
        std::fs::remove_dir_all(dir).unwrap();
    }
}
