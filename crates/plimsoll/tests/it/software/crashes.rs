//! Daemons that are killed, and a node whose power fails.

use plimsoll_lab::NAMES;

use super::stack::Stack;

#[test]
fn no_row_is_lost_when_daemons_are_killed() {
    let Some(mut stack) = Stack::up(&[]) else { return };
    let writers = stack.write();
    let home = stack.home(0, "shop_rows");
    let before = stack.database(home);

    stack.cell.kill(home);
    stack.cell.up(home, None);
    stack.until_steady(home);
    writers.miss_nothing(&stack.cell, "kill -9 of the daemon beside the database");

    let leader = stack.cell.until_led(&[0, 1, 2]);
    stack.cell.kill(leader);
    stack.cell.until_led(&stack.cell.others(leader));
    stack.cell.up(leader, None);
    stack.until_steady(leader);
    writers.miss_nothing(&stack.cell, "kill -9 of the leader");

    (0..3).for_each(|at| stack.cell.kill(at));
    (0..3).for_each(|at| stack.cell.launch(at, None));
    stack.cell.until_led(&[0, 1, 2]);
    stack.until_steady(0);
    writers.miss_nothing(&stack.cell, "kill -9 of all daemons");
    assert_eq!(stack.database(home), before, "the database noticed nothing");
}

#[test]
fn no_row_is_lost_when_the_power_of_the_node_with_the_database_fails() {
    let Some(mut stack) = Stack::up(&[]) else { return };
    let writers = stack.write();
    let home = stack.home(0, "shop_rows");
    let other = stack.cell.others(home)[0];

    stack.cut_power(home);
    stack.cell.until("the cell knows that the node is down", |cell| {
        let nodes = cell.json(other, "node list -o json");
        let mut nodes = nodes.as_array().into_iter().flatten();
        nodes.any(|node| node["name"] == NAMES[home] && node["status"] == "down")
    });
    stack.cell.until("the web server runs three times without it", |cell| {
        let shop = cell.get(other, "/v1/deployments/shop").unwrap_or_default();
        let services = shop["services"].as_array().cloned().unwrap_or_default();
        let web = services.into_iter().find(|it| it["name"] == "web").unwrap_or_default();
        let replicas = web["replicas"].as_array().cloned().unwrap_or_default();
        let runs = |it: &&serde_json::Value| {
            it["now"]["state"] == "running" && it["now"]["node"] != NAMES[home]
        };
        replicas.iter().filter(runs).count() == 3
    });
    assert_eq!(stack.home(other, "shop_rows"), home, "the database waits for its data");
    for at in stack.cell.others(home) {
        assert_eq!(stack.database(at), "", "no empty database on {}", NAMES[at]);
    }

    stack.restore_power(home);
    stack.until_steady(other);
    assert_eq!(stack.home(other, "shop_rows"), home);
    writers.miss_nothing(&stack.cell, "a power cut");

    // All at once, and none of them for long.
    (0..3).for_each(|at| stack.cut_power(at));
    for at in 0..3 {
        stack.cell.lab().host(at).switch_on().unwrap();
        stack.engines.0[at].start().unwrap();
    }
    (0..3).for_each(|at| stack.cell.launch(at, None));
    stack.cell.until_led(&[0, 1, 2]);
    stack.until_steady(0);
    writers.miss_nothing(&stack.cell, "a power cut of all nodes");
}
