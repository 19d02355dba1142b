//! Words about somebody else's text, and about errors.

use std::error::Error;
use std::fmt::Display;

use crate::limits::WORDS_CHARS;

/// What a library says of a text, with the middle left out if it is long: libraries quote names and
/// lines of the text at fault however long they are, and say at the end where it is.
pub fn in_short(words: impl Display) -> String {
    let words = words.to_string();
    let count = words.chars().count();
    if count <= WORDS_CHARS {
        return words;
    }
    let half = WORDS_CHARS / 2;
    let mut short: String = words.chars().take(half).collect();
    short.push_str(" [...] ");
    short.extend(words.chars().skip(count - half));
    short
}

/// An error with everything that led to it, on one line.
#[must_use]
pub fn with_sources(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        words.push_str(": ");
        words.push_str(&error.to_string());
        source = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_with_what_led_to_it() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot read {0}")]
        struct Outer(&'static str, #[source] std::fmt::Error);
        let inner = std::fmt::Error.to_string();
        assert_eq!(with_sources(&std::fmt::Error), inner);
        let outer = Outer("x", std::fmt::Error);
        assert_eq!(with_sources(&outer), format!("cannot read x: {inner}"));
    }

    #[test]
    fn long_words_keep_their_beginning_and_end_and_short_ones_everything() {
        assert_eq!(in_short("line 1"), "line 1");
        let long = format!("unknown field `{}` at line 7", "\u{e9}".repeat(10_000));
        let short = in_short(long);
        assert!(short.starts_with("unknown field `\u{e9}"), "{short}");
        assert!(short.ends_with("\u{e9}` at line 7"), "{short}");
        assert!(short.chars().count() <= WORDS_CHARS + 7, "{short}");
    }
}
