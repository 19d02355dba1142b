//! Rules about any text: no marker of unfinished work, files small enough to read.

use crate::report::Report;
use crate::tree::File;

/// A source above this is a sign to split it.
const LINES_READABLE: usize = 600;

/// Work that is known to be missing belongs in the tracker, where somebody sees it. Split here so
/// that this file passes its own check.
const MARKERS: [&str; 4] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("todo", "!("),
];

/// Begins the place of a figure that is still to be measured.
const PLACE: &str = "⟨";

/// All files but the lock file, which no one reads.
pub fn check(files: &[File], report: &mut Report) {
    for file in files.iter().filter(|file| file.path != "Cargo.lock") {
        check_markers(file, report);
        check_places(file, report);
        check_length(file, report);
    }
}

fn check_markers(file: &File, report: &mut Report) {
    for (number, line) in file.text.lines().enumerate() {
        for marker in MARKERS.iter().filter(|marker| contains_word(line, marker)) {
            let path = &file.path;
            report.error(format!(
                "{path}:{}: {marker}: do it, or open an issue",
                number + 1
            ));
        }
    }
}

/// A page that was written before its figures were measured marks their places.
fn check_places(file: &File, report: &mut Report) {
    let open = file.text.matches(PLACE).count();
    if file.is(".md") && open > 0 {
        let path = &file.path;
        report.warning(format!(
            "{path} has {open} places marked {PLACE}...⟩ to be filled in"
        ));
    }
}

/// Whether `word` stands in `line` with no letter before or after it, so that `mktemp -d x.XXXXXX`
/// is no marker.
fn contains_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !is_letter(before) && (!is_letter(after) || word.ends_with('('))
    })
}

fn check_length(file: &File, report: &mut Report) {
    let lines = file.text.lines().count();
    if file.is(".rs") && lines > LINES_READABLE {
        let path = &file.path;
        report.warning(format!(
            "{path} has {lines} lines: above {LINES_READABLE}, think of a split"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_found_as_a_word_only() {
        assert!(contains_word(concat!("// TO", "DO: later"), MARKERS[0]));
        assert!(!contains_word(concat!("AUTO", "DO"), MARKERS[0]));
        assert!(!contains_word("mktemp -d /tmp/x.XXXXXX", MARKERS[2]));
    }
}
