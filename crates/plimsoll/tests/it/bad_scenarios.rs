//! Scenarios that cannot be: each is refused at its line, with what to do about it, before anything runs.

use expect_test::expect;

use crate::run::{directory, plimsoll, plimsoll_reading};

fn run(scenario: &str) -> String {
    plimsoll_reading("sim run -", scenario).text()
}

const CELL: &str = "\
length: 1h
nodes: [{name: ash, cpus: 4, memory: 8gb}, {name: birch, cpus: 4, memory: 8gb}]
deployments: [{name: shop, services: {web: {image: \"web:1\"}}}]
";

pub(crate) fn with(more: &str) -> String {
    run(&format!("{CELL}{more}\n"))
}

#[test]
fn a_scenario_that_lacks_what_it_needs() {
    expect![[r#"
        exit 1
        --- stderr
        error: the file is empty
        --> <stdin>
        hint: a scenario has at least `length:` and `nodes:`

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&run(""));
    expect![[r#"
        exit 1
        --- stderr
        error: `length` is missing
         --> <stdin>:1:1
          |
        1 | nodes: []
          | ^^^^^
        hint: a full example is in docs/reference/scenario-format.md

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&run("nodes: []\n"));
    expect![[r#"
        exit 1
        --- stderr
        error: there are no nodes
         --> <stdin>:2:8
          |
        2 | nodes: []
          |        ^
        hint: add one: `{name: ash, cpus: 4, memory: 8gb}`

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&run("length: 1h\nnodes: []\n"));
}

#[test]
fn a_scenario_beyond_its_bounds() {
    expect![[r#"
        exit 1
        --- stderr
        error: `cycle` must be between 1s and 1m, found 5m
         --> <stdin>:4:8
          |
        4 | cycle: 5m
          |        ^^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("cycle: 5m"));
    expect![[r#"
        exit 1
        --- stderr
        error: 2h is after the end: the scenario lasts 1h
         --> <stdin>:4:16
          |
        4 | chaos: {until: 2h}
          |                ^^
        hint: let it happen earlier, or make `length` longer

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("chaos: {until: 2h}"));
    expect![[r#"
        exit 1
        --- stderr
        error: chaos may strike at most 100000 times
         --> <stdin>:4:27
          |
        4 | chaos: {until: 1h, every: 1ms}
          |                           ^^^
        hint: let it strike less often, or end earlier

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("chaos: {until: 1h, every: 1ms}"));
    expect![[r#"
        exit 1
        --- stderr
        error: this takes at least 1ms and at most 1h
         --> <stdin>:4:15
          |
        4 | takes: {stop: 2h}
          |               ^^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("takes: {stop: 2h}"));
}

#[test]
fn chaos_beyond_its_bounds() {
    expect![[r#"
        exit 1
        --- stderr
        error: `outage` is 69993d, at most 366d is allowed
         --> <stdin>:4:28
          |
        4 | chaos: {until: 1h, outage: 1s..9999w}
          |                            ^^^^^^^^^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("chaos: {until: 1h, outage: 1s..9999w}"));
}

#[test]
fn a_length_beyond_its_bounds() {
    expect![[r#"
        exit 1
        --- stderr
        error: `length` must be more than nothing and at most 366d
         --> <stdin>:1:9
          |
        1 | length: 400d
          |         ^^^^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&run("length: 400d\nnodes: []\n"));
    expect![[r#"
        exit 1
        --- stderr
        error: `length` must be more than nothing and at most 366d
         --> <stdin>:1:9
          |
        1 | length: 0s
          |         ^^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&run("length: 0s\nnodes: []\n"));
    expect![[r#"
        exit 1
        --- stderr
        error: "2" is not a duration; write 30s, 1m30s or 500ms
         --> <stdin>:1:9
          |
        1 | length: 2
          |         ^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&run("length: 2\nnodes: []\n"));
}

#[test]
fn nodes_that_are_none() {
    expect![[r#"
        exit 1
        --- stderr
        error: `count` must be between 1 and 100000, found 0
         --> <stdin>:2:26
          |
        2 | nodes: [{name: w, count: 0, cpus: 1, memory: 1gb}]
          |                          ^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&run("length: 2h\nnodes: [{name: w, count: 0, cpus: 1, memory: 1gb}]\n"));
    expect![[r#"
        exit 1
        --- stderr
        error: `count` must be between 1 and 100000, found 100001
         --> <stdin>:2:26
          |
        2 | nodes: [{name: w, count: 100001, cpus: 1, memory: 1gb}]
          |                          ^^^^^^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&run("length: 2h\nnodes: [{name: w, count: 100001, cpus: 1, memory: 1gb}]\n"));
    expect![[r#"
        exit 1
        --- stderr
        error: `zones` deals zones to several nodes, and w is one
         --> <stdin>:2:26
          |
        2 | nodes: [{name: w, zones: [a], cpus: 1, memory: 1gb}]
          |                          ^
        hint: write `zone`, or say how many nodes with `count`

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&run("length: 2h\nnodes: [{name: w, zones: [a], cpus: 1, memory: 1gb}]\n"));
    expect![[r#"
        exit 1
        --- stderr
        error: the node has both `zone` and `zones`
         --> <stdin>:2:35
          |
        2 | nodes: [{name: w, zone: a, zones: [b], count: 2, cpus: 1, memory: 1gb}]
          |                                   ^
        hint: keep one of the two

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&run(
        "length: 2h\nnodes: [{name: w, zone: a, zones: [b], count: 2, cpus: 1, memory: 1gb}]\n",
    ));
    expect![[r#"
        exit 1
        --- stderr
        error: `status` says how a node is now, and a scenario begins afresh
         --> <stdin>:2:27
          |
        2 | nodes: [{name: w, status: down, cpus: 1, memory: 1gb}]
          |                           ^^^^
        hint: let it happen: `events: [{at: 10m, drain: ash}]`, or give `usage`

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&run("length: 2h\nnodes: [{name: w, status: down, cpus: 1, memory: 1gb}]\n"));
}

#[test]
fn a_compose_file_is_looked_for_beside_the_scenario() {
    let scenario = "length: 1h\nnodes: [{name: ash, cpus: 1, memory: 1gb}]\n\
                    deployments: [{compose: shp.yaml}]\n";
    let shop = "services: {web: {image: nginx}}\n";
    let here = directory("sim_beside", [("some/a.yaml", scenario), ("some/shop.yaml", shop)]);
    expect![[r#"
        exit 1
        --- stderr
        error: there is no file some/shp.yaml
         --> some/a.yaml:3:25
          |
        3 | deployments: [{compose: shp.yaml}]
          |                         ^^^^^^^^
        hint: did you mean some/shop.yaml?

        refused: 1 error in some/a.yaml
    "#]]
    .assert_eq(&here.run("sim run some/a.yaml").text());
}

#[test]
fn a_scenario_that_is_not_there() {
    expect![[r#"
        exit 1
        --- stderr
        error: there is no file scenarios/lost-nod.yaml
        hint: did you mean scenarios/lost-node.yaml?
    "#]]
    .assert_eq(&plimsoll("sim run scenarios/lost-nod.yaml").text());
}

#[test]
fn a_scenario_that_multiplies_itself_is_refused_in_bounded_time() {
    let nested = format!("{CELL}events: {}", "[".repeat(100_000));
    assert_eq!(plimsoll_reading("sim run -", &nested).code(), 1);
    let many = "  - {at: 1m, new_leader: true}\n".repeat(10_001);
    let ran = plimsoll_reading("sim run -", &format!("{CELL}events:\n{many}"));
    assert_eq!(ran.code(), 1);
    assert!(ran.stderr().starts_with("error: more than 10000 things happen\n"), "{}", ran.text());
}
