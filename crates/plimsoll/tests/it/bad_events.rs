//! Events, usage and times of a scenario that cannot be: each is refused at its line, with what to do about it.

use expect_test::expect;

use crate::bad_scenarios::with;

#[test]
fn an_event_that_is_none_or_two() {
    expect![[r#"
        exit 1
        --- stderr
        error: nothing happens at this time
         --> <stdin>:4:10
          |
        4 | events: [{at: 5m}]
          |          ^
        hint: add one of crash, cut, return, drain, join, deploy, new_leader, …

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("events: [{at: 5m}]"));
    expect![[r#"
        exit 1
        --- stderr
        error: 2 things happen in one event
         --> <stdin>:5:5
          |
        5 |   - {at: 5m, crash: ash, cut: ash}
          |     ^
        hint: write an event for each; several may be `at` the same time

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("events:\n  - {at: 5m, crash: ash, cut: ash}"));
    expect![[r#"
        exit 1
        --- stderr
        error: `at` is missing
         --> <stdin>:4:11
          |
        4 | events: [{crash: ash}]
          |           ^^^^^
        hint: a full example is in docs/reference/scenario-format.md

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("events: [{crash: ash}]"));
    expect![[r#"
        exit 1
        --- stderr
        error: `new_leader: false` does nothing
         --> <stdin>:4:31
          |
        4 | events: [{at: 5m, new_leader: false}]
          |                               ^^^^^
        hint: write `new_leader: true`, or remove the event

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("events: [{at: 5m, new_leader: false}]"));
    expect![[r#"
        exit 1
        --- stderr
        error: unknown key `explode`
         --> <stdin>:4:19
          |
        4 | events: [{at: 5m, explode: ash}]
          |                   ^^^^^^^
        hint: the keys here are at, crash, cut, wipe, return, join, change_node, cordon, uncordon, drain, remove, recover, kill, unhealthy, stop_engine, lose_engine, start_engine, fail, poison, cure, new_leader, clock, deploy, undeploy, move_volume, remove_volume, back_up_volume, restore_volume, scale, rollback, restart, pause, resume, abort, break, mend, withdraw, restore, exhaust_subnets, free_subnets, join_token, revoke_join_token, add_operator, revoke_operator, exec, backup, rotate_authority, rotate_without_down, abort_rotation, rotate_backup_key, raise, join_fleet, leave_fleet, mistake_for_coordinator, rescheduling, optimize, machines, create_secret, rotate_secret, remove_secret, certify, login_registry, logout_registry

        refused: 1 error in <stdin>
    "#]].assert_eq(&with("events: [{at: 5m, explode: ash}]"));
}

#[test]
fn an_event_that_names_what_is_not_there() {
    expect![[r#"
        exit 1
        --- stderr
        error: there is no node bich at 5m
         --> <stdin>:6:12
          |
        6 |     crash: bich
          |            ^^^^
        hint: did you mean birch?

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("events:\n  - at: 5m\n    crash: bich"));
    expect![[r#"
        exit 1
        --- stderr
        error: there is no deployment shp at 5m
         --> <stdin>:4:29
          |
        4 | events: [{at: 5m, undeploy: shp}]
          |                             ^^^
        hint: did you mean shop?

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("events: [{at: 5m, undeploy: shp}]"));
    expect![[r#"
        exit 1
        --- stderr
        error: no service has the image web:2
         --> <stdin>:4:26
          |
        4 | events: [{at: 5m, break: 'web:2'}]
          |                          ^^^^^^^
        hint: did you mean web:1?

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("events: [{at: 5m, break: 'web:2'}]"));
    expect![[r#"
        exit 1
        --- stderr
        error: there is no node elm at 5m
         --> <stdin>:4:26
          |
        4 | events: [{at: 5m, drain: elm}, {at: 6m, join: {name: elm, cpus: 1, memory: 1gb}}]
          |                          ^^^
        hint: a node is ash or birch

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with(
        "events: [{at: 5m, drain: elm}, {at: 6m, join: {name: elm, cpus: 1, memory: 1gb}}]",
    ));
    expect![[r#"
        exit 1
        --- stderr
        error: node ash is there twice, first on line 2
         --> <stdin>:4:32
          |
        4 | events: [{at: 5m, join: {name: ash, cpus: 1, memory: 1gb}}]
          |                                ^^^
        hint: give one of them another name

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("events: [{at: 5m, join: {name: ash, cpus: 1, memory: 1gb}}]"));
    expect![[r#"
        exit 1
        --- stderr
        error: the deployment says nothing of its services
         --> <stdin>:4:27
          |
        4 | events: [{at: 5m, deploy: {name: shop}}]
          |                           ^
        hint: name a compose file with `compose:`, or write `services:` here

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("events: [{at: 5m, deploy: {name: shop}}]"));
}

#[test]
fn an_event_that_cannot_be() {
    expect![[r#"
        exit 1
        --- stderr
        error: 2h is after the end: the scenario lasts 1h
         --> <stdin>:4:15
          |
        4 | events: [{at: 2h, crash: ash}]
          |               ^^
        hint: let it happen earlier, or make `length` longer

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("events: [{at: 2h, crash: ash}]"));
    expect![[r#"
        exit 1
        --- stderr
        error: ash is not gone at 5m, so it cannot return
         --> <stdin>:4:27
          |
        4 | events: [{at: 5m, return: ash}]
          |                           ^^^
        hint: let it `crash: ash` or `cut: ash` before

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("events: [{at: 5m, return: ash}]"));
    expect![[r#"
        exit 1
        --- stderr
        error: ash is gone already, since 5m
         --> <stdin>:4:46
          |
        4 | events: [{at: 5m, cut: ash}, {at: 6m, crash: ash}]
          |                                              ^^^
        hint: let it `return: ash` before, or name another node

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("events: [{at: 5m, cut: ash}, {at: 6m, crash: ash}]"));
    expect![[r#"
        exit 1
        --- stderr
        error: "soon" is not a duration; write 30s, 1m30s or 500ms
         --> <stdin>:4:15
          |
        4 | events: [{at: soon, crash: ash}]
          |               ^^^^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("events: [{at: soon, crash: ash}]"));
}

#[test]
fn usage_that_is_none() {
    expect![[r#"
        exit 1
        --- stderr
        error: there is no service shop/wbe
         --> <stdin>:5:3
          |
        5 |   shop/wbe:
          |   ^^^^^^^^
        hint: did you mean shop/web?

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("usage:\n  shop/wbe:\n    cpus: 1"));
    expect![[r#"
        exit 1
        --- stderr
        error: "web" does not name a service; write deployment/service
         --> <stdin>:4:9
          |
        4 | usage: {web: {cpus: 1}}
          |         ^^^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("usage: {web: {cpus: 1}}"));
    expect![[r#"
        exit 1
        --- stderr
        error: unknown key `hgh`
         --> <stdin>:4:35
          |
        4 | usage: {shop/web: {cpus: {low: 1, hgh: 2}}}
          |                                   ^^^
        hint: did you mean high?

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("usage: {shop/web: {cpus: {low: 1, hgh: 2}}}"));
    expect![[r#"
        exit 1
        --- stderr
        error: this is neither a wave nor a trace
         --> <stdin>:4:26
          |
        4 | usage: {shop/web: {cpus: {low: 1, high: 2}}}
          |                          ^
        hint: write a quantity, {low, high, period} or {step, values}

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("usage: {shop/web: {cpus: {low: 1, high: 2}}}"));
    expect![[r#"
        exit 1
        --- stderr
        error: `low` is above `high`
         --> <stdin>:4:26
          |
        4 | usage: {shop/web: {cpus: {low: 2, high: 1, period: 1h}}}
          |                          ^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("usage: {shop/web: {cpus: {low: 2, high: 1, period: 1h}}}"));
    expect![[r#"
        exit 1
        --- stderr
        error: `values` holds 0, not 1 to 100000
         --> <stdin>:4:26
          |
        4 | usage: {shop/web: {cpus: {step: 5m, values: []}}}
          |                          ^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("usage: {shop/web: {cpus: {step: 5m, values: []}}}"));
    expect![[r#"
        exit 1
        --- stderr
        error: expected a quantity, {low, high, period} or {step, values} here
         --> <stdin>:4:20
          |
        4 | usage: {shop/web: {cpus: [1]}}
          |                    ^^^^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("usage: {shop/web: {cpus: [1]}}"));
    expect![[r#"
        exit 1
        --- stderr
        error: "lots" is not a size; write 512m, 2gb or a number of bytes
         --> <stdin>:4:28
          |
        4 | usage: {shop/web: {memory: lots}}
          |                            ^^^^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("usage: {shop/web: {memory: lots}}"));
}

#[test]
fn usage_beyond_its_bounds() {
    expect![[r#"
        exit 1
        --- stderr
        error: a replica uses at most 1000000 cpus
         --> <stdin>:4:26
          |
        4 | usage: {shop/web: {cpus: 9999999999}}
          |                          ^^^^^^^^^^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("usage: {shop/web: {cpus: 9999999999}}"));
    expect![[r#"
        exit 1
        --- stderr
        error: a replica uses at most 16 TiB
         --> <stdin>:4:28
          |
        4 | usage: {shop/web: {memory: {low: 1gb, high: 99tb, period: 1h}}}
          |                            ^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("usage: {shop/web: {memory: {low: 1gb, high: 99tb, period: 1h}}}"));
}

#[test]
fn spans_that_are_none() {
    expect![[r#"
        exit 1
        --- stderr
        error: "5s..2s" begins above its end; write 2s..5s
         --> <stdin>:4:15
          |
        4 | takes: {pull: 5s..2s}
          |               ^^^^^^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("takes: {pull: 5s..2s}"));
    expect![[r#"
        exit 1
        --- stderr
        error: "fast" is not a span of time; write 2s..15s
         --> <stdin>:4:15
          |
        4 | takes: {pull: fast}
          |               ^^^^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("takes: {pull: fast}"));
    expect![[r#"
        exit 1
        --- stderr
        error: this takes at least 1ms and at most 1h
         --> <stdin>:4:15
          |
        4 | takes: {pull: 0s..2s}
          |               ^^^^^^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("takes: {pull: 0s..2s}"));
    expect![[r#"
        exit 1
        --- stderr
        error: unknown key `pul`
         --> <stdin>:4:9
          |
        4 | takes: {pul: 1s}
          |         ^^^
        hint: did you mean pull?

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&with("takes: {pul: 1s}"));
}
