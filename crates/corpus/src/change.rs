//! Changes of a text that decoders are known to stumble over.

use crate::dice::Dice;
use crate::limits::{NESTING, REPEATS};

const NUMBERS: &[&str] = &[
    "0",
    "-1",
    "65536",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "1e999",
    "-0.0",
    "0.5",
];

const WORDS: &[&str] = &[
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"../../etc/passwd\"",
    "\u{202e}",
    "\n",
    "\0",
    "%n",
];

/// The document with one to four changes; `other` is another one to take pieces of.
pub(crate) fn change(dice: &mut Dice, document: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = document.to_vec();
    for _ in 0..=dice.below(4) {
        once(dice, &mut bytes, other);
    }
    bytes
}

fn once(dice: &mut Dice, bytes: &mut Vec<u8>, other: &[u8]) {
    let at = dice.below(bytes.len() + 1);
    match dice.below(10) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << dice.below(8);
            }
        }
        1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = dice.one_of(&[0, 1, b' ', b'"', b'{', 0x7f, 0x80, 0xc0, 0xff]);
            }
        }
        2 => bytes.truncate(at),
        3 => {
            let end = at + dice.below(bytes.len() - at + 1);
            bytes.drain(at..end);
        }
        4 => repeat(dice, bytes, at),
        5 => splice(dice, bytes, at, other),
        6 => replace_number(dice, bytes, at),
        7 => replace_value(dice, bytes, at),
        8 => insert(bytes, at, dice.one_of(WORDS).as_bytes()),
        _ => nest(dice, bytes, at),
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    bytes.splice(at..at, piece.iter().copied());
}

fn repeat(dice: &mut Dice, bytes: &mut Vec<u8>, at: usize) {
    let end = at + dice.below((bytes.len() - at).min(64) + 1);
    let times = dice.one_of(&[1, 2, REPEATS]);
    let piece = bytes[at..end].repeat(times);
    insert(bytes, end, &piece);
}

fn splice(dice: &mut Dice, bytes: &mut Vec<u8>, at: usize, other: &[u8]) {
    let from = dice.below(other.len() + 1);
    let piece = &other[from..from + dice.below(other.len() - from + 1)];
    bytes.truncate(at.max(bytes.len() / 2));
    let at = at.min(bytes.len());
    insert(bytes, at, piece);
}

/// Another number in place of the next one: a length that lies.
fn replace_number(dice: &mut Dice, bytes: &mut Vec<u8>, at: usize) {
    let digit = |byte: &u8| byte.is_ascii_digit();
    let Some(begin) = bytes[at..].iter().position(digit).map(|n| at + n) else {
        return;
    };
    let length = bytes[begin..].iter().take_while(|byte| digit(byte)).count();
    let number = dice.one_of(NUMBERS).bytes();
    bytes.splice(begin..begin + length, number);
}

/// A value of another kind after the next colon or equals sign.
fn replace_value(dice: &mut Dice, bytes: &mut Vec<u8>, at: usize) {
    let sign = |byte: &u8| matches!(byte, b':' | b'=');
    let Some(begin) = bytes[at..].iter().position(sign).map(|n| at + n + 1) else {
        return;
    };
    let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b'\n');
    let length = bytes[begin..].iter().take_while(|byte| !ends(byte)).count();
    let word = dice.one_of(WORDS).bytes();
    bytes.splice(begin..begin + length, word);
}

fn nest(dice: &mut Dice, bytes: &mut Vec<u8>, at: usize) {
    let depth = dice.one_of(&[3, 130, NESTING]);
    let (open, close) = dice.one_of(&[("[", "]"), ("{\"a\":", "}"), ("(", ")")]);
    let mut piece = open.repeat(depth);
    if dice.below(2) == 0 {
        piece.push('1');
        piece.push_str(&close.repeat(depth));
    }
    insert(bytes, at, piece.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_changes_and_another_one_others() {
        let all = |seed| {
            let mut dice = Dice(seed);
            let document = br#"{"id": 7, "name": "x"}"#;
            let changes = (0..200).map(|_| change(&mut dice, document, b"other"));
            changes.collect::<Vec<_>>()
        };
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
    }

    #[test]
    fn the_empty_document_can_be_changed() {
        let mut dice = Dice(1);
        for _ in 0..1000 {
            change(&mut dice, b"", b"");
        }
    }
}
