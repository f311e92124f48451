//! `plimsoll decide rebalance`: one cycle after another, with what each gate says.

use std::fs;

use expect_test::expect;
use plimsoll_kernel::rebalance::Limits;

use crate::run::{plimsoll, plimsoll_reading, root};

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
        cooldown_replica  shop-web-2 to birch        2h 30m           10m  yes
        cooldown_node     shop-web-2 to birch         never            2m  yes
        resource_limits   shop-web-2 to birch          0.40          1.00  yes
        anti_affinity     shop-web-2 to birch  may be there  may be there  yes
        dst_cap           shop-web-2 to birch          0.40          0.75  yes
        relief_floor      shop-web-2 to birch          0.30          0.10  yes
        cooldown_replica  shop-web-1 to birch        2h 30m           10m  yes
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
            "dst_after": 400000,
            "dst_before": 200000,
            "last_at": null,
            "move_cost": 10000,
            "reason": null,
            "relief": 300000,
            "replica_id": "shop-web-2",
            "score": 290000,
            "service": "web",
            "src": "ash",
            "src_after": 660000,
            "src_before": 960000
          },
          "text": "shop-web-2 relieves ash of 0.30 cpu and goes to birch: ash 0.96 → 0.66, birch 0.20 → 0.40, score 0.29",
          "what": "rebalance_moved"
        }"#]]
    .assert_eq(&event);
}

#[test]
fn the_example_of_the_format_is_replayed() {
    let text = fs::read_to_string(root().join("docs/reference/rebalance-case.md")).unwrap();
    let example = text.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let ran = plimsoll_reading("decide rebalance --input -", example);
    assert_eq!(ran.code(), 0, "{}", ran.text());
    assert_eq!(ran.stderr(), "2 cycles, 0 moves\n");
}

#[test]
fn a_case_that_is_wrong_is_refused_where_it_is_wrong() {
    let mut text = String::new();
    for case in [
        "nodes: {ash: {capacity: {cpu: 1}}}\ncycles: []\nnode: 1\n",
        "nodes: {}\ncycles: []\nservices: {d/s: {mode: {pack: {replicas: 1}}}}\nreplicas: {d/s/1: {node: ash, at: 5}}\n",
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
        error: <stdin>: the case describes a cell that cannot be: there is no node ash
        hint: see docs/reference/rebalance-case.md

        exit 1
        --- stderr
        error: <stdin>: cycle 2 lies at 4, before the one in front of it; sort cycles by time
        hint: see docs/reference/rebalance-case.md

        exit 1
        --- stderr
        error: `cycles` is missing
         --> <stdin>:1:1
          |
        1 | nodes: {}
          | ^^^^^
        hint: a full example is in docs/reference/rebalance-case.md

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
    let limits = Limits::default();
    let [cpu, memory] = limits.unknown;
    for quote in [
        format!("a mean over {} in which", limits.window),
        format!("has reached fades over {}:", limits.crest_window),
        format!("has not spoken for {} takes", limits.stale_after),
        format!("smoothed over {};", limits.habit_window),
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
