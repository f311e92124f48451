//! The fewest and cheapest of some replicas that free enough room together: exact while few steps are enough, which is
//! nearly always, and a good set otherwise.

use plimsoll_model::Resources;

use super::Effort;

/// So many sets are looked at on one node before the search takes what fits. Replicas of one service count as one kind, so
/// it is enough for every set of three among fifty services.
const MOST_STEPS: usize = 20_000;

/// A replica that may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) request: Resources,
    pub(super) priority: i32,
    pub(super) penalty: u8,
    /// Those of one class are alike and stand side by side: the first of them goes first.
    pub(super) class: usize,
    /// Which of the caps it counts against.
    pub(super) service: usize,
    /// It has a port that is needed.
    pub(super) is_required: bool,
}

/// What is to be found room for, and among whom.
#[derive(Debug)]
pub(super) struct Cover {
    pub(super) items: Vec<Item>,
    /// How many of each service may go.
    pub(super) caps: Vec<usize>,
    pub(super) asked: Resources,
    pub(super) reserved: Resources,
    pub(super) capacity: Resources,
}

/// What sets of equally many are compared by.
pub(super) type Dearness = (i64, i64, u32, Vec<usize>);

struct Walk<'c> {
    cover: &'c Cover,
    steps: usize,
    taken: Vec<usize>,
    left_of: Vec<usize>,
    best: Option<Dearness>,
}

impl Cover {
    /// The positions of those that go, at most so many; none where no such set is enough.
    pub(super) fn least(&self, most: usize, effort: &mut Effort) -> Option<Vec<usize>> {
        let required: Vec<usize> =
            (0..self.items.len()).filter(|i| self.items[*i].is_required).collect();
        let mut left_of = self.caps.clone();
        for i in &required {
            let left = &mut left_of[self.items[*i].service];
            *left = left.checked_sub(1)?;
        }
        let mut walk = Walk { cover: self, steps: 0, taken: required.clone(), left_of, best: None };
        let free = self.items.len() - required.len();
        for more in 0..=most.checked_sub(required.len())?.min(free) {
            let reserved =
                required.iter().fold(self.reserved, |it, i| it.minus(self.items[*i].request));
            walk.look(0, more, reserved);
            if walk.best.is_some() || walk.steps >= MOST_STEPS {
                break;
            }
        }
        effort.spend(walk.steps);
        match walk.best {
            Some((.., taken)) => Some(taken),
            None if walk.steps >= MOST_STEPS => self.greedy(&required, most),
            None => None,
        }
    }

    pub(super) fn fits(&self, reserved: Resources) -> bool {
        let (asked, reserved) = (self.asked.on(self.capacity), reserved.on(self.capacity));
        reserved.plus(asked).fits_in(self.capacity)
    }

    pub(super) fn dearness(&self, taken: &[usize]) -> Dearness {
        let priorities = || taken.iter().map(|i| i64::from(self.items[*i].priority));
        let penalties = taken.iter().map(|i| u32::from(self.items[*i].penalty)).sum();
        let mut taken = taken.to_vec();
        taken.sort_unstable();
        (priorities().max().unwrap_or(i64::MIN), priorities().sum(), penalties, taken)
    }

    /// Whoever frees most of what is lacking goes first, and whoever turns out not to be needed stays.
    fn greedy(&self, required: &[usize], most: usize) -> Option<Vec<usize>> {
        let mut left_of = self.caps.clone();
        let mut taken = required.to_vec();
        for i in required {
            left_of[self.items[*i].service] = left_of[self.items[*i].service].checked_sub(1)?;
        }
        let reserved = |taken: &[usize]| {
            taken.iter().fold(self.reserved, |it, i| it.minus(self.items[*i].request))
        };
        while !self.fits(reserved(&taken)) {
            let now = reserved(&taken);
            let may_go = (0..self.items.len())
                .filter(|i| !taken.contains(i) && left_of[self.items[*i].service] > 0);
            let next =
                may_go.max_by_key(|i| (self.gain(now, self.items[*i].request), usize::MAX - i))?;
            left_of[self.items[next].service] -= 1;
            taken.push(next);
        }
        let mut at = 0;
        while at < taken.len() {
            let mut without = taken.clone();
            let spared = without.remove(at);
            if !required.contains(&spared) && self.fits(reserved(&without)) {
                taken = without;
            } else {
                at += 1;
            }
        }
        taken.sort_unstable();
        (taken.len() <= most).then_some(taken)
    }

    /// The share of what is lacking that it frees, in millionths of the node, all dimensions together.
    fn gain(&self, reserved: Resources, request: Resources) -> u128 {
        let (capacity, asked) = (self.capacity, self.asked.on(self.capacity));
        let (reserved, request) = (reserved.on(capacity), request.on(capacity));
        let part = |reserved: u64, asked: u64, capacity: u64, request: u64| {
            let lacking = (reserved + asked).saturating_sub(capacity);
            u128::from(lacking.min(request)) * 1_000_000 / u128::from(capacity.max(1))
        };
        part(reserved.cpu.0, asked.cpu.0, capacity.cpu.0, request.cpu.0)
            + part(reserved.memory.0, asked.memory.0, capacity.memory.0, request.memory.0)
            + part(
                reserved.gpus.into(),
                asked.gpus.into(),
                capacity.gpus.into(),
                request.gpus.into(),
            )
    }
}

impl Walk<'_> {
    /// Every way to take `more` of the items from `from` on.
    fn look(&mut self, from: usize, more: usize, reserved: Resources) {
        let cover = self.cover;
        self.steps += 1;
        if more == 0 {
            if cover.fits(reserved) {
                let dearness = cover.dearness(&self.taken);
                if self.best.as_ref().is_none_or(|best| dearness < *best) {
                    self.best = Some(dearness);
                }
            }
            return;
        }
        if self.steps >= MOST_STEPS || !self.can_fit(from, more, reserved) {
            return;
        }
        let mut passed_over: Option<usize> = None;
        for i in from..cover.items.len() {
            let item = &cover.items[i];
            // Of those that are alike, the first one that goes is the first of them.
            if item.is_required
                || passed_over == Some(item.class)
                || self.left_of[item.service] == 0
            {
                continue;
            }
            self.left_of[item.service] -= 1;
            self.taken.push(i);
            self.look(i + 1, more - 1, reserved.minus(item.request));
            self.taken.pop();
            self.left_of[item.service] += 1;
            passed_over = Some(item.class);
        }
    }

    /// Whether as many of the largest in every dimension would be enough.
    fn can_fit(&self, from: usize, more: usize, reserved: Resources) -> bool {
        let cover = self.cover;
        let rest = cover.items[from..].iter().filter(|it| !it.is_required);
        let largest = rest.fold(Resources::NONE, |most, it| {
            let request = it.request.on(cover.capacity);
            Resources {
                cpu: most.cpu.max(request.cpu),
                memory: most.memory.max(request.memory),
                gpus: most.gpus.max(request.gpus),
                all_gpus: 0,
            }
        });
        let after = (0..more).fold(reserved.on(cover.capacity), |it, _| it.minus(largest));
        cover.fits(after)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::{Bytes, MilliCpus};
    use proptest::prelude::*;

    use super::*;

    fn resources((cpu, memory, gpus): (u64, u64, u32)) -> Resources {
        Resources { cpu: MilliCpus(cpu), memory: Bytes(memory), gpus, all_gpus: 0 }
    }

    /// The rule itself: look at every set there is.
    fn by_looking(cover: &Cover, most: usize) -> Option<Vec<usize>> {
        let sets = (0_u32..1 << cover.items.len()).map(|bits| {
            (0..cover.items.len()).filter(|i| bits >> i & 1 == 1).collect::<Vec<usize>>()
        });
        let is_right = |taken: &Vec<usize>| {
            let has_required =
                cover.items.iter().enumerate().all(|(i, it)| !it.is_required || taken.contains(&i));
            let is_within = cover.caps.iter().enumerate().all(|(service, cap)| {
                taken.iter().filter(|i| cover.items[**i].service == service).count() <= *cap
            });
            let freed =
                taken.iter().fold(cover.reserved, |it, i| it.minus(cover.items[*i].request));
            taken.len() <= most && has_required && is_within && cover.fits(freed)
        };
        sets.filter(is_right).min_by_key(|taken| (taken.len(), cover.dearness(taken)))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 512 } else { 4_096 }))]
        #[test]
        fn the_fewest_and_cheapest_go_as_looking_at_every_set_says(
            drawn in prop::collection::vec(
                ((0_u64..5, 0_u64..5, 0_u32..3), 0_i32..3, 0_u8..3, 0_usize..4, 0_u8..8), 0..9),
            caps in prop::collection::vec(prop_oneof![Just(1_usize), Just(usize::MAX)], 4),
            asked in (0_u64..8, 0_u64..8, 0_u32..3),
            spare in (0_u64..4, 0_u64..4, 0_u32..2),
            most in 1_usize..9,
        ) {
            let mut items: Vec<Item> = drawn.into_iter().map(|(request, priority, penalty, service, luck)| Item {
                request: resources(request), priority, penalty, class: 0, service, is_required: luck == 0,
            }).collect();
            let alike = |it: &Item| (it.priority, it.penalty, it.service, it.is_required, it.request.cpu, it.request.memory, it.request.gpus);
            items.sort_by_key(alike);
            for i in 1..items.len() {
                let is_same = alike(&items[i]) == alike(&items[i - 1]);
                items[i].class = items[i - 1].class + usize::from(!is_same);
            }
            let reserved = items.iter().fold(Resources::NONE, |it, item| it.plus(item.request));
            let capacity = reserved.plus(resources(spare));
            let cover = Cover { items, caps, asked: resources(asked), reserved, capacity };
            let found = cover.least(most, &mut Effort::default());
            prop_assert_eq!(&found, &by_looking(&cover, most));
            // What is taken when there is no time to look at all of them is enough, and none of it too much.
            if let Some(taken) = cover.greedy(&[], usize::MAX).filter(|_| cover.items.iter().all(|it| !it.is_required)) {
                let freed = |without: Option<usize>| taken.iter().filter(|i| Some(**i) != without)
                    .fold(cover.reserved, |it, i| it.minus(cover.items[*i].request));
                prop_assert!(cover.fits(freed(None)));
                prop_assert!(taken.iter().all(|i| !cover.fits(freed(Some(*i)))));
            }
        }
    }
}
