//! Text in facts and policies: bounded, and safe to print.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::limits::{ACCOUNT_LINES, TEXT_CHARS, WORD_CHARS};

/// Text that is none of the kind that was wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidWord {
    /// No [`Word`].
    #[error(
        "{text:?} is not usable as a label, group, model or feature: 1 to {WORD_CHARS} characters of a-z, \
         A-Z, 0-9, '.', '_', '-', '+' and '/', beginning with a letter or digit"
    )]
    Word {
        /// Its beginning.
        text: String,
    },
    /// No [`QemuVersion`].
    #[error("{text:?} is no version of QEMU: write 10.0.2")]
    Version {
        /// Its beginning.
        text: String,
    },
}

fn beginning(text: &str) -> String {
    text.chars().take(WORD_CHARS + 1).collect()
}

/// A label's key or value, the name of a group, a CPU model or a CPU feature.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Word(String);

impl Word {
    /// For what has no name that could be told.
    #[must_use]
    pub fn unknown() -> Self {
        Self("unknown".to_owned())
    }

    /// The word as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Word {
    type Err = InvalidWord;
    fn from_str(text: &str) -> Result<Self, InvalidWord> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "._-+/".contains(c);
        let begins_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if begins_well && text.len() <= WORD_CHARS && text.chars().all(allowed) {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidWord::Word {
            text: beginning(text),
        })
    }
}

impl TryFrom<String> for Word {
    type Error = InvalidWord;
    fn try_from(text: String) -> Result<Self, InvalidWord> {
        text.parse()
    }
}

impl From<Word> for String {
    fn from(word: Word) -> String {
        word.0
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Somebody else's words, to be shown: at most [`TEXT_CHARS`] characters, on one line, without
/// control characters. Longer ones are cut and others replaced, for words of a hypervisor are no
/// reason to refuse an inventory.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Text(String);

impl Text {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        let harmless = |c: char| if c.is_control() { '\u{fffd}' } else { c };
        let mut shown: String = text.chars().take(TEXT_CHARS).map(harmless).collect();
        if text.chars().nth(TEXT_CHARS).is_some() {
            shown.pop();
            shown.push('…');
        }
        Self(shown)
    }
}

impl From<Text> for String {
    fn from(text: Text) -> String {
        text.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is told in several lines: at most [`ACCOUNT_LINES`] of them, each a [`Text`]. Of more than that those in
/// the middle are counted, so that the first and the last stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Account(String);

impl Account {
    /// Its lines, as one text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Account {
    fn from(text: String) -> Self {
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        let harmless = |line: &&str| Text::from((*line).to_owned()).0;
        let mut shown: Vec<String> = lines.iter().map(harmless).collect();
        let more = shown.len().saturating_sub(ACCOUNT_LINES);
        if more > 0 {
            let first = ACCOUNT_LINES - 2;
            let counted = format!("  and {} lines more", more + 1);
            shown.splice(first..=first + more, [counted]);
        }
        Self(shown.join("\n"))
    }
}

impl From<Text> for Account {
    fn from(text: Text) -> Self {
        Self(text.0)
    }
}

impl From<Account> for String {
    fn from(account: Account) -> String {
        account.0
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A version of QEMU; a guest does not move to an older one unless that is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct QemuVersion {
    parts: [u16; 3],
}

impl QemuVersion {
    /// Older than any: for a host on which no QEMU answers.
    pub const NONE: Self = Self { parts: [0; 3] };
}

impl FromStr for QemuVersion {
    type Err = InvalidWord;
    fn from_str(text: &str) -> Result<Self, InvalidWord> {
        let read = || {
            let mut numbers = text.split('.').map(|part| part.parse::<u16>().ok());
            let major = numbers.next()??;
            let minor = numbers.next()??;
            let micro = numbers.next().unwrap_or(Some(0))?;
            numbers.next().is_none().then_some([major, minor, micro])
        };
        let invalid = || InvalidWord::Version {
            text: beginning(text),
        };
        read().map(|parts| Self { parts }).ok_or_else(invalid)
    }
}

impl TryFrom<String> for QemuVersion {
    type Error = InvalidWord;
    fn try_from(text: String) -> Result<Self, InvalidWord> {
        text.parse()
    }
}

impl From<QemuVersion> for String {
    fn from(version: QemuVersion) -> String {
        version.to_string()
    }
}

impl fmt::Display for QemuVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, micro] = self.parts;
        write!(f, "{major}.{minor}.{micro}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_would_break_a_line_or_a_pattern_are_refused_with_their_beginning() {
        for bad in ["", "-x", "a b", "é", "a\nb", "a=b", &"x".repeat(64)] {
            assert!(bad.parse::<Word>().is_err(), "{bad:?}");
        }
        let long = "y".repeat(10_000).parse::<Word>().unwrap_err().to_string();
        assert!(long.len() < 400, "{long}");
    }

    #[test]
    fn names_of_models_features_and_labels_are_words() {
        for good in [
            "Skylake-Server-v5",
            "sse4.1",
            "kvm_pv_eoi",
            "topology/rack",
            "a+b",
        ] {
            assert_eq!(good.parse::<Word>().unwrap().as_str(), good);
        }
    }

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        let version = |text: &str| text.parse::<QemuVersion>().unwrap();
        assert!(version("10.0.2") > version("7.2.22"));
        assert_eq!(version("9.1").to_string(), "9.1.0");
        for bad in ["", "10", "10.0.0.1", "a.b", "10.-1", "70000.0"] {
            assert!(bad.parse::<QemuVersion>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn somebody_elses_words_are_shown_on_one_line_and_cut() {
        let text = Text::from(format!("a\nb\u{1b}[31m{}", "x".repeat(9_000)));
        assert!(text.as_str().starts_with("a\u{fffd}b\u{fffd}[31m"));
        assert_eq!(text.as_str().chars().count(), TEXT_CHARS);
        assert!(text.as_str().ends_with("x…"));
        assert_eq!(Text::from(text.as_str().to_owned()), text);
    }

    #[test]
    fn an_account_keeps_its_lines_and_of_very_many_the_first_and_the_last() {
        let lines = |count: usize| {
            let lines = (1..=count).map(|number| format!("  guest {number}: no place\u{7}"));
            lines.collect::<Vec<_>>().join("\n")
        };
        let short = Account::from(format!("No plan.\n\n{}", lines(3)));
        assert_eq!(short.as_str().lines().count(), 4);
        assert!(short.as_str().ends_with("  guest 3: no place\u{fffd}"));
        let long = Account::from(lines(500));
        let shown: Vec<&str> = long.as_str().lines().collect();
        assert_eq!(shown.len(), ACCOUNT_LINES);
        assert_eq!(shown[ACCOUNT_LINES - 2], "  and 441 lines more");
        assert_eq!(shown[ACCOUNT_LINES - 1], "  guest 500: no place\u{fffd}");
        assert_eq!(Account::from(long.as_str().to_owned()), long);
    }
}
