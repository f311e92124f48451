//! The leader dies in the midst of a move, at each of its steps: the next one finishes it or takes it back, no replica is
//! missed or there twice, and nothing is left behind.

use plimsoll_lab::NAMES;

use super::gates::{Gate, REPLICAS, Shop};
use super::{audit, fewest_below};

impl Shop {
    /// Ends the leader's daemon as a crash does. What it ran runs on, and another leads.
    #[track_caller]
    fn lose_leader(&mut self) -> usize {
        let all: Vec<usize> = self.cell.nodes().collect();
        let leader = self.cell.until_led(&all);
        self.cell.kill(leader);
        self.cell.until_led(&self.cell.others(leader));
        leader
    }

    /// Until nothing is left on a node.
    #[track_caller]
    fn until_drained(&self, node: usize) {
        self.cell.until("the node is empty", |cell| cell.found_on(node).is_empty());
    }
}

/// Looks on from elsewhere: a cell whose daemons come and go cannot be lent to whoever counts.
fn fewest_of(shop: &mut Shop, act: impl FnOnce(&mut Shop)) -> usize {
    let paths: Vec<_> = shop.cell.nodes().map(|at| shop.cell.path(at)).collect();
    fewest_below(&paths, || act(shop))
}

#[test]
fn a_drain_goes_on_under_the_next_leader_from_whichever_step_it_was_at() {
    let mut shop = Shop::on(3);
    let leader = shop.cell.until_led(&[0, 1, 2]);
    let [drained, other] = *shop.cell.others(leader) else { panic!("there are three") };
    let drain = format!("node drain -d {}", NAMES[drained]);

    // Where the only destination stands still, a move is decided and no more.
    let cordoned = shop.cell.run(leader, &format!("node cordon {}", NAMES[leader]));
    assert_eq!(cordoned.code(), 0, "{}", cordoned.text());
    let fewest = fewest_of(&mut shop, |shop| {
        shop.cell.daemon(other).pause().unwrap();
        let begun = shop.cell.run(leader, &drain);
        assert_eq!(begun.code(), 0, "{}", begun.text());
        shop.until_next_is(leader, "assigned");
        shop.shut(Gate::Health);
        shop.cell.kill(leader);
        shop.cell.up(leader, None);
        shop.cell.daemon(other).resume().unwrap();
        let all = [0, 1, 2];
        shop.cell.until_led(&all);

        shop.until_next_is(leader, "starting");
        let lost = shop.lose_leader();
        shop.cell.up(lost, None);
        shop.cell.until_led(&all);
        shop.shut(Gate::End);
        shop.open(Gate::Health);

        shop.cell.until("all stop at last", |_| {
            let replicas = shop.replicas(drained);
            let leaving = replicas.iter().filter(|it| it["leaving"][0]["node"] == NAMES[drained]);
            leaving.count() == 2
        });
        let lost = shop.lose_leader();
        shop.cell.up(lost, None);
        shop.open(Gate::End);
        shop.until_drained(drained);
        shop.until_all_run(1);
    });
    assert_eq!(fewest, REPLICAS);
}

#[test]
fn a_rollout_goes_on_under_the_next_leader_and_so_does_the_way_back() {
    let mut shop = Shop::on(3);
    shop.shut(Gate::Health);
    let fewest = fewest_of(&mut shop, |shop| {
        shop.apply(0, 2);
        shop.until_next_is(0, "starting");
        let lost = shop.lose_leader();
        shop.open(Gate::Health);
        shop.cell.up(lost, None);
        shop.until_all_run(2);
    });
    assert_eq!(fewest, REPLICAS);

    shop.shut(Gate::Health);
    let before = shop.cell.found();
    shop.apply(0, 3);
    shop.until_next_is(0, "starting");
    let lost = shop.lose_leader();
    shop.fail();
    shop.cell.up(lost, None);
    shop.cell.until("it is taken back", |cell| {
        let status = cell.get(lost, "/v1/deployments/shop").unwrap_or_default();
        status["services"][0]["rollout"]["phase"] == "undone"
    });
    shop.cell.until("what ran is all that runs", |cell| cell.found() == before);
    assert_eq!(audit(&shop.cell, "rollout_aborted"), 1);
}
