//! A daemon that goes and comes back, while its replicas stay.

use super::compose::{compose, sh};
use super::harness::{Lab, assignments};

#[test]
fn a_daemon_that_is_stopped_leaves_its_containers_to_the_next() {
    let Some(lab) = Lab::docker() else { return };
    comes_back(lab, &["deploy: {replicas: 2}"], &["deploy: {replicas: 1}"]);
}

#[test]
fn a_daemon_that_is_stopped_leaves_its_processes_to_the_next() {
    let network = "networks: [default]";
    comes_back(Lab::process(), &["deploy: {replicas: 2}", network], &[network]);
}

fn comes_back(mut lab: Lab, web: &[&str], db: &[&str]) {
    let file = compose(&[("web", web), ("db", db)]);
    let revision = lab.apply("shop", &file);
    lab.steady_at("shop", revision);
    let before = lab.runs(3);
    for stop in [Lab::stop, Lab::kill] {
        stop(&mut lab);
        lab.still_has(&before, "they run on without it");
        lab.start();
        lab.steady_at("shop", revision);
        lab.still_has(&before, "they are adopted as they are");
    }
    lab.run_reading("apply -f - -p shop --timeout 60s", &file).done();
    lab.still_has(&before, "nothing to do");
    assert!(lab.said().contains("replicas keep running"), "{}", lab.said());
}

#[test]
fn what_ended_while_nobody_watched_is_started_again_once() {
    let Some(mut lab) = Lab::docker() else { return };
    let marks = format!("volumes: ['{}:/marks']", lab.path("marks").display());
    let script = "echo up >> /marks/starts; trap 'exit 0' TERM; \
                  until test -e /marks/end; do sleep 0.1; done; rm /marks/end; exit 9";
    let service = sh(script);
    lab.settle("shop", &compose(&[("web", &[&service, &marks])]));
    lab.kill();
    std::fs::write(lab.path("marks/end"), "").unwrap();
    lab.wait_found("it ends", |found| found.iter().all(|one| !one.is_running));
    lab.start();
    lab.wait_for("it is started again", || lab.marks("starts").len() == 2);
    let shop = lab.steady("shop");
    // A host that went down takes everything along: that is nobody's failure.
    assert_eq!(assignments(&shop).map(|it| it.failures).collect::<Vec<_>>(), [0]);
    assert_eq!((lab.marks("starts").len(), lab.found().len()), (2, 1));
}
