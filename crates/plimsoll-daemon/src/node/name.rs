//! What a node and its cell are called, and where the node is found, where nobody says.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;

use plimsoll_model::{CellId, NodeId};

use super::node_file::NodeFile;
use super::{Error, NodeOptions};
use plimsoll_peer::pki::{DEFAULT_PORT, with_port};

/// An address that leads nowhere, to ask the routes which of ours would be used.
const ANYWHERE: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 9);

pub(super) fn node(
    options: &NodeOptions,
    memory: Option<&NodeFile>,
    hostname: Option<&str>,
) -> Result<NodeId, Error> {
    match (memory, &options.name) {
        (Some(memory), Some(wanted)) if memory.name != *wanted => {
            let (dir, found) = (options.data_dir.clone(), memory.name.clone());
            Err(Error::OtherNode { dir, found, wanted: wanted.clone() })
        }
        (Some(memory), _) => Ok(memory.name.clone()),
        (None, Some(wanted)) => Ok(wanted.clone()),
        (None, None) => {
            // A host is known by the first part of its name, in small letters.
            let hostname = hostname.unwrap_or("node").to_ascii_lowercase();
            let first = hostname.split('.').next().unwrap_or_default();
            NodeId::new(first)
                .map_err(|why| Error::Name { hostname: first.to_owned(), why: why.to_string() })
        }
    }
}

/// Random, so that two cells on one engine never take each other's containers for their own.
pub(super) fn cell_id() -> Result<CellId, Error> {
    let name = format!("cell-{:08x}", chance()?);
    Ok(CellId::new(&name).expect("letters, digits and a dash are a name"))
}

/// A number for a server that nobody gives one. Two that are equal are told apart by their names when they start.
pub(super) fn number() -> Result<u64, Error> {
    Ok(u64::from(chance()?) + 1)
}

fn chance() -> Result<u32, Error> {
    use std::io::Read;
    let path = PathBuf::from("/dev/urandom");
    let mut bytes = [0_u8; 4];
    let read = std::fs::File::open(&path).and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|source| Error::Io { action: "read", path, source })?;
    Ok(u32::from_be_bytes(bytes))
}

/// Where others find this node, and where it listens for them. What an operator names as an address of this host is
/// listened on and no other.
pub(super) fn address(options: &NodeOptions) -> Result<(String, SocketAddr), Error> {
    let everywhere = |port: u16| SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
    let Some(given) = &options.address else {
        let address = SocketAddr::new(own_address(), DEFAULT_PORT);
        return Ok((address.to_string(), everywhere(DEFAULT_PORT)));
    };
    let address = with_port(given).map_err(|error| Error::Address(error.to_string()))?;
    let listen = address.parse().unwrap_or_else(|_| {
        let port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        everywhere(port.unwrap_or(DEFAULT_PORT))
    });
    Ok((address, listen))
}

/// Where operators find the API: where it listens, or where the node itself is found if it listens everywhere.
pub(super) fn api(listen: Option<SocketAddr>, address: Option<&str>) -> Option<String> {
    let listen = listen?;
    if !listen.ip().is_unspecified() {
        return Some(listen.to_string());
    }
    let (host, _) = address?.rsplit_once(':')?;
    Some(format!("{host}:{}", listen.port()))
}

/// The address this host would use towards others. Nothing is sent to find out.
fn own_address() -> IpAddr {
    let ask = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        socket.connect(ANYWHERE).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    ask().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}
