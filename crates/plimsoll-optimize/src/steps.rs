//! The steps of the search: a process shifts, two swap, one goes home, or a process
//! takes a machine that has no room for it and what is in its way is ejected.
//!
//! The last is what large processes need. They are most of the cost and fit almost nowhere, so that neither a shift nor
//! a swap ever moves them.

use crate::annealing::Thresholds;
use crate::layout::Layout;
use crate::random::Random;

/// Of a million steps, how many are ejections: each is as much work as some hundred others.
const EJECTIONS: u32 = 3_000;

/// Of a million steps, how many look at a process's way home.
const HOMEWARD: u32 = 100_000;

/// Of a million steps, how many send one home for another, when as many as may be are away.
const TRADES: u32 = 300_000;

/// Machines drawn before an ejection is given up because none could ever hold the process.
const DRAWS: u32 = 10;

/// Processes looked at, and random machines for each, before one is ejected.
const CANDIDATES: usize = 16;
const DESTINATIONS: usize = 4;

/// The most ejections for one process.
const MAX_EJECTED: usize = 40;

/// Ejections that only make the machine cheaper, once the process fits.
const POLISH: u32 = 3;

/// A layout on its way, and what is drawn for its steps.
#[derive(Debug)]
pub(crate) struct Walk<const R: usize> {
    layout: Layout<R>,
    random: Random,
    thresholds: Thresholds,
    temperature: i64,
    /// Processes, the largest first.
    by_size: Vec<u32>,
    mean_size: i64,
    /// What an ejection has shifted so far, and from where.
    shifted: Vec<(u32, u32)>,
}

/// The best ejection so far: least key first.
#[derive(Debug, Clone, Copy)]
struct Ejection {
    key: i128,
    process: u32,
    to: u32,
    cost: i64,
}

impl<const R: usize> Walk<R> {
    /// At least one process and two machines.
    pub(crate) fn new(layout: Layout<R>, seed: u64) -> Self {
        let mut by_size: Vec<u32> = (0..layout.processes()).collect();
        by_size.sort_by_key(|process| (-layout.size(*process), *process));
        let sum: i64 = by_size.iter().map(|process| layout.size(*process)).sum();
        let mean_size = sum / i64::from(layout.processes());
        Self {
            layout,
            random: Random::new(seed),
            thresholds: Thresholds::new(),
            temperature: 0,
            by_size,
            mean_size,
            shifted: Vec::with_capacity(MAX_EJECTED),
        }
    }

    pub(crate) fn layout(&self) -> &Layout<R> {
        &self.layout
    }

    /// What a unit of a process's requirements costs, summed, of the mean process.
    pub(crate) fn mean_size(&self) -> i64 {
        self.mean_size
    }

    pub(crate) fn take_steps(&mut self, temperature: i64, steps: u32) {
        self.temperature = temperature;
        for _ in 0..steps {
            let draw = self.random.below(1_000_000);
            let is_full = self.layout.is_full();
            match draw {
                0..EJECTIONS => self.eject(),
                EJECTIONS..TRADES if is_full => self.trade(),
                EJECTIONS..HOMEWARD => self.go_home(),
                _ if draw.is_multiple_of(2) => self.shift(),
                _ => self.swap(),
            }
        }
    }

    /// How much dearer the next step may be.
    #[inline]
    fn threshold(&mut self) -> i64 {
        self.thresholds.draw(self.temperature, &mut self.random)
    }

    #[inline]
    fn any_process(&mut self) -> u32 {
        self.random.below(self.layout.processes())
    }

    #[inline]
    fn any_machine(&mut self) -> u32 {
        self.random.below(self.layout.machines())
    }

    fn shift(&mut self) {
        let (process, to) = (self.any_process(), self.any_machine());
        self.try_shift(process, to);
    }

    fn swap(&mut self) {
        let (one, other) = (self.any_process(), self.any_process());
        self.try_swap(one, other);
    }

    #[inline]
    fn try_shift(&mut self, process: u32, to: u32) {
        let most = self.threshold();
        let Some(cost) = self.layout.shift_cost(process, to) else { return };
        if cost <= most && self.layout.may_shift(process, to) {
            self.layout.shift(process, to, cost);
        }
    }

    #[inline]
    fn try_swap(&mut self, one: u32, other: u32) {
        let most = self.threshold();
        let Some(cost) = self.layout.swap_cost(one, other) else { return };
        if cost <= most && self.layout.may_swap(one, other) {
            self.layout.swap(one, other, cost);
        }
    }

    /// A process shifts to where it began, or swaps with one that is there.
    fn go_home(&mut self) {
        let Some(process) = self.layout.any_away(&mut self.random) else { return };
        let home = self.layout.start(process);
        let count = u32::try_from(self.layout.on(home).len()).unwrap_or(u32::MAX);
        if count == 0 || self.random.below(2) == 0 {
            self.try_shift(process, home);
        } else {
            let other = self.layout.on(home)[self.random.below(count) as usize];
            self.try_swap(process, other);
        }
    }

    /// One that is away goes home, so that another may leave.
    fn trade(&mut self) {
        let (process, to) = (self.any_process(), self.any_machine());
        let Some(back) = self.layout.any_away(&mut self.random) else { return };
        let most = self.threshold();
        let (from, home) = (self.layout.at(back), self.layout.start(back));
        let Some(first) = self.layout.shift_cost(back, home) else { return };
        if !self.layout.may_shift(back, home) {
            return;
        }
        self.layout.shift(back, home, first);
        if let Some(cost) = self.layout.shift_cost(process, to)
            && first + cost <= most
            && self.layout.may_shift(process, to)
        {
            self.layout.shift(process, to, cost);
            return;
        }
        self.layout.shift(back, from, -first);
    }

    /// A process takes a machine, and what is in its way there goes elsewhere; all of it, or none.
    fn eject(&mut self) {
        let Some(process) = self.any_that_matters() else { return };
        let from = self.layout.at(process);
        let Some(to) = self.any_that_could_hold(process) else { return };
        let most = self.threshold();
        if !self.layout.may_shift(process, to) {
            return;
        }
        let Some(cost) = self.layout.forced_cost(process, to) else { return };
        self.layout.shift(process, to, cost);
        self.shifted.clear();
        self.shifted.push((process, from));
        let mut total = cost;
        let mut polish = POLISH;
        while self.shifted.len() < MAX_EJECTED {
            let is_over = self.layout.is_over(to);
            if !is_over && polish == 0 {
                break;
            }
            polish -= u32::from(!is_over);
            let Some(ejection) = self.best_ejection(process, from, is_over) else { break };
            if !is_over && ejection.cost >= 0 {
                break;
            }
            self.layout.shift(ejection.process, ejection.to, ejection.cost);
            self.shifted.push((ejection.process, to));
            total += ejection.cost;
        }
        if total <= most && !self.layout.is_over(to) {
            return;
        }
        // The first of them takes the whole of the cost back, the others none.
        while let Some((process, back)) = self.shifted.pop() {
            self.layout.shift(process, back, -std::mem::take(&mut total));
        }
    }

    /// A large process, or one on a machine that costs much.
    fn any_that_matters(&mut self) -> Option<u32> {
        if self.random.below(2) == 0 {
            // The square of an even draw: the first of the list far more often than the last.
            let draw = u64::from(self.random.below(1 << 24));
            let nth = (u64::from(self.layout.processes()) * ((draw * draw) >> 24)) >> 24;
            return self.by_size.get(usize::try_from(nth).unwrap_or(0)).copied();
        }
        let mut machine = self.any_machine();
        for _ in 0..3 {
            let other = self.any_machine();
            if self.layout.cost_at(other) > self.layout.cost_at(machine) {
                machine = other;
            }
        }
        let count = u32::try_from(self.layout.on(machine).len()).unwrap_or(u32::MAX);
        if count == 0 {
            return None;
        }
        let draws = [self.random.below(count), self.random.below(count)];
        let [one, other] = draws.map(|nth| self.layout.on(machine)[nth as usize]);
        Some(if self.layout.size(other) > self.layout.size(one) { other } else { one })
    }

    fn any_that_could_hold(&mut self, process: u32) -> Option<u32> {
        let from = self.layout.at(process);
        (0..DRAWS).find_map(|_| {
            let machine = self.any_machine();
            (machine != from && self.layout.could_hold(process, machine)).then_some(machine)
        })
    }

    /// The cheapest way to have one leave the machine that `process` has taken: for what it gives back of what is lacking,
    /// while anything is.
    fn best_ejection(&mut self, process: u32, from: u32, is_over: bool) -> Option<Ejection> {
        let machine = self.layout.at(process);
        let destinations: [u32; DESTINATIONS] = std::array::from_fn(|_| self.any_machine());
        let count = self.layout.on(machine).len();
        let first = self.random.below(u32::try_from(count).unwrap_or(u32::MAX)) as usize;
        let mut best: Option<Ejection> = None;
        for nth in 0..count.min(CANDIDATES) {
            let ejected = self.layout.on(machine)[(first + nth) % count];
            let relief = if is_over { self.layout.relief(ejected) } else { 1 };
            if ejected == process || relief == 0 {
                continue;
            }
            for to in [from, self.layout.start(ejected)].into_iter().chain(destinations) {
                let Some(cost) = self.layout.shift_cost(ejected, to) else { continue };
                let key = if cost > 0 {
                    (i128::from(cost) << 24) / i128::from(relief)
                } else {
                    i128::from(cost)
                };
                if best.is_none_or(|best| key < best.key) && self.layout.may_shift(ejected, to) {
                    best = Some(Ejection { key, process: ejected, to, cost });
                }
            }
        }
        best
    }
}
