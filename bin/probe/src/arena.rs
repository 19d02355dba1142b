//! The pages under test, and their verification.
//!
//! A page is right when its bytes give the checksum kept for it, and, once it was rewritten, when
//! its stamp says the generation that the count of all rewrites implies. The count is one word
//! that the heartbeat carries out of the guest: pages that were all left at an older state, with
//! their checksums, would still be found.
//!
//! ```text
//! | working set: rewritten in turn, again and again | the rest: written once |
//! 0                                        working_set                     pages
//! ```

use crate::content::{Class, Source};
use crate::settings::PAGE;

/// One page of the guest's memory.
#[derive(Clone)]
#[repr(align(4096))]
struct Page([u8; PAGE]);

/// Why a page is not what it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// Its bytes do not give its checksum.
    Checksum,
    /// It is of another generation than it should be.
    Generation,
}

/// A damaged page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bad {
    /// Its number.
    pub page: usize,
    /// What it holds.
    pub class: Class,
    /// What is wrong.
    pub damage: Damage,
}

/// The pages, their checksums, and how often they were rewritten.
pub struct Arena {
    source: Source,
    pages: Vec<Page>,
    checksums: Vec<u64>,
    working_set: usize,
    touch: usize,
    rewrites: u64,
}

impl Arena {
    /// Pages of zeros, not filled yet.
    pub fn new(source: Source, pages: usize, working_set: usize, touch: usize) -> Self {
        let zero = Page([0; PAGE]);
        let sum = checksum(&zero.0);
        Self {
            source,
            checksums: vec![sum; pages],
            pages: vec![zero; pages],
            working_set: working_set.min(pages),
            touch: touch.clamp(STAMP, PAGE),
            rewrites: 0,
        }
    }

    /// How many there are.
    pub fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// Rewrites since the beginning.
    pub fn rewrites(&self) -> u64 {
        self.rewrites
    }

    /// Gives `page` its first content.
    pub fn fill(&mut self, page: usize) {
        let bytes = &mut self.pages[page].0;
        if self.source.class(page) != Class::Zero {
            self.source.write(page, 0, bytes);
        }
        self.checksums[page] = checksum(bytes);
    }

    /// Rewrites the next page of the working set.
    pub fn rewrite(&mut self) {
        if self.working_set == 0 {
            return;
        }
        let page = self.place(self.rewrites);
        self.rewrites += 1;
        let generation = self.generation(page);
        let bytes = &mut self.pages[page].0;
        // Another part of the page each time, on a boundary of 64 bytes.
        let room = (PAGE - self.touch) / 64;
        let start =
            usize::try_from(crate::random::mix(generation) % (room as u64 + 1)).unwrap_or(0);
        self.source.write(
            page,
            generation,
            &mut bytes[start * 64..start * 64 + self.touch],
        );
        bytes[..STAMP].copy_from_slice(&stamp(page, generation));
        self.checksums[page] = checksum(bytes);
    }

    /// Whether `page` is what it must be.
    pub fn verify(&self, page: usize) -> Result<(), Bad> {
        let bytes = &self.pages[page].0;
        let generation = self.generation(page);
        let damage = if generation > 0 && bytes[..STAMP] != stamp(page, generation) {
            Damage::Generation
        } else if checksum(bytes) != self.checksums[page] {
            Damage::Checksum
        } else {
            return Ok(());
        };
        Err(Bad {
            page,
            class: self.source.class(page),
            damage,
        })
    }

    /// The page that rewrite number `rewrite` falls on.
    fn place(&self, rewrite: u64) -> usize {
        usize::try_from(rewrite % self.working_set.max(1) as u64).unwrap_or(0)
    }

    /// How often `page` was rewritten, from the count of all rewrites.
    fn generation(&self, page: usize) -> u64 {
        if page >= self.working_set {
            return 0;
        }
        let set = self.working_set as u64;
        self.rewrites / set + u64::from((page as u64) < self.rewrites % set)
    }
}

/// Bytes at the beginning of a rewritten page that tell its generation.
const STAMP: usize = 8;

fn stamp(page: usize, generation: u64) -> [u8; STAMP] {
    ((page as u64) << 40 ^ generation).to_le_bytes()
}

/// Four sums side by side, so that no multiplication waits for the one before. Not cryptographic:
/// it finds damage, not malice.
fn checksum(bytes: &[u8; PAGE]) -> u64 {
    const FACTOR: u64 = 0x9fb2_1c65_1e98_df25;
    let mut sums = [1_u64, 2, 3, 4];
    let (words, _) = bytes.as_chunks::<8>();
    let (groups, _) = words.as_chunks::<4>();
    for group in groups {
        for (sum, word) in sums.iter_mut().zip(group) {
            *sum = (sum.rotate_left(23) ^ u64::from_le_bytes(*word)).wrapping_mul(FACTOR);
        }
    }
    sums.into_iter()
        .fold(0, |all, sum| crate::random::mix(all ^ sum))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Mix;

    fn filled(pages: usize, working_set: usize) -> Arena {
        let source = Source::new(5, (Mix::default(), 0), working_set, Vec::new());
        let mut arena = Arena::new(source, pages, working_set, 512);
        (0..pages).for_each(|page| arena.fill(page));
        arena
    }

    fn damaged(arena: &Arena) -> Vec<Bad> {
        (0..arena.page_count())
            .filter_map(|page| arena.verify(page).err())
            .collect()
    }

    #[test]
    fn pages_stay_right_while_the_working_set_is_rewritten() {
        let mut arena = filled(100, 30);
        for _ in 0..1000 {
            arena.rewrite();
        }
        assert_eq!(damaged(&arena), []);
    }

    #[test]
    fn one_changed_bit_is_found() {
        let mut arena = filled(100, 30);
        arena.pages[77].0[4095] ^= 0x80;
        let bad = damaged(&arena);
        assert_eq!(bad.len(), 1);
        assert_eq!((bad[0].page, bad[0].damage), (77, Damage::Checksum));
    }

    #[test]
    fn a_page_left_at_an_older_state_is_found_even_with_its_old_checksum() {
        let mut arena = filled(64, 8);
        arena.rewrite();
        let old = (arena.pages[0].clone(), arena.checksums[0]);
        for _ in 0..8 {
            arena.rewrite();
        }
        (arena.pages[0], arena.checksums[0]) = old;
        let bad = damaged(&arena);
        assert_eq!((bad[0].page, bad[0].damage), (0, Damage::Generation));
    }

    #[test]
    fn two_swapped_pages_are_found() {
        let mut arena = filled(64, 0);
        arena.pages.swap(10, 60);
        assert_eq!(damaged(&arena).len(), 2);
    }

    #[test]
    fn without_a_working_set_nothing_is_rewritten() {
        let mut arena = filled(4, 0);
        arena.rewrite();
        assert_eq!(arena.rewrites(), 0);
    }
}
