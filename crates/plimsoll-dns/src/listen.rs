//! Sockets on the host's side of a network, also before that side is there: some engines make it with the first container.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use tokio::net::{TcpListener, UdpSocket};

/// As many as wait while the daemon is busy.
const BACKLOG: i32 = 1_024;

/// At a port of the kernel's choice.
pub(crate) fn tcp(address: Ipv4Addr) -> io::Result<TcpListener> {
    let socket = bound(SocketType::STREAM, address, 0)?;
    listen(&socket, BACKLOG)?;
    TcpListener::from_std(socket.into())
}

pub(crate) fn udp(address: Ipv4Addr, port: u16) -> io::Result<UdpSocket> {
    UdpSocket::from_std(bound(SocketType::DGRAM, address, port)?.into())
}

fn bound(kind: SocketType, address: Ipv4Addr, port: u16) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, kind, flags, None)?;
    sockopt::set_ip_freebind(&socket, true)?;
    bind(&socket, &SocketAddrV4::new(address, port))?;
    Ok(socket)
}
