//! An authority whose key was stolen, and a server that was removed: after a rotation neither opens anything.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use plimsoll_lab::NAMES;
use plimsoll_model::NodeId;
use plimsoll_peer::pki::{
    Authority, AuthorityParts, CertificateRefusal, Credentials, Identity, JoinAddress,
    NODE_LIFETIME,
};
use plimsoll_peer::{Error, PeerClient, Target, meet};
use plimsoll_store::backup;
use plimsoll_store::keys::CellKey;

use crate::harness::{Cell, Site};

const ANSWER: Duration = Duration::from_secs(20);

/// The authority in a backup that is taken now.
fn stolen(cell: &Cell, file: &str) -> Authority {
    let file = cell.dir.path().join(file);
    let taken = cell.run(0, &format!("backup {}", file.display()));
    assert_eq!(taken.code(), 0, "{}", taken.text());
    kept(&file, cell.backup_key(0))
}

fn kept(file: &Path, key: CellKey) -> Authority {
    let (_, state) = backup::state(file, &[key]).unwrap();
    let kept = state.access().authority.clone().unwrap();
    let (cell_id, certificate, key) = (state.cell_id().clone(), kept.certificate, kept.key);
    Authority::from_parts(&AuthorityParts { cell_id, certificate, key }).unwrap()
}

/// A node of this name that nobody took in.
fn forged(authority: &Authority, name: &str) -> Identity {
    let (key, csr) = Identity::new_key().unwrap();
    let (node, now) = (NodeId::new(name).unwrap(), plimsoll_daemon::clock::now());
    let signed = authority.issue(&csr, &node, now, NODE_LIFETIME).unwrap();
    Identity::new(key, signed, authority.certificate().clone()).unwrap()
}

/// What a node says to somebody with this identity: a status, or why there is no connection.
fn ask(cell: &Cell, at: usize, identity: &Identity) -> Result<u16, Error> {
    let target = Target { node: NodeId::new(NAMES[at]).unwrap(), address: cell.address(at) };
    let client = PeerClient::new(Credentials::new(identity).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let asked = client.call(&target, Method::GET, "/v1/nodes", Bytes::new(), ANSWER);
    runtime.block_on(asked).map(|answer| answer.status.as_u16())
}

#[test]
fn after_a_rotation_neither_a_stolen_authority_nor_a_removed_server_opens_a_connection() {
    let mut cell = Cell::of_three(Site::Loopback);
    let old = stolen(&cell, "stolen.backup");
    let server = Identity::load(&cell.path(2)).unwrap().unwrap();
    let token: JoinAddress = cell.token(0).parse().unwrap();
    assert_eq!(ask(&cell, 0, &server).unwrap(), 200);
    let nobody = ask(&cell, 0, &forged(&old, "mallory")).unwrap();
    assert_eq!(nobody, 403, "before, it is let in to be told that it is nobody");

    cell.kill(2);
    cell.until("it is removed", |cell| {
        cell.run(0, &format!("node remove {} --force", NAMES[2])).code() == 0
    });
    cell.rotate(0, "");
    let new = stolen(&cell, "next.backup");
    assert_ne!(old.fingerprint(), new.fingerprint());

    // Also somebody who knows the next authority, and would believe whom it signed.
    let knowing = |identity: Identity| identity.trusting([new.certificate().clone()], 0);
    for (who, identity) in [
        ("a node that nobody took in", forged(&old, "mallory")),
        ("one with the name of a server", forged(&old, NAMES[1])),
        ("the removed server with its own key", server),
    ] {
        for at in [0, 1] {
            // A node that has not heard of the end yet does a moment later.
            let mut answer = None;
            cell.until("it is refused", |cell| {
                let asked = ask(cell, at, &knowing(identity.clone()));
                let is_refused = asked.is_err();
                answer = Some(asked);
                is_refused
            });
            let Some(Err(Error::RefusedByPeer { source, .. })) = &answer else {
                panic!("{who}: {answer:?}")
            };
            assert_eq!(*source, CertificateRefusal::UnknownAuthority, "{who}");
        }
    }
    // Whoever joins with a token from before would be the thief's guest: it finds nobody.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let met = runtime.block_on(meet(old.fingerprint(), &token.address, ANSWER));
    let Err(Error::Refused { source: CertificateRefusal::WrongAuthority, .. }) = &met else {
        panic!("{met:?}")
    };
    // The keys that the nodes are known by are the same: members stay members.
    let member = Identity::load(&cell.path(1)).unwrap().unwrap();
    assert_eq!(ask(&cell, 0, &member).unwrap(), 200);
}
