//! What the pages of the guest's own disk hold, and their verification.
//!
//! A page follows from its number, from how often it was rewritten, and from the seed: nothing is kept to verify it by but the count
//! of all rewrites. Two words tell number and generation, the rest is noise, which nobody makes smaller on its way.
//!
//! ```text
//! | working set: rewritten in turn, again and again | the rest: written once |
//! 0                                        working_set                     pages
//! ```

use crate::arena::Damage;
use crate::content::noise;
use crate::random::Random;
use crate::settings::PAGE;
use crate::turns::Turns;

/// Bytes at the beginning of a page that tell its number and its generation.
const STAMP: usize = 16;

/// What every page of the disk must hold.
#[derive(Debug)]
pub struct DiskPages {
    seed: u64,
    pages: usize,
    turns: Turns,
}

impl DiskPages {
    /// So many pages, of which the first are rewritten in turn.
    pub fn new(seed: u64, pages: usize, working_set: usize) -> Self {
        Self {
            seed,
            pages,
            turns: Turns::through(working_set.min(pages)),
        }
    }

    /// How many there are.
    pub fn page_count(&self) -> usize {
        self.pages
    }

    /// Rewrites since the beginning.
    pub fn rewrites(&self) -> u64 {
        self.turns.rewrites()
    }

    /// The page that is rewritten next, as it is before.
    pub fn due(&self) -> Option<usize> {
        self.turns.peek()
    }

    /// The next page is of its next generation from now on.
    pub fn rewrite(&mut self) -> Option<usize> {
        self.turns.next()
    }

    /// What a page must hold now.
    pub fn write(&self, page: usize, bytes: &mut [u8; PAGE]) {
        let generation = self.turns.generation(page);
        bytes[..STAMP].copy_from_slice(&stamp(page, generation));
        let mut random = Random::new(self.seed, [page as u64, generation]);
        noise(&mut random, &mut bytes[STAMP..]);
    }

    /// Whether a page holds what it must.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn verify(&self, page: usize, bytes: &[u8; PAGE]) -> Result<(), Damage> {
        if bytes[..STAMP] != stamp(page, self.turns.generation(page)) {
            return Err(Damage::Generation);
        }
        let mut right = [0; PAGE];
        self.write(page, &mut right);
        if *bytes == right {
            Ok(())
        } else {
            Err(Damage::Checksum)
        }
    }
}

fn stamp(page: usize, generation: u64) -> [u8; STAMP] {
    let words = [page as u64, generation].map(u64::to_le_bytes);
    let mut stamp = [0; STAMP];
    stamp.copy_from_slice(words.as_flattened());
    stamp
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_right_as_they_were_written_last_and_no_two_are_the_same() {
        let mut disk = DiskPages::new(7, 10, 3);
        let mut held = vec![[0; PAGE]; 10];
        (0..10).for_each(|page| disk.write(page, &mut held[page]));
        for _ in 0..4 {
            let page = disk.rewrite().unwrap();
            disk.write(page, &mut held[page]);
        }
        let good = |held: &[[u8; PAGE]]| {
            (0..10)
                .map(|page| disk.verify(page, &held[page]))
                .collect::<Vec<_>>()
        };
        assert_eq!(good(&held), [Ok(()); 10]);
        assert_eq!((disk.rewrites(), disk.due()), (4, Some(1)));
        let before = held.clone();
        held.swap(4, 8);
        held[9][STAMP] ^= 1;
        let found = good(&held);
        assert_eq!(found[4], Err(Damage::Generation));
        assert_eq!(found[8], Err(Damage::Generation));
        assert_eq!(found[9], Err(Damage::Checksum));
        assert_ne!(before[4][STAMP..], before[8][STAMP..]);
    }

    #[test]
    fn a_page_that_was_left_at_an_older_state_is_found() {
        let mut disk = DiskPages::new(7, 2, 2);
        let mut old = [0; PAGE];
        disk.write(0, &mut old);
        disk.rewrite();
        assert_eq!(disk.verify(0, &old), Err(Damage::Generation));
    }
}
