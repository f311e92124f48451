//! A coordinator and a cell, as processes: the cell joins with one string, is known, and works on without the coordinator.

use crate::harness::{Cell, Site};

/// It asks for more than any machine of a test has.
const VAST: &str = "name: vast\nservices:\n  web:\n    image: any\n    command: [sleep, '1000']\n    deploy: {resources: {reservations: {cpus: '900'}}}\n";

const SHOP: &str = "name: shop\nservices:\n  web:\n    image: any\n    command: [sleep, '1000']\n";

#[test]
fn a_cell_joins_a_fleet_with_one_string_and_works_on_without_its_coordinator() {
    // The first is a coordinator, the second a cell of its own.
    let mut cell = Cell::idle(Site::Loopback);
    cell.setups[0].is_coordinator = true;
    cell.up(0, None);
    cell.up(1, None);
    std::fs::write(cell.dir.path().join("compose.yaml"), SHOP).unwrap();
    cell.until("the fleet has begun", |cell| {
        cell.json(0, "fleet status -o json")["role"] == "coordinator"
    });
    let refused = cell.run(0, "apply -f compose.yaml");
    assert_eq!(refused.code(), 1, "{}", refused.text());
    assert!(refused.text().contains("coordinates a fleet and runs nothing"), "{}", refused.text());

    assert_eq!(cell.json(1, "fleet status -o json")["role"], "none");
    let join = cell.run(0, "fleet token create north").stdout();
    let joined = cell.run(1, &format!("fleet join {}", join.trim()));
    assert_eq!(joined.code(), 0, "{}", joined.text());
    let again = cell.run(1, &format!("fleet join {}", join.trim()));
    assert_eq!(again.code(), 1, "{}", again.text());
    cell.until("the coordinator has heard the cell", |cell| {
        !cell.json(0, "fleet shards -o json")[0]["heard_at"].is_null()
    });
    cell.until("the cell has heard the coordinator", |cell| {
        !cell.json(1, "fleet status -o json")["membership"]["answered_at"].is_null()
    });
    let audit = cell.run(0, "audit").stdout();
    assert!(audit.contains("north joined the fleet"), "{audit}");

    // What the cell lacks is heard, and what it is told is done and answered.
    std::fs::write(cell.dir.path().join("vast.yaml"), VAST).unwrap();
    let applied = cell.run(1, "apply -d -f vast.yaml");
    assert_eq!(applied.code(), 0, "{}", applied.text());
    cell.until("the coordinator knows what the cell lacks", |cell| {
        cell.json(0, "fleet shortfalls -o json")[0]["cpu_millis"] == 900_000
    });
    let set = cell.run(0, "fleet quota set m5.large eu-1a north 20");
    assert_eq!(set.code(), 0, "{}", set.text());
    cell.until("the cell has its slice", |cell| {
        cell.run(1, "audit").stdout().contains("quota of m5.large in eu-1a is 20")
    });
    cell.until("the coordinator has heard so", |cell| {
        cell.json(0, "fleet shards -o json")[0]["pending"] == 0
    });

    cell.kill(0);
    let applied = cell.run(1, "apply -f compose.yaml");
    assert_eq!(applied.code(), 0, "{}", applied.text());
    cell.until("the cell says that nobody answers", |cell| {
        !cell.json(1, "fleet status -o json")["membership"]["trouble"].is_null()
    });
    // It comes back and knows whom it let in.
    cell.up(0, None);
    cell.until("the coordinator hears the cell again", |cell| {
        !cell.json(0, "fleet shards -o json")[0]["heard_at"].is_null()
    });
}
