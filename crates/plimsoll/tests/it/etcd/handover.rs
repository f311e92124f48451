//! A daemon whose log is on an etcd hands over as any other: its lease is free at once, and its data directory too.

use plimsoll_etcd::testkit::EtcdLab;

use super::{TTL, cell_of};

#[test]
fn daemons_on_an_etcd_hand_over_without_waiting_for_a_lease() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let cell = cell_of(2, &lab);
    cell.write_shop();
    assert_eq!(cell.run(0, "apply -f compose.yaml").code(), 0);
    let before = cell.found();
    for _ in 0..2 {
        let leader = cell.until_led(&[0, 1]);
        cell.hand_over(leader);
        cell.until_led(&[0, 1]);
    }
    cell.until_equal(&[0, 1]);
    assert_eq!(cell.found(), before, "replicas run on as they were");
    assert_eq!(cell.run(0, "scale shop web=7").code(), 0);
    for at in cell.nodes() {
        let said = cell.said(at);
        assert!(!said.contains("did not take over"), "within {TTL:?}: {said}");
    }
}
