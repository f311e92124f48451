use super::*;

fn run(scenario: &FleetScenario, seed: u64) -> FleetOutcome {
    let outcome = run_fleet(scenario, seed);
    if let Some((at, why)) = &outcome.broken {
        panic!("seed {seed}, {} shards, after {at}: {why}\n{outcome:?}", scenario.shards);
    }
    outcome
}

#[test]
fn small_fleets_in_bad_weather_keep_every_promise_and_settle() {
    let mut begun = [0; 3];
    let (mut crashes, mut terms, mut moved) = (0, 0, 0);
    for seed in 0..24 {
        let outcome = run(&FleetScenario::stormy(4 + usize::try_from(seed).unwrap() % 9), seed);
        for (all, one) in begun.iter_mut().zip(outcome.begun) {
            *all += one;
        }
        crashes += outcome.crashes;
        terms += outcome.terms;
        moved += outcome.machines_moved;
    }
    // Each of the three tiers, each kind of crash, or nothing would be shown.
    assert!(begun.iter().all(|it| *it > 0), "{begun:?}");
    assert!(
        crashes > 0 && terms > 24 && moved > 0,
        "{crashes} crashes, {terms} terms, {moved} moved"
    );
}

#[test]
fn a_fleet_of_two_hundred_shards_keeps_every_promise_and_settles() {
    let scenario = FleetScenario {
        restless: Millis::minutes(20),
        settling: Millis::minutes(90),
        ..FleetScenario::stormy(200)
    };
    let outcome = run(&scenario, 1);
    assert!(outcome.machines_moved > 0, "{outcome:?}");
}

#[test]
fn a_coordinator_that_is_away_for_half_an_hour_is_followed_by_no_burst() {
    let away = (Millis::minutes(30), Millis::minutes(31));
    let scenario = FleetScenario { outage: away, crash_percent: 2, ..FleetScenario::stormy(12) };
    for seed in 0..4 {
        run(&scenario, seed);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let scenario = FleetScenario::stormy(6);
    assert_eq!(run_fleet(&scenario, 7), run_fleet(&scenario, 7));
}
