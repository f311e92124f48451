//! Drains and rollouts on real processes: what is running is counted all the while, by looking at the processes.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::harness::{Cell, SHOP, Site};
use crate::lab::found::Processes;

mod gates;
mod leaders;
mod steering;

/// Watches how many replicas run at once, on all nodes with these directories together, while something is done.
fn fewest_below(paths: &[PathBuf], act: impl FnOnce()) -> usize {
    let (is_over, fewest) = (AtomicBool::new(false), AtomicUsize::new(usize::MAX));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let found = paths.iter().flat_map(|path| Processes::below(path).found());
                let running = found.filter(|found| found.is_running);
                let replicas: BTreeSet<String> = running.map(|found| found.replica).collect();
                fewest.fetch_min(replicas.len(), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(10));
            }
        });
        // Also where the act fails: else it would be watched for ever.
        let _ends = ends(&is_over);
        act();
    });
    fewest.into_inner()
}

fn fewest_while(cell: &Cell, act: impl FnOnce()) -> usize {
    fewest_below(&cell.nodes().map(|at| cell.path(at)).collect::<Vec<_>>(), act)
}

/// Sets the flag when it is dropped.
fn ends(flag: &AtomicBool) -> impl Drop {
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    Ends(flag)
}

fn three_with_shop() -> Cell {
    let cell = Cell::of_three(Site::Loopback);
    cell.write_shop();
    let applied = cell.run(0, "apply -f compose.yaml");
    assert!(applied.code() == 0, "{}", applied.text());
    cell
}

fn audit(cell: &Cell, word: &str) -> usize {
    let events = cell.json(1, "audit -o json --limit 1000");
    events.as_array().unwrap().iter().filter(|event| event["what"] == word).count()
}

#[test]
fn a_drain_says_what_it_will_do_and_no_service_misses_a_replica() {
    let cell = three_with_shop();
    let leader = cell.until_led(&[0, 1, 2]);
    let (name, other) = (plimsoll_lab::NAMES[leader], cell.others(leader)[0]);
    let plan = cell.run(other, &format!("node drain {name} --dry-run"));
    assert!(plan.stdout().contains("every service keeps its full count"), "{}", plan.text());
    assert_eq!(plan.stdout().matches("start-first").count(), 2, "{}", plan.text());
    assert_eq!(
        cell.running_on(other).iter().filter(|node| *node == name).count(),
        2,
        "only a plan"
    );

    let fewest = fewest_while(&cell, || {
        let drained = cell.run(other, &format!("node drain {name}"));
        assert!(drained.code() == 0, "{}", drained.text());
        assert!(drained.text().contains("is drained after"), "{}", drained.text());
    });
    assert_eq!(fewest, 6, "each replica runs elsewhere before it stops here");
    let places = cell.running_on(other);
    assert!(places.len() == 6 && places.iter().all(|node| node != name), "{places:?}");
    let next = cell.until_led(&[0, 1, 2]);
    assert_ne!(next, leader, "a node that is drained leads no longer");

    fs::write(cell.dir.path().join("more.yaml"), SHOP.replace("shop", "more")).unwrap();
    assert_eq!(cell.run(other, "apply -f more.yaml").code(), 0);
    let more = cell.json(other, "get replicas -o json");
    let more = more.as_array().into_iter().flatten();
    let more: Vec<_> =
        more.filter(|it| it["id"].as_str().is_some_and(|id| id.starts_with("more-"))).collect();
    let is_there = more.iter().any(|it| it["now"]["node"] == *name || it["next"]["node"] == *name);
    assert!(more.len() == 6 && !is_there, "nothing new goes there: {more:?}");
    let again = cell.run(other, &format!("node drain {name}"));
    assert!(again.text().contains("is being drained already"), "{}", again.text());

    assert_eq!(cell.run(other, &format!("node uncordon {name}")).code(), 0);
    assert_eq!(cell.run(other, "scale shop web=9").code(), 0);
    assert!(cell.running_on(other).contains(&name.to_owned()), "it takes replicas again");
}

#[test]
fn a_node_that_is_removed_is_empty_first_and_is_of_the_cell_no_more() {
    let cell = three_with_shop();
    let fewest = fewest_while(&cell, || {
        let removed = cell.run(0, "node remove cedar");
        assert!(removed.code() == 0, "{}", removed.text());
    });
    assert_eq!(fewest, 6);
    let nodes = cell.json(0, "node list -o json");
    let names: Vec<_> = nodes.as_array().unwrap().iter().map(|node| node["name"].clone()).collect();
    assert_eq!(names, ["ash", "birch"]);
    for (args, says) in [
        ("node drain cedar", "there is no node cedar"),
        ("node drain asch", "did you mean ash?"),
        ("node cordon birch", "birch cordoned"),
        ("node drain ash", "ash is the last node that takes replicas"),
        ("rollout pause shop", "no rollout of shop is in progress"),
        ("rollback shop", "shop has no revision before 1 to roll back to"),
    ] {
        let text = cell.run(0, args).text();
        assert!(text.contains(says), "{args}: {text}");
    }
}

#[test]
fn what_cannot_move_holds_up_a_drain_until_its_time_is_over_or_it_is_forced() {
    let cell = Cell::of_three(Site::Loopback);
    let data = SHOP.replace(
        "    deploy: {replicas: 6}",
        "    volumes: ['data:/data']\n    deploy: {replicas: 3}",
    );
    fs::write(cell.dir.path().join("compose.yaml"), format!("{data}volumes: {{data: {{}}}}\n"))
        .unwrap();
    let applied = cell.run(0, "apply -f compose.yaml");
    assert!(applied.code() == 0, "{}", applied.text());
    let late = cell.run(0, "node drain birch --timeout 1s");
    assert!(late.code() == 2 && late.text().contains("drain_timeout"), "{}", late.text());
    assert!(late.text().contains("its data lives on its node"), "{}", late.text());
    assert_eq!(cell.running_on(0).len(), 3, "everything runs on");
    assert!(cell.run(0, "node list").stdout().contains("cordoned (drain_timeout)"));

    let forced = cell.run(0, "node drain birch --force");
    assert!(forced.code() == 0 && forced.text().contains("1 replica stopped"), "{}", forced.text());
    cell.until("it is stopped", |cell| cell.found_on(1).is_empty());
    assert_eq!(cell.running_on(0).len(), 2);
    assert_eq!(cell.run(0, "node uncordon birch").code(), 0);
    cell.until("it is back where its data is", |cell| {
        cell.found_on(1).len() == 1 && cell.running_on(0).len() == 3
    });
}

#[test]
fn a_change_rolls_without_a_replica_missing_and_a_bad_one_is_taken_back_once() {
    let cell = three_with_shop();
    let file = |text: &str| fs::write(cell.dir.path().join("compose.yaml"), text).unwrap();
    file(&SHOP.replace("sleep 1000", "sleep 2000"));
    let fewest = fewest_while(&cell, || {
        let applied = cell.run(1, "apply -f compose.yaml");
        assert!(applied.code() == 0, "{}", applied.text());
    });
    assert_eq!(fewest, 6);

    file(&SHOP.replace("[CMD, \"true\"]", "[CMD, \"false\"]"));
    let before = audit(&cell, "rollout_aborted");
    let fewest = fewest_while(&cell, || {
        let applied = cell.run(1, "apply -f compose.yaml");
        assert!(
            applied.code() == 1 && applied.text().contains("rolled_back"),
            "{}",
            applied.text()
        );
    });
    assert_eq!((fewest, audit(&cell, "rollout_aborted") - before), (6, 1));
    let status = cell.run(2, "rollout status shop").stdout();
    assert!(status.contains("undone") && status.contains("back to revision 2"), "{status}");
    let replicas = cell.json(0, "get replicas -o json");
    let revisions: Vec<_> = replicas
        .as_array()
        .unwrap()
        .iter()
        .map(|replica| replica["now"]["revision"].as_u64())
        .collect();
    assert_eq!(revisions, [Some(2); 6], "all of it runs what ran before");
}
