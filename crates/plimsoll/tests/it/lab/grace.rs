//! Every way a container is stopped gives it the time it asked for, and no more.

use std::time::{Duration, Instant};

use super::compose::{compose, sh};
use super::harness::Lab;

/// A service that takes three seconds to go, and says that it was let finish. The grace is longer than the engine's
/// own, so that a stop by anyone's defaults would show in its settings.
fn slow(lab: &Lab, version: &str) -> [String; 4] {
    let script = "trap 'sleep 3; echo $DEPLOYMENT $VERSION >> /marks/done; exit 0' TERM; \
                  echo $DEPLOYMENT $VERSION >> /marks/up; sleep 600 & wait";
    [
        sh(&script.replace('$', "$$")),
        "stop_grace_period: 60s".to_owned(),
        format!("volumes: ['{}:/marks']", lab.path("marks").display()),
        version.to_owned(),
    ]
}

/// The file of one deployment of them.
fn file(lab: &Lab, deployment: &str, version: &str, more: &[&str]) -> String {
    let environment = format!("environment: {{DEPLOYMENT: {deployment}, VERSION: '{version}'}}");
    let lines = slow(lab, &environment);
    let lines: Vec<&str> = lines.iter().map(String::as_str).chain(more.iter().copied()).collect();
    compose(&[("web", &lines)])
}

#[test]
fn a_container_is_given_its_grace_on_every_path_that_stops_one() {
    let Some(lab) = Lab::docker() else { return };
    let ill =
        "healthcheck: {test: [CMD-SHELL, 'test ! -e /marks/ill'], interval: 300ms, retries: 1}";
    let never = "healthcheck: {test: [CMD, 'false'], interval: 100ms, retries: 1000}";
    let two = "deploy: {replicas: 2}";
    let with_other = |deployment: &str| {
        file(&lab, deployment, "1", &[]) + &compose(&[("other", &[])]).replace("services:\n", "")
    };
    lab.apply("roll", &file(&lab, "roll", "1", &[]));
    lab.apply("scale", &file(&lab, "scale", "1", &[two]));
    lab.apply("delete", &file(&lab, "delete", "1", &[]));
    lab.apply("restart", &file(&lab, "restart", "1", &[]));
    lab.apply("ill", &file(&lab, "ill", "1", &[ill]));
    lab.apply("superseded", &file(&lab, "superseded", "1", &[]));
    lab.apply("removed", &with_other("removed"));
    for name in ["roll", "scale", "delete", "restart", "ill", "superseded", "removed"] {
        lab.steady(name);
    }
    for one in lab.found().iter().filter(|one| one.service() != "removed/other") {
        let grace = &lab.inspect(&[&one.id])[0]["Config"]["StopTimeout"];
        assert_eq!(grace.as_u64(), Some(60), "{one:?}");
    }

    lab.apply("superseded", &file(&lab, "superseded", "2", &[never]));
    lab.wait_for("the second is up", || lab.marks("up").contains(&"superseded 2".to_owned()));
    lab.apply("superseded", &file(&lab, "superseded", "3", &[]));
    lab.apply("roll", &file(&lab, "roll", "2", &[]));
    lab.run("scale scale web=1 -d").done();
    lab.run("delete delete -d").done();
    lab.run("restart restart -d").done();
    lab.apply("removed", &compose(&[("other", &[])]));
    std::fs::write(lab.path("marks/ill"), "").unwrap();
    lab.wait_for("the ill one was let finish", || lab.marks("done").contains(&"ill 1".to_owned()));
    std::fs::remove_file(lab.path("marks/ill")).unwrap();

    for name in ["roll", "scale", "restart", "ill", "superseded", "removed"] {
        lab.steady(name);
    }
    lab.gone("delete");
    let mut done = lab.marks("done");
    done.sort();
    let expected = [
        "delete 1",
        "ill 1",
        "removed 1",
        "restart 1",
        "roll 1",
        "scale 1",
        "superseded 1",
        "superseded 2",
    ];
    assert_eq!(done, expected, "{}", lab.diagnosis());
    assert_eq!(lab.found().len(), 6, "{}", lab.diagnosis());
}

#[test]
fn a_container_that_does_not_go_is_killed_after_its_grace() {
    let Some(lab) = Lab::docker() else { return };
    let deaf = sh("trap '' TERM USR1; while :; do sleep 0.2; done");
    let heeds = sh(
        "trap 'echo heard >> /marks/signal; exit 0' USR1; trap 'echo no >> /marks/signal' TERM; \
                    while :; do sleep 0.2; done",
    );
    let marks = format!("volumes: ['{}:/marks']", lab.path("marks").display());
    let grace = "stop_grace_period: 2s";
    lab.apply("deaf", &compose(&[("web", &[&deaf, grace])]));
    lab.apply("stubborn", &compose(&[("web", &[&deaf, grace, "stop_signal: SIGUSR1"])]));
    let heeding: &[&str] = &[&heeds, &marks, "stop_grace_period: 60s", "stop_signal: SIGUSR1"];
    lab.apply("heeds", &compose(&[("web", heeding)]));
    for name in ["deaf", "stubborn", "heeds"] {
        lab.steady(name);
    }
    let begin = Instant::now();
    for name in ["deaf", "stubborn", "heeds"] {
        lab.run(&format!("delete {name} -d")).done();
    }
    lab.gone("heeds");
    assert_eq!(lab.marks("signal"), ["heard"]);
    for name in ["deaf", "stubborn"] {
        lab.gone(name);
        assert!(begin.elapsed() >= Duration::from_secs(2), "{name} was killed early");
    }
    // An engine left to itself waits ten seconds.
    assert!(
        begin.elapsed() < Duration::from_secs(9),
        "they were killed late: {:?}",
        begin.elapsed()
    );
}

#[test]
fn a_process_is_given_its_grace_as_well() {
    let lab = Lab::process();
    let marks = lab.path("marks").display().to_string();
    let script =
        format!("trap 'sleep 1; echo $$VERSION >> {marks}/done; exit 0' TERM; sleep 600 & wait");
    let file = |version: &str, replicas: u32| {
        let lines = [
            sh(&script),
            "stop_grace_period: 60s".to_owned(),
            format!("environment: {{VERSION: '{version}'}}"),
            format!("deploy: {{replicas: {replicas}}}"),
            "networks: [default]".to_owned(),
        ];
        compose(&[("web", &lines.each_ref().map(String::as_str))])
    };
    lab.settle("shop", &file("1", 2));
    lab.settle("shop", &file("1", 1));
    lab.settle("shop", &file("2", 1));
    lab.run("restart shop").done();
    lab.run("delete shop").done();
    lab.gone("shop");
    assert_eq!(lab.marks("done"), ["1", "1", "2", "2"]);
}
