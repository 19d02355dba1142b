//! What each codec made of what it was given.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::class::Class;
use crate::codec::Codec;
use crate::counts::{Counts, Section};
use crate::encoder::Choice;

/// What one codec made of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfCodec {
    /// The codec, and its level.
    pub codec: Codec,
    /// What it was given.
    pub class: Class,
    /// Bytes before it and behind it.
    pub section: Section,
    /// What that took of processors.
    pub took: Duration,
}

/// The same of all codecs that were used: each level once, for each class.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OfCodecs(Vec<OfCodec>);

impl OfCodecs {
    /// A chunk went through these.
    pub fn add(&mut self, choice: Choice, counts: &Counts, took: PackingTook) {
        for (class, codec, section, took) in [
            (
                Class::Ordinary,
                choice.ordinary,
                counts.ordinary_section,
                took.ordinary,
            ),
            (Class::Dense, choice.dense, counts.dense_section, took.dense),
        ] {
            if section.bytes > 0 {
                self.add_section(class, codec, section, took);
            }
        }
    }

    fn add_section(&mut self, class: Class, codec: Codec, section: Section, took: Duration) {
        let mut known = self.0.iter_mut();
        if let Some(of) = known.find(|of| (of.class, of.codec) == (class, codec)) {
            of.section += section;
            of.took += took;
        } else {
            self.0.push(OfCodec {
                codec,
                class,
                section,
                took,
            });
        }
    }

    /// In the order in which they were first used.
    pub fn iter(&self) -> impl Iterator<Item = &OfCodec> {
        self.0.iter()
    }
}

/// What the codecs of one chunk took of processors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PackingTook {
    /// The codec of everything but dense pages.
    pub ordinary: Duration,
    /// That of dense pages.
    pub dense: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    const ZSTD: Codec = Codec::Zstd(Level::USUAL);

    fn counts(ordinary: [u64; 2], dense: [u64; 2]) -> Counts {
        let section = |[bytes, packed]: [u64; 2]| Section { bytes, packed };
        Counts {
            ordinary_section: section(ordinary),
            dense_section: section(dense),
            ..Counts::default()
        }
    }

    #[test]
    fn each_codec_and_level_has_what_it_was_given_of_each_class() {
        let choice = |ordinary, dense| Choice { ordinary, dense };
        let took = PackingTook {
            ordinary: Duration::from_millis(3),
            dense: Duration::from_millis(1),
        };
        let mut all = OfCodecs::default();
        for codec in [ZSTD, Codec::Lz4, ZSTD] {
            all.add(
                choice(codec, Codec::None),
                &counts([100, 40], [10, 10]),
                took,
            );
        }
        all.add(choice(ZSTD, ZSTD), &counts([0, 0], [10, 9]), took);
        let of = |codec, class| {
            let of = all.iter().find(|of| (of.codec, of.class) == (codec, class));
            let of = of.unwrap();
            (
                of.section.bytes,
                of.section.packed,
                of.took.as_millis() as u64,
            )
        };
        assert_eq!(of(ZSTD, Class::Ordinary), (200, 80, 6));
        assert_eq!(of(Codec::Lz4, Class::Ordinary), (100, 40, 3));
        assert_eq!(of(Codec::None, Class::Dense), (30, 30, 3));
        assert_eq!(of(ZSTD, Class::Dense), (10, 9, 1));
        assert_eq!(all.iter().count(), 4, "nothing of what was not given");
    }
}
