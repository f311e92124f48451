//! `plimsoll decide place`.

use expect_test::expect;

use crate::run::{directory, plimsoll, plimsoll_reading};

#[test]
fn the_example_cell_is_placed() {
    expect![[r#"
        exit 0
        --- stdout
        PLACED                            NODE     SCORE  WHY
        monitoring-grafana-1              cedar    10000  zone 7545, node 1845, headroom 410, preferred 200
        monitoring-node-exporter-ash      ash          -  one on every node that may hold it
        monitoring-node-exporter-birch    birch        -  one on every node that may hold it
        monitoring-node-exporter-cedar    cedar        -  one on every node that may hold it
        monitoring-node-exporter-dogwood  dogwood      -  one on every node that may hold it
        shop-api-1                        birch    10000  zone 7545, node 1845, headroom 410, preferred 200
        shop-api-2                        cedar    10000  zone 7545, node 1845, headroom 410, preferred 200
        shop-cache-1                      ash      10000  zone 7545, node 1845, headroom 410, preferred 200
        shop-web-1                        ash      10000  zone 7545, node 1845, headroom 410, preferred 200
        shop-web-2                        cedar    10000  zone 7545, node 1845, headroom 410, preferred 200
        shop-web-3                        birch    10000  zone 7545, node 1845, headroom 410, preferred 200

        STAYS                    NODE   REASON   DETAIL
        monitoring-prometheus-1  birch  settled  existing placements on eligible nodes stay
        shop-db-1                ash    settled  existing placements on eligible nodes stay
        --- stderr
        11 placed, 0 moved, 2 stay, 0 unplaced
    "#]].assert_eq(&plimsoll("decide place --input examples/cell.yaml").text());
}

#[test]
fn moves_waits_and_what_finds_no_room_are_part_of_the_decision() {
    expect![[r#"
        exit 0
        --- stdout
        PLACED                NODE   SCORE  WHY
        workers-thumbnails-3  ash    10000  zone 7545, node 1845, headroom 410, preferred 200
        workers-thumbnails-4  birch  10000  zone 7545, node 1845, headroom 410, preferred 200
        workers-thumbnails-5  ash     9795  zone 7545, node 1845, headroom 205, preferred 200
        workers-thumbnails-6  birch   9795  zone 7545, node 1845, headroom 205, preferred 200
        workers-thumbnails-7  ash     9590  zone 7545, node 1845, headroom 0, preferred 200

        MOVED           FROM     TO     CAUSE      HOW          SCORE  WHY
        workers-mail-1  dogwood  birch  node_lost  start-first  10000  zone 7545, node 1845, headroom 410, preferred 200

        STAYS                 NODE     REASON    DETAIL
        workers-mail-2        cedar    in_turn   its node may not hold it any more; one replica of a service changes at a time
        workers-queue-1       dogwood  stateful  its data lives on its node
        workers-thumbnails-1  ash      settled   existing placements on eligible nodes stay
        workers-thumbnails-2  birch    settled   existing placements on eligible nodes stay

        UNPLACED            MISSING  REASON            DETAIL
        workers/thumbnails        5  no_eligible_node  0 of 4 nodes can take it: 1 not_ready, 1 draining, 2 insufficient_capacity
        --- stderr
        5 placed, 1 moved, 4 stay, 5 unplaced
    "#]].assert_eq(&plimsoll("decide place --input examples/busy.yaml").text());
}

const SMALL: &str = "\
nodes:
  - {name: ash, cpus: 1, memory: 1gb}
  - {name: birch, cpus: 1, memory: 1gb, status: down}
deployments:
  - name: shop
    services:
      web: {replicas: 3, reserve: {cpus: 0.4}}
replicas:
  - {service: shop/web, index: 1, node: birch}
";

#[test]
fn the_same_facts_come_as_json() {
    let ran = plimsoll_reading("decide place --input - -o json", SMALL);
    expect![[r#"
        exit 0
        --- stdout
        {
          "cell": "case",
          "placed": [
            {
              "replica": "shop-web-2",
              "service": "shop/web",
              "node": "ash",
              "round": 1,
              "score": 9795,
              "parts": {
                "zone": 7545,
                "node": 1845,
                "headroom": 205,
                "preferred": 200
              }
            }
          ],
          "moved": [
            {
              "replica": "shop-web-1",
              "service": "shop/web",
              "from": "birch",
              "to": "ash",
              "cause": "node_lost",
              "is_stop_first": false,
              "round": 1,
              "score": 10000,
              "parts": {
                "zone": 7545,
                "node": 1845,
                "headroom": 410,
                "preferred": 200
              }
            }
          ],
          "retired": [],
          "stays": [],
          "unplaced": [
            {
              "service": "shop/web",
              "missing": 1,
              "reason": "no_eligible_node",
              "detail": "0 of 2 nodes can take it: 1 not_ready, 1 insufficient_capacity",
              "why": {
                "no_eligible_node": {
                  "nodes": 2,
                  "turned_away": {
                    "insufficient_capacity": 1,
                    "not_ready": 1
                  }
                }
              }
            }
          ],
          "short": []
        }
        --- stderr
        1 placed, 1 moved, 0 stay, 1 unplaced
    "#]]
    .assert_eq(&ran.text());
}

#[test]
fn json_and_yaml_cases_in_any_order_give_the_same_decision() {
    let json = r#"{
	"replicas": [{"node": "birch", "index": 1, "service": "shop/web"}],
	"deployments": [{"services": {"web": {"reserve": {"cpus": 0.4}, "replicas": 3}}, "name": "shop"}],
	"nodes": [
		{"memory": "1gb", "name": "birch", "cpus": 1, "status": "down"},
		{"memory": "1gb", "name": "ash", "cpus": 1}
	]
}"#;
    let args = "decide place --input - -o yaml";
    let (yaml, json) = (plimsoll_reading(args, SMALL), plimsoll_reading(args, json));
    assert_eq!(yaml.text(), json.text());
}

#[test]
fn a_file_that_places_nothing_new_says_so() {
    let settled = "\
nodes: [{name: ash, cpus: 1, memory: 1gb}]
deployments: [{name: shop, services: {web: {}}}]
replicas: [{service: shop/web, node: ash}]
";
    expect![[r#"
        exit 0
        --- stdout
        STAYS       NODE  REASON   DETAIL
        shop-web-1  ash   settled  existing placements on eligible nodes stay
        --- stderr
        0 placed, 0 moved, 1 stay, 0 unplaced
    "#]]
    .assert_eq(&plimsoll_reading("decide place --input -", settled).text());
}

#[test]
fn compose_files_are_found_beside_the_case() {
    let case = "\
nodes: [{name: ash, cpus: 1, memory: 1gb}]
deployments: [{compose: files/shop.yaml, name: till, profiles: [debug]}]
";
    let shop = "\
services:
  web: {image: 'nginx:${TAG}', attach: true}
  debug: {image: busybox, profiles: [debug]}
";
    let files =
        [("cases/a.yaml", case), ("cases/files/shop.yaml", shop), ("cases/files/.env", "TAG=1\n")];
    let here = directory("decide_compose", files);
    expect![[r#"
        exit 0
        --- stdout
        PLACED        NODE  SCORE  WHY
        till-debug-1  ash   10000  zone 7545, node 1845, headroom 410, preferred 200
        till-web-1    ash   10000  zone 7545, node 1845, headroom 410, preferred 200
        --- stderr
        warning: `attach` is ignored: it applies to `docker compose up`; follow any service with `plimsoll logs` (cases/files/shop.yaml:2:32)
        2 placed, 0 moved, 0 stay, 0 unplaced
    "#]]
    .assert_eq(&here.run("decide place --input cases/a.yaml").text());
}

#[test]
fn one_replica_at_a_time_is_taken_to_a_newer_spec() {
    let case = "\
nodes:
  - {name: ash, cpus: 4, memory: 8gb}
  - {name: birch, cpus: 4, memory: 8gb}
deployments:
  - name: shop
    services:
      web: {image: nginx:2, replicas: 2}
      db: {image: postgres:17, volumes: [data]}
replicas:
  - {service: shop/web, index: 3, node: ash, image: nginx:1}
  - {service: shop/web, index: 7, node: birch, image: nginx:1}
  - {service: shop/db, index: 1, node: ash, image: postgres:16}
";
    expect![[r#"
        exit 0
        --- stdout
        MOVED       FROM  TO   CAUSE     HOW          SCORE  WHY
        shop-db-1   ash   ash  outdated  stop-first       -  recreated in its own place
        shop-web-3  ash   ash  outdated  start-first  10000  zone 7545, node 1845, headroom 410, preferred 200

        STAYS       NODE   REASON   DETAIL
        shop-web-7  birch  in_turn  it runs an older spec; one replica of a service changes at a time

        shop/db falls to 0 of 1
        --- stderr
        0 placed, 2 moved, 1 stay, 0 unplaced
    "#]]
    .assert_eq(&plimsoll_reading("decide place --input -", case).text());
    let why = plimsoll_reading("explain shop-db-1 --input -", case);
    expect![[r#"
        exit 0
        --- stdout
        shop-db-1 is being replaced on ash: it runs an older spec
          ash    10000             zone 7545, node 1845, headroom 410, preferred 200; chosen
          birch  volume_elsewhere  volume shop_data is on ash
    "#]]
    .assert_eq(&why.text());
}

#[test]
fn nodes_alike_are_one_entry() {
    let case = "\
nodes: [{name: worker, count: 4, cpus: 1, memory: 1gb, zones: [a, b]}]
deployments: [{name: shop, services: {web: {replicas: 2}, agent: {placement: global}}}]
replicas: [{service: shop/web, node: worker-2}]
";
    expect![[r#"
        exit 0
        --- stdout
        PLACED               NODE      SCORE  WHY
        shop-agent-worker-1  worker-1      -  one on every node that may hold it
        shop-agent-worker-2  worker-2      -  one on every node that may hold it
        shop-agent-worker-3  worker-3      -  one on every node that may hold it
        shop-agent-worker-4  worker-4      -  one on every node that may hold it
        shop-web-2           worker-1  10000  zone 7545, node 1845, headroom 410, preferred 200

        STAYS       NODE      REASON   DETAIL
        shop-web-1  worker-2  settled  existing placements on eligible nodes stay
        --- stderr
        5 placed, 0 moved, 1 stay, 0 unplaced
    "#]]
    .assert_eq(&plimsoll_reading("decide place --input -", case).text());
}
