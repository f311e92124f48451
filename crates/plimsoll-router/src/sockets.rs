//! The sockets that this process listens on, by what each was asked for, so that another process can have them: a client
//! that comes while one takes the place of the other waits with the kernel, and is refused by neither.
//!
//! Whoever listens asks [`Sockets`] first. It has what the process before this one handed over, binds what that did not
//! have, and knows of everything that is open, for as long as it is. How sockets get from one process to another is
//! settled elsewhere.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::net::{TcpListener, UdpSocket, UnixListener};

/// What a socket was asked for. The system may have chosen the port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    Tcp(SocketAddr),
    Udp(SocketAddr),
    Unix(PathBuf),
}

/// All sockets of a process that listen. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Sockets(Arc<Mutex<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    /// Handed over, and nobody has asked for them yet.
    inherited: Vec<(Name, OwnedFd)>,
    /// Those in use, each a second time.
    open: BTreeMap<u64, (Name, OwnedFd)>,
    next: u64,
    is_inherited: bool,
    is_kept: bool,
}

impl Sockets {
    /// With what another process handed over.
    pub fn inherited(sockets: Vec<(Name, OwnedFd)>) -> Self {
        let shared = Shared { inherited: sockets, is_inherited: true, ..Shared::default() };
        Self(Arc::new(Mutex::new(shared)))
    }

    /// Whether another process listened before this one, and may listen yet.
    pub fn is_inherited(&self) -> bool {
        self.shared().is_inherited
    }

    /// A listener on this address: one that was handed over, else what `bind` makes.
    pub fn tcp(
        &self,
        address: SocketAddr,
        bind: impl FnOnce(SocketAddr) -> io::Result<TcpListener>,
    ) -> io::Result<Held<TcpListener>> {
        let name = Name::Tcp(address);
        let listener = match self.take(&name) {
            Some(found) => {
                let found = std::net::TcpListener::from(found);
                found.set_nonblocking(true)?;
                TcpListener::from_std(found)?
            }
            None => bind(address)?,
        };
        self.hold(name, listener)
    }

    pub fn udp(&self, address: SocketAddr) -> io::Result<Held<UdpSocket>> {
        let name = Name::Udp(address);
        let socket = match self.take(&name) {
            Some(found) => std::net::UdpSocket::from(found),
            None => std::net::UdpSocket::bind(address)?,
        };
        socket.set_nonblocking(true)?;
        self.hold(name, UdpSocket::from_std(socket)?)
    }

    /// The listener at this path that was handed over, if one was. Whoever binds another has it [held](Self::hold).
    pub fn unix(&self, path: &Path) -> io::Result<Option<Held<UnixListener>>> {
        let name = Name::Unix(path.to_owned());
        let Some(found) = self.take(&name) else { return Ok(None) };
        let found = std::os::unix::net::UnixListener::from(found);
        found.set_nonblocking(true)?;
        self.hold(name, UnixListener::from_std(found)?).map(Some)
    }

    /// Takes note of a socket until it is dropped.
    pub fn hold<S: AsFd>(&self, name: Name, socket: S) -> io::Result<Held<S>> {
        let second = socket.as_fd().try_clone_to_owned()?;
        let mut shared = self.shared();
        let number = shared.next;
        shared.next += 1;
        shared.open.insert(number, (name, second));
        drop(shared);
        Ok(Held { socket, _place: Some(Place { sockets: self.clone(), number }) })
    }

    /// From now on sockets stay open though whoever listens on them ends: somebody else is about to.
    pub fn keep(&self) {
        self.shared().is_kept = true;
    }

    /// Whether somebody else is to listen, so that what sockets are bound to stays.
    pub fn is_kept(&self) -> bool {
        self.shared().is_kept
    }

    /// All that are open, for another process.
    pub fn give(&self) -> Vec<(Name, OwnedFd)> {
        std::mem::take(&mut self.shared().open).into_values().collect()
    }

    /// Closes what was handed over and nobody has asked for: nobody will.
    pub fn close_rest(&self) {
        self.shared().inherited.clear();
    }

    fn take(&self, name: &Name) -> Option<OwnedFd> {
        let mut shared = self.shared();
        let at = shared.inherited.iter().position(|(found, _)| found == name)?;
        Some(shared.inherited.swap_remove(at).1)
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().expect("no holder panics")
    }
}

/// A socket that others know of for as long as it is here.
#[derive(Debug)]
pub struct Held<S> {
    socket: S,
    /// Known by its place among the others, which goes with it.
    _place: Option<Place>,
}

impl<S> Deref for Held<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.socket
    }
}

/// One that nobody else is to have.
impl<S> From<S> for Held<S> {
    fn from(socket: S) -> Self {
        Self { socket, _place: None }
    }
}

#[derive(Debug)]
struct Place {
    sockets: Sockets,
    number: u64,
}

impl Drop for Place {
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

    fn names(sockets: &[(Name, OwnedFd)]) -> Vec<Name> {
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
        let given = before.give();
        assert_eq!(names(&given), [Name::Tcp(any()), Name::Udp(any())]);

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
        let after = Sockets::inherited(before.give());
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
        assert_eq!(names(&sockets.give()), []);

        let tcp = sockets.tcp(any(), crate::bind).unwrap();
        let at = tcp.local_addr().unwrap();
        let after = Sockets::inherited(sockets.give());
        drop(tcp);
        assert!(TcpStream::connect(at).await.is_ok(), "it was handed over");
        after.close_rest();
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
        let held = before.hold(Name::Unix(path.clone()), bound).unwrap();
        assert!(!before.is_kept());
        before.keep();
        assert!(before.is_kept());
        drop(held);
        let after = Sockets::inherited(before.give()).unix(&path).unwrap().unwrap();
        let (client, accepted) =
            tokio::join!(tokio::net::UnixStream::connect(&path), after.accept());
        assert!(client.is_ok() && accepted.is_ok());
        std::fs::remove_dir_all(dir).unwrap();
    }
}
