//! What the end of a replica means.

use plimsoll_model::spec::{Lifecycle, Mode, Retries};
use plimsoll_model::units::Millis;

use crate::case::{file, web};

fn job(limit: u32) -> Lifecycle {
    Lifecycle::Job(Retries { limit: Some(limit), delay: None })
}

const ANY: Retries = Retries { limit: None, delay: None };

#[test]
fn only_what_is_written_makes_an_end_a_success() {
    let slow = Retries { limit: Some(4), delay: Some(Millis::seconds(5)) };
    let policy = |text: &str| format!("deploy: {{restart_policy: {{{text}}}}}");
    for (keys, lifecycle) in [
        (String::new(), Lifecycle::Service),
        ("restart: always".to_owned(), Lifecycle::Service),
        ("restart: unless-stopped".to_owned(), Lifecycle::Service),
        ("restart: 'no'".to_owned(), job(0)),
        ("restart: on-failure".to_owned(), Lifecycle::Job(ANY)),
        ("restart: on-failure:3".to_owned(), job(3)),
        (policy("condition: any, max_attempts: 3"), Lifecycle::Service),
        (policy("max_attempts: 3"), Lifecycle::Service),
        (policy("condition: none, max_attempts: 3"), job(0)),
        (policy("condition: on-failure, max_attempts: 4, delay: 5s"), Lifecycle::Job(slow)),
        (policy("condition: on-failure, max_attempts: 0"), Lifecycle::Job(ANY)),
        (format!("restart: 'no'\n{}", policy("condition: any")), Lifecycle::Service),
        (format!("restart: always\n{}", policy("condition: none")), job(0)),
    ] {
        assert_eq!(web(&keys).service("web").lifecycle, lifecycle, "{keys}");
    }
}

#[test]
fn what_is_reached_or_checked_serves_until_it_ends() {
    for keys in [
        "restart: on-failure\nports: ['80']",
        "restart: on-failure\nhealthcheck: {test: 'true'}",
        "deploy: {restart_policy: {condition: on-failure}}\nports: ['80:80']",
    ] {
        assert_eq!(web(keys).service("web").lifecycle, Lifecycle::Finite(ANY), "{keys}");
    }
    let disabled = "restart: on-failure\nhealthcheck: {disable: true}";
    assert_eq!(web(disabled).service("web").lifecycle, Lifecycle::Job(ANY));
    let routed = "services:\n  web: {image: x, restart: on-failure}\n\
                  x-plimsoll: {routes: [{host: a.example, service: web, port: 80}]}\n";
    assert_eq!(file(routed).service("web").lifecycle, Lifecycle::Finite(ANY));
}

#[test]
fn modes_of_swarm_and_those_who_wait_make_jobs_of_anything() {
    let deploy = "deploy: {mode: replicated-job, replicas: 3}\nports: ['80']";
    let spec = web(deploy).service("web");
    assert_eq!(spec.placement.mode, Mode::Spread { replicas: 3 });
    assert_eq!(spec.lifecycle, Lifecycle::Job(ANY));
    let deploy = "deploy: {mode: global-job, restart_policy: {condition: none}}";
    let spec = web(deploy).service("web");
    assert_eq!((spec.placement.mode, spec.lifecycle), (Mode::Global, job(0)));
    let awaited = "services:\n  db: {image: x, restart: on-failure:1, ports: ['80']}\n  \
                   web: {image: x, depends_on: {db: {condition: service_completed_successfully}}}\n";
    assert_eq!(file(awaited).service("db").lifecycle, job(1));
    assert_eq!(file(awaited).service("web").lifecycle, Lifecycle::Service);
}

#[test]
fn a_word_that_restart_does_not_know_is_refused() {
    for text in ["never", "on-failure:many", "always:3"] {
        let message = "`restart` must be no, always, unless-stopped, on-failure or on-failure:3";
        let expected = format!("{message}, found {text:?}");
        assert_eq!(web(&format!("restart: {text}")).errors(), [expected], "{text}");
    }
}
