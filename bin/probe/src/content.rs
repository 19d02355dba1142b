//! What the pages hold: kinds of content as guests have them, made from a seed.
//!
//! Compression, deduplication and delta encoding see very different guests in noise, in zeros and
//! in file contents; a probe filled with one of them would measure that one only.

use std::fmt;
use std::str::FromStr;

use crate::random::{Random, mix};
use crate::settings::PAGE;

/// Pages of one kind come in runs, as they do in a guest: 16 pages, 64 KiB.
const RUN: usize = 16;

/// Bytes of generated text from which text pages are cut.
const TEXT_POOL: usize = 4 << 20;

/// A kind of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Pieces of real files: programs, libraries, documentation.
    Files,
    /// Log lines and records in words.
    Text,
    /// Records with pointers, counters and flags, as a heap holds them.
    Structures,
    /// Nothing.
    Zero,
    /// Noise, as encrypted or compressed data are.
    Random,
}

/// Every class, in the order of a mix's shares.
pub const CLASSES: [Class; 5] = [
    Class::Files,
    Class::Text,
    Class::Structures,
    Class::Zero,
    Class::Random,
];

impl Class {
    /// Its word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Text => "text",
            Self::Structures => "structures",
            Self::Zero => "zero",
            Self::Random => "random",
        }
    }
}

/// Shares of the classes; they need not add up to 100.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mix {
    shares: [u32; CLASSES.len()],
}

impl Default for Mix {
    fn default() -> Self {
        Self {
            shares: [50, 15, 15, 10, 10],
        }
    }
}

impl Mix {
    /// `None` when nothing has a share, or one is beyond any meaning.
    pub fn new(shares: [u32; CLASSES.len()]) -> Option<Self> {
        let fits = shares.iter().all(|share| *share <= 1_000_000);
        (fits && shares.iter().any(|share| *share > 0)).then_some(Self { shares })
    }

    fn pick(&self, hash: u64) -> Class {
        let total: u64 = self.shares.iter().map(|share| u64::from(*share)).sum();
        let mut at = hash % total.max(1);
        for (class, share) in CLASSES.iter().zip(self.shares) {
            if at < u64::from(share) {
                return *class;
            }
            at -= u64::from(share);
        }
        Class::Zero
    }
}

/// Text that is no mix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidMix(pub String);

impl fmt::Display for InvalidMix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = CLASSES.map(Class::name).join(", ");
        write!(
            f,
            "{:?} is no mix: write shares such as files=50,text=15,zero=10 with the names {names}",
            self.0
        )
    }
}

impl std::error::Error for InvalidMix {}

/// `files=50,text=15`; a class that is not named gets nothing.
impl FromStr for Mix {
    type Err = InvalidMix;

    fn from_str(text: &str) -> Result<Self, InvalidMix> {
        let mut shares = [0; CLASSES.len()];
        let read = text.split(',').try_for_each(|part| {
            let (name, share) = part.split_once('=')?;
            let index = CLASSES
                .iter()
                .position(|class| class.name() == name.trim())?;
            shares[index] = share.trim().parse().ok()?;
            Some(())
        });
        let mix = read.and_then(|()| Self::new(shares));
        mix.ok_or_else(|| InvalidMix(text.chars().take(100).collect()))
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (class, share)) in CLASSES.iter().zip(self.shares).enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{}={share}", class.name())?;
        }
        Ok(())
    }
}

/// What all guests of one image have follows from this.
const IMAGE_SEED: u64 = 0x6472_6f76_6572;

/// Makes content.
#[derive(Debug)]
pub struct Source {
    seed: u64,
    mix: Mix,
    /// Of 100 pages, those of the image.
    common: u8,
    working_set: usize,
    files: Vec<u8>,
    text: Vec<u8>,
    image_text: Vec<u8>,
}

impl Source {
    /// `files` are the real file contents to cut from; without any, such pages hold text. Of 100 pages `common` are what
    /// other guests of the same image have, too.
    pub fn new(seed: u64, (mix, common): (Mix, u8), working_set: usize, files: Vec<u8>) -> Self {
        Self {
            seed,
            mix,
            common,
            working_set,
            files,
            text: text_pool(seed),
            image_text: text_pool(IMAGE_SEED),
        }
    }

    fn is_of_image(&self, page: usize) -> bool {
        mix(IMAGE_SEED ^ (page / RUN) as u64) % 100 < u64::from(self.common)
    }

    /// What page `page` holds. A rewritten page is never of zeros.
    pub fn class(&self, page: usize) -> Class {
        let seed = if self.is_of_image(page) {
            IMAGE_SEED
        } else {
            self.seed
        };
        match self.mix.pick(mix(seed ^ mix((page / RUN) as u64))) {
            Class::Zero if page < self.working_set => Class::Structures,
            class => class,
        }
    }

    /// Writes generation `generation` of `page`'s content over `bytes`, a part of that page.
    pub fn write(&self, page: usize, generation: u64, bytes: &mut [u8]) {
        let (seed, text) = if generation == 0 && self.is_of_image(page) {
            (IMAGE_SEED, &self.image_text)
        } else {
            (self.seed, &self.text)
        };
        let mut random = Random::new(seed, [page as u64, generation]);
        match self.class(page) {
            Class::Files => cut(&self.files, text, &mut random, bytes),
            Class::Text => cut(text, text, &mut random, bytes),
            Class::Structures => structures(&mut random, page, bytes),
            Class::Zero => bytes.fill(0),
            Class::Random => noise(&mut random, bytes),
        }
    }
}

/// Copies a piece from anywhere in `pool`.
fn cut(pool: &[u8], otherwise: &[u8], random: &mut Random, bytes: &mut [u8]) {
    let pool = if pool.len() > PAGE { pool } else { otherwise };
    let start = random.below(pool.len().saturating_sub(bytes.len()));
    if let Some(piece) = pool.get(start..start + bytes.len()) {
        bytes.copy_from_slice(piece);
    }
}

pub(crate) fn noise(random: &mut Random, bytes: &mut [u8]) {
    for word in bytes.chunks_mut(8) {
        let value = random.next().to_le_bytes();
        word.copy_from_slice(&value[..word.len()]);
    }
}

/// Records of 64 bytes: type, neighbours, length, references and flags, a time, an owner.
fn structures(random: &mut Random, page: usize, bytes: &mut [u8]) {
    const HEAP: u64 = 0x7f3a_5c00_0000;
    const CODE: u64 = 0x5581_9be4_0000;
    let here = HEAP + (page * PAGE) as u64;
    for (index, record) in bytes.chunks_mut(64).enumerate() {
        let chance = random.next();
        let near = |bits: u64| here.wrapping_add((bits & 0xffff) << 4);
        let words = [
            CODE + (chance & 0xf) * 0x120,
            near(chance >> 8),
            near(chance >> 24),
            (chance >> 40) & 0xff,
            1 | (chance >> 48 & 3) << 32,
            1_700_000_000 + page as u64 + index as u64,
            0,
            HEAP + (chance >> 52) * 0x40,
        ];
        for (slot, word) in record.chunks_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes()[..slot.len()]);
        }
    }
}

const WORDS: [&str; 48] = [
    "request",
    "from",
    "user",
    "accepted",
    "in",
    "the",
    "queue",
    "for",
    "session",
    "closed",
    "by",
    "peer",
    "after",
    "timeout",
    "of",
    "with",
    "status",
    "and",
    "size",
    "bytes",
    "written",
    "to",
    "block",
    "device",
    "volume",
    "cache",
    "miss",
    "hit",
    "retry",
    "worker",
    "started",
    "stopped",
    "connection",
    "refused",
    "address",
    "already",
    "used",
    "password",
    "changed",
    "invoice",
    "customer",
    "order",
    "total",
    "price",
    "shipped",
    "market",
    "region",
    "update",
];

/// Lines such as a log or a table of records has: few words often, many seldom, some numbers.
pub(crate) fn text_pool(seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed, [u64::MAX, 1]);
    let mut pool = Vec::with_capacity(TEXT_POOL + 256);
    let mut time = 1_790_000_000_u64;
    while pool.len() < TEXT_POOL {
        time += random.next() & 7;
        pool.extend_from_slice(time.to_string().as_bytes());
        for _ in 0..6 + random.below(10) {
            pool.push(b' ');
            // The product of two draws is small more often than not.
            let word = random.below(WORDS.len()) * random.below(WORDS.len()) / WORDS.len();
            pool.extend_from_slice(WORDS[word].as_bytes());
        }
        pool.extend_from_slice(b" id=");
        pool.extend_from_slice((random.next() >> 44).to_string().as_bytes());
        pool.push(b'\n');
    }
    pool
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(shares: [u32; 5]) -> Source {
        Source::new(3, (Mix::new(shares).unwrap(), 0), 0, vec![b'f'; 2 * PAGE])
    }

    #[test]
    fn the_same_page_and_generation_are_written_alike() {
        let source = source([1, 1, 1, 1, 1]);
        let page = |generation| {
            let mut bytes = [0; PAGE];
            source.write(40, generation, &mut bytes);
            bytes
        };
        assert_eq!(page(2), page(2));
    }

    #[test]
    fn shares_are_what_was_asked_for() {
        let source = source([50, 0, 0, 50, 0]);
        let zeros = (0..64_000)
            .filter(|page| source.class(*page) == Class::Zero)
            .count();
        assert!((30_000..34_000).contains(&zeros), "{zeros}");
        assert!((0..64_000).all(|p| matches!(source.class(p), Class::Zero | Class::Files)));
    }

    #[test]
    fn pages_that_are_rewritten_are_never_zero() {
        let source = Source::new(3, (Mix::new([0, 0, 0, 1, 0]).unwrap(), 0), 10, Vec::new());
        assert_eq!(source.class(9), Class::Structures);
        assert_eq!(source.class(10), Class::Zero);
    }

    #[test]
    fn parts_of_any_length_can_be_written() {
        let source = source([1, 1, 1, 1, 1]);
        for page in 0..200 {
            for length in [0, 1, 7, 63, 512, PAGE] {
                source.write(page, 1, &mut vec![1; length]);
            }
        }
    }

    #[test]
    fn guests_of_one_image_have_as_many_pages_in_common_as_was_said_until_they_write_to_them() {
        let guest = |seed| Source::new(seed, (Mix::default(), 60), 0, vec![b'f'; 9 * PAGE]);
        let (one, other) = (guest(1), guest(2));
        let page = |of: &Source, at, generation| {
            let mut bytes = vec![0; PAGE];
            of.write(at, generation, &mut bytes);
            bytes
        };
        let is_noise = |at: &usize| one.class(*at) == Class::Random;
        let runs = (0..5000).map(|run| run * RUN);
        let noise: Vec<_> = runs.filter(is_noise).collect();
        let same = |generation| {
            let same = |at: &&usize| page(&one, **at, generation) == page(&other, **at, generation);
            noise.iter().filter(same).count() * 100 / noise.len()
        };
        assert!((50..70).contains(&same(0)), "{}", same(0));
        assert_eq!(same(1), 0);
    }
}
