//! Looks for a cheaper layout: simulated annealing over shifts, swaps and ejections, in three runs of growing length, so
//! that an answer is good early and better later. It may be asked to stop at any moment and returns the best layout seen.
//!
//! A run cools from a temperature at which the mean process may go anywhere to one at which only its price matters,
//! and then to nothing. Which steps there are is in [`steps`](crate::steps).

use crate::annealing::{MAX_TEMPERATURE, TEMPERATURE_PLACES};
use crate::layout::Layout;
use crate::problem::Problem;
use crate::steps::Walk;

/// The whole of a budget, in the unit that [`search`] is told in how much of it is spent.
pub const WHOLE: u32 = 1_000_000;

/// Where each run ends: a second of a minute, five seconds of it, and all of it.
const RUNS: [u32; 3] = [16_000, 83_000, WHOLE];

/// The share of a run, in percent, that cools as far as prices matter; the rest is for the last few moves.
const COOLING_PERCENT: u32 = 85;

/// How often the temperature halves meanwhile, in millionths: from three tenths of a process to a ten-thousandth.
const HALVINGS: u64 = 11_550_000;

/// Steps between two looks at the clock.
const BLOCK: u32 = 2_048;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most processes away from where they began.
    pub most_moved: usize,
    pub seed: u64,
}

/// The best layout seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The machine of each process.
    pub layout: Vec<usize>,
    pub cost: i64,
    /// Steps looked at on the way.
    pub steps: u64,
}

/// Searches until `spent`, which is told the best cost so far, answers [`WHOLE`] or more.
///
/// The problem is one that [`Problem::check`] accepts, and its start breaks no rule. Equal answers of `spent` and equal
/// seeds give equal layouts.
pub fn search(problem: &Problem, limits: Limits, spent: &mut dyn FnMut(i64) -> u32) -> Found {
    // Rows are padded to one of a few lengths.
    match problem.resources.len() {
        0..=4 => search_rows::<4>(problem, limits, spent),
        5..=8 => search_rows::<8>(problem, limits, spent),
        9..=12 => search_rows::<12>(problem, limits, spent),
        _ => search_rows::<{ crate::MAX_RESOURCES }>(problem, limits, spent),
    }
}

fn search_rows<const R: usize>(
    problem: &Problem,
    limits: Limits,
    spent: &mut dyn FnMut(i64) -> u32,
) -> Found {
    let layout = Layout::<R>::new(problem, limits.most_moved);
    let mut best = Found { layout: layout.places(), cost: layout.cost(), steps: 0 };
    if problem.processes.is_empty() || problem.machines.len() < 2 || limits.most_moved == 0 {
        return best;
    }
    let mut walk = Walk::new(layout, limits.seed);
    let mut begin = 0;
    for end in RUNS {
        loop {
            let now = spent(best.cost);
            if now >= end {
                break;
            }
            let share = u64::from(now.saturating_sub(begin)) * u64::from(WHOLE);
            let temperature = temperature(walk.mean_size(), share / u64::from(end - begin));
            walk.take_steps(temperature, BLOCK);
            best.steps += u64::from(BLOCK);
            if walk.layout().cost() < best.cost {
                best.cost = walk.layout().cost();
                best.layout = walk.layout().places();
            }
        }
        begin = end;
    }
    best
}

/// How hot it is after so many millionths of a run.
fn temperature(mean_size: i64, share: u64) -> i64 {
    let cooling = u64::from(WHOLE / 100 * COOLING_PERCENT);
    let hot = (mean_size.min(MAX_TEMPERATURE >> TEMPERATURE_PLACES) << TEMPERATURE_PLACES) / 10 * 3;
    if share < cooling {
        return halved(hot, HALVINGS * share / cooling);
    }
    let cold = halved(hot, HALVINGS);
    // Down to a sixteenth, where not one move in a million goes uphill.
    let rest = u64::from((i64::BITS - cold.leading_zeros()).saturating_sub(6)) * u64::from(WHOLE);
    halved(cold, rest * (share - cooling) / (u64::from(WHOLE) - cooling))
}

/// A number halved so many millionths of times: powers of two, and straight lines between them.
fn halved(number: i64, millionths: u64) -> i64 {
    let (whole, part) = (millionths / u64::from(WHOLE), millionths % u64::from(WHOLE));
    let number = number >> whole.min(62);
    let part = i64::try_from(part).unwrap_or(0);
    number - number * part / (2 * i64::from(WHOLE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_cools_without_a_jump_and_ends_cold() {
        assert_eq!(halved(1_024, 0), 1_024);
        assert_eq!(halved(1_024, 2_500_000), 192);
        let at: Vec<i64> = (0..=100).map(|nth| temperature(10_000_000, nth * 10_000)).collect();
        let whole = |temperature: i64| temperature >> TEMPERATURE_PLACES;
        assert_eq!((whole(at[0]), whole(at[85])), (3_000_000, 1_062));
        assert!(at.windows(2).all(|pair| pair[1] < pair[0] && pair[1] * 3 >= pair[0]), "{at:?}");
        assert!((32..128).contains(&at[100]), "{at:?}");
    }
}
