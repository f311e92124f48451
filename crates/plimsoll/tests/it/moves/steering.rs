//! People steer a rollout under way: pause, resume, abort, and another apply that takes its place.

use serde_json::Value;

use super::gates::{Gate, REPLICAS, Shop};

impl Shop {
    fn ask(&self, args: &str) {
        let ran = self.cell.run(0, args);
        assert_eq!(ran.code(), 0, "{}", ran.text());
    }

    /// How many replicas run a version, by the processes themselves.
    fn count(&self, version: &str) -> usize {
        self.cell.found().iter().filter(|one| one.version == version).count()
    }

    fn rollout(&self) -> Value {
        let shop = self.cell.get(0, "/v1/deployments/shop").unwrap_or_default();
        shop["services"][0]["rollout"].clone()
    }
}

#[test]
fn a_rollout_is_paused_resumed_aborted_and_superseded() {
    let shop = Shop::on(1);
    shop.shut(Gate::Health);
    shop.apply(0, 2);
    shop.until_next_is(0, "starting");
    shop.ask("rollout pause shop");
    shop.open(Gate::Health);
    shop.cell.until("the step under way is finished", |_| {
        shop.count("1") == REPLICAS - 1 && shop.count("2") == 1
    });
    // The passes that another deployment makes necessary begin no step of this one.
    let other = "name: other\nservices: {s: {image: any, command: [sleep, '1000'], healthcheck: {test: [CMD, 'true'], interval: 50ms}}}\n";
    std::fs::write(shop.cell.dir.path().join("other.yaml"), other).unwrap();
    shop.ask("apply -f other.yaml");
    shop.ask("delete other");
    assert_eq!((shop.rollout()["phase"].as_str(), shop.count("2")), (Some("paused"), 1));
    shop.ask("rollout resume shop");
    shop.until_all_run(2);

    shop.shut(Gate::Health);
    let before = shop.cell.found();
    shop.apply(0, 3);
    shop.until_next_is(0, "starting");
    shop.ask("rollout abort shop");
    shop.cell.until("it is undone, and what ran runs on", |cell| {
        shop.rollout()["phase"] == "undone" && cell.found() == before
    });

    shop.apply(0, 4);
    shop.until_next_is(0, "starting");
    shop.apply(0, 5);
    shop.open(Gate::Health);
    shop.until_all_run(5);
    assert_eq!(shop.rollout()["revision"], 5);
}
