//! Sums over memory that find damage, and that follow a change without being taken anew.
//!
//! A page's sum is that of one term for each of its words, made from the word and its place:
//! whoever changes some words takes their old terms away and adds the new ones. What was damaged
//! before stays found: its wrong term was never added. Not cryptographic: it finds damage, not
//! malice.

use std::ops::Range;

use crate::random::mix;
use crate::settings::PAGE;

/// Bytes of a word.
pub const WORD: usize = 8;

/// Tells places apart: odd, so that no two words of a page have the same.
const STEP: u64 = 0x9fb2_1c65_1e98_df25;

/// The terms of some words of a page. [`mix`] is a bijection: one wrong word is always found.
pub fn terms(page: &[u8; PAGE], words: Range<usize>) -> u64 {
    let (all, _) = page.as_chunks::<WORD>();
    let mut place = (words.start as u64 + 1).wrapping_mul(STEP);
    let mut sum = 0_u64;
    for word in &all[words] {
        sum = sum.wrapping_add(mix(u64::from_le_bytes(*word) ^ place));
        place = place.wrapping_add(STEP);
    }
    sum
}

/// The sum of a whole page.
pub fn page(page: &[u8; PAGE]) -> u64 {
    terms(page, 0..PAGE / WORD)
}

/// A sum over bytes of any length, page by page, the last filled up with zeros.
pub fn bytes(bytes: &[u8]) -> u64 {
    let (pages, rest) = bytes.as_chunks::<PAGE>();
    let mut last = [0; PAGE];
    last[..rest.len()].copy_from_slice(rest);
    let all = pages.iter().chain(std::iter::once(&last));
    all.fold(bytes.len() as u64, |sum, one| mix(sum ^ page(one)))
}

/// CRC-32 as zlib, gzip and Python's `zlib.crc32` have it (RFC 1952).
pub fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (sum >> 8) ^ CRC_TABLE[usize::from((sum as u8) ^ byte)]
    })
}

const CRC_TABLE: [u32; 256] = crc_table();

const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < table.len() {
        let (mut value, mut bit) = (at as u32, 0);
        while bit < 8 {
            value = (value >> 1) ^ (0xedb8_8320 & (value & 1).wrapping_neg());
            bit += 1;
        }
        table[at] = value;
        at += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_page() -> [u8; PAGE] {
        let mut page = [0; PAGE];
        for (at, byte) in page.iter_mut().enumerate() {
            *byte = (mix(at as u64) & 0xff) as u8;
        }
        page
    }

    #[test]
    fn a_sum_follows_a_change_as_if_it_were_taken_anew() {
        let mut changed = some_page();
        let words = 24..40;
        let before = page(&changed).wrapping_sub(terms(&changed, words.clone()));
        changed[24 * WORD..40 * WORD].fill(7);
        assert_eq!(before.wrapping_add(terms(&changed, words)), page(&changed));
    }

    #[test]
    fn single_bits_of_every_word_and_every_two_swapped_words_are_found() {
        let good = some_page();
        let sum = page(&good);
        for bit in (0..PAGE * 8).step_by(13) {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(page(&bad), sum, "bit {bit}");
        }
        for word in 0..PAGE / WORD - 1 {
            let mut bad = good;
            bad[word * WORD..(word + 2) * WORD].rotate_left(WORD);
            assert_ne!(page(&bad), sum, "word {word}");
        }
    }

    #[test]
    fn the_highest_bits_of_two_words_do_not_cancel_each_other() {
        let mut bad = some_page();
        let sum = page(&bad);
        for word in [3, 200] {
            bad[word * WORD + 7] ^= 0x80;
        }
        assert_ne!(page(&bad), sum);
    }

    #[test]
    fn bytes_of_any_length_have_a_sum_of_their_own() {
        let data = [some_page(), some_page()].concat();
        let sums: std::collections::BTreeSet<_> = [0, 1, 4095, 4096, 4097, 8191, 8192]
            .iter()
            .map(|length| bytes(&data[..*length]))
            .collect();
        assert_eq!(sums.len(), 7);
    }

    #[test]
    fn crc32_is_what_others_compute() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }
}
