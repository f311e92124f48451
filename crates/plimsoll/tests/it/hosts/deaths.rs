//! Machines that die: a leader in the middle of an apply, and a node that comes back with nothing on its disk.

use std::fs;
use std::thread;
use std::time::Duration;

use plimsoll_lab::{LabRng, NAMES};

use super::load::Load;
use super::{SEED, cell_of_three, verdict};

/// How often a leader is killed.
const KILLS: usize = 5;

#[test]
fn a_leader_killed_during_an_apply_leaves_it_done_or_not_and_never_half() {
    let Some(mut cell) = cell_of_three() else { return };
    let services = |version: usize| {
        let one = |name: &str| {
            format!(
                "  {name}: {{image: any, command: [sleep, '1000'], environment: {{VERSION: '{version}'}}}}\n"
            )
        };
        format!("name: shop\nservices:\n{}{}{}", one("web"), one("db"), one("mail"))
    };
    let load = Load::on(&cell, SEED);
    let mut chance = LabRng::new(SEED);
    for version in 1..=KILLS {
        let leader = cell.until_led(&[0, 1, 2]);
        fs::write(cell.dir.path().join("compose.yaml"), services(version)).unwrap();
        let from = cell.others(leader)[0];
        let wait = Duration::from_micros(chance.between(0, 40_000));
        let daemon = cell.daemon(leader).clone();
        let killing = thread::spawn(move || {
            thread::sleep(wait);
            daemon.kill();
        });
        let applied = cell.run(from, "apply -f compose.yaml -d");
        killing.join().unwrap();
        cell.kill(leader);
        cell.until("the others have a leader", |cell| {
            cell.leader_of(&cell.others(leader)).is_some()
        });
        cell.up(leader, None);
        let now = cell.until_led(&[0, 1, 2]);
        let shop = cell.get(now, "/v1/deployments/shop?consistent=true").unwrap();
        let is_done = shop["revision"].as_u64() == u64::try_from(version).ok();
        assert!(applied.code() != 0 || is_done, "acknowledged and not there: {shop}");
        if !is_done {
            let again = cell.run(now, "apply -f compose.yaml -d");
            assert_eq!(again.code(), 0, "{}", again.text());
        }
    }
    verdict::shop_runs_once(&cell, 3);
    let mut versions: Vec<String> = cell.found().into_iter().map(|one| one.version).collect();
    versions.dedup();
    assert_eq!(versions, [KILLS.to_string()], "all three services are of one revision");
    load.goes_on(&cell, 20);
    verdict::holds(&cell, load, "leaders were killed during applies");
}

#[test]
fn a_node_with_an_empty_disk_comes_back_under_its_name_with_a_new_token() {
    let Some(mut cell) = cell_of_three() else { return };
    cell.write_shop();
    let applied = cell.run(0, "apply -f compose.yaml");
    assert!(applied.code() == 0, "{}", applied.text());
    let load = Load::on(&cell, SEED);
    load.goes_on(&cell, 20);
    let leader = cell.until_led(&[0, 1, 2]);
    cell.switch_off(leader);
    fs::remove_dir_all(cell.path(leader)).unwrap();
    let helper = cell.until_led(&cell.others(leader));
    cell.until("it is known to be down", |cell| {
        let nodes = cell.json(helper, "node list -o json");
        nodes
            .as_array()
            .unwrap()
            .iter()
            .any(|node| node["name"] == NAMES[leader] && node["status"] == "down")
    });
    let token = cell.token(helper);
    cell.lab().host(leader).switch_on().unwrap();
    cell.up(leader, Some(&token));
    cell.until("three servers vote, and no ghost", |cell| {
        let status = cell.json(helper, "cell status -o json");
        let servers = status["servers"].as_array().unwrap();
        servers.len() == 3 && servers.iter().all(|server| server["votes"] == true)
    });
    load.goes_on(&cell, 20);
    verdict::shop_runs_once(&cell, 6);
    verdict::holds(&cell, load, "a node lost its disk");
}
