//! Chance that can be replayed: the same seed gives the same numbers.

/// Steele, Lea and Flood's `SplitMix64`: good enough to draw faults with, and a few lines.
#[derive(Debug, Clone)]
pub struct LabRng(u64);

impl LabRng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below the bound, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        usize::try_from(self.draw() % bound).unwrap_or_default()
    }

    /// A number of the range, its ends included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.draw() % (most - least + 1)
    }

    pub fn happens(&mut self, percent: u8) -> bool {
        self.draw() % 100 < u64::from(percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_gives_others() {
        let draws = |seed| {
            let mut rng = LabRng::new(seed);
            (0..8).map(|_| rng.below(1_000)).collect::<Vec<_>>()
        };
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7), draws(8));
    }

    #[test]
    fn what_happens_in_a_fifth_of_cases_does() {
        let mut rng = LabRng::new(1);
        let happened = (0..10_000).filter(|_| rng.happens(20)).count();
        assert!((1_800..2_200).contains(&happened), "{happened}");
    }
}
