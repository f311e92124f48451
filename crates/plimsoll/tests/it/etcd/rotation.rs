//! The authority of a cell on etcd is rotated as any other: its servers sign for themselves, and the leader may be lost.

use plimsoll_etcd::testkit::EtcdLab;

use super::cell_of;
use super::faults::{apply_shop, must_agree};

#[test]
fn a_cell_on_etcd_rotates_its_authority_and_a_server_that_was_away_signs_itself_another_certificate()
 {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let mut cell = cell_of(3, &lab);
    apply_shop(&cell, 1);
    must_agree(&cell, &[0, 1, 2], 6);
    let first = cell.fingerprint(0);
    cell.rotate(1, "");
    let second = cell.fingerprint(2);
    assert_ne!(first, second);

    let leader = cell.until_led(&[0, 1, 2]);
    cell.kill(leader);
    let others = cell.others(leader);
    cell.until_led(&others);
    cell.until("it does not wait for the lost one", |cell| {
        let without = format!("cell rotate-authority --without {}", plimsoll_lab::NAMES[leader]);
        cell.run(others[0], &without).code() == 0
    });
    assert_ne!(cell.fingerprint(others[0]), second);
    // Who reaches the log is a server: it has nothing to join.
    cell.up(leader, None);
    cell.until_heard(others[0], 3);
    must_agree(&cell, &[0, 1, 2], 6);
}
