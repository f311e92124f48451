//! `plimsoll decide rebalance`: one cycle after another, with what each gate says.

use std::fs;

use expect_test::expect;
use plimsoll_kernel::Policy;
use plimsoll_kernel::rebalance::RebalanceLimits;

use crate::run::{Ran, plimsoll, plimsoll_reading, root};

#[test]
fn each_cycle_shows_its_means_its_gates_and_what_was_decided() {
    let ran = plimsoll("decide rebalance --input examples/hot-node.yaml");
    expect![[r#"
        exit 0
        --- stdout
        cycle 1, 0s after the first: calm
        NODE    CPU  MEMORY  REACHED  HOT CYCLES
        ash    0.96    0.30     0.96           1
        birch  0.10    0.20     0.20           0
        GATE            OF   FOUND  LIMIT  SAYS
        trigger         ash   0.96   0.85  yes
        trigger_cycles  ash      1      2  no
        imbalance       ash   0.76   0.25  yes

        cycle 2, 30s after the first: moved
        NODE    CPU  MEMORY  REACHED  HOT CYCLES
        ash    0.96    0.30     0.96           2
        birch  0.10    0.20     0.20           0
        GATE              OF                          FOUND         LIMIT  SAYS
        trigger           ash                          0.96          0.85  yes
        trigger_cycles    ash                             2             2  yes
        imbalance         ash                          0.76          0.25  yes
        cooldown_replica  shop-web-2 to birch            1d           10m  yes
        cooldown_node     shop-web-2 to birch         never            2m  yes
        resource_limits   shop-web-2 to birch          0.40          1.00  yes
        anti_affinity     shop-web-2 to birch  may be there  may be there  yes
        dst_cap           shop-web-2 to birch          0.40          0.75  yes
        relief_floor      shop-web-2 to birch          0.30          0.10  yes
        cooldown_replica  shop-web-1 to birch            1d           10m  yes
        cooldown_node     shop-web-1 to birch         never            2m  yes
        resource_limits   shop-web-1 to birch          0.34          1.00  yes
        anti_affinity     shop-web-1 to birch  may be there  may be there  yes
        dst_cap           shop-web-1 to birch          0.34          0.75  yes
        relief_floor      shop-web-1 to birch          0.24          0.10  yes
        rebalance_moved: shop-web-2 relieves ash of 0.30 cpu and goes to birch: ash 0.96 → 0.66, birch 0.20 → 0.40, score 0.29

        cycle 3, 1m after the first: calm
        NODE    CPU  MEMORY  REACHED  HOT CYCLES
        ash    0.66  0.2688   0.9575           0
        birch  0.40  0.2311     0.40           0
        GATE            OF   FOUND  LIMIT  SAYS
        trigger         ash   0.66   0.85  no
        trigger_cycles  ash      0      2  no
        imbalance       ash   0.26   0.25  yes
        --- stderr
        3 cycles, 1 move
    "#]].assert_eq(&ran.text());
}

#[test]
fn the_same_facts_come_as_json_and_the_events_are_those_of_the_audit() {
    let ran = plimsoll("decide rebalance --input examples/hot-node.yaml -o json");
    let cycles: serde_json::Value = serde_json::from_str(&ran.stdout()).unwrap();
    assert_eq!(cycles[0]["event"], serde_json::Value::Null);
    let event = serde_json::to_string_pretty(&cycles[1]["event"]).unwrap();
    expect![[r#"
        {
          "relief": {
            "count": null,
            "deployment": "shop",
            "dominant": "cpu",
            "dst": "birch",
            "dst_pressure_after": 400000,
            "dst_pressure_before": 200000,
            "last_at": null,
            "move_cost": 10000,
            "reason": null,
            "relief": 300000,
            "replica_id": "shop-web-2",
            "score": 290000,
            "service": "web",
            "src": "ash",
            "src_pressure_after": 660000,
            "src_pressure_before": 960000
          },
          "text": "shop-web-2 relieves ash of 0.30 cpu and goes to birch: ash 0.96 → 0.66, birch 0.20 → 0.40, score 0.29",
          "what": "rebalance_moved"
        }"#]]
    .assert_eq(&event);
}

/// As cases of the rebalancer were written before there was one format for all.
fn former(name: &str) -> String {
    fs::read_to_string(root().join("crates/plimsoll/tests/fixtures").join(name)).unwrap()
}

/// Without the times: the two formats have clocks that begin at another time.
fn timeless(ran: &Ran) -> serde_json::Value {
    let mut cycles: serde_json::Value = serde_json::from_str(&ran.stdout()).unwrap();
    for cycle in cycles.as_array_mut().unwrap() {
        cycle["at"].take();
        for candidate in cycle["hottest"]["candidates"].as_array_mut().unwrap() {
            let gates = candidate["gates"].as_array_mut().unwrap();
            gates.retain(|gate| gate["gate"] != "cooldown_replica");
        }
    }
    cycles
}

#[test]
fn the_former_format_is_read_on_and_means_what_it_meant() {
    let ran = |text: &str| plimsoll_reading("decide rebalance --input - -o json", text);
    let before = ran(&former("hot-node-before.yaml"));
    let now = plimsoll("decide rebalance --input examples/hot-node.yaml -o json");
    assert_eq!(timeless(&before), timeless(&now));
    for (name, says) in [
        ("rebalance-case-before.yaml", "2 cycles, 0 moves\n"),
        ("exported-before.json", "1 cycle, 0 moves\n"),
    ] {
        let ran = ran(&former(name));
        assert_eq!((ran.code(), ran.stderr().as_str()), (0, says), "{name}: {}", ran.text());
    }
}

#[test]
fn a_case_of_either_format_is_placed_as_well_as_rebalanced() {
    let mut text = String::new();
    for name in ["hot-node-before.yaml", "exported-before.json"] {
        text.push_str(&plimsoll_reading("decide place --input -", &former(name)).text());
        text.push('\n');
    }
    expect![[r#"
        exit 0
        --- stdout
        STAYS       NODE  REASON   DETAIL
        shop-db-1   ash   settled  existing placements on eligible nodes stay
        shop-web-1  ash   settled  existing placements on eligible nodes stay
        shop-web-2  ash   settled  existing placements on eligible nodes stay
        --- stderr
        0 placed, 0 moved, 3 stay, 0 unplaced

        exit 0
        --- stdout
        STAYS           NODE  REASON   DETAIL
        shop-agent-ash  ash   settled  existing placements on eligible nodes stay
        shop-once-1     ash   settled  existing placements on eligible nodes stay
        shop-web-1      ash   settled  existing placements on eligible nodes stay
        shop-web-2      ash   settled  existing placements on eligible nodes stay
        --- stderr
        0 placed, 0 moved, 4 stay, 0 unplaced

    "#]]
    .assert_eq(&text);
    let ran = plimsoll("decide place --input examples/hot-node.yaml");
    assert_eq!(ran.stderr(), "0 placed, 0 moved, 3 stay, 0 unplaced\n");
}

#[test]
fn a_case_that_is_wrong_is_refused_where_it_is_wrong() {
    let cell = "nodes: [{name: ash, cpus: 1, memory: 1gb}]\n\
        deployments: [{name: d, services: {s: {}}}]\nreplicas: [{service: d/s, node: ash}]\n";
    let mut text = String::new();
    for case in [
        "cycles: []\ncycle: 1\n",
        "cycles:\n  - {at: 5}\n  - {at: 4}\n",
        "cycles: [{nodes: {ahs: {cpu: 0.5, memory: 0.5}}}]\n",
        "cycles: [{nodes: {ash: {cpu: 96, memory: 0.5}}}]\n",
        "cycles: [{replicas: {d-s-2: {cpus: 1, memory: 1gb}}}]\n",
        "cycles: [{at: noon}]\n",
        "memory: {nodes: {ash: {at: 5, mean: {cpu: half, memory: 0}, peak: {cpu: 0, memory: 0}, hot: 0}}}\n",
        "next_index: {d/t: 5}\n",
        "",
    ] {
        let case = format!("{cell}{case}");
        text.push_str(&plimsoll_reading("decide rebalance --input -", &case).text());
        text.push('\n');
    }
    expect![[r#"
        exit 1
        --- stderr
        error: unknown key `cycle`
         --> <stdin>:5:1
          |
        5 | cycle: 1
          | ^^^^^
        hint: did you mean cycles?

        refused: 1 error in <stdin>

        exit 1
        --- stderr
        error: cycle 2 lies at 4, before the one in front of it
         --> <stdin>:6:10
          |
        6 |   - {at: 4}
          |          ^
        hint: sort cycles by time

        refused: 1 error in <stdin>

        exit 1
        --- stderr
        error: there is no node ahs
         --> <stdin>:4:19
          |
        4 | cycles: [{nodes: {ahs: {cpu: 0.5, memory: 0.5}}}]
          |                   ^^^
        hint: did you mean ash?

        refused: 1 error in <stdin>

        exit 1
        --- stderr
        error: "96" is not a share; write 0.85 for 85 % of the node
         --> <stdin>:4:30
          |
        4 | cycles: [{nodes: {ash: {cpu: 96, memory: 0.5}}}]
          |                              ^^

        refused: 1 error in <stdin>

        exit 1
        --- stderr
        error: there is no replica d-s-2
         --> <stdin>:4:22
          |
        4 | cycles: [{replicas: {d-s-2: {cpus: 1, memory: 1gb}}}]
          |                      ^^^^^
        hint: did you mean d-s-1?

        refused: 1 error in <stdin>

        exit 1
        --- stderr
        error: "noon" is not a time; write milliseconds on any clock, or 30s
         --> <stdin>:4:15
          |
        4 | cycles: [{at: noon}]
          |               ^^^^

        refused: 1 error in <stdin>

        exit 1
        --- stderr
        error: "half" is not a share of a node; write 0.85
         --> <stdin>:4:43
          |
        4 | memory: {nodes: {ash: {at: 5, mean: {cpu: half, memory: 0}, peak: {cpu: 0, memory: 0}, hot: 0}}}
          |                                           ^^^^

        refused: 1 error in <stdin>

        exit 1
        --- stderr
        error: there is no service d/t
         --> <stdin>:4:14
          |
        4 | next_index: {d/t: 5}
          |              ^^^
        hint: did you mean d/s?

        refused: 1 error in <stdin>

        exit 1
        --- stderr
        error: `cycles` is missing
        --> <stdin>
        hint: add what was measured, cycle by cycle: see docs/reference/case-format.md

        refused: 1 error in <stdin>

    "#]].assert_eq(&text);
}

#[test]
fn a_case_of_the_former_format_is_refused_where_it_is_wrong() {
    let mut text = String::new();
    for case in [
        "nodes: {ash: {capacity: {cpu: 1}}}\ncycles: []\nnode: 1\n",
        "nodes: {}\ncycles: []\nservices: {d/s: {mode: {pack: {replicas: 1}}}}\nreplicas: {d/s/1: {node: ash, at: 5}}\n",
        "nodes: {ash: {capacity: {cpu: 1}}}\ncycles: []\nreplicas: {d/s/1: {node: ash, at: 5}}\n",
        "nodes: {}\ncycles: [{at: 5}, {at: 4}]\n",
        "nodes: {}\n",
    ] {
        text.push_str(&plimsoll_reading("decide rebalance --input -", case).text());
        text.push('\n');
    }
    expect![[r#"
        exit 1
        --- stderr
        error: unknown key `node`
         --> <stdin>:3:1
          |
        3 | node: 1
          | ^^^^
        hint: did you mean nodes?

        refused: 1 error in <stdin>

        exit 1
        --- stderr
        error: there is no node ash
         --> <stdin>:4:26
          |
        4 | replicas: {d/s/1: {node: ash, at: 5}}
          |                          ^^^
        hint: there is no node here at all

        refused: 1 error in <stdin>

        exit 1
        --- stderr
        error: there is no service d/s
         --> <stdin>:3:12
          |
        3 | replicas: {d/s/1: {node: ash, at: 5}}
          |            ^^^^^
        hint: there is no service here at all

        refused: 1 error in <stdin>

        exit 1
        --- stderr
        error: cycle 2 lies at 4, before the one in front of it
         --> <stdin>:2:24
          |
        2 | cycles: [{at: 5}, {at: 4}]
          |                        ^
        hint: sort cycles by time

        refused: 1 error in <stdin>

        exit 1
        --- stderr
        error: `cycles` is missing
         --> <stdin>:1:1
          |
        1 | nodes: {}
          | ^^^^^
        hint: a full example is in docs/reference/case-format.md

        refused: 1 error in <stdin>

    "#]]
    .assert_eq(&text);
}

/// A gate's limit stands once, in code; the page quotes it.
#[test]
fn the_page_of_the_rebalancer_quotes_the_limits_the_code_has() {
    let text = fs::read_to_string(root().join("docs/reference/rebalancer.md")).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    let limits = RebalanceLimits::default();
    let (cpu, memory) = (limits.unknown.cpu, limits.unknown.memory);
    for quote in [
        format!("weighted mean of both over {};", limits.window),
        format!("mean decays over {}:", limits.peak_window),
        format!("sample is older than {} takes", Policy::default().stale_after()),
        format!("smoothed over {};", limits.usage_window),
        format!("else {cpu} of cpu and {memory} of memory"),
        format!("at least {} in {} cycles on end", limits.trigger, limits.trigger_cycles),
        format!("at least {} apart", limits.imbalance),
        format!("| {} since it was placed or moved |", limits.cooldown_replica),
        format!("| {} since the destination was given one |", limits.cooldown_node),
        format!("| the destination below {} |", limits.dst_cap),
        format!("| at least {} less on the source |", limits.relief_floor),
        format!("less {} for the move", limits.move_cost),
    ] {
        assert!(text.contains(&quote), "{quote}");
    }
}
