//! Cases that can be read but cannot be: each is refused at its line, with what to do about it.

use expect_test::expect;

use crate::run::{directory, plimsoll_reading};

fn decide(case: &str) -> String {
    plimsoll_reading("decide place --input -", case).text()
}

#[test]
fn a_case_that_names_something_twice() {
    let nodes = "\
nodes:
  - {name: ash, cpus: 4, memory: 8gb}
  - {name: ash, cpus: 2, memory: 4gb}
";
    expect![[r#"
        exit 1
        --- stderr
        error: node ash is there twice, first on line 2
         --> <stdin>:3:12
          |
        3 |   - {name: ash, cpus: 2, memory: 4gb}
          |            ^^^
        hint: give one of them another name

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&decide(nodes));
    let deployments = "\
nodes: []
deployments:
  - {name: shop, services: {web: {}}}
  - {name: shop, services: {api: {}}}
";
    expect![[r#"
        exit 1
        --- stderr
        error: deployment shop is there twice
         --> <stdin>:4:5
          |
        4 |   - {name: shop, services: {api: {}}}
          |     ^
        hint: give one of them another `name`

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&decide(deployments));
    let replicas = "\
nodes: [{name: ash, cpus: 4, memory: 8gb}]
deployments: [{name: shop, services: {web: {replicas: 2}}}]
replicas:
  - {service: shop/web, index: 1, node: ash}
  - {service: shop/web, index: 1, node: ash}
";
    expect![[r#"
        exit 1
        --- stderr
        error: replica shop-web-1 exists already
         --> <stdin>:5:32
          |
        5 |   - {service: shop/web, index: 1, node: ash}
          |                                ^
        hint: give one of them another `index`

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&decide(replicas));
}

const CELL: &str = "\
nodes: [{name: ash, cpus: 4, memory: 8gb}]
deployments: [{name: shop, services: {web: {}, agent: {placement: global}}}]
replicas:
";

#[test]
fn a_replica_of_what_is_not_there() {
    let with = |replica: &str| decide(&format!("{CELL}  - {replica}\n"));
    expect![[r#"
        exit 1
        --- stderr
        error: there is no node ahs
         --> <stdin>:4:41
          |
        4 |   - {service: shop/web, index: 1, node: ahs}
          |                                         ^^^
        hint: did you mean ash?

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("{service: shop/web, index: 1, node: ahs}"));
    expect![[r#"
        exit 1
        --- stderr
        error: there is no service shop/wbe
         --> <stdin>:4:15
          |
        4 |   - {service: shop/wbe, index: 1, node: ash}
          |               ^^^^^^^^
        hint: did you mean shop/web or shop/agent?

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("{service: shop/wbe, index: 1, node: ash}"));
    expect![[r#"
        exit 1
        --- stderr
        error: "web" does not name a service; write deployment/service
         --> <stdin>:4:15
          |
        4 |   - {service: web, index: 1, node: ash}
          |               ^^^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("{service: web, index: 1, node: ash}"));
    expect![[r#"
        exit 1
        --- stderr
        error: shop/agent is global: its replicas are named after their nodes
         --> <stdin>:4:34
          |
        4 |   - {service: shop/agent, index: 1, node: ash}
          |                                  ^
        hint: remove `index`

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("{service: shop/agent, index: 1, node: ash}"));
}

#[test]
fn two_replicas_that_hold_one_port() {
    let case = "\
nodes: [{name: ash, cpus: 4, memory: 8gb}]
deployments: [{name: shop, services: {web: {replicas: 2, host_ports: [80]}}}]
replicas:
  - {service: shop/web, index: 1, node: ash}
  - {service: shop/web, index: 2, node: ash}
";
    expect![[r#"
        exit 1
        --- stderr
        error: shop-web-2 cannot run on ash: shop-web-1 holds 80/tcp
         --> <stdin>:5:41
          |
        5 |   - {service: shop/web, index: 2, node: ash}
          |                                         ^^^
        hint: put one of them on another node

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&decide(case));
}

#[test]
fn a_deployment_that_makes_no_sense() {
    expect![[r#"
        exit 1
        --- stderr
        error: the deployment says nothing of its services
         --> <stdin>:3:5
          |
        3 |   - name: shop
          |     ^
        hint: name a compose file with `compose:`, or write `services:` here

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&decide("nodes: []\ndeployments:\n  - name: shop\n"));
    expect![[r#"
        exit 1
        --- stderr
        error: the deployment has no `name`
         --> <stdin>:3:5
          |
        3 |   - services: {web: {}}
          |     ^
        hint: add `name: shop`

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&decide("nodes: []\ndeployments:\n  - services: {web: {}}\n"));
    expect![[r#"
        exit 1
        --- stderr
        error: there is no file examples/shp.yaml
         --> <stdin>:3:14
          |
        3 |   - compose: examples/shp.yaml
          |              ^^^^^^^^^^^^^^^^^
        hint: did you mean examples/shop.yaml?

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&decide("nodes: []\ndeployments:\n  - compose: examples/shp.yaml\n"));
    let global = "\
nodes: []
deployments:
  - name: shop
    services:
      agent: {placement: global, replicas: 2}
";
    expect![[r#"
        exit 1
        --- stderr
        error: service "agent" uses placement=global; remove replicas (global runs one replica per ready node)
         --> <stdin>:5:14
          |
        5 |       agent: {placement: global, replicas: 2}
          |              ^

        refused: 1 error in <stdin>
    "#]].assert_eq(&decide(global));
    let constraint = "\
nodes: []
deployments:
  - name: shop
    services:
      web: {constraints: [node.rank == manager]}
";
    expect![[r#"
        exit 1
        --- stderr
        error: service web: a node has no "node.rank"
         --> <stdin>:5:12
          |
        5 |       web: {constraints: [node.rank == manager]}
          |            ^
        hint: a constraint looks at node.labels.*, node.role, node.hostname, node.id, node.zone, node.platform.os or node.platform.arch

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&decide(constraint));
}

#[test]
fn mistakes_in_a_compose_file_of_a_case_are_shown_where_they_are() {
    let case = "nodes: []\ndeployments:\n  - compose: bad.yaml\n";
    let bad = "services:\n  web:\n    imag: nginx\n";
    let here = directory("refusals_compose", [("case.yaml", case), ("bad.yaml", bad)]);
    expect![[r#"
        exit 1
        --- stderr
        error: service "web" has no image
         --> bad.yaml:2:3
          |
        2 |   web:
          |   ^^^
        hint: add `image: name:tag`

        error: unknown key `imag` in a service
         --> bad.yaml:3:5
          |
        3 |     imag: nginx
          |     ^^^^
        hint: did you mean `image`?

        refused: 2 errors in bad.yaml
    "#]]
    .assert_eq(&here.run("decide place --input case.yaml").text());
}
