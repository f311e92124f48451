//! How many replicas, where, and how they change.

use expect_test::expect;
use plimsoll_model::spec::{
    Mode, OnFailure, Placement, ProxyProtocol, Replay, Reschedule, UpdateOrder, UpdatePolicy,
};
use plimsoll_model::units::Millis;

use crate::case::{file, web};

fn placement(keys: &str) -> Placement {
    web(keys).service("web").placement
}

#[test]
fn replicas_spread_unless_told_otherwise() {
    let hosts = ["ash", "birch"].map(|host| host.parse().unwrap()).into();
    for (keys, mode) in [
        ("", Mode::Spread { replicas: 1 }),
        ("scale: 2", Mode::Spread { replicas: 2 }),
        ("deploy: {replicas: '3'}", Mode::Spread { replicas: 3 }),
        ("scale: 3\ndeploy: {replicas: 3}", Mode::Spread { replicas: 3 }),
        ("deploy: {mode: replicated, replicas: 0}", Mode::Spread { replicas: 0 }),
        ("deploy: {mode: global}", Mode::Global),
        ("x-plimsoll: {placement: global}", Mode::Global),
        ("x-plimsoll: {placement: spread}", Mode::Spread { replicas: 1 }),
        ("x-plimsoll: {placement: pack}\nscale: 4", Mode::Pack { replicas: 4 }),
        ("x-plimsoll: {placement: binpack}\nscale: 4", Mode::Binpack { replicas: 4 }),
        (
            "x-plimsoll: {placement: hosts, hosts: [birch, ash]}\nscale: 2",
            Mode::Hosts { replicas: 2, hosts },
        ),
    ] {
        assert_eq!(placement(keys).mode, mode, "{keys}");
    }
}

#[test]
fn global_with_replicas_is_refused_with_the_exact_text() {
    let text = "service \"web\" uses placement=global; remove replicas (global runs one replica per ready node)";
    for keys in [
        "deploy: {mode: global, replicas: 2}",
        "deploy: {mode: global}\nscale: 1",
        "deploy: {replicas: 2}\nx-plimsoll: {placement: global}",
        "scale: 2\nx-plimsoll: {placement: global}",
    ] {
        assert_eq!(web(keys).errors(), [text], "{keys}");
    }
    expect![[r#"
        error: service "web" uses placement=global; remove replicas (global runs one replica per ready node)
         --> compose.yaml:6:7
          |
        6 |       replicas: 2
          |       ^^^^^^^^
    "#]].assert_eq(&web("deploy:\n  mode: global\n  replicas: 2").refusal());
}

#[test]
fn hosts_and_their_placement_need_each_other() {
    for (keys, error) in [
        ("x-plimsoll: {placement: hosts}", "`placement: hosts` needs `hosts`"),
        ("x-plimsoll: {placement: hosts, hosts: []}", "`hosts` names no node"),
        ("x-plimsoll: {placement: pack, hosts: [a]}", "`hosts` needs `placement: hosts`"),
        ("x-plimsoll: {hosts: [a]}", "`hosts` needs `placement: hosts`"),
        (
            "deploy: {mode: global}\nx-plimsoll: {placement: pack}",
            "`deploy.mode: global` and this placement conflict",
        ),
        ("scale: 2\ndeploy: {replicas: 3}", "`scale` and `deploy.replicas` conflict"),
        (
            "x-plimsoll: {placement: everywhere}",
            "`placement` must be spread, pack, binpack, hosts or global, found \"everywhere\"",
        ),
    ] {
        assert_eq!(web(keys).errors(), [error], "{keys}");
    }
}

#[test]
fn constraints_and_preferences_are_read() {
    let keys = "\
deploy:
  placement:
    max_replicas_per_node: 2
    constraints: [node.labels.disk == ssd, node.hostname != ash]
    preferences: [{spread: node.labels.zone}, {spread: node.labels.rack}]";
    let read = placement(keys);
    let constraints: Vec<_> = read.constraints.iter().map(ToString::to_string).collect();
    assert_eq!(constraints, ["node.hostname != ash", "node.labels.disk == ssd"]);
    assert_eq!(read.max_per_node, Some(2));
    assert_eq!(
        web(keys).warnings(),
        [
            "the preference for node.labels.rack is ignored: replicas are spread over zones and nodes"
        ]
    );
}

#[test]
fn a_constraint_that_cannot_be_met_says_what_to_write() {
    let keys = "\
deploy:
  placement:
    constraints:
      - node.role == boss
      - engine.labels.storage == ssd
      - node.colour == red
      - ssd";
    expect![[r#"
        error: "boss" is not a role
         --> compose.yaml:7:13
          |
        7 |           - node.role == boss
          |             ^^^^^^^^^^^^^^^^^
        hint: a node is a manager or a worker

        error: engine.labels.storage is an engine label, which plimsoll does not support
         --> compose.yaml:8:13
          |
        8 |           - engine.labels.storage == ssd
          |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        hint: label the node and write node.labels.storage

        error: a node has no "node.colour"
         --> compose.yaml:9:13
          |
        9 |           - node.colour == red
          |             ^^^^^^^^^^^^^^^^^^
        hint: a constraint looks at node.labels.*, node.role, node.hostname, node.id, node.zone, node.platform.os or node.platform.arch

        error: "ssd" is not a constraint
          --> compose.yaml:10:13
           |
        10 |           - ssd
           |             ^^^
        hint: write node.labels.disk == ssd, or != for any other
    "#]].assert_eq(&web(keys).refusal());
}

#[test]
fn x_plimsoll_says_what_compose_has_no_word_for() {
    let service = web("x-plimsoll: {priority: -5, reschedule: never, interruption_penalty: 80}");
    let service = service.service("web");
    assert_eq!((service.priority, service.interruption_penalty), (-5, 80));
    assert_eq!(service.reschedule, Reschedule::Never);
    let service = web("x-plimsoll: {reschedule: '250', x-note: mine}").service("web");
    assert_eq!(service.reschedule, Reschedule::Above(250));
    let plain = web("x-plimsoll: {}").service("web");
    let service = web("x-plimsoll: {reschedule: {threshold: 100}}").service("web");
    assert_eq!(service.reschedule, Reschedule::Above(100));
    assert_eq!(service.hash, plain.hash, "it steers plimsoll, and no container");
    for (keys, error) in [
        (
            "x-plimsoll: {reschedule: often}",
            "`reschedule` must be never, or {threshold: N} with N between 0 and 10000, found \"often\"",
        ),
        (
            "x-plimsoll: {reschedule: {threshold: 10001}}",
            "`threshold` must be a whole number between 0 and 10000, found \"10001\"",
        ),
        (
            "x-plimsoll: {reschedule: 10001}",
            "`reschedule` must be a whole number between 0 and 10000, found \"10001\"",
        ),
        (
            "x-plimsoll: {interruption_penalty: 101}",
            "`interruption_penalty` must be a whole number between 0 and 100, found \"101\"",
        ),
        ("x-plimsoll: {replay: sometimes}", "`replay` must be true or false, found \"sometimes\""),
        ("x-plimsoll: yes", "`x-plimsoll` must be a mapping, found a single value"),
    ] {
        assert_eq!(web(keys).errors(), [error], "{keys}");
    }
}

#[test]
fn replays_are_on_until_they_are_switched_off_which_recreates_nothing() {
    let plain = web("").service("web");
    assert_eq!(plain.replay, Replay::On);
    for (value, expected) in [
        ("off", Replay::Off),
        ("'off'", Replay::Off),
        ("false", Replay::Off),
        ("on", Replay::On),
        ("'on'", Replay::On),
        ("true", Replay::On),
    ] {
        let service = web(&format!("x-plimsoll: {{replay: {value}}}")).service("web");
        assert_eq!((service.replay, service.hash), (expected, plain.hash), "{value}");
    }
}

#[test]
fn a_published_port_may_ask_for_the_addresses_of_its_clients() {
    let port = |keys: &str| web(&format!("ports: [{{target: 80, published: 8080, {keys}}}]"));
    let plain = port("name: http").service("web");
    let proxied = port("x-plimsoll: {proxy_protocol: v2}").service("web");
    assert_eq!(plain.container.ports[0].proxy_protocol, None);
    assert_eq!(proxied.container.ports[0].proxy_protocol, Some(ProxyProtocol::V2));
    assert_eq!(proxied.container.proxied_ports(), [80].into());
    assert_ne!(proxied.hash, plain.hash, "its server must expect it from the first connection");
    for (keys, error) in [
        ("x-plimsoll: {proxy_protocol: v1}", "`proxy_protocol` must be v2, found \"v1\""),
        (
            "x-plimsoll: {proxy_protcol: v2}",
            "unknown key `proxy_protcol` in x-plimsoll of an entry of ports",
        ),
        (
            "protocol: udp, x-plimsoll: {proxy_protocol: v2}",
            "`proxy_protocol` is for TCP, and this port is udp",
        ),
        ("mode: host, x-plimsoll: {proxy_protocol: v2}", "`proxy_protocol` needs `mode: ingress`"),
    ] {
        assert_eq!(port(keys).errors(), [error], "{keys}");
    }
}

#[test]
fn a_port_of_a_container_has_clients_addresses_from_everybody_or_from_nobody() {
    let proxied = "{target: 80, published: 8080, x-plimsoll: {proxy_protocol: v2}}";
    let mixed = web(&format!("ports: ['8081:80', {proxied}]"));
    assert_eq!(mixed.errors(), ["port 80 is published with and without `proxy_protocol`"]);
    let routed = format!(
        "services: {{web: {{image: x, ports: [{proxied}]}}}}\nx-plimsoll: {{routes: [{{service: web, port: 80}}]}}\n"
    );
    let led = "a route leads to port 80, which is published with proxy_protocol";
    assert_eq!(file(routed).errors(), [led]);
}

#[test]
fn a_change_rolls_one_replica_at_a_time_and_rolls_back() {
    assert_eq!(web("").service("web").update, UpdatePolicy::default());
    let keys = "\
deploy:
  update_config:
    parallelism: 2
    delay: 10s
    order: stop-first
    failure_action: pause
    monitor: 1m
    max_failure_ratio: 0.25";
    let update = web(keys).service("web").update;
    let expected = UpdatePolicy {
        parallelism: 2,
        delay: Millis::seconds(10),
        order: UpdateOrder::StopFirst,
        on_failure: OnFailure::Pause,
        monitor: Millis::minutes(1),
        max_failure_millionths: 250_000,
    };
    assert_eq!(update, expected);
    let all = web("deploy: {update_config: {parallelism: 0}}").service("web").update;
    assert_eq!(all.parallelism, u32::MAX, "Compose's 0 is all of them");
    for ratio in ["1.1", "-0.1", "half", "."] {
        let keys = format!("deploy: {{update_config: {{max_failure_ratio: '{ratio}'}}}}");
        assert_eq!(web(&keys).errors().len(), 1, "{ratio}");
    }
}
