//! A node without the log serves what the leader gives it: certificates of the ACME authority and of the cell's own.

use plimsoll_peer::pki::Identity;

use super::*;

/// The eighth node of a cell: the first that holds no log.
const AGENT: usize = 7;

#[test]
fn a_node_without_the_log_serves_auto_and_internal_certificates_and_answers_the_authority() {
    let Some(pebble) = Pebble::start(&[("PEBBLE_VA_NOSLEEP", "1")]) else { return };
    let mut cell = Cell::idle(Site::Loopback);
    for at in 0..=AGENT {
        let kinds: &[&str] = if at == AGENT { &["--http", "--https"] } else { &[] };
        let args = listens(at, kinds).into_iter().chain(pebble.flags()).collect();
        cell.setups[at] = NodeSetup { args, ..NodeSetup::default() };
    }
    cell.form(AGENT + 1);
    pebble.point("shop.example", &ip(AGENT));
    apply(&cell, &[("shop.example", "auto"), ("inside.example", "internal")]);
    until_shown(&cell, &[AGENT], "shop.example", &pebble);
    let identity = Identity::load(&cell.path(0)).unwrap().unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(identity.authority().clone()).unwrap();
    cell.until("the agent serves a certificate of the cell", |_| {
        shown(AGENT, "inside.example", roots.clone()).is_ok()
    });
}
