//! Services that wait for others, and jobs that others wait for.

use std::fs;

use plimsoll_api::view::ReasonCode;

use super::compose::{compose, sh};
use super::harness::{Lab, replicas};

fn file(lab: &Lab) -> String {
    let marks = format!("volumes: ['{}:/marks']", lab.path("marks").display());
    let check =
        "healthcheck: {test: [CMD-SHELL, 'test -e /marks/well'], interval: 100ms, retries: 1000}";
    let job = sh(
        "echo ran >> /marks/job; until test -e /marks/go; do sleep 0.1; done; echo done >> /marks/job",
    );
    let app = sh("echo up >> /marks/app; trap 'exit 0' TERM; sleep 600 & wait");
    compose(&[
        ("db", &[&marks, check]),
        (
            "job",
            &[
                &marks,
                &job,
                "healthcheck: {disable: true}",
                "depends_on: {db: {condition: service_healthy}}",
            ],
        ),
        ("app", &[&marks, &app, "depends_on: {job: {condition: service_completed_successfully}}"]),
    ])
}

#[test]
fn services_start_once_what_they_depend_on_is_healthy_or_done() {
    let Some(mut lab) = Lab::docker() else { return };
    let file = file(&lab);
    let revision = lab.apply("shop", &file);
    let waits = |service: &'static str| {
        move |it: &plimsoll_api::view::Deployment| {
            let now = replicas(it, service).iter().filter_map(|replica| replica.now.as_ref());
            let mut reasons = now.filter_map(|now| now.reason.as_ref());
            reasons.any(|reason| reason.word == ReasonCode::AwaitsService)
        }
    };
    lab.until("shop", "the job waits", waits("job"));
    lab.until("shop", "the app waits", waits("app"));
    let found = lab.wait_found("the database runs", |found| !found.is_empty());
    assert_eq!(found.len(), 1, "nothing else has begun: {found:#?}");
    assert_eq!(found[0].service(), "shop/db");

    fs::write(lab.path("marks/well"), "").unwrap();
    lab.wait_for("the job runs", || !lab.marks("job").is_empty());
    lab.until("shop", "the app waits on", waits("app"));
    assert_eq!(lab.marks("app"), [""; 0]);

    fs::write(lab.path("marks/go"), "").unwrap();
    lab.steady_at("shop", revision);
    assert_eq!(
        (lab.marks("app"), lab.marks("job")),
        (vec!["up".into()], vec!["ran".into(), "done".into()])
    );

    lab.kill();
    lab.start();
    lab.steady_at("shop", revision);
    lab.run_reading("apply -f - -p shop --timeout 60s", &file).done();
    assert_eq!(lab.marks("job").len(), 2, "a job that is done is not done again");
    assert_eq!(lab.marks("app").len(), 1);
}

#[test]
fn a_job_that_ends_while_the_daemon_is_down_is_not_run_again() {
    let Some(mut lab) = Lab::docker() else { return };
    fs::write(lab.path("marks/well"), "").unwrap();
    let revision = lab.apply("shop", &file(&lab));
    lab.wait_for("the job runs", || !lab.marks("job").is_empty());
    lab.kill();
    fs::write(lab.path("marks/go"), "").unwrap();
    lab.wait_found("it ends", |found| {
        found.iter().all(|one| one.is_running != (one.service() == "shop/job"))
    });
    lab.start();
    lab.steady_at("shop", revision);
    assert_eq!(lab.marks("job"), ["ran", "done"]);
    assert_eq!(lab.marks("app"), ["up"]);
}
