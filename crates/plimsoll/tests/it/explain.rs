//! `plimsoll explain`.

use expect_test::expect;

use crate::run::{plimsoll, plimsoll_reading};

const CELL: &str = "\
nodes:
  - {name: ash, cpus: 2, memory: 4gb, zone: a, labels: {disk: ssd}}
  - {name: birch, cpus: 2, memory: 4gb, zone: a, availability: draining}
  - {name: cedar, cpus: 2, memory: 4gb, zone: b, labels: {disk: ssd}}
  - {name: dogwood, cpus: 2, memory: 4gb, zone: b, status: down}
  - {name: elm, cpus: 2, memory: 4gb, zone: b, status: down, down_for: 1s}
deployments:
  - name: shop
    services:
      web: {replicas: 3, reserve: {cpus: 0.5}}
      db: {volumes: [data], constraints: [node.labels.disk == ssd]}
      train: {replicas: 2, reserve: {gpus: 1}}
      pin: {replicas: 2, placement: hosts, hosts: [ash, dogwood]}
  - name: mon
    services:
      agent: {placement: global, host_ports: [9100]}
replicas:
  - {service: shop/web, index: 1, node: birch}
  - {service: shop/web, index: 2, node: elm}
  - {service: shop/db, index: 1, node: dogwood}
  - {service: mon/agent, node: ash}
  - {service: mon/agent, node: birch}
";

fn explain(subject: &str) -> String {
    plimsoll_reading(&format!("explain {subject} --input -"), CELL).text()
}

#[test]
fn a_placed_replica_shows_every_node_as_it_was_when_its_turn_came() {
    let ran = plimsoll("explain shop-web-2 --input examples/cell.yaml");
    expect![[r#"
        exit 0
        --- stdout
        shop-web-2 goes to cedar: the best of 4 nodes that can take it, with score 10000
          cedar    10000  zone 7545, node 1845, headroom 410, preferred 200; chosen
          dogwood  9795   zone 7545, node 1845, headroom 205, preferred 200
          birch    7485   zone 5030, node 1845, headroom 410, preferred 200
          ash      6870   zone 5030, node 1230, headroom 410, preferred 200; has 1 of shop/web
    "#]]
    .assert_eq(&ran.text());
    let ran = plimsoll("explain shop-web-3 --input examples/cell.yaml");
    expect![[r#"
        exit 0
        --- stdout
        shop-web-3 goes to birch: the best of 4 nodes that can take it, with score 10000
          birch    10000  zone 7545, node 1845, headroom 410, preferred 200; chosen
          dogwood  9795   zone 7545, node 1845, headroom 205, preferred 200
          cedar    9385   zone 7545, node 1230, headroom 410, preferred 200; has 1 of shop/web
          ash      9385   zone 7545, node 1230, headroom 410, preferred 200; has 1 of shop/web
    "#]]
    .assert_eq(&ran.text());
}

#[test]
fn a_replica_that_stays_says_why_it_is_not_moved() {
    let ran = plimsoll("explain shop-db-1 --input examples/cell.yaml");
    expect![[r#"
        exit 0
        --- stdout
        shop-db-1 stays on ash: existing placements on eligible nodes stay
          ash      10000       zone 7545, node 1845, headroom 410, preferred 200; here
          birch    not_listed  not among the service's hosts
          cedar    not_listed  not among the service's hosts
          dogwood  not_listed  not among the service's hosts
    "#]]
    .assert_eq(&ran.text());
    expect![[r#"
        exit 0
        --- stdout
        shop-db-1 stays on dogwood: its data lives on its node
          ash      volume_elsewhere  volume shop_data is on dogwood
          birch    draining          it is being drained
          cedar    volume_elsewhere  volume shop_data is on dogwood
          dogwood  not_ready         the node is down; here
          elm      not_ready         the node is down
    "#]]
    .assert_eq(&explain("shop-db-1"));
    expect![[r#"
        exit 0
        --- stdout
        shop-web-2 stays on elm: its node is down; it is replaced in 2s unless it returns
          ash      10000      zone 7545, node 1845, headroom 410, preferred 200; has 1 of shop/web
          cedar    10000      zone 7545, node 1845, headroom 410, preferred 200; has 1 of shop/web
          birch    draining   it is being drained
          dogwood  not_ready  the node is down
          elm      not_ready  the node is down; here
    "#]]
    .assert_eq(&explain("shop-web-2"));
}

#[test]
fn a_replica_that_moves_says_what_is_wrong_where_it_was() {
    expect![[r#"
        exit 0
        --- stdout
        shop-web-1 moves from birch to ash: birch is being drained, and ash is the best of 2 nodes that can take it, with score 10000
          ash      10000      zone 7545, node 1845, headroom 410, preferred 200; chosen
          cedar    7485       zone 5030, node 1845, headroom 410, preferred 200
          birch    draining   it is being drained
          dogwood  not_ready  the node is down
          elm      not_ready  the node is down
    "#]].assert_eq(&explain("shop-web-1"));
}

#[test]
fn a_service_without_room_shows_every_filter() {
    expect![[r#"
        exit 0
        --- stdout
        shop/train lacks 2 replicas: 0 of 5 nodes can take it: 2 not_ready, 1 draining, 2 no_gpu
          ash      no_gpu     asks for 1 gpu, the node has 0
          birch    draining   it is being drained
          cedar    no_gpu     asks for 1 gpu, the node has 0
          dogwood  not_ready  the node is down
          elm      not_ready  the node is down
    "#]]
    .assert_eq(&explain("shop/train"));
    expect![[r#"
        exit 0
        --- stdout
        shop/pin lacks 2 replicas: needs 2 ready hosts; missing: dogwood
          ash      10000       zone 7545, node 1845, headroom 410, preferred 200
          birch    draining    it is being drained
          cedar    not_listed  not among the service's hosts
          dogwood  not_ready   the node is down
          elm      not_ready   the node is down
    "#]]
    .assert_eq(&explain("shop/pin"));
}

#[test]
fn a_complete_service_says_where_the_next_replica_would_go() {
    let ran = plimsoll("explain shop/web --input examples/cell.yaml");
    expect![[r#"
        exit 0
        --- stdout
        shop/web is complete with 3 replicas: the next would go to dogwood, the best of 4 nodes that can take it, with score 9795
          dogwood  9795  zone 7545, node 1845, headroom 205, preferred 200
          cedar    9385  zone 7545, node 1230, headroom 410, preferred 200; has 1 of shop/web
          ash      7485  zone 5030, node 1845, headroom 410, preferred 200; has 1 of shop/web
          birch    7485  zone 5030, node 1845, headroom 410, preferred 200; has 1 of shop/web
    "#]].assert_eq(&ran.text());
}

#[test]
fn global_has_no_score() {
    expect![[r#"
        exit 0
        --- stdout
        mon/agent is complete with 2 replicas: one on every node that may hold it
          ash      holds      mon-agent-ash
          birch    draining   it is being drained
          cedar    holds      mon-agent-cedar
          dogwood  not_ready  the node is down
          elm      not_ready  the node is down
    "#]]
    .assert_eq(&explain("mon/agent"));
    expect![[r#"
        exit 0
        --- stdout
        mon-agent-cedar goes to cedar: global runs one replica on every node that may hold it
          cedar    takes one  chosen
          ash      holds      mon-agent-ash
          birch    draining   it is being drained
          dogwood  not_ready  the node is down
          elm      not_ready  the node is down
    "#]]
    .assert_eq(&explain("mon-agent-cedar"));
    expect![[r#"
        exit 0
        --- stdout
        mon-agent-birch leaves birch: birch is being drained
    "#]]
    .assert_eq(&explain("mon-agent-birch"));
}

#[test]
fn without_a_name_every_replica_is_explained() {
    expect![[r#"
        exit 0
        --- stdout
        REPLICA          NODE     OUTCOME   WHY
        mon-agent-ash    ash      stays     existing placements on eligible nodes stay
        mon-agent-birch  -        retired   birch is being drained
        mon-agent-cedar  cedar    placed    global runs one replica on every node that may hold it
        shop-db-1        dogwood  stays     its data lives on its node
        shop-web-1       ash      moved     birch is being drained, and ash is the best of 2 nodes that can take it, with score 10000
        shop-web-2       elm      stays     its node is down; it is replaced in 2s unless it returns
        shop-web-3       cedar    placed    the best of 2 nodes that can take it, with score 10000
        shop/pin         -        unplaced  needs 2 ready hosts; missing: dogwood
        shop/train       -        unplaced  0 of 5 nodes can take it: 2 not_ready, 1 draining, 2 no_gpu
    "#]].assert_eq(&explain(""));
}

#[test]
fn whatever_chooses_a_node_chooses_the_first_of_its_explanation() {
    for name in ["cell", "busy"] {
        let ran = plimsoll(&format!("explain --input examples/{name}.yaml -o json"));
        let views: Vec<serde_json::Value> = serde_json::from_str(&ran.stdout()).unwrap();
        let chosen = views.iter().filter(|view| {
            view["placement"] != "global"
                && (view["outcome"] == "placed" || view["outcome"] == "moved")
        });
        for view in chosen {
            assert_eq!(view["node"], view["nodes"][0]["node"], "{}", view["subject"]);
        }
    }
}

#[test]
fn the_same_facts_come_as_json() {
    let case = "\
nodes:
  - {name: ash, cpus: 1, memory: 1gb}
  - {name: birch, cpus: 0.25, memory: 1gb}
deployments: [{name: shop, services: {web: {reserve: {cpus: 0.5}}}}]
";
    let ran = plimsoll_reading("explain shop-web-1 --input - -o json", case);
    expect![[r#"
        exit 0
        --- stdout
        {
          "subject": "shop-web-1",
          "service": "shop/web",
          "placement": "spread",
          "node": "ash",
          "outcome": "placed",
          "why": "the only node that can take it",
          "nodes": [
            {
              "node": "ash",
              "place": "chosen",
              "replicas": 0,
              "score": 10000,
              "parts": {
                "zone": 7545,
                "node": 1845,
                "headroom": 410,
                "preferred": 200
              },
              "filter": null,
              "holds": null
            },
            {
              "node": "birch",
              "place": null,
              "replicas": 0,
              "score": null,
              "parts": null,
              "filter": {
                "word": "insufficient_capacity",
                "detail": "asks for 0.5 cpu, 0.25 free",
                "numbers": {
                  "cpu": {
                    "asked": 500,
                    "free": 250
                  }
                }
              },
              "holds": null
            }
          ]
        }
    "#]]
    .assert_eq(&ran.text());
}

#[test]
fn a_name_can_be_cut_short_where_it_is_plain_what_is_meant() {
    for (case, text) in [("the written form", "shop/web/1"), ("without the deployment", "web-1")] {
        assert_eq!(explain(text), explain("shop-web-1"), "{case}");
    }
    assert_eq!(explain("train"), explain("shop/train"), "a service alone");

    let twice = "\
nodes: [{name: ash, cpus: 1, memory: 1gb}]
deployments:
  - {name: a, services: {web: {}}}
  - {name: b, services: {web: {}}}
";
    let ran = plimsoll_reading("explain web --input -", twice);
    expect![[r#"
        exit 1
        --- stderr
        error: web can mean a/web or b/web
        hint: write the whole name
    "#]]
    .assert_eq(&ran.text());
}
