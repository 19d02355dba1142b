//! Random numbers that are the same for the same seed, on every machine.

/// SplitMix64 (Steele, Lea, Flood 2014): one word of state, passes BigCrush, a few instructions
/// a word, which counts in an emulated guest.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

/// SplitMix64's increment, 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Spreads the bits of `value`; a bijection.
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// A generator for one purpose, told apart from the others of the same seed by its labels.
    pub fn new(seed: u64, labels: [u64; 2]) -> Self {
        Self {
            state: mix(seed ^ mix(labels[0] ^ mix(labels[1]))),
        }
    }

    /// The next word.
    pub fn next(&mut self) -> u64 {
        let value = mix(self.state);
        self.state = self.state.wrapping_add(GOLDEN);
        value
    }

    /// A number below `bound`; 0 when the bound is 0. The bias is below 2^-32 for bounds that fit
    /// a guest's memory.
    pub fn below(&mut self, bound: usize) -> usize {
        let wide = u128::from(self.next()) * bound as u128;
        usize::try_from(wide >> 64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_labels_give_the_same_numbers() {
        let draw = |labels| {
            let mut random = Random::new(7, labels);
            [random.next(), random.next()]
        };
        assert_eq!(draw([1, 2]), draw([1, 2]));
        assert_ne!(draw([1, 2]), draw([2, 1]));
    }

    #[test]
    fn numbers_stay_below_their_bound() {
        let mut random = Random::new(1, [0, 0]);
        assert!((0..1000).all(|_| random.below(10) < 10));
        assert_eq!(random.below(0), 0);
    }
}
