//! The layout agrees with the referee on any problem, and the search keeps every rule.

use proptest::prelude::*;

use crate::layout::Layout;
use crate::problem::{Balance, Machine, MoveWeights, Problem, Process, Resource, Service};
use crate::random::Random;
use crate::search::{Limits, WHOLE, search};
use crate::{ProblemError, referee};

/// A problem whose start breaks no rule: processes are put down one by one where rules allow, and dependencies only
/// where they already hold.
fn any_problem(seed: u64) -> Problem {
    let mut random = Random::new(seed);
    let mut below = |bound: u32| random.below(bound);
    let resources: Vec<Resource> = (0..=below(5))
        .map(|_| Resource { is_transient: below(3) == 0, load_weight: i64::from(below(20)) })
        .collect();
    let count = 2 + below(6);
    let mut numbers = |least: u32, most: u32| -> Vec<i64> {
        resources.iter().map(|_| i64::from(least + below(most - least))).collect()
    };
    let requirements: Vec<Vec<i64>> = (0..30).map(|_| numbers(0, 30)).collect();
    let capacities: Vec<Vec<i64>> = (0..count).map(|_| numbers(60, 200)).collect();
    let safeties: Vec<Vec<i64>> = (0..count).map(|_| numbers(0, 150)).collect();
    let machines: Vec<Machine> = capacities
        .into_iter()
        .zip(safeties)
        .map(|(capacity, safety)| Machine {
            neighborhood: below(3) as usize,
            location: below(4) as usize,
            capacity,
            safety,
            move_costs: (0..count).map(|_| i64::from(below(3))).collect(),
        })
        .collect();
    let services = 1 + below(8);
    let mut problem = Problem {
        balances: (0..below(3))
            .map(|_| Balance {
                of: below(u32::try_from(resources.len()).unwrap()) as usize,
                to: 0,
                target: i64::from(1 + below(4)),
                weight: i64::from(below(10)),
            })
            .collect(),
        resources,
        machines,
        services: vec![Service::default(); services as usize],
        weights: MoveWeights::default(),
        ..Problem::default()
    };
    for requirement in requirements {
        let service = below(services) as usize;
        let move_cost = i64::from(below(5));
        problem.processes.push(Process { service, requirement, move_cost });
        problem.start.push(below(count) as usize);
        if !referee::violations(&problem, &problem.start).is_empty() {
            problem.processes.pop();
            problem.start.pop();
        }
    }
    for service in 0..problem.services.len() {
        let on = below(services) as usize;
        let spread = below(4) as usize;
        for change in [
            Service { spread_min: 0, depends_on: vec![on] },
            Service { spread_min: spread, depends_on: Vec::new() },
        ] {
            let before = problem.services[service].clone();
            problem.services[service].depends_on.extend(change.depends_on);
            problem.services[service].spread_min += change.spread_min;
            if !referee::violations(&problem, &problem.start).is_empty() {
                problem.services[service] = before;
            }
        }
    }
    problem
}

/// A budget of so many looks at the clock.
fn looks(count: u32) -> impl FnMut(i64) -> u32 {
    let mut looked = 0;
    move |_| {
        looked += 1;
        WHOLE / count * (looked - 1) + u32::from(looked > count) * WHOLE
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn what_a_step_costs_is_what_the_referee_finds(seed in any::<u64>()) {
        let problem = any_problem(seed);
        prop_assert_eq!(problem.check(), Ok(()));
        let mut layout = Layout::<8>::new(&problem, usize::MAX);
        let mut random = Random::new(seed);
        if problem.processes.is_empty() {
            return Ok(());
        }
        for _ in 0..200 {
            let (one, other) = (random.below(layout.processes()), random.below(layout.processes()));
            let to = random.below(layout.machines());
            let mut after = layout.places();
            let is_shift = random.below(2) == 0;
            let cost = if is_shift {
                after[one as usize] = to as usize;
                layout.shift_cost(one, to).filter(|_| layout.may_shift(one, to))
            } else {
                after.swap(one as usize, other as usize);
                let cost = layout.swap_cost(one, other);
                cost.filter(|_| layout.may_swap(one, other))
            };
            let is_same = after == layout.places();
            let is_allowed = referee::violations(&problem, &after).is_empty();
            let is_known = is_shift
                || problem.processes[one as usize].service != problem.processes[other as usize].service;
            if is_known && !is_same {
                prop_assert_eq!(cost.is_some(), is_allowed, "{} {} {}", one, other, to);
            }
            let Some(cost) = cost else { continue };
            if is_shift {
                layout.shift(one, to, cost);
            } else {
                layout.swap(one, other, cost);
            }
            prop_assert_eq!(layout.cost(), referee::cost(&problem, &after).total());
            prop_assert_eq!(layout.places(), after);
        }
    }

    #[test]
    fn what_is_found_keeps_every_rule_and_costs_no_more(seed in any::<u64>(), most in 0_usize..40) {
        let problem = any_problem(seed);
        let limits = Limits { most_moved: most, seed };
        let found = search(&problem, limits, &mut looks(20));
        prop_assert_eq!(referee::violations(&problem, &found.layout), vec![]);
        prop_assert_eq!(referee::cost(&problem, &found.layout).total(), found.cost);
        prop_assert!(found.cost <= referee::cost(&problem, &problem.start).total());
        let moved = found.layout.iter().zip(&problem.start).filter(|(to, from)| to != from).count();
        prop_assert!(moved <= most);
        prop_assert_eq!(search(&problem, limits, &mut looks(20)), found);
    }
}

/// At most seven machines and five processes: few enough to try every layout.
#[test]
fn on_a_small_problem_nothing_better_is_left() {
    for seed in 0..20 {
        let mut problem = any_problem(seed);
        problem.processes.truncate(5);
        problem.start.truncate(5);
        for service in &mut problem.services {
            *service = Service::default();
        }
        let machines = problem.machines.len();
        let all = machines.pow(u32::try_from(problem.processes.len()).unwrap());
        let best = (0..all)
            .map(|mut nth| {
                let digits = problem.processes.iter().map(|_| {
                    let digit = nth % machines;
                    nth /= machines;
                    digit
                });
                digits.collect::<Vec<usize>>()
            })
            .filter(|layout| referee::violations(&problem, layout).is_empty())
            .map(|layout| referee::cost(&problem, &layout).total())
            .min();
        let limits = Limits { most_moved: 5, seed: 1 };
        let found = search(&problem, limits, &mut looks(50));
        assert_eq!(Some(found.cost), best, "seed {seed}");
    }
}

#[test]
fn a_problem_whose_parts_do_not_fit_is_refused() {
    let sound = any_problem(1);
    let broken = |change: fn(&mut Problem)| {
        let mut problem = sound.clone();
        change(&mut problem);
        problem.check().unwrap_err()
    };
    let error = broken(|it| it.start[0] = 99);
    assert!(matches!(error, ProblemError::Unknown { to: "machine", found: 99, .. }), "{error}");
    let error = broken(|it| it.machines[0].capacity.clear());
    assert!(matches!(error, ProblemError::Length { of: "machine", index: 0, .. }), "{error}");
    let error = broken(|it| it.processes[0].requirement[0] = -1);
    assert!(matches!(error, ProblemError::Number { found: -1, .. }), "{error}");
    let error = broken(|it| {
        it.resources[0].load_weight = 1 << 31;
        it.processes[0].requirement[0] = 1 << 31;
    });
    assert_eq!(error, ProblemError::Overflow);
}
