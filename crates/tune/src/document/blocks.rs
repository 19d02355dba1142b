//! What a document consists of, however it is written.

use crate::finding::Severity;

/// Words on one line, whoever wrote them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text(String);

impl Text {
    /// Without line ends, and without what moves other letters about (Unicode's bidirectional controls).
    pub fn of(words: impl ToString) -> Self {
        let letters = words
            .to_string()
            .chars()
            .map(|letter| match letter {
                '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}' => ' ',
                letter if letter.is_control() || moves_letters(letter) => {
                    char::REPLACEMENT_CHARACTER
                }
                letter => letter,
            })
            .collect();
        Self(letters)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

const fn moves_letters(letter: char) -> bool {
    matches!(letter, '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// A part of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// Of the whole of it.
    Title(Text),
    /// A part of it begins.
    Section(Text),
    /// A part of that.
    Part(Text),
    /// A finding begins.
    Finding(Severity, Text),
    /// A paragraph.
    Words(Text),
    /// What each of these is.
    Named(Vec<(&'static str, Text)>),
    /// Where it is said, with addresses of those that have one.
    Sources(Vec<(Text, Option<String>)>),
    /// Lines as they are to be typed, or a diff, with what they are.
    Lines(&'static str, Vec<Text>),
    /// Several of a kind.
    List(Vec<Text>),
    /// Rows of as many cells as the head has.
    Table {
        head: Vec<Text>,
        rows: Vec<Vec<Text>>,
    },
}
