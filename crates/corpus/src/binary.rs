//! Changes of binary layouts: numbers that lie, and packets that come again, are missing, or come from elsewhere.

use std::ops::Range;

use crate::dice::Dice;

/// Where counts, lengths and offsets go wrong.
const BOUNDARIES: &[u64] = &[
    0,
    1,
    7,
    8,
    0x7f,
    0xff,
    0x100,
    0xfff,
    0x1000,
    0x7fff,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
];

/// Bytes of a word by which a packet begins.
const MAGIC_BYTES: usize = 4;

/// So many bytes alike are filled up, and say nothing.
const FILLED: usize = 32;

/// The document with one to four changes; `other` is another one to take packets of.
pub(crate) fn change(dice: &mut Dice, document: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = document.to_vec();
    for _ in 0..=dice.below(4) {
        once(dice, &mut bytes, other);
    }
    bytes
}

fn once(dice: &mut Dice, bytes: &mut Vec<u8>, other: &[u8]) {
    match dice.below(10) {
        0..4 => number(dice, bytes),
        4 => {
            let at = place(dice, bytes);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << dice.below(8);
            }
        }
        5 => {
            if let Some(packet) = packet(dice, bytes) {
                let (end, piece) = (packet.end, bytes[packet].to_vec());
                bytes.splice(end..end, piece);
            }
        }
        6 => {
            if let Some(packet) = packet(dice, bytes) {
                bytes.drain(packet);
            }
        }
        7 => splice(dice, bytes, other),
        8 => {
            let at = place(dice, bytes);
            let end = (at + dice.below(64)).min(bytes.len());
            bytes[at..end].fill(dice.one_of(&[0, 0xff]));
        }
        _ => {
            let at = place(dice, bytes);
            bytes.truncate(at);
        }
    }
}

/// A place that may say something: not within what is filled up, and near to what comes behind that.
fn place(dice: &mut Dice, bytes: &[u8]) -> usize {
    let at = dice.below(bytes.len() + 1);
    let rest = &bytes[at..];
    let run = rest.iter().take_while(|byte| rest.first() == Some(*byte));
    let run = run.count();
    if run < FILLED {
        return at;
    }
    let far = dice.below(12);
    let near = dice.below(1 << far);
    (at + run + near).min(bytes.len())
}

/// Another number, big-endian, in place of what is there: one of the boundaries, or one beside the one before.
fn number(dice: &mut Dice, bytes: &mut [u8]) {
    let width = dice.one_of(&[1, 2, 4, 4, 8]);
    let mut at = place(dice, bytes);
    if dice.below(2) == 0 {
        at -= at % width;
    }
    let left = bytes.len() - at;
    let Some(field) = bytes.get_mut(at..at + width) else {
        return;
    };
    let before = field
        .iter()
        .fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte));
    let number = match dice.below(4) {
        0 => before.wrapping_add(dice.one_of(&[1, 8, 0x400, 0x1000])),
        1 => before.wrapping_sub(dice.one_of(&[1, 8, 0x400, 0x1000])),
        2 => left as u64,
        _ => dice.one_of(BOUNDARIES),
    };
    field.copy_from_slice(&number.to_be_bytes()[8 - width..]);
}

/// From a place to where the same word comes again: with packets that begin alike, the length of one.
fn packet(dice: &mut Dice, bytes: &[u8]) -> Option<Range<usize>> {
    let at = place(dice, bytes);
    let (word, rest) = bytes[at..].split_first_chunk()?;
    let next = find(rest, *word)? + MAGIC_BYTES;
    Some(at..at + next)
}

fn find(bytes: &[u8], word: [u8; MAGIC_BYTES]) -> Option<usize> {
    bytes.windows(MAGIC_BYTES).position(|four| four == word)
}

/// A packet of the other document, in front of what begins as it does.
fn splice(dice: &mut Dice, bytes: &mut Vec<u8>, other: &[u8]) {
    let Some(packet) = packet(dice, other) else {
        return;
    };
    let piece = &other[packet];
    let from = place(dice, bytes);
    let found = piece
        .first_chunk()
        .and_then(|word| find(&bytes[from..], *word));
    let at = from + found.unwrap_or(0);
    bytes.splice(at..at, piece.iter().copied());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header, and packets of a word, their number and 100 bytes that are filled up.
    fn packets(count: u32) -> Vec<u8> {
        let packet = |number: u32| {
            [
                &[0xaa, 0xbb, 0xcc, 0xdd],
                &number.to_be_bytes()[..],
                &[9; 100],
            ]
            .concat()
        };
        (0..count).flat_map(packet).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_changes_and_another_one_others() {
        let all = |seed| {
            let mut dice = Dice(seed);
            let changes = (0..200).map(|_| change(&mut dice, &packets(5), &packets(7)));
            changes.collect::<Vec<_>>()
        };
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
    }

    #[test]
    fn packets_come_again_are_missing_and_come_from_elsewhere() {
        let whole = |bytes: &[u8]| {
            let each = bytes.chunks(108).map(<[u8]>::to_vec);
            let all: Vec<_> = packets(9).chunks(108).map(<[u8]>::to_vec).collect();
            each.map(|packet| all.iter().position(|known| *known == packet))
                .collect::<Option<Vec<_>>>()
        };
        let mut dice = Dice(1);
        let (mut again, mut missing, mut other) = (false, false, false);
        for _ in 0..20_000 {
            if let Some(numbers) = whole(&change(&mut dice, &packets(4), &packets(9))) {
                again |= numbers.windows(2).any(|two| two[0] == two[1]);
                missing |= numbers == [0, 2, 3];
                other |= numbers.iter().any(|number| *number > 3);
            }
        }
        assert_eq!([again, missing, other], [true; 3]);
    }

    #[test]
    fn words_are_set_to_boundaries() {
        let mut dice = Dice(1);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..100_000 {
            let changed = change(&mut dice, &packets(1), b"");
            seen.extend(changed.get(4..8).map(<[u8]>::to_vec));
        }
        for number in [1_u32, 0xffff, 0x7fff_ffff, u32::MAX] {
            assert!(seen.contains(number.to_be_bytes().as_slice()), "{number:x}");
        }
    }

    #[test]
    fn the_empty_document_can_be_changed() {
        let mut dice = Dice(1);
        for _ in 0..1000 {
            change(&mut dice, b"", b"");
        }
    }
}
