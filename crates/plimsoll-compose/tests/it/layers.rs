//! `-f a -f b`: later files laid over earlier ones.

use expect_test::expect;
use plimsoll_model::spec::ContainerSpec;

use crate::case::{file, service_web, web};

fn laid(base: &str, over: &str) -> ContainerSpec {
    web(base).over(&service_web(over)).container()
}

#[test]
fn single_values_and_commands_are_replaced() {
    let container = laid(
        "user: a\ncommand: [a, b]\nentrypoint: x\nhealthcheck: {test: [CMD, a, b], interval: 5s}",
        "user: b\ncommand: c\nentrypoint: [y, z]\nhealthcheck: {test: [CMD, c]}",
    );
    assert_eq!(container.user.as_deref(), Some("b"));
    assert_eq!(container.command.unwrap(), ["c"]);
    assert_eq!(container.entrypoint.unwrap(), ["y", "z"]);
    let check = container.healthcheck.unwrap();
    assert!(check.interval.is_some(), "the rest of the healthcheck stays");
    assert_eq!(format!("{:?}", check.test), "Command([\"c\"])");
}

#[test]
fn pairs_merge_by_name_in_either_form() {
    for (base, over) in [
        ("[A=1, B=1]", "[B=2, C=2]"),
        ("{A: 1, B: 1}", "{B: 2, C: 2}"),
        ("[A=1, B=1]", "{B: 2, C: 2}"),
        ("{A: 1, B: 1}", "[B=2, C=2]"),
    ] {
        let container = laid(
            &format!("environment: {base}\nlabels: {base}"),
            &format!("environment: {over}\nlabels: {over}"),
        );
        for pairs in [container.environment, container.labels] {
            let pairs: Vec<_> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
            assert_eq!(pairs, ["A=1", "B=2", "C=2"], "{base} under {over}");
        }
    }
}

#[test]
fn lists_grow() {
    let container = laid(
        "dns: 1.1.1.1\ncap_add: [A]\nexpose: [80]\nsecurity_opt: [a]\ntmpfs: /a",
        "dns: [8.8.8.8]\ncap_add: [B]\nexpose: ['81']\nsecurity_opt: [b]\ntmpfs: [/b]",
    );
    assert_eq!(container.dns, ["1.1.1.1", "8.8.8.8"]);
    assert_eq!(container.cap_add.len(), 2);
    assert_eq!(container.expose.len(), 2);
    assert_eq!(container.security_opt, ["a", "b"]);
    assert_eq!(container.mounts.len(), 2);
}

#[test]
fn items_with_an_identity_are_replaced() {
    let container = laid(
        "ports: ['80:80', '443:443']\nvolumes: ['/a:/x', '/b:/y']\ndevices: ['/dev/a:/dev/x']",
        "ports: [{target: 80, published: 80}, '444:443']\nvolumes: ['/c:/x:ro']\ndevices: ['/dev/b:/dev/x']",
    );
    let published: Vec<_> = container.ports.iter().filter_map(|port| port.published).collect();
    assert_eq!(published, [80, 443, 444]);
    assert_eq!(container.mounts.len(), 2);
    assert!(container.mounts[0].read_only, "the mount at /x is the later one");
    assert_eq!(container.devices.len(), 1);
    assert_eq!(container.devices[0].source, "/dev/b");
}

#[test]
fn dependencies_and_networks_merge_by_name() {
    let base = "\
services:
  web: {image: x, depends_on: [db], networks: [front]}
  db: {image: x}
networks: {front: , back: }
";
    let over = "\
services:
  web:
    depends_on: {db: {condition: service_healthy}, cache: {condition: service_started}}
    networks: {back: {aliases: [api]}}
  cache: {image: y}
";
    let service = file(base).over(over).service("web");
    assert_eq!(service.depends_on.len(), 2);
    assert_eq!(format!("{:?}", service.depends_on["db"]), "Healthy");
    assert_eq!(service.container.networks.into_keys().collect::<Vec<_>>(), ["back", "front"]);
}

#[test]
fn logging_of_another_driver_is_replaced_whole() {
    let base = "logging: {driver: json-file, options: {max-size: 1m}}";
    let same = laid(base, "logging: {options: {max-file: 3}}").logging.unwrap();
    assert_eq!(same.options.len(), 2);
    let other = laid(base, "logging: {driver: syslog}").logging.unwrap();
    assert!(other.options.is_empty());
}

#[test]
fn reset_takes_away_and_override_replaces() {
    let container = laid(
        "user: a\nports: ['80:80']\nenvironment: {A: '1', B: '2'}\ndns: [1.1.1.1]",
        "user: !reset null\nports: !override ['81:80']\nenvironment: {A: !reset null}\ndns: !reset []",
    );
    assert_eq!(container.user, None);
    assert_eq!(container.ports.len(), 1);
    assert_eq!(container.ports[0].published, Some(81));
    assert_eq!(container.environment.into_keys().collect::<Vec<_>>(), ["B"]);
    assert!(container.dns.is_empty());

    let container = web("environment: {A: '1'}")
        .over(&service_web("environment: !override {B: '2'}"))
        .over(&service_web("environment: {C: '3'}"))
        .container();
    assert_eq!(container.environment.into_keys().collect::<Vec<_>>(), ["B", "C"]);
}

#[test]
fn a_key_without_a_value_changes_nothing() {
    assert_eq!(laid("user: a", "user:").user.as_deref(), Some("a"));
    assert_eq!(laid("user:", "user: b").user.as_deref(), Some("b"));
}

#[test]
fn a_mistake_is_shown_in_the_file_that_makes_it() {
    let case =
        web("mem_limit: 1g").over(&service_web("memlimit: 2g")).over(&service_web("cpus: x"));
    expect![[r#"
        error: unknown key `memlimit` in a service
         --> over1.yaml:4:5
          |
        4 |     memlimit: 2g
          |     ^^^^^^^^
        hint: did you mean `mem_limit`?

        error: `cpus`: "x" is not a number of cpus; write 0.5 or 2
         --> over2.yaml:4:11
          |
        4 |     cpus: x
          |           ^
    "#]]
    .assert_eq(&case.refusal());
}

#[test]
fn values_that_cannot_be_merged_are_shown_in_both_files() {
    let case = web("healthcheck: {interval: 5s}").over(&service_web("healthcheck: [CMD, x]"));
    expect![[r#"
        error: a list cannot be merged with a mapping of an earlier file
         --> over1.yaml:4:18
          |
        4 |     healthcheck: [CMD, x]
          |                  ^^^^^^^^ this
          |
         ::: compose.yaml:4:18
          |
        4 |     healthcheck: {interval: 5s}
          |                  -------------- the earlier value
        hint: `!override` replaces the earlier value whole
    "#]]
    .assert_eq(&case.refusal());
}

#[test]
fn a_later_file_may_hold_a_part_only() {
    let case = web("user: a").over("services: {web: {user: b}}\n").over("x-note: nothing\n");
    assert_eq!(case.container().user.as_deref(), Some("b"));
}
