//! What makes a container anew, and what leaves it alone.

use super::compose::web;
use super::harness::Lab;

#[test]
fn only_what_a_container_is_made_of_makes_it_anew() {
    let Some(lab) = Lab::docker() else { return };
    let file = |value: &str, replicas: u32| {
        let environment = format!("environment: {{TOKEN: {value}, COLOUR: blue}}");
        let deploy = format!("deploy: {{replicas: {replicas}}}");
        web(&[&environment, "labels: {a: '1', b: '2'}", &deploy])
    };
    lab.settle("shop", &file("first", 2));
    let first = lab.running("shop/web");
    assert_eq!(first.len(), 2);

    let again = "# A comment, another order and another hand.
services:
    web:
        deploy:
            replicas: 2
        labels:
            - b=2
            - \"a=1\"
        environment:
            # and one more
            - COLOUR=blue
            - 'TOKEN=first'
        network_mode: \"none\"
        healthcheck:
            start_interval: 0.1s
            start_period: 300s
            interval: 300s
            test: [\"CMD\", \"true\"]
        command:
            - sh
            - -c
            - trap 'exit 0' TERM; sleep 600 & wait
        image: plimsoll-test:1
";
    lab.settle("shop", again);
    assert_eq!(lab.found(), first, "the same file in other words");

    lab.settle("shop", &file("first", 3));
    let three = lab.running("shop/web");
    assert_eq!(three.len(), 3);
    assert!(first.iter().all(|one| three.contains(one)), "the two are left alone: {three:#?}");

    lab.settle("shop", &file("second", 3));
    let rotated = lab.wait_found("the old ones are gone", |found| found.len() == 3);
    for one in &rotated {
        assert!(three.iter().all(|old| old.id != one.id), "{one:?} has the old value");
        let environment = lab.inspect(&[&one.id])[0]["Config"]["Env"].to_string();
        assert!(environment.contains("TOKEN=second"), "{environment}");
    }
    lab.run("scale shop web=1").done();
    let left = lab.wait_found("one is left", |found| found.len() == 1);
    assert!(rotated.contains(&left[0]), "{left:?}");
}
