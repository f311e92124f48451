//! A layout and its cost, exact while processes shift and swap: what a step would cost is answered without changing or
//! allocating anything, from the rows of the two machines concerned.
//!
//! A step is asked for in two parts, the cheap one first: what it costs if capacities, conflicts and the bound on
//! moves allow it, and then, of the few steps worth taking, whether spread and dependencies do.

#![allow(
    clippy::needless_range_loop,
    reason = "loops over several rows read best by index, and unroll"
)]

use crate::problem::{Balance, Problem};
use crate::random::Random;

/// The most resources: a machine's row is an array, so that loops over it unroll.
pub const MAX_RESOURCES: usize = 24;

/// Numbers by resource, padded with zeros.
pub(crate) type Row<const R: usize> = [i64; R];

/// A process that nothing of its machine's transient room is given back for, or asked for: it began there.
const EVERY: i64 = -1;

/// Processes on machines, within all hard constraints.
#[derive(Debug, Clone)]
pub struct Layout<const R: usize> {
    processes: Vec<Placed<R>>,
    machines: Vec<Room<R>>,
    /// Processes by machine, in no order, and the place of each in its list.
    on: Vec<Vec<u32>>,
    place: Vec<u32>,
    /// Processes that are not where they began, in no order, and the place of each in that list.
    away: Vec<u32>,
    away_place: Vec<u32>,
    load_weights: Row<R>,
    /// All bits set where the resource is not transient.
    solid: Row<R>,
    /// Makes units of different resources comparable: each is a share of what the machines have together.
    scale: Row<R>,
    balances: Vec<Balance>,
    /// Weighted, by the machine a process began on and the one that it is on.
    move_costs: Vec<i64>,
    service_weight: i64,
    services: Services,
    most_moved: usize,
    cost: i64,
}

#[derive(Debug, Clone)]
struct Placed<const R: usize> {
    requirement: Row<R>,
    service: u32,
    start: u32,
    at: u32,
    /// Weighted.
    move_cost: i64,
}

#[derive(Debug, Clone)]
struct Room<const R: usize> {
    used: Row<R>,
    safety: Row<R>,
    /// What is left, with moved processes counted of transient resources.
    free: Row<R>,
    capacity: Row<R>,
    /// What would be left if all that can leave left.
    most: Row<R>,
    cost: i64,
    neighborhood: u32,
    location: u32,
}

/// Where services are, counted.
#[derive(Debug, Clone)]
struct Services {
    machines: usize,
    locations: usize,
    neighborhoods: usize,
    /// Whether a service is on a machine: a bit each.
    is_on: Vec<u64>,
    by_location: Vec<u16>,
    distinct: Vec<u32>,
    spread_min: Vec<u32>,
    by_neighborhood: Vec<u16>,
    depends_on: Vec<Vec<u32>>,
    dependents: Vec<Vec<u32>>,
    /// Processes away from where they began, by service.
    moved: Vec<u32>,
    /// How many services have so many of them.
    with_moved: Vec<u32>,
    most: u32,
}

impl Services {
    fn bit(&self, service: u32, machine: u32) -> (usize, u64) {
        let at = service as usize * self.machines + machine as usize;
        (at / 64, 1 << (at % 64))
    }

    #[inline]
    fn is_on(&self, service: u32, machine: u32) -> bool {
        let (word, bit) = self.bit(service, machine);
        self.is_on[word] & bit != 0
    }

    fn flip(&mut self, service: u32, machine: u32) {
        let (word, bit) = self.bit(service, machine);
        self.is_on[word] ^= bit;
    }

    #[inline]
    fn in_neighborhood(&self, service: u32, neighborhood: u32) -> u16 {
        self.by_neighborhood[service as usize * self.neighborhoods + neighborhood as usize]
    }

    fn count_neighborhood(&mut self, service: u32, from: u32, to: u32) {
        let row = service as usize * self.neighborhoods;
        self.by_neighborhood[row + from as usize] -= 1;
        self.by_neighborhood[row + to as usize] += 1;
    }

    fn count_location(&mut self, service: u32, from: u32, to: u32) {
        let row = service as usize * self.locations;
        self.by_location[row + from as usize] -= 1;
        if self.by_location[row + from as usize] == 0 {
            self.distinct[service as usize] -= 1;
        }
        if self.by_location[row + to as usize] == 0 {
            self.distinct[service as usize] += 1;
        }
        self.by_location[row + to as usize] += 1;
    }

    /// Whether the service is in enough locations once a process of it goes from one to the other.
    fn is_spread_after(&self, service: u32, from: u32, to: u32) -> bool {
        let row = service as usize * self.locations;
        let left = u32::from(self.by_location[row + from as usize] == 1);
        let entered = u32::from(self.by_location[row + to as usize] == 0);
        let distinct = self.distinct[service as usize] + entered - left;
        from == to || distinct >= self.spread_min[service as usize]
    }

    /// Whether the neighborhood may do without the service, of which it has none.
    fn is_spared(&self, service: u32, neighborhood: u32) -> bool {
        self.dependents[service as usize]
            .iter()
            .all(|dependent| self.in_neighborhood(*dependent, neighborhood) == 0)
    }

    /// Whether the neighborhood has all that the service depends on.
    fn is_served(&self, service: u32, neighborhood: u32) -> bool {
        self.depends_on[service as usize]
            .iter()
            .all(|needed| self.in_neighborhood(*needed, neighborhood) > 0)
    }

    /// One more process of the service is away from where it began, or one fewer, or as many.
    #[inline]
    fn count_moved(&mut self, service: u32, change: i32) {
        if change == 0 {
            return;
        }
        let before = self.moved[service as usize];
        let after = before.saturating_add_signed(change);
        self.moved[service as usize] = after;
        self.with_moved[before as usize] -= 1;
        self.with_moved[after as usize] += 1;
        let was_alone = before == self.most && self.with_moved[before as usize] == 0;
        if after > self.most || was_alone {
            self.most = after;
        }
    }
}

impl<const R: usize> Layout<R> {
    /// The start of the problem, which [`Problem::check`] accepts and which breaks no rule.
    pub fn new(problem: &Problem, most_moved: usize) -> Self {
        let row = |numbers: &[i64]| {
            let mut row = [0; R];
            row[..numbers.len()].copy_from_slice(numbers);
            row
        };
        let index = |n: usize| u32::try_from(n).expect("counts are checked to be far smaller");
        let resources = || problem.resources.iter();
        let solid: Vec<i64> =
            resources().map(|it| if it.is_transient { 0 } else { EVERY }).collect();
        let totals: Vec<i64> = (0..problem.resources.len())
            .map(|r| problem.machines.iter().map(|machine| machine.capacity[r]).sum::<i64>().max(1))
            .collect();
        let scale: Vec<i64> = totals.iter().map(|total| (1 << 40) / total).collect();
        let processes = problem.processes.iter().zip(&problem.start);
        let machines = problem.machines.iter().map(|machine| Room {
            used: [0; R],
            safety: row(&machine.safety),
            free: row(&machine.capacity),
            capacity: row(&machine.capacity),
            most: row(&machine.capacity),
            cost: 0,
            neighborhood: index(machine.neighborhood),
            location: index(machine.location),
        });
        let move_costs = problem.machines.iter().flat_map(|machine| &machine.move_costs);
        let mut layout = Self {
            processes: processes
                .map(|(process, start)| Placed {
                    requirement: row(&process.requirement),
                    service: index(process.service),
                    start: index(*start),
                    at: index(*start),
                    move_cost: problem.weights.process * process.move_cost,
                })
                .collect(),
            machines: machines.collect(),
            on: vec![Vec::new(); problem.machines.len()],
            place: vec![0; problem.processes.len()],
            away: Vec::new(),
            away_place: vec![0; problem.processes.len()],
            load_weights: row(&resources().map(|it| it.load_weight).collect::<Vec<_>>()),
            solid: row(&solid),
            scale: row(&scale),
            balances: problem.balances.clone(),
            move_costs: move_costs.map(|cost| problem.weights.machine * cost).collect(),
            service_weight: problem.weights.service,
            services: services(problem),
            most_moved,
            cost: 0,
        };
        for (process, start) in problem.start.iter().enumerate() {
            let (requirement, room) =
                (&layout.processes[process].requirement, &mut layout.machines[*start]);
            for (r, need) in requirement.iter().enumerate() {
                room.used[r] += need;
                room.free[r] -= need;
                room.most[r] -= need & !layout.solid[r];
            }
            layout.place[process] = index(layout.on[*start].len());
            layout.on[*start].push(index(process));
        }
        for machine in 0..layout.machines.len() {
            let cost = layout.machine_cost(machine, &layout.machines[machine].used);
            layout.machines[machine].cost = cost;
            layout.cost += cost;
        }
        layout
    }

    pub fn cost(&self) -> i64 {
        self.cost
    }

    pub fn moved(&self) -> usize {
        self.away.len()
    }

    /// Whether as many are away from where they began as may be.
    pub(crate) fn is_full(&self) -> bool {
        self.away.len() >= self.most_moved
    }

    pub(crate) fn any_away(&self, random: &mut Random) -> Option<u32> {
        let count = u32::try_from(self.away.len()).unwrap_or(u32::MAX);
        if count == 0 { None } else { self.away.get(random.below(count) as usize).copied() }
    }

    pub fn at(&self, process: u32) -> u32 {
        self.processes[process as usize].at
    }

    pub fn start(&self, process: u32) -> u32 {
        self.processes[process as usize].start
    }

    pub fn on(&self, machine: u32) -> &[u32] {
        &self.on[machine as usize]
    }

    pub(crate) fn processes(&self) -> u32 {
        u32::try_from(self.processes.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn machines(&self) -> u32 {
        u32::try_from(self.machines.len()).unwrap_or(u32::MAX)
    }

    /// Whether the machine has room for the process once all that can leave it has left.
    pub(crate) fn could_hold(&self, process: u32, machine: u32) -> bool {
        let placed = &self.processes[process as usize];
        let mask = self.mask(placed, machine);
        let room = &self.machines[machine as usize];
        let mut short = 0;
        for r in 0..R {
            short |= room.most[r] - (placed.requirement[r] & mask[r]);
        }
        short >= 0 && !self.services.is_on(placed.service, machine)
    }

    /// How much of what its machine lacks the process would give back by leaving.
    pub(crate) fn relief(&self, process: u32) -> i64 {
        let placed = &self.processes[process as usize];
        let give = self.mask(placed, placed.at);
        let room = &self.machines[placed.at as usize];
        let mut relief = 0;
        for r in 0..R {
            relief += self.scale[r] * (placed.requirement[r] & give[r]).min(-room.free[r]).max(0);
        }
        relief
    }

    pub(crate) fn is_over(&self, machine: u32) -> bool {
        self.machines[machine as usize].free.iter().any(|free| *free < 0)
    }

    /// What its requirements would cost on a machine without any safety capacity.
    pub(crate) fn size(&self, process: u32) -> i64 {
        let requirement = &self.processes[process as usize].requirement;
        requirement.iter().zip(&self.load_weights).map(|(need, weight)| need * weight).sum()
    }

    pub(crate) fn cost_at(&self, machine: u32) -> i64 {
        self.machines[machine as usize].cost
    }

    /// The machine of each process.
    pub fn places(&self) -> Vec<usize> {
        self.processes.iter().map(|process| process.at as usize).collect()
    }

    /// What a machine costs when it uses so much.
    #[inline]
    fn machine_cost(&self, machine: usize, used: &Row<R>) -> i64 {
        let room = &self.machines[machine];
        let mut cost = 0;
        for r in 0..R {
            cost += self.load_weights[r] * (used[r] - room.safety[r]).max(0);
        }
        for balance in &self.balances {
            let free = |r: usize| room.capacity[r] - used[r];
            let lack = balance.target * free(balance.of) - free(balance.to);
            cost += balance.weight * lack.max(0);
        }
        cost
    }

    /// What a process pays for where it is.
    #[inline]
    fn away_cost(&self, process: &Placed<R>, at: u32) -> i64 {
        if at == process.start {
            return 0;
        }
        let from = process.start as usize * self.machines.len();
        process.move_cost + self.move_costs[from + at as usize]
    }

    /// By how much going from `at` to `to` changes how many are away.
    #[inline]
    fn away_change(process: &Placed<R>, to: u32) -> i32 {
        i32::from(to != process.start) - i32::from(process.at != process.start)
    }

    /// What of the requirement a machine gives back or takes: nothing transient where the process began.
    #[inline]
    fn mask(&self, process: &Placed<R>, machine: u32) -> Row<R> {
        if process.start == machine { self.solid } else { [EVERY; R] }
    }

    #[inline]
    fn service_cost_after(&mut self, changes: [(u32, i32); 2]) -> i64 {
        if changes[0].1 == 0 && changes[1].1 == 0 {
            return 0;
        }
        let before = i64::from(self.services.most);
        for (service, change) in changes {
            self.services.count_moved(service, change);
        }
        let after = i64::from(self.services.most);
        for (service, change) in changes {
            self.services.count_moved(service, -change);
        }
        self.service_weight * (after - before)
    }

    /// What shifting the process would add to the cost, where capacity, conflicts and the bound on moves allow it.
    #[inline]
    pub fn shift_cost(&mut self, process: u32, to: u32) -> Option<i64> {
        let placed = &self.processes[process as usize];
        let from = placed.at;
        if from == to || self.services.is_on(placed.service, to) {
            return None;
        }
        let dst = &self.machines[to as usize];
        let need = &placed.requirement;
        let mask = self.mask(placed, to);
        let mut short = 0;
        for r in 0..R {
            short |= dst.free[r] - (need[r] & mask[r]);
        }
        if short < 0 {
            return None;
        }
        self.forced_cost(process, to)
    }

    /// The same of a machine that may lack the room: what is in the way has to go before anyone sees the layout.
    #[inline]
    pub(crate) fn forced_cost(&mut self, process: u32, to: u32) -> Option<i64> {
        let placed = &self.processes[process as usize];
        let from = placed.at;
        if from == to || self.services.is_on(placed.service, to) {
            return None;
        }
        let (src, dst) = (&self.machines[from as usize], &self.machines[to as usize]);
        let need = &placed.requirement;
        let change = Self::away_change(placed, to);
        if change > 0 && self.is_full() {
            return None;
        }
        let (mut less, mut more) = (src.used, dst.used);
        for r in 0..R {
            less[r] -= need[r];
            more[r] += need[r];
        }
        let cost = self.machine_cost(from as usize, &less) - src.cost
            + self.machine_cost(to as usize, &more)
            - dst.cost
            + self.away_cost(placed, to)
            - self.away_cost(placed, from);
        let service = placed.service;
        Some(cost + self.service_cost_after([(service, change), (service, 0)]))
    }

    /// Whether spread and dependencies allow a shift.
    pub fn may_shift(&self, process: u32, to: u32) -> bool {
        let placed = &self.processes[process as usize];
        let (src, dst) = (&self.machines[placed.at as usize], &self.machines[to as usize]);
        let service = placed.service;
        if !self.services.is_spread_after(service, src.location, dst.location) {
            return false;
        }
        let (from, to) = (src.neighborhood, dst.neighborhood);
        if from == to {
            return true;
        }
        let (left, entered) = (
            self.services.in_neighborhood(service, from) == 1,
            self.services.in_neighborhood(service, to) == 0,
        );
        (!left || self.services.is_spared(service, from))
            && (!entered || self.services.is_served(service, to))
    }

    /// Takes a step that [`shift_cost`](Self::shift_cost) gave the cost of and that may be taken.
    pub fn shift(&mut self, process: u32, to: u32, cost: i64) {
        self.carry(process, to);
        self.cost += cost;
    }

    fn carry(&mut self, process: u32, to: u32) {
        let placed = &self.processes[process as usize];
        let (from, service, change) = (placed.at, placed.service, Self::away_change(placed, to));
        let (give, take) = (self.mask(placed, from), self.mask(placed, to));
        let need = placed.requirement;
        let src = &mut self.machines[from as usize];
        for r in 0..R {
            src.used[r] -= need[r];
            src.free[r] += need[r] & give[r];
        }
        let (src_location, src_neighborhood) = (src.location, src.neighborhood);
        let dst = &mut self.machines[to as usize];
        for r in 0..R {
            dst.used[r] += need[r];
            dst.free[r] -= need[r] & take[r];
        }
        let (dst_location, dst_neighborhood) = (dst.location, dst.neighborhood);
        for machine in [from as usize, to as usize] {
            self.machines[machine].cost = self.machine_cost(machine, &self.machines[machine].used);
        }
        self.services.flip(service, from);
        self.services.flip(service, to);
        self.services.count_location(service, src_location, dst_location);
        self.services.count_neighborhood(service, src_neighborhood, dst_neighborhood);
        self.services.count_moved(service, change);
        match change {
            1 => push(&mut self.away, &mut self.away_place, process),
            -1 => remove(&mut self.away, &mut self.away_place, process),
            _ => {}
        }
        remove(&mut self.on[from as usize], &mut self.place, process);
        push(&mut self.on[to as usize], &mut self.place, process);
        self.processes[process as usize].at = to;
    }

    /// What it would add to the cost if two processes of different services took each other's machine, where capacity,
    /// conflicts and the bound on moves allow it.
    #[inline]
    pub fn swap_cost(&mut self, one: u32, other: u32) -> Option<i64> {
        let (p, q) = (&self.processes[one as usize], &self.processes[other as usize]);
        let (here, there) = (p.at, q.at);
        if here == there
            || p.service == q.service
            || self.services.is_on(p.service, there)
            || self.services.is_on(q.service, here)
        {
            return None;
        }
        let (near, far) = (&self.machines[here as usize], &self.machines[there as usize]);
        let (p_leaves, p_enters) = (self.mask(p, here), self.mask(p, there));
        let (q_leaves, q_enters) = (self.mask(q, there), self.mask(q, here));
        let mut short = 0;
        for r in 0..R {
            let (p, q) = (p.requirement[r], q.requirement[r]);
            short |= near.free[r] + (p & p_leaves[r]) - (q & q_enters[r]);
            short |= far.free[r] + (q & q_leaves[r]) - (p & p_enters[r]);
        }
        if short < 0 {
            return None;
        }
        let changes =
            [(p.service, Self::away_change(p, there)), (q.service, Self::away_change(q, here))];
        let away = self.away.len().saturating_add_signed((changes[0].1 + changes[1].1) as isize);
        if away > self.most_moved {
            return None;
        }
        let (mut near_used, mut far_used) = (near.used, far.used);
        for r in 0..R {
            let more = q.requirement[r] - p.requirement[r];
            near_used[r] += more;
            far_used[r] -= more;
        }
        let cost = self.machine_cost(here as usize, &near_used) - near.cost
            + self.machine_cost(there as usize, &far_used)
            - far.cost
            + self.away_cost(p, there)
            - self.away_cost(p, here)
            + self.away_cost(q, here)
            - self.away_cost(q, there);
        Some(cost + self.service_cost_after(changes))
    }

    /// Whether spread and dependencies allow a swap.
    pub fn may_swap(&mut self, one: u32, other: u32) -> bool {
        let (p, q) = (&self.processes[one as usize], &self.processes[other as usize]);
        let (at_a, at_b) = (&self.machines[p.at as usize], &self.machines[q.at as usize]);
        let (p, q) = (p.service, q.service);
        let (a, b) = (at_a.location, at_b.location);
        if !self.services.is_spread_after(p, a, b) || !self.services.is_spread_after(q, b, a) {
            return false;
        }
        let (a, b) = (at_a.neighborhood, at_b.neighborhood);
        if a == b {
            return true;
        }
        // Each may depend on the other, so it is the neighborhoods after both steps that are looked at.
        let services = &mut self.services;
        services.count_neighborhood(p, a, b);
        services.count_neighborhood(q, b, a);
        let holds = |service: u32, from: u32, to: u32| {
            (services.in_neighborhood(service, from) > 0 || services.is_spared(service, from))
                && services.is_served(service, to)
        };
        let holds = holds(p, a, b) && holds(q, b, a);
        services.count_neighborhood(p, b, a);
        services.count_neighborhood(q, a, b);
        holds
    }

    /// Takes a step that [`swap_cost`](Self::swap_cost) gave the cost of and that may be taken.
    pub fn swap(&mut self, one: u32, other: u32, cost: i64) {
        let (a, b) = (self.at(one), self.at(other));
        self.carry(one, b);
        self.carry(other, a);
        self.cost += cost;
    }
}

/// Adds a process to a list that another remembers the places of.
fn push(list: &mut Vec<u32>, places: &mut [u32], process: u32) {
    places[process as usize] = u32::try_from(list.len()).unwrap_or(u32::MAX);
    list.push(process);
}

fn remove(list: &mut Vec<u32>, places: &mut [u32], process: u32) {
    let place = places[process as usize];
    list.swap_remove(place as usize);
    if let Some(last) = list.get(place as usize) {
        places[*last as usize] = place;
    }
}

fn services(problem: &Problem) -> Services {
    let index = |n: usize| u32::try_from(n).expect("counts are checked to be far smaller");
    let (all, machines) = (problem.services.len(), problem.machines.len());
    let locations = problem.machines.iter().map(|it| it.location + 1).max().unwrap_or(0);
    let neighborhoods = problem.machines.iter().map(|it| it.neighborhood + 1).max().unwrap_or(0);
    let mut largest = vec![0_usize; all];
    let mut services = Services {
        machines,
        locations,
        neighborhoods,
        is_on: vec![0; (all * machines).div_ceil(64)],
        by_location: vec![0; all * locations],
        distinct: vec![0; all],
        spread_min: problem.services.iter().map(|it| index(it.spread_min)).collect(),
        by_neighborhood: vec![0; all * neighborhoods],
        depends_on: vec![Vec::new(); all],
        dependents: vec![Vec::new(); all],
        moved: vec![0; all],
        with_moved: Vec::new(),
        most: 0,
    };
    for (service, spec) in problem.services.iter().enumerate() {
        // A service that depends on itself always has what it needs.
        for on in spec.depends_on.iter().filter(|on| **on != service) {
            services.depends_on[service].push(index(*on));
            services.dependents[*on].push(index(service));
        }
    }
    for (process, at) in problem.processes.iter().zip(&problem.start) {
        let (service, machine) = (process.service, &problem.machines[*at]);
        services.flip(index(service), index(*at));
        let location = service * locations + machine.location;
        if services.by_location[location] == 0 {
            services.distinct[service] += 1;
        }
        services.by_location[location] += 1;
        services.by_neighborhood[service * neighborhoods + machine.neighborhood] += 1;
        largest[service] += 1;
    }
    services.with_moved = vec![0; largest.into_iter().max().unwrap_or(0) + 1];
    services.with_moved[0] = index(all);
    services
}
