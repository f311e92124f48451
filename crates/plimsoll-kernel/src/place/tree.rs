//! A tree over the nodes in ring order that finds, in steps of the logarithm, the first node with enough room, and the least
//! that any such node bears.
//!
//! Each inner entry holds the most room that any leaf below it has in each dimension, so a descent skips whole
//! stretches of full nodes. It knows nothing of services: what a leaf offers is told to it by the
//! [`roster`](super::roster).

use std::ops::Range;

/// How many headroom lines a node has: below 0.75, below 0.85, and up to the whole of it.
pub(super) const LINES: usize = 3;

/// How much more a leaf can take before it crosses one line; negative when it is beyond it already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) cpu: i64,
    pub(super) memory: i64,
}

impl Room {
    const SHUT: Self = Self { cpu: -1, memory: -1 };

    fn max(self, other: Self) -> Self {
        Self { cpu: self.cpu.max(other.cpu), memory: self.memory.max(other.memory) }
    }

    pub(super) fn holds(self, ask: &Need) -> bool {
        self.cpu >= ask.cpu && self.memory >= ask.memory
    }
}

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) cpu: i64,
    pub(super) memory: i64,
    pub(super) gpus: i64,
    /// Every one of the leaf's, which has some.
    pub(super) is_all_gpus: bool,
}

impl Need {
    pub(super) const NONE: Self = Self { cpu: 0, memory: 0, gpus: 0, is_all_gpus: false };
}

/// What a leaf offers, or the best of the leaves below an inner entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotRoom {
    pub(super) rooms: [Room; LINES],
    pub(super) gpus: i64,
    /// Whether it has GPUs and all of them are free.
    pub(super) has_all_gpus: bool,
    /// How many leaves are open to new replicas at all, whatever their room.
    pub(super) open: u32,
    /// The least that an unmasked leaf is burdened with.
    pub(super) burden: Burden,
    /// The least that an unmasked leaf has left, in parts of it.
    pub(super) room_left: u8,
}

/// What nodes that are otherwise equal differ by: how many replicas of any service they run, then how busy they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Burden {
    pub(super) replicas: u32,
    /// In millionths; nothing where it is not known.
    pub(super) pressure: u32,
}

impl Burden {
    pub(super) const LEAST: Self = Self { replicas: 0, pressure: 0 };
    const MOST: Self = Self { replicas: u32::MAX, pressure: u32::MAX };

    /// The most that has so many replicas, however busy.
    fn any_with(replicas: u32) -> Self {
        Self { replicas, pressure: u32::MAX }
    }
}

impl SlotRoom {
    pub(super) const NONE: Self = Self {
        rooms: [Room::SHUT; LINES],
        gpus: -1,
        has_all_gpus: false,
        open: 0,
        burden: Burden::MOST,
        room_left: u8::MAX,
    };

    /// The same leaf, hidden from searches but still counted as open.
    pub(super) fn masked(self) -> Self {
        Self { open: self.open, ..Self::NONE }
    }

    fn best(left: &Self, right: &Self) -> Self {
        Self {
            rooms: std::array::from_fn(|line| left.rooms[line].max(right.rooms[line])),
            gpus: left.gpus.max(right.gpus),
            has_all_gpus: left.has_all_gpus || right.has_all_gpus,
            open: left.open + right.open,
            burden: left.burden.min(right.burden),
            room_left: left.room_left.min(right.room_left),
        }
    }

    fn holds(&self, need: &Need, line: usize) -> bool {
        self.rooms[line].holds(need)
            && self.gpus >= need.gpus
            && (self.has_all_gpus || !need.is_all_gpus)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Tree {
    /// A power of two; leaf `i` is entry `width + i`, the children of `k` are `2k` and `2k + 1`.
    width: usize,
    entries: Vec<SlotRoom>,
}

impl Tree {
    pub(super) fn new(leaves: impl ExactSizeIterator<Item = SlotRoom>) -> Self {
        let width = leaves.len().max(1).next_power_of_two();
        let mut entries = vec![SlotRoom::NONE; 2 * width];
        for (entry, offer) in entries[width..].iter_mut().zip(leaves) {
            *entry = offer;
        }
        for k in (1..width).rev() {
            entries[k] = SlotRoom::best(&entries[2 * k], &entries[2 * k + 1]);
        }
        Self { width, entries }
    }

    pub(super) fn get(&self, leaf: usize) -> &SlotRoom {
        &self.entries[self.width + leaf]
    }

    pub(super) fn set(&mut self, leaf: usize, offer: SlotRoom) {
        let mut k = self.width + leaf;
        if self.entries[k] == offer {
            return;
        }
        self.entries[k] = offer;
        while k > 1 {
            k /= 2;
            let best = SlotRoom::best(&self.entries[2 * k], &self.entries[2 * k + 1]);
            if self.entries[k] == best {
                return;
            }
            self.entries[k] = best;
        }
    }

    /// How many open leaves there are before `leaf`.
    pub(super) fn open_before(&self, leaf: usize) -> u32 {
        let mut k = self.width + leaf;
        let mut open = 0;
        while k > 1 {
            if k % 2 == 1 {
                open += self.entries[k - 1].open;
            }
            k /= 2;
        }
        open
    }

    /// The open leaf with `rank` open leaves before it.
    pub(super) fn nth_open(&self, mut rank: u32) -> Option<usize> {
        if rank >= self.entries[1].open {
            return None;
        }
        let mut k = 1;
        while k < self.width {
            k *= 2;
            if rank >= self.entries[k].open {
                rank -= self.entries[k].open;
                k += 1;
            }
        }
        Some(k - self.width)
    }

    /// The least that a leaf of the range with room below the line bears.
    pub(super) fn least(&self, range: Range<usize>, need: &Need, line: usize) -> Option<Burden> {
        let mut question = Question { range, need, line, most: Burden::MOST };
        self.sift(Entry::root(self.width), &mut question);
        (question.most != Burden::MOST).then_some(question.most)
    }

    /// The first leaf of the range with room below the line that bears no more than `most`.
    ///
    /// It goes from leaf to leaf as reading does, and over every stretch at once that has none.
    pub(super) fn first(
        &self,
        range: Range<usize>,
        need: &Need,
        line: usize,
        most: Burden,
    ) -> Option<usize> {
        self.first_where(range, |offer| offer.burden <= most && offer.holds(need, line))
    }

    /// Of the leaves of the range with room for it at all, the first of those that have least left.
    pub(super) fn fullest(&self, range: &Range<usize>, need: &Need, most: u8) -> Option<usize> {
        let first = |left: u8| {
            let fits = |offer: &SlotRoom| offer.room_left <= left && offer.holds(need, LINES - 1);
            self.first_where(range.clone(), fits)
        };
        (0..=most).find_map(first)
    }

    /// The first leaf of the range that is admitted; what admits a leaf must admit everything above it.
    fn first_where(
        &self,
        range: Range<usize>,
        admits: impl Fn(&SlotRoom) -> bool,
    ) -> Option<usize> {
        if range.is_empty() {
            return None;
        }
        let mut k = self.width + range.start;
        loop {
            let offer = &self.entries[k];
            if admits(offer) {
                if k >= self.width {
                    return Some(k - self.width);
                }
                k *= 2;
                continue;
            }
            // The next entry that begins where this one ends, as wide as it can be.
            k += 1;
            k >>= k.trailing_zeros();
            if k <= 1 {
                return None;
            }
            let below = k.leading_zeros() - self.width.leading_zeros();
            if (k << below) - self.width >= range.end {
                return None;
            }
        }
    }

    /// Of the leaves of the range with room below the line, the first of those with the fewest replicas, however busy they
    /// are.
    pub(super) fn emptiest(&self, range: Range<usize>, need: &Need, line: usize) -> Option<usize> {
        let least = self.least(range.clone(), need, line)?;
        self.first(range, need, line, Burden::any_with(least.replicas))
    }

    fn admits(&self, entry: &Entry, question: &Question<'_>) -> bool {
        let offer = &self.entries[entry.k];
        let inside =
            entry.from < question.range.end && entry.from + entry.span > question.range.start;
        inside && offer.burden <= question.most && offer.holds(question.need, question.line)
    }

    /// Lowers the question's bound to the least that a leaf admitted by it bears.
    fn sift(&self, entry: Entry, question: &mut Question<'_>) {
        if !self.admits(&entry, question) {
            return;
        }
        if entry.span == 1 {
            question.most = self.entries[entry.k].burden;
            return;
        }
        // The lighter half first: what it yields shuts most of the other out.
        let (left, right) = entry.halves();
        let right_first = self.entries[right.k].burden < self.entries[left.k].burden;
        let (first, second) = if right_first { (right, left) } else { (left, right) };
        self.sift(first, question);
        if self.entries[second.k].burden < question.most {
            self.sift(second, question);
        }
    }
}

/// Which leaf is looked for.
struct Question<'a> {
    range: Range<usize>,
    need: &'a Need,
    line: usize,
    most: Burden,
}

/// An entry of the tree and the stretch of leaves below it.
#[derive(Clone, Copy)]
struct Entry {
    k: usize,
    from: usize,
    span: usize,
}

impl Entry {
    fn root(width: usize) -> Self {
        Self { k: 1, from: 0, span: width }
    }

    fn halves(&self) -> (Self, Self) {
        let span = self.span / 2;
        (
            Self { k: 2 * self.k, from: self.from, span },
            Self { k: 2 * self.k + 1, from: self.from + span, span },
        )
    }
}
