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
}

impl Default for Sampler {
    fn default() -> Self {
        let codecs = CODECS.into_iter().filter(|codec| *codec != Codec::None);
        Self {
            packers: codecs
                .map(|codec| (codec, Packer::new(SAMPLE_WINDOW_LOG)))
                .collect(),
            packed: Vec::new(),
        }
    }
}

impl Sampler {
    /// What each codec makes of the first bytes of these pages; `clock` says what the thread took of processors so far.
    ///
    /// # Errors
    /// A codec has no memory.
    pub fn sample(
        &mut self,
        class: Class,
        pages: &[u8],
        clock: impl Fn() -> Duration,
        mut tried: impl FnMut(Tried),
    ) -> Result<(), ZstdFailed> {
        let sample = &pages[..pages.len().min(SAMPLE_BYTES)];
        for (codec, packer) in &mut self.packers {
            self.packed.clear();
            let began = clock();
            packer.pack(*codec, sample, &mut self.packed)?;
            tried(Tried {
                class,
                codec: *codec,
                bytes: sample.len() as u64,
                packed: self.packed.len() as u64,
                took: clock().saturating_sub(began),
            });
        }
        Ok(())
    }
}
