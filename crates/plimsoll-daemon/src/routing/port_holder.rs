//! Who holds a port of this host that the router cannot bind, as the kernel's lists of sockets and `/proc` tell.

use std::fs;

use plimsoll_router::{Protocol, PublishedPort};

/// What a listening socket is in the kernel's lists. One for datagrams has no such state.
const LISTENS: &str = "0A";
const UNCONNECTED: &str = "07";

/// `nginx (pid 812)`, or what of this very daemon it is; none where that cannot be seen.
pub(super) fn holder(at: &PublishedPort) -> Option<String> {
    let (lists, state) = match at.protocol {
        Protocol::Tcp => (["tcp", "tcp6"], LISTENS),
        Protocol::Udp => (["udp", "udp6"], UNCONNECTED),
    };
    let texts =
        lists.map(|list| fs::read_to_string(format!("/proc/net/{list}")).unwrap_or_default());
    let inodes: Vec<String> =
        texts.iter().flat_map(|text| held(text, at.address.port(), state)).collect();
    inodes.iter().find_map(|inode| process_with(inode))
}

/// The inodes of the sockets that hold the port.
fn held(list: &str, port: u16, state: &str) -> Vec<String> {
    let rows = list.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (_, found) = words.get(1)?.rsplit_once(':')?;
        let is_it = u16::from_str_radix(found, 16) == Ok(port) && *words.get(3)? == state;
        is_it.then(|| words.get(9).map(|inode| (*inode).to_owned()))?
    });
    rows.collect()
}

/// The process that has the socket open.
fn process_with(inode: &str) -> Option<String> {
    let socket = format!("socket:[{inode}]");
    let has_it = |pid: &str| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files
            .into_iter()
            .any(|file| fs::read_link(file.path()).is_ok_and(|to| to.as_os_str() == &*socket))
    };
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().into_string().ok());
    let pid = pids.find(|pid| pid.bytes().all(|byte| byte.is_ascii_digit()) && has_it(pid))?;
    if pid == std::process::id().to_string() {
        return Some("this daemon itself (see its --http, --https, --api and --peer)".to_owned());
    }
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(format!("{} (pid {pid})", name.trim()))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn the_process_that_holds_a_port_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp =
            PublishedPort { address: listener.local_addr().unwrap(), protocol: Protocol::Tcp };
        assert!(holder(&tcp).unwrap().starts_with("this daemon itself"));
        let socket = UdpSocket::bind("[::1]:0").unwrap();
        let udp = PublishedPort { address: socket.local_addr().unwrap(), protocol: Protocol::Udp };
        assert!(holder(&udp).is_some());
        drop((listener, socket));
        assert_eq!(holder(&tcp), None, "nobody holds it any more");
    }

    #[test]
    fn a_connection_at_the_port_does_not_hold_it() {
        let list = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1\n   \
             1: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 4343 1\n";
        assert_eq!(held(list, 8080, LISTENS), ["4242"]);
        assert!(held(list, 80, LISTENS).is_empty());
    }
}
