//! Numbers that look random and follow from a seed: what goes wrong can be made to go wrong again.

/// SplitMix64, as its author published it.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Everything that is thrown follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `sides`; 0 when there are none.
    pub fn below(&mut self, sides: usize) -> usize {
        let sides = sides.max(1) as u64;
        usize::try_from(self.throw() % sides).unwrap_or(0)
    }

    /// One of these; `None` of none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_throws_the_same_and_every_side_comes() {
        let throws = |seed| {
            let mut dice = Dice::new(seed);
            (0..200).map(|_| dice.below(6)).collect::<Vec<_>>()
        };
        assert_eq!(throws(7), throws(7));
        assert_ne!(throws(7), throws(8));
        for side in 0..6 {
            assert!(throws(7).contains(&side), "{side}");
        }
        assert_eq!(Dice::new(1).below(0), 0);
        assert_eq!(Dice::new(1).pick::<u8>(&[]), None);
    }
}
