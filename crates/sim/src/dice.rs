//! Chance from a seed: every choice of a world comes from here.

/// A stream of numbers from a seed.
///
/// # Source
/// SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.0)
    }

    /// Below that number, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let wide = u128::from(self.next()) * end as u128;
        (wide >> 64) as usize
    }

    /// From the first to the last, both among them.
    pub(crate) fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below((last - first + 1) as usize) as u64
    }

    /// `true` in so many of a thousand throws.
    pub(crate) fn permille(&mut self, of_thousand: u32) -> bool {
        of_thousand > 0 && self.below(1000) < of_thousand as usize
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

fn scramble(mut mixed: u64) -> u64 {
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// One number of two; any change of either changes it.
pub(crate) fn mix(one: u64, other: u64) -> u64 {
    scramble(one.rotate_left(23) ^ scramble(other.wrapping_add(0x9e37_79b9_7f4a_7c15)))
}
