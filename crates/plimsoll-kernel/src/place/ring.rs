//! Where in the ring a replica starts to look: a place drawn from its name, so that services begin at different nodes
//! and the same replica always begins at the same one.

use plimsoll_model::{ReplicaId, ServiceKey, Slot};

/// FNV-1a over the id's parts, then mixed so that neighbouring indices land far apart. Written out here because the
/// answer must be the same in every release and on every machine.
pub(crate) fn hash(replica: &ReplicaId) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let mut eat = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    eat(replica.service.deployment.as_str().as_bytes());
    eat(b"/");
    eat(replica.service.service.as_str().as_bytes());
    eat(b"/");
    match &replica.slot {
        Slot::Index(index) => eat(&index.to_be_bytes()),
        Slot::Node(node) => eat(node.as_str().as_bytes()),
    }
    mix(hash)
}

/// An order of services, or of the replicas of one, that is another for every seed.
pub(crate) fn shuffled(service: &ServiceKey, slot: u64, seed: u64) -> u64 {
    let mut hash = mix(seed ^ slot);
    for byte in
        service.deployment.as_str().bytes().chain([b'/']).chain(service.service.as_str().bytes())
    {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    mix(hash)
}

pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// How far along the ring of `nodes` places the node at `at` lies from `start`.
pub(super) fn distance(start: usize, at: usize, nodes: usize) -> usize {
    if at >= start { at - start } else { at + nodes - start }
}
