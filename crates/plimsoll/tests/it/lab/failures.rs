//! Containers that end by themselves: how often they are tried, and what ends it.

use super::compose::{sh, web};
use super::harness::{Lab, assignments, reason};

fn starts(lab: &Lab) -> usize {
    lab.marks("starts").len()
}

#[test]
fn three_failures_exhaust_a_replica_and_an_identical_apply_tries_it_again() {
    let Some(mut lab) = Lab::docker() else { return };
    let marks = format!("volumes: ['{}:/marks']", lab.path("marks").display());
    let script = "echo up >> /marks/starts; test -e /marks/cure || exit 3; sleep 600";
    let file = web(&[&sh(script), &marks, "stop_signal: SIGKILL"]);
    let revision = lab.apply("shop", &file);
    let is_exhausted =
        |it: &plimsoll_api::view::Deployment| reason(it, "restart_exhausted").is_some();
    let shop = lab.until("shop", "it is given up", is_exhausted);
    assert_eq!(assignments(&shop).map(|it| it.failures).collect::<Vec<_>>(), [3]);
    let text = reason(&shop, "restart_exhausted").unwrap();
    assert!(text.contains('3'), "{text}");
    assert_eq!(starts(&lab), 3, "each failure is counted once");

    lab.kill();
    lab.start();
    lab.until("shop", "it is still given up", is_exhausted);
    let said = lab.run_reading("apply -f - -p shop --timeout 60s", &file);
    assert_eq!((said.code, starts(&lab)), (1, 6), "tried anew, and given up again: {said:#?}");
    assert!(said.stderr.contains("restart_exhausted"), "{said:#?}");

    std::fs::write(lab.path("marks/cure"), "").unwrap();
    lab.run_reading("apply -f - -p shop --timeout 60s", &file).done();
    let shop = lab.steady("shop");
    assert_eq!((starts(&lab), shop.revision >= revision), (7, true));
}

#[test]
fn a_container_that_exits_once_counts_as_one_failure() {
    let Some(lab) = Lab::docker() else { return };
    let marks = format!("volumes: ['{}:/marks']", lab.path("marks").display());
    let script = "echo up >> /marks/starts; test -e /marks/once || { touch /marks/once; exit 7; }; \
                  trap 'exit 0' TERM; sleep 600 & wait";
    lab.apply("shop", &web(&[&sh(script), &marks]));
    let shop = lab.until("shop", "it exits", |it| reason(it, "exited").is_some());
    let text = reason(&shop, "exited").unwrap();
    assert!(text.contains('7'), "{text}");
    let shop = lab.steady("shop");
    assert_eq!(assignments(&shop).map(|it| it.failures).collect::<Vec<_>>(), [1]);
    assert_eq!(starts(&lab), 2);
}
