//! Who leads and where, for whoever has something to pass on.

use hyper::header::HeaderName;

use plimsoll_store::Peer;

use super::target;
use crate::context::NodeContext;
use crate::servers::has_address;
use plimsoll_peer::Target;

/// Where an agent brings its link.
pub const LINK: &str = "/peer/link";

/// Who leads instead. Not in the body: the one who asks is still sending its own, and may not get to read another.
pub const LEADER: HeaderName = HeaderName::from_static("plimsoll-leader-at");

/// Where a node without the log asks for another certificate.
pub const RENEW: &str = "/peer/renew";

/// The leader, if it is known and another node.
pub fn leader(cell: &NodeContext) -> Option<Target> {
    let leadership = *cell.engine.leadership().borrow();
    if leadership.is_me {
        return None;
    }
    let by_log = || {
        let members = cell.engine.members();
        Some(members.into_iter().find(|member| Some(member.id) == leadership.leader)?.peer)
    };
    let by_link = || cell.servers.leader();
    // The one that is kept up to date goes first.
    let known = if cell.holds_log() { [by_log(), by_link()] } else { [by_link(), by_log()] };
    reachable(known, cell.node.as_str())
}

/// The first that is known. One without an address is as good as unknown: it says where it is within a moment of leading,
/// and whoever asks waits for that as for any change of leader.
fn reachable(known: [Option<Peer>; 2], own: &str) -> Option<Target> {
    let peer = known.into_iter().flatten().find(has_address)?;
    (peer.name != own).then(|| target(&peer)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_whose_address_is_not_known_is_waited_for() {
        let peer = |name: &str, address: &str| {
            Some(Peer { name: name.to_owned(), address: address.to_owned() })
        };
        let cedar = || peer("cedar", "10.0.0.3:7117");
        for (case, known, leader) in [
            ("nobody leads", [None, None], None),
            ("the log says where it is", [cedar(), None], Some("10.0.0.3:7117")),
            ("only the link knows", [None, cedar()], Some("10.0.0.3:7117")),
            ("it has not said where it is", [peer("cedar", ""), None], None),
            ("the link knows where", [peer("cedar", ""), cedar()], Some("10.0.0.3:7117")),
            ("it is this node", [peer("ash", "10.0.0.1:7117"), None], None),
        ] {
            let found = reachable(known, "ash").map(|to| to.address);
            assert_eq!(found.as_deref(), leader, "{case}");
        }
    }
}
