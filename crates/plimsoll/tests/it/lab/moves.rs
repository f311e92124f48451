//! Rollouts, drains and slow stops on real engines. When each container served is told by itself and its engine, so no gap
//! is too short to be seen.

use std::fs;
use std::path::PathBuf;
use std::thread;

use plimsoll_lab::watch::ContainerWatch;
use plimsoll_lab::{LabEngine, NAMES};

use super::compose::{sh, web};
use super::harness::{Lab, Runtime, lab, unique};
use crate::harness::{Cell, Site};

/// Serves a moment after it was started, and goes at once when it is told.
const SERVES: &str = "trap 'exit 0' TERM; sleep 0.3; touch /tmp/well; sleep 600 & wait";

/// Healthy once it serves.
const CHECK: &str =
    "healthcheck: {test: [CMD, test, -e, /tmp/well], interval: 100ms, retries: 100}";

/// A version of a service that serves.
fn serving(version: &str, replicas: u32, more: &[&str]) -> String {
    let lines = [
        sh(SERVES),
        CHECK.to_owned(),
        format!("environment: {{VERSION: '{version}'}}"),
        format!("deploy: {{replicas: {replicas}}}"),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).chain(more.iter().copied()).collect();
    web(&lines)
}

/// Watches the containers of a lab's cell.
fn watch(lab: &Lab) -> ContainerWatch {
    let Runtime::Docker(socket) = &lab.runtime else { panic!("there is no engine") };
    let label = format!("plimsoll.cell={}", lab.name);
    ContainerWatch::begin(std::slice::from_ref(socket), &label).unwrap()
}

#[test]
fn a_changed_environment_rolls_with_all_three_serving_all_the_while() {
    let Some(lab) = Lab::docker() else { return };
    lab.settle("shop", &serving("1", 3, &[]));
    let watch = watch(&lab);
    lab.settle("shop", &serving("2", 3, &[]));
    assert_eq!(watch.fewest(), 3, "{:#?}", watch.lives());
    let found = lab.runs(3);
    assert!(found.iter().all(|one| one.version == "2"), "{found:#?}");
    assert_eq!(watch.lives().len(), 6, "each was started once: {:#?}", watch.lives());
}

#[test]
fn an_image_that_never_gets_healthy_is_taken_back_once_and_for_all() {
    let Some(mut lab) = Lab::docker() else { return };
    lab.settle("shop", &serving("1", 3, &[]));
    let before = lab.runs(3);
    let watch = watch(&lab);
    let never = web(&[
        "image: plimsoll-test:checked",
        "command: [sleep, '600']",
        "healthcheck: {test: [CMD, test, -e, /tmp/well], interval: 100ms, retries: 3}",
        "deploy: {replicas: 3}",
    ]);
    lab.apply("shop", &never);
    lab.until("shop", "the rollout is undone", |shop| {
        shop.services.iter().any(|web| web.rollout.as_ref().is_some_and(|it| it.phase == "undone"))
    });
    lab.still_has(&before, "what ran was not touched");

    // Neither a daemon that starts anew nor another deployment's changes try it again.
    lab.stop();
    lab.start();
    lab.settle("other", &web(&[]));
    lab.run("delete other -d").done();
    lab.gone("other");
    lab.still_has(&before, "it was not tried again");
    assert_eq!(watch.fewest(), 3, "{:#?}", watch.lives());
    let tried = watch.lives().into_iter().filter(|life| life.slot.starts_with("shop/")).count();
    assert_eq!(tried, 4, "one successor, once: {:#?}", watch.lives());
    let events = lab.run("audit -o json --limit 1000").done().json();
    let aborted = events.as_array().unwrap().iter().filter(|it| it["what"] == "rollout_aborted");
    assert_eq!(aborted.count(), 1, "{events:#}");
}

#[test]
fn a_stop_that_takes_long_delays_nothing_else() {
    let Some(lab) = Lab::docker() else { return };
    let lingers = SERVES.replace("exit 0", "while [ ! -e /tmp/go ]; do sleep 0.1; done; exit 0");
    let lingering = |version: &str| {
        serving(version, 2, &["stop_grace_period: 60s"]).replace(&sh(SERVES), &sh(&lingers))
    };
    lab.settle("slow", &lingering("1"));
    lab.apply("slow", &lingering("2"));
    let of = |version: &str| {
        let mut running = lab.running("slow/web");
        running.retain(|one| one.version == version);
        running
    };
    lab.wait_for("both have a successor, though neither has gone", || {
        of("1").len() == 2 && of("2").len() == 2
    });
    lab.settle("shop", &serving("1", 1, &[]));
    lab.settle("shop", &serving("2", 2, &[]));
    lab.run("delete shop -d").done();
    lab.gone("shop");
    let lingering = of("1");
    assert_eq!(lingering.len(), 2, "both are still on their way: {}", lab.diagnosis());
    for one in &lingering {
        // The container may end before the command in it has: what counts is that it goes.
        let _ = lab.engine(&["exec", &one.id, "touch", "/tmp/go"]);
    }
    lab.steady("slow");
    assert!(lab.runs(2).iter().all(|one| one.version == "2"), "{}", lab.diagnosis());
}

/// An engine for each of three nodes; none where there can be none.
fn three_engines() -> Option<Vec<LabEngine>> {
    lab("DOCKER")?;
    if !rustix::process::geteuid().is_root() {
        println!("not tested: only root can start an engine");
        return None;
    }
    let engines: Vec<LabEngine> = (0..3).map(|_| LabEngine::new(unique(), None)).collect();
    thread::scope(|scope| {
        for engine in &engines {
            scope.spawn(|| engine.start().unwrap());
        }
    });
    Some(engines)
}

#[test]
fn the_only_replica_of_a_service_leaves_a_drained_node_without_a_gap() {
    let Some(engines) = three_engines() else { return };
    let sockets: Vec<PathBuf> = engines.iter().map(LabEngine::socket).collect();
    let mut cell = Cell::idle(Site::Loopback);
    for (at, socket) in sockets.iter().enumerate() {
        cell.setups[at].engine = Some(socket.clone());
    }
    cell.form(3);
    fs::write(cell.dir.path().join("compose.yaml"), serving("1", 1, &[])).unwrap();
    let applied = cell.run(0, "apply -f compose.yaml -p shop");
    assert!(applied.code() == 0, "{}", applied.text());
    let home = cell.running_on(0).remove(0);
    let at = NAMES.iter().position(|name| *name == home).unwrap();

    let watch = ContainerWatch::begin(&sockets, "plimsoll.replica").unwrap();
    let drained = cell.run(cell.others(at)[0], &format!("node drain {home}"));
    assert!(drained.code() == 0, "{}", drained.text());
    cell.until("the old one has ended", |_| {
        watch.lives().iter().any(|life| life.engine == at && life.ended.is_some())
    });
    let lives = watch.lives();
    assert_eq!(watch.fewest(), 1, "{lives:#?}");
    let places: Vec<usize> = lives.iter().map(|life| life.engine).collect();
    assert!(places.len() == 2 && places[0] == at && places[1] != at, "{lives:#?}");
}
