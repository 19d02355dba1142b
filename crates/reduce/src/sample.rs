//! Samples of what crosses, through every codec.

use std::time::Duration;

use crate::class::Class;
use crate::codec::{Codec, Packer, ZstdFailed};
use crate::decide::{CODECS, Tried};
use crate::limits::{SAMPLE_BYTES, SAMPLE_WINDOW_LOG};

/// Tries out codecs. Each remembers the samples before, as it would remember what crossed.
#[derive(Debug)]
pub struct Sampler {
    packers: Vec<(Codec, Packer)>,
    packed: Vec<u8>,
    gathered: Gathered,
    /// Codecs have the memory that they need.
    begun: bool,
}

/// What is to become a sample of each class.
#[derive(Debug, Default)]
struct Gathered {
    ordinary: Vec<u8>,
    dense: Vec<u8>,
}

impl Default for Sampler {
    fn default() -> Self {
        let codecs = CODECS.into_iter().filter(|codec| *codec != Codec::None);
        Self {
            packers: codecs
                .map(|codec| (codec, Packer::new(SAMPLE_WINDOW_LOG)))
                .collect(),
            packed: Vec::new(),
            gathered: Gathered::default(),
            begun: false,
        }
    }
}

impl Sampler {
    /// Takes in a section, and once there is enough of its class for a sample, what each codec makes of that; `clock` says what
    /// the thread took of processors so far. Little by itself takes codecs many times as long for a byte as more does: they
    /// fetch their tables.
    ///
    /// # Errors
    /// A codec has no memory.
    pub fn sample(
        &mut self,
        class: Class,
        section: &[u8],
        clock: impl Fn() -> Duration,
        mut tried: impl FnMut(Tried),
    ) -> Result<(), ZstdFailed> {
        self.begin()?;
        let gathered = match class {
            Class::Ordinary => &mut self.gathered.ordinary,
            Class::Dense => &mut self.gathered.dense,
        };
        let wanted = SAMPLE_BYTES - gathered.len();
        gathered.extend_from_slice(&section[..section.len().min(wanted)]);
        if gathered.len() < SAMPLE_BYTES {
            return Ok(());
        }
        for (codec, packer) in &mut self.packers {
            self.packed.clear();
            let began = clock();
            packer.pack(*codec, gathered, &mut self.packed)?;
            tried(Tried {
                class,
                codec: *codec,
                bytes: gathered.len() as u64,
                packed: self.packed.len() as u64,
                took: clock().saturating_sub(began),
            });
        }
        gathered.clear();
        Ok(())
    }

    /// Has codecs fetch their memory, or the first sample would be charged with it.
    fn begin(&mut self) -> Result<(), ZstdFailed> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        self.packed.reserve(2 * SAMPLE_BYTES);
        for (codec, packer) in &mut self.packers {
            packer.pack(*codec, &[0; 64], &mut self.packed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SAMPLING_BYTES;

    #[test]
    fn sections_are_gathered_until_they_are_a_sample() {
        let mut sampler = Sampler::default();
        let section: Vec<u8> = (0..5000_u32).map(|at| (at / 7) as u8).collect();
        let (mut tried, mut given) = (Vec::new(), 0);
        while tried.is_empty() {
            given += section.len();
            let told = |one| tried.push(one);
            let sampled = sampler.sample(Class::Ordinary, &section, || Duration::ZERO, told);
            sampled.unwrap();
        }
        assert!(given >= SAMPLE_BYTES && given < SAMPLE_BYTES + section.len());
        assert_eq!(tried.len(), CODECS.len() - 1);
        for one in &tried {
            assert_eq!(
                (one.class, one.bytes),
                (Class::Ordinary, SAMPLE_BYTES as u64)
            );
            assert!(one.packed < one.bytes / 4, "{one:?}");
        }
        // The next one begins anew, and each class has its own.
        for class in [Class::Dense, Class::Ordinary] {
            let sampled =
                sampler.sample(class, &section, || Duration::ZERO, |one| panic!("{one:?}"));
            sampled.unwrap();
        }
    }

    #[test]
    fn to_try_all_codecs_takes_no_more_than_is_said() {
        let pages: Vec<u8> = (0..SAMPLE_BYTES as u32)
            .map(|n| (n.wrapping_mul(n) >> 7) as u8)
            .collect();
        let mut sampler = Sampler::default();
        // More than they remember.
        for _ in 0..16 {
            let clock = || Duration::ZERO;
            sampler
                .sample(Class::Ordinary, &pages, clock, |_| {})
                .unwrap();
        }
        let packers = sampler.packers.iter();
        let taken: usize = packers.map(|(_, packer)| packer.taken()).sum();
        let gathered = &sampler.gathered;
        let memory = [&sampler.packed, &gathered.ordinary, &gathered.dense];
        let memory: usize = memory.map(Vec::capacity).iter().sum();
        assert!(taken + memory <= SAMPLING_BYTES, "{taken} {memory}");
    }
}
