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

use std::ops::Range;

use crate::content::{Class, Source};
use crate::settings::PAGE;
use crate::sums;
use crate::turns::Turns;

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

impl Damage {
    /// Its word on the serial line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Checksum => "checksum",
            Self::Generation => "generation",
        }
    }
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
    touch: usize,
    turns: Turns,
}

impl Arena {
    /// Pages of zeros, not filled yet.
    pub fn new(source: Source, pages: usize, working_set: usize, touch: usize) -> Self {
        let zero = Page([0; PAGE]);
        let sum = sums::page(&zero.0);
        Self {
            source,
            checksums: vec![sum; pages],
            pages: vec![zero; pages],
            touch: touch.clamp(STAMP, PAGE),
            turns: Turns::through(working_set.min(pages)),
        }
    }

    /// How many there are.
    pub fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// Rewrites since the beginning.
    pub fn rewrites(&self) -> u64 {
        self.turns.rewrites()
    }

    /// Gives `page` its first content.
    pub fn fill(&mut self, page: usize) {
        let bytes = &mut self.pages[page].0;
        if self.source.class(page) != Class::Zero {
            self.source.write(page, 0, bytes);
        }
        self.checksums[page] = sums::page(bytes);
    }

    /// Rewrites a part of the next page of the working set. The page's sum follows the words that
    /// change and keeps those of all others, so that damage to these stays found.
    pub fn rewrite(&mut self) {
        let Some(page) = self.turns.next() else {
            return;
        };
        let generation = self.turns.generation(page);
        // Another part of the page each time, on a boundary of 64 bytes.
        let start = part(generation, (PAGE - self.touch) / 64) * 64;
        let end = start + self.touch;
        let words = start / sums::WORD..end.div_ceil(sums::WORD);
        let bytes = &mut self.pages[page].0;
        let before = changing(bytes, &words);
        self.source.write(page, generation, &mut bytes[start..end]);
        bytes[..STAMP].copy_from_slice(&stamp(page, generation));
        let after = changing(bytes, &words);
        let sum = &mut self.checksums[page];
        *sum = sum.wrapping_sub(before).wrapping_add(after);
    }

    /// Whether `page` is what it must be.
    pub fn verify(&self, page: usize) -> Result<(), Bad> {
        let bytes = &self.pages[page].0;
        let generation = self.turns.generation(page);
        let damage = if generation > 0 && bytes[..STAMP] != stamp(page, generation) {
            Damage::Generation
        } else if sums::page(bytes) != self.checksums[page] {
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
}

/// One of `0..=most` for a generation.
fn part(generation: u64, most: usize) -> usize {
    let wide = u128::from(crate::random::mix(generation)) * (most as u128 + 1);
    usize::try_from(wide >> 64).unwrap_or(0)
}

/// The terms of the words that a rewrite changes: those of its part, and the stamp.
fn changing(bytes: &[u8; PAGE], words: &Range<usize>) -> u64 {
    let part = sums::terms(bytes, words.clone());
    let stamp = if words.start > 0 {
        sums::terms(bytes, 0..STAMP / sums::WORD)
    } else {
        0
    };
    part.wrapping_add(stamp)
}

/// Bytes at the beginning of a rewritten page that tell its generation.
const STAMP: usize = 8;

fn stamp(page: usize, generation: u64) -> [u8; STAMP] {
    ((page as u64) << 40 ^ generation).to_le_bytes()
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
    fn damage_is_found_also_after_the_page_was_rewritten() {
        for byte in [8, 100, 2048, 4095] {
            let mut arena = filled(8, 8);
            arena.pages[3].0[byte] ^= 1;
            for _ in 0..8 * 50 {
                arena.rewrite();
            }
            assert_eq!(damaged(&arena).len(), 1, "byte {byte}");
        }
    }

    #[test]
    fn parts_of_every_length_keep_their_pages_right() {
        for touch in [8, 9, 63, 128, 1000, 4090, PAGE] {
            let source = Source::new(5, (Mix::default(), 0), 4, Vec::new());
            let mut arena = Arena::new(source, 4, 4, touch);
            (0..4).for_each(|page| arena.fill(page));
            (0..100).for_each(|_| arena.rewrite());
            assert_eq!(damaged(&arena), [], "{touch}");
            assert_eq!(arena.rewrites(), 100);
        }
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
