//! What a cell on etcd survives, and that its log and what runs agree afterwards.

use std::time::{Duration, Instant};

use plimsoll_etcd::testkit::Lab;

use super::{TTL, cell_of};

#[test]
fn three_nodes_on_an_etcd_form_a_cell_and_the_loss_of_its_leader_costs_nothing() {
    let Some(lab) = Lab::start(1, &[]) else { return };
    let mut cell = cell_of(3, &lab);
    cell.write_shop();
    let leader = cell.until_led(&[0, 1, 2]);
    let others = cell.others(leader);
    let applied = cell.run(others[0], "apply -f compose.yaml");
    assert!(applied.code() == 0, "a standby takes a write: {}", applied.text());
    let mut places = cell.running_on(others[1]);
    places.sort();
    assert_eq!(places, ["ash", "ash", "birch", "birch", "cedar", "cedar"]);

    cell.kill(leader);
    let begun = Instant::now();
    cell.until("a write succeeds", |cell| cell.run(others[0], "scale shop web=7 -d").code() == 0);
    let took = begun.elapsed();
    // The promise is the lease and a second on a quiet machine; here it must only not be a matter of luck.
    assert!(took < TTL + Duration::from_secs(10), "{took:?}");
}
