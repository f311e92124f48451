//! What a layout costs and which rules it breaks, from nothing: slow, short, and without any code of the search, whose
//! sums it checks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::problem::Problem;

/// The cost of a layout, term by term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    pub load: i64,
    pub balance: i64,
    pub process_move: i64,
    pub service_move: i64,
    pub machine_move: i64,
}

impl Cost {
    pub fn total(self) -> i64 {
        self.load + self.balance + self.process_move + self.service_move + self.machine_move
    }
}

/// A hard rule that a layout breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    Capacity { machine: usize, resource: usize, used: i64, capacity: i64 },
    Conflict { service: usize, machine: usize },
    Spread { service: usize, locations: usize, least: usize },
    Dependency { service: usize, on: usize, neighborhood: usize },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capacity { machine, resource, used, capacity } => write!(
                f,
                "machine {machine} has {used} of resource {resource} in use, of {capacity}"
            ),
            Self::Conflict { service, machine } => {
                write!(f, "machine {machine} has two processes of service {service}")
            }
            Self::Spread { service, locations, least } => {
                write!(f, "service {service} is in {locations} locations, of at least {least}")
            }
            Self::Dependency { service, on, neighborhood } => write!(
                f,
                "service {service} is in neighborhood {neighborhood} without service {on}"
            ),
        }
    }
}

/// What each machine uses; `is_held` counts moved processes on their old machine too, of transient resources.
fn usage(problem: &Problem, layout: &[usize], is_held: bool) -> Vec<Vec<i64>> {
    let mut used = vec![vec![0; problem.resources.len()]; problem.machines.len()];
    for ((process, from), to) in problem.processes.iter().zip(&problem.start).zip(layout) {
        for (nth, resource) in problem.resources.iter().enumerate() {
            used[*to][nth] += process.requirement[nth];
            if is_held && resource.is_transient && from != to {
                used[*from][nth] += process.requirement[nth];
            }
        }
    }
    used
}

pub fn cost(problem: &Problem, layout: &[usize]) -> Cost {
    let mut cost = Cost::default();
    let used = usage(problem, layout, false);
    for (machine, used) in problem.machines.iter().zip(&used) {
        for (nth, resource) in problem.resources.iter().enumerate() {
            cost.load += resource.load_weight * (used[nth] - machine.safety[nth]).max(0);
        }
        for balance in &problem.balances {
            let free = |nth: usize| machine.capacity[nth] - used[nth];
            let lack = balance.target * free(balance.of) - free(balance.to);
            cost.balance += balance.weight * lack.max(0);
        }
    }
    let mut moved: BTreeMap<usize, i64> = BTreeMap::new();
    for ((process, from), to) in problem.processes.iter().zip(&problem.start).zip(layout) {
        if from != to {
            *moved.entry(process.service).or_default() += 1;
            cost.process_move += problem.weights.process * process.move_cost;
            cost.machine_move += problem.weights.machine * problem.machines[*from].move_costs[*to];
        }
    }
    cost.service_move = problem.weights.service * moved.into_values().max().unwrap_or(0);
    cost
}

/// Every rule that the layout breaks.
pub fn violations(problem: &Problem, layout: &[usize]) -> Vec<Violation> {
    let mut broken = Vec::new();
    let used = usage(problem, layout, true);
    for (machine, (has, used)) in problem.machines.iter().zip(&used).enumerate() {
        for (resource, (capacity, used)) in has.capacity.iter().zip(used).enumerate() {
            if used > capacity {
                let (used, capacity) = (*used, *capacity);
                broken.push(Violation::Capacity { machine, resource, used, capacity });
            }
        }
    }
    let mut on = BTreeSet::new();
    let mut locations = vec![BTreeSet::new(); problem.services.len()];
    let mut neighborhoods = vec![BTreeSet::new(); problem.services.len()];
    for (process, machine) in problem.processes.iter().zip(layout) {
        let (service, machine) = (process.service, *machine);
        if !on.insert((service, machine)) {
            broken.push(Violation::Conflict { service, machine });
        }
        locations[service].insert(problem.machines[machine].location);
        neighborhoods[service].insert(problem.machines[machine].neighborhood);
    }
    for (service, spec) in problem.services.iter().enumerate() {
        let (found, least) = (locations[service].len(), spec.spread_min);
        // A service without processes has nothing to spread.
        if found > 0 && found < least {
            broken.push(Violation::Spread { service, locations: found, least });
        }
        for on in &spec.depends_on {
            for neighborhood in neighborhoods[service].difference(&neighborhoods[*on]) {
                let neighborhood = *neighborhood;
                broken.push(Violation::Dependency { service, on: *on, neighborhood });
            }
        }
    }
    broken
}
