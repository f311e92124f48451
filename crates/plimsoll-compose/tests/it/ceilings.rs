//! The ceilings of a file are those of the API.

use crate::case::web;

#[test]
fn a_number_above_its_ceiling_is_refused_with_both() {
    for (keys, error) in [
        (
            "stop_grace_period: 3h",
            "service \"web\": stop_grace_period is 3h, at most 2h is allowed",
        ),
        (
            "healthcheck: {interval: 90m}",
            "service \"web\": healthcheck.interval is 1h 30m, at most 1h is allowed",
        ),
        (
            "deploy: {update_config: {delay: 2d}}",
            "service \"web\": update_config.delay is 2d, at most 1d is allowed",
        ),
        (
            "deploy: {replicas: 100001}",
            "`replicas` must be a whole number between 0 and 100000, found \"100001\"",
        ),
    ] {
        assert_eq!(web(keys).errors(), [error], "{keys}");
    }
    web("stop_grace_period: 2h").service("web");
}
