//! What kind of content a page has, told quickly: what pays for one does not for another.

use serde::{Deserialize, Serialize};

/// A page's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Text, code, tables: a codec makes it less.
    Ordinary,
    /// Compressed or encrypted already, to all appearances.
    Dense,
}

/// Bytes that are looked at.
const SAMPLES: usize = 256;

/// Different values among [`SAMPLES`] random bytes: 162 on average, less than 145 once in a thousand pages. Code has some
/// 100, text some 50.
const DIFFERENT_LEAST: u32 = 145;

impl Class {
    /// Of a page, by how many different bytes it has in places spread over it.
    #[must_use]
    pub fn of(page: &[u8]) -> Self {
        // Odd, so that the same byte of each word is not all that is seen.
        let step = (page.len() / SAMPLES).saturating_sub(1) | 1;
        let mut seen = [0_u64; 4];
        for byte in page.iter().step_by(step).take(SAMPLES) {
            seen[usize::from(byte >> 6)] |= 1 << (byte & 63);
        }
        let different: u32 = seen.iter().map(|bits| bits.count_ones()).sum();
        if different < DIFFERENT_LEAST {
            Self::Ordinary
        } else {
            Self::Dense
        }
    }
}

/// The word that a page is filled with, if it has nothing else.
pub fn filled_with(page: &[u8]) -> Option<[u8; 8]> {
    let word = page.first_chunk()?;
    let (all_but_the_last, all_but_the_first) = (page.get(..page.len() - 8)?, page.get(8..)?);
    (all_but_the_first == all_but_the_last).then_some(*word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers without a pattern (xorshift).
    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let words = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        words.flatten().take(bytes).collect()
    }

    #[test]
    fn noise_is_dense_and_text_and_tables_are_not() {
        for page in noise(64 * 4096).chunks(4096) {
            assert_eq!(Class::of(page), Class::Dense);
        }
        let text = b"The quick brown fox jumps over the lazy dog. ".repeat(100);
        let table: Vec<u8> = (0..1024_u32)
            .flat_map(|n| (n * 7919).to_le_bytes())
            .collect();
        for page in [&text[..4096], &table] {
            assert_eq!(Class::of(page), Class::Ordinary);
        }
        assert_eq!(Class::of(&[]), Class::Ordinary);
    }

    #[test]
    fn a_page_of_one_word_is_told_from_one_that_differs_in_its_last_byte() {
        let mut page = [1, 2, 3, 4, 5, 6, 7, 8].repeat(512);
        assert_eq!(filled_with(&page), Some([1, 2, 3, 4, 5, 6, 7, 8]));
        page[4095] = 9;
        assert_eq!(filled_with(&page), None);
        assert_eq!(filled_with(&[0; 4096]), Some([0; 8]));
        assert_eq!(filled_with(&[1, 2]), None);
    }
}
