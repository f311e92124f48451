//! `plimsoll sim run`.

use std::fs;

use expect_test::expect;

use crate::run::{directory, plimsoll, plimsoll_reading, root};

#[test]
fn a_run_is_summed_up() {
    expect![[r#"
        exit 0
        --- stdout
        a lost node: 2h simulated with seed 1, every promise kept
          nodes     4 in 2 zones; one was lost once
          services  4 in 1 deployment
          replicas  7 wanted at the end, 7 running; 7 placed
          moves     3 started, 3 finished, 0 undone
          missing   at most 2 replicas at once, at 20m 00s; some for 29.3s on end, from 20m 00s
          pressure  0.47 at most, on birch at 25m 00s
          batches   0 refused and redone
          checked   29 promises at each of 1494 steps, and that the cell settles
    "#]]
    .assert_eq(&plimsoll("sim run scenarios/lost-node.yaml").text());
}

#[test]
fn the_story_is_told_line_by_line() {
    expect![[r#"
        exit 0
        --- stdout
                  0s  ash joined
                  0s  birch joined
                  0s  cedar joined
                  0s  shop r1 applied
                  0s  shop-web-1 placed on ash
                  0s  shop-web-2 placed on cedar
                  0s  shop-web-3 placed on birch
                  0s  shop-web-4 placed on cedar
             10m 00s  shop r2 applied
             10m 00s  rollout of shop/web to r2 started
             10m 00s  shop-web-1 is being replaced on ash (outdated)
             10m 16s  shop-web-1 was replaced on ash (outdated)
             10m 16s  shop-web-2 is being replaced on cedar (outdated)
             10m 30s  shop-web-2 was replaced on cedar (outdated)
             10m 30s  shop-web-3 is being replaced on birch (outdated)
             10m 39s  shop-web-3 was replaced on birch (outdated)
             10m 39s  shop-web-4 is being replaced on cedar (outdated)
             10m 44s  shop-web-4 was replaced on cedar (outdated)
             10m 49s  rollout of shop/web finished
             20m 00s  shop r3 applied
             20m 00s  rollout of shop/web to r3 started
             20m 00s  shop-web-1 is being replaced on ash (outdated)
             20m 08s  shop-web-1 failed on ash: it exited with status 1
             20m 08s  shop-web-1 stays as it was on ash (successor_failed)
             20m 08s  rollout of shop/web aborted, rolling back: 1 of 4 replicas failed
             20m 08s  shop/web rolled back
             35m 00s  shop r4 applied
             35m 00s  rollout of shop/web to r4 started
             35m 00s  shop-web-1 is being replaced on ash (outdated)
             35m 07s  shop-web-1 was replaced on ash (outdated)
             35m 07s  shop-web-2 is being replaced on cedar (outdated)
             35m 21s  shop-web-2 was replaced on cedar (outdated)
             35m 21s  shop-web-3 is being replaced on birch (outdated)
             35m 29s  shop-web-3 was replaced on birch (outdated)
             35m 29s  shop-web-4 is being replaced on cedar (outdated)
             35m 35s  shop-web-4 was replaced on cedar (outdated)
             35m 40s  rollout of shop/web finished

        a rolling update: 1h simulated with seed 1, every promise kept
          nodes     3 in 2 zones; none was lost
          services  1 in 1 deployment
          replicas  4 wanted at the end, 4 running; 4 placed
          moves     9 started, 8 finished, 1 undone
          missing   never any, once all ran at 16s
          pressure  0.38 at most, on cedar at 10m 30s
          batches   0 refused and redone
          checked   29 promises at each of 957 steps, and that the cell settles
    "#]]
    .assert_eq(&plimsoll("sim run scenarios/rolling-update.yaml --story").text());
}

#[test]
fn several_runs_have_a_line_each() {
    expect![[r#"
        exit 0
        --- stdout
        a drain: 2h simulated with seeds 7 to 9, every promise kept

        SEED  PLACED  MOVES  UNDONE  LOST  MISSING  LONGEST  PRESSURE  PROMISES
           7      18      6       0     0        1     3.4s      0.75  kept
           8      18      6       0     0        1     2.9s      0.75  kept
           9      18      6       0     0        1     6.7s      0.75  kept
    "#]]
    .assert_eq(&plimsoll("sim run scenarios/drain.yaml --seed 7 --runs 3").text());
}

const SMALL: &str = "\
length: 20m
nodes:
  - {name: ash, cpus: 1, memory: 1gb}
  - {name: birch, cpus: 1, memory: 1gb}
deployments: [{name: shop, services: {web: {replicas: 2, reserve: {cpus: 0.4}}}}]
events: [{at: 5m, crash: ash}]
";

#[test]
fn the_same_facts_come_as_json() {
    let ran = plimsoll_reading("sim run - -o json --story --seed 3", SMALL);
    expect![[r#"
        exit 0
        --- stdout
        {
          "scenario": "scenario",
          "seed": 3,
          "length_ms": 1200000,
          "failure": null,
          "nodes": 2,
          "zones": 1,
          "nodes_lost": 1,
          "deployments": 1,
          "services": 1,
          "placed": 2,
          "moves": {
            "started": 1,
            "finished": 1,
            "undone": 0
          },
          "end": {
            "wanted": 2,
            "running": 2,
            "unplaced": 0
          },
          "missing": {
            "complete_at_ms": 15796,
            "most": 1,
            "most_at_ms": 300000,
            "longest_ms": 23293,
            "longest_from_ms": 300000
          },
          "peak": {
            "share": 0.8,
            "node": "birch",
            "at_ms": 330000
          },
          "batches_refused": 0,
          "steps": 236,
          "invariants": 29,
          "settled": true,
          "story": {
            "lines": [
              {
                "at_ms": 0,
                "event": "node_joined",
                "text": "ash joined"
              },
              {
                "at_ms": 0,
                "event": "node_joined",
                "text": "birch joined"
              },
              {
                "at_ms": 0,
                "event": "deployed",
                "text": "shop r1 applied"
              },
              {
                "at_ms": 74,
                "event": "placed",
                "text": "shop-web-1 placed on birch"
              },
              {
                "at_ms": 74,
                "event": "placed",
                "text": "shop-web-2 placed on ash"
              },
              {
                "at_ms": 315059,
                "event": "node_down",
                "text": "ash is down"
              },
              {
                "at_ms": 318135,
                "event": "move_started",
                "text": "shop-web-2 moves ash → birch (node_lost)"
              },
              {
                "at_ms": 323293,
                "event": "move_finished",
                "text": "shop-web-2 moved ash → birch (node_lost)"
              }
            ],
            "more": 0
          }
        }
    "#]]
    .assert_eq(&ran.text());
}

#[test]
fn json_and_yaml_scenarios_give_the_same_run() {
    let json = r#"{
	"events": [{"crash": "ash", "at": "5m"}],
	"deployments": [{"services": {"web": {"reserve": {"cpus": 0.4}, "replicas": 2}}, "name": "shop"}],
	"nodes": [
		{"memory": "1gb", "name": "birch", "cpus": 1},
		{"memory": "1gb", "name": "ash", "cpus": 1}
	],
	"length": "20m"
}"#;
    let args = "sim run - -o yaml --story";
    assert_eq!(plimsoll_reading(args, SMALL).text(), plimsoll_reading(args, json).text());
}

#[test]
fn equal_seeds_give_equal_runs_and_others_do_not() {
    let run = |seed: u64| {
        plimsoll(&format!("sim run scenarios/a-day.yaml --story --seed {seed}")).stdout()
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn a_run_that_ends_amid_things_is_not_asked_to_settle() {
    let soon = SMALL.replace("length: 20m", "length: 5m10s");
    expect![[r#"
        exit 0
        --- stdout
        scenario: 5m 10s simulated with seed 1, every promise kept
          nodes     2 in 1 zone; none was lost
          services  1 in 1 deployment
          replicas  2 wanted at the end, 2 running; 2 placed
          moves     0 started, 0 finished, 0 undone
          missing   at most 1 replica at once, at 5m 00s; some for 10s on end, from 5m 00s
          pressure  0.40 at most, on ash at 30s
          batches   0 refused and redone
          checked   29 promises at each of 63 steps; the end came too soon after the last event for the cell to settle
    "#]].assert_eq(&plimsoll_reading("sim run -", &soon).text());
}

/// The image is not there when the run ends, so the cell cannot have settled.
const SLOW: &str = "\
name: slow
length: 15m
nodes: [{name: ash, cpus: 1, memory: 1gb}]
deployments: [{name: shop, services: {web: {}}}]
takes: {pull: 20m}
";

#[test]
fn a_broken_promise_fails_and_says_how_to_see_it_again() {
    let here = directory("sim_slow", [("it's.yaml", SLOW), ("slow.yaml", SLOW)]);
    expect![[r#"
        exit 2
        --- stdout
        slow: a promise was broken after 15m, with seed 4
          nodes     1 in 1 zone; none was lost
          services  1 in 1 deployment
          replicas  1 wanted at the end, 0 running; 1 placed
          moves     0 started, 0 finished, 0 undone
          missing   some replica or other, at every moment
          pressure  0.00 at most, on ash at 30s
          batches   0 refused and redone
          checked   29 promises at each of 99 steps; the cell did not settle
        --- stderr
        error: after 15m with seed 4: settled: shop-web-1 does not run on ash
        the story up to there:
                    0s  ash joined
                    0s  shop r1 applied
                    0s  shop-web-1 placed on ash
        hint: a cell that is only slow settles within a longer `length`
        replay: plimsoll sim run slow.yaml --seed 4
        shrink: plimsoll sim shrink slow.yaml --seed 4
    "#]]
    .assert_eq(&here.run("sim run slow.yaml --seed 4").text());
    expect![[r#"
        exit 2
        --- stdout
        slow: 15m simulated with seeds 1 to 2, a promise broken in 2 runs

        SEED  PLACED  MOVES  UNDONE  LOST  MISSING  LONGEST  PRESSURE  PROMISES
           1       1      0       0     0        -        -      0.00  broken after 15m
           2       1      0       0     0        -        -      0.00  broken after 15m
        --- stderr
        error: after 15m with seed 1: settled: shop-web-1 does not run on ash
        the story up to there:
                    0s  ash joined
                    0s  shop r1 applied
                    0s  shop-web-1 placed on ash
        hint: a cell that is only slow settles within a longer `length`
        replay: plimsoll sim run slow.yaml --seed 1
        shrink: plimsoll sim shrink slow.yaml --seed 1
    "#]]
    .assert_eq(&here.run("sim run slow.yaml --runs 2").text());
    let quoted = here.run("sim run it's.yaml").stderr();
    assert!(quoted.contains("replay: plimsoll sim run 'it'\\''s.yaml' --seed 1\n"), "{quoted}");
    let json = here.run("sim run slow.yaml -o json");
    assert_eq!(json.code(), 2);
    assert!(json.stdout().contains(r#""invariant": "settled""#), "{}", json.text());
}

#[test]
fn every_scenario_says_what_to_watch_and_keeps_every_promise() {
    let mut names = Vec::new();
    for entry in fs::read_dir(root().join("scenarios")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# ") && text.contains("# Watch: "), "{name}");
        let command = format!("#   plimsoll sim run scenarios/{name}");
        assert!(text.contains(&command), "{name} shows how to run it");
        let ran = plimsoll(&format!("sim run scenarios/{name} --seed 1 --runs 3"));
        assert_eq!((ran.code(), ran.stderr().as_str()), (0, ""), "{name}: {}", ran.text());
        names.push(name);
    }
    assert!(names.len() >= 7, "{names:?}");
}

/// What the comments in them promise.
/// Least cases of what chaos found, each with the seed of its run at the end of its name.
#[test]
fn what_broke_a_promise_once_keeps_them_all() {
    let directory = root().join("crates/plimsoll/tests/it/sim/once_broken");
    let mut count = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let (_, seed) = stem.rsplit_once('-').expect("a seed at the end");
        let ran = plimsoll(&format!("sim run {} --seed {seed}", path.display()));
        assert_eq!(ran.code(), 0, "{stem}: {}", ran.text());
        count += 1;
    }
    assert!(count > 0, "there are some");
}

#[test]
fn the_scenarios_show_what_they_say() {
    let story = |name: &str| {
        let ran = plimsoll(&format!("sim run scenarios/{name}.yaml --story"));
        assert_eq!(ran.code(), 0, "{name}: {}", ran.text());
        ran.stdout()
    };
    let is_move = |line: &&str| {
        line.contains(" is being replaced on ") || (line.contains(" moves ") && line.contains('→'))
    };
    let moves = |story: &str| story.lines().filter(is_move).count();
    let after = |story: &str, mark: &str| story.split(mark).nth(1).unwrap().to_owned();

    let lost = story("lost-node");
    let returned = after(&lost, "cedar is ready");
    assert!(moves(&lost) > 1 && moves(&returned) == 1, "{lost}");
    assert!(returned.contains("→ cedar (reschedule)"), "{returned}");
    let cut = story("cut-off-node");
    assert!(cut.contains("shop-db-1 waits: its data lives on its node"), "{cut}");
    assert_eq!(moves(&after(&cut, "birch is ready")), 1, "{cut}");
    let leaders = story("leader-changes");
    assert_eq!(moves(&leaders), 3, "none is made twice: {leaders}");
    let update = story("rolling-update");
    assert!(update.contains("never any, once all ran"), "{update}");
    let stalled = after(&update, "shop r3 applied");
    assert_eq!(moves(stalled.split("shop r4").next().unwrap()), 1, "tried once: {update}");
    let drain = story("drain");
    assert_eq!(moves(&after(&drain, "ash uncordoned")), 3, "{drain}");
    let joins = story("node-joins");
    assert_eq!(moves(&joins), 1, "{joins}");
    assert!(joins.contains("shop/web has all its replicas placed"), "{joins}");
}

#[test]
fn what_is_of_one_run_is_refused_for_several() {
    for flag in ["--report out.html", "--story"] {
        let ran = plimsoll(&format!("sim run scenarios/drain.yaml --runs 2 {flag}"));
        let word = flag.split(' ').next().unwrap();
        let message = format!("error: {word} is of one run, and --runs asks for 2\n");
        assert_eq!((ran.code(), ran.stderr().starts_with(&message)), (1, true), "{}", ran.text());
    }
    for args in ["--runs 0", "--runs 10001", "--seed x"] {
        assert_eq!(plimsoll(&format!("sim run scenarios/drain.yaml {args}")).code(), 1, "{args}");
    }
}

#[test]
fn a_scenario_that_breaks_a_promise_shrinks_to_a_file_that_breaks_it_too() {
    let here = directory("shrink", [("never.yaml", NEVER)]);
    let ran = here.run("sim run never.yaml --seed 3");
    assert_eq!(ran.code(), 2, "{}", ran.text());
    let hint = "shrink: plimsoll sim shrink never.yaml --seed 3";
    assert!(ran.stderr().contains(hint), "{}", ran.text());
    expect![[r#"
        exit 0
        --- stderr
        replay: plimsoll sim run least.yaml --seed 3
        0 events on 1 node after 16 runs; it fails after 10m with seed 3: settled: shop-web-1 does not run on cedar
    "#]]
    .assert_eq(&here.run("sim shrink never.yaml --seed 3 --out least.yaml").text());
    expect![[r#"
        name: "never"
        length: 10m
        lenient: true    # what cannot happen by then is passed over
        nodes:
          - {name: cedar, cpus: 4.000, memory: 8589934592}
        deployments:
          - name: shop
            services:
              web: {image: "web", placement: spread, replicas: 1}
        takes:
          pull: 2s..15s
          start: 200ms..1500ms
          health: 60m..60m
          stop: 100ms..10s
          network: 1ms..40ms
          commit: 2ms..30ms
          election: 200ms..3s
    "#]]
    .assert_eq(&here.run("sim shrink least.yaml --seed 3").stdout());
    let ran = here.run("sim run least.yaml --seed 3");
    assert_eq!(ran.code(), 2, "{}", ran.text());
    assert!(ran.stderr().contains("settled: "), "{}", ran.text());
    let ran = here.run("sim shrink never.yaml --seed 3 --runs 0 --out none/least.yaml");
    assert_eq!(ran.code(), 1, "{}", ran.text());
}

/// Nothing becomes healthy, whatever else happens.
const NEVER: &str = "
length: 40m
takes: {health: 60m}
nodes: [{name: ash, cpus: 4, memory: 8gb}, {name: birch, cpus: 4, memory: 8gb}, {name: cedar, cpus: 4, memory: 8gb}]
deployments:
  - name: shop
    services: {web: {replicas: 4, reserve: {cpus: 0.5, memory: 64mb}}, db: {volumes: [data]}}
events:
  - {at: 5m, crash: ash}
  - {at: 9m, return: ash}
  - {at: 10m, scale: {service: shop/web, replicas: 6}}
  - {at: 12m, drain: {node: birch, timeout: 1m, force: true}}
  - {at: 20m, uncordon: birch}
";

#[test]
fn a_scenario_that_keeps_every_promise_has_nothing_to_shrink() {
    expect![[r#"
        exit 1
        --- stderr
        error: every promise is kept with seed 1
        hint: name a seed that breaks one: `plimsoll sim run` with `--runs` finds them
    "#]]
    .assert_eq(&plimsoll("sim shrink scenarios/lost-node.yaml").text());
}

#[test]
fn random_cells_are_run_by_their_seeds() {
    expect![[r#"
        exit 0
        --- stdout
        4 random cells with seeds 0 to 3: every promise kept
    "#]]
    .assert_eq(&plimsoll("sim chaos --seeds 0..4").text());
    expect![[r#"
        exit 1
        --- stderr
        error: invalid value '4..4' for '--seeds <FROM..TO>': "4..4" is not a range of seeds; write 0..1000

        For more information, try '--help'.
    "#]]
    .assert_eq(&plimsoll("sim chaos --seeds 4..4").text());
}
