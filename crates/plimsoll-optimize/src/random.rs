//! Chance with a seed: the same numbers on every machine, in every release.

/// A generator (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    #[inline]
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `bound`, which is not zero: the upper half of a product instead of a division.
    #[inline]
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(((self.draw() >> 32) * u64::from(bound)) >> 32).unwrap_or(0)
    }
}
