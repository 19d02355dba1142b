//! What is not tested on a machine, and how that is said: by one spelling, which is what runners look for.

use crate::report::Report;
use crate::tree::File;

/// What a test prints where the machine lacks something.
pub const SKIPPED: &str = "skipped, because";

/// Every place where something is said to be skipped.
pub fn check(files: &[File], report: &mut Report) {
    for file in files.iter().filter(|file| file.is(".rs")) {
        for line in otherwise_said(&file.text) {
            let path = &file.path;
            report.error(format!(
                "{path}:{line}: nobody hears of what is skipped here: begin with {SKIPPED:?}"
            ));
        }
    }
}

/// Lines that say in other words that something is skipped, each with its number.
fn otherwise_said(text: &str) -> Vec<usize> {
    let printed = text.match_indices("println!(").filter_map(|(at, print)| {
        let literal = text[at + print.len()..].trim_start().strip_prefix('"')?;
        let words = literal.trim_start_matches("\\n");
        let is_otherwise = words.starts_with("skipped") && !words.starts_with(SKIPPED);
        is_otherwise.then(|| text[..at].lines().count())
    });
    printed.collect()
}

/// Tests that are marked as not to be run by themselves: a runner counts them and hides the reason. Those that another test starts are run.
pub fn ignored(files: &[File]) -> Vec<String> {
    let mut ignored = Vec::new();
    for file in files.iter().filter(|file| file.is(".rs")) {
        for (number, line) in file.text.lines().enumerate() {
            let Some(reason) = line.trim().strip_prefix("#[ignore = \"") else {
                continue;
            };
            let reason = reason.trim_end_matches("\"]");
            if !is_started_by_another(reason) {
                ignored.push(format!("{SKIPPED} {reason} ({}:{})", file.path, number + 1));
            }
        }
    }
    ignored
}

fn is_started_by_another(reason: &str) -> bool {
    let another = ["a test", "the test"];
    reason.contains("start") && another.iter().any(|test| reason.contains(test))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_to_be_skipped_in_other_words_is_an_error() {
        // Not as it would stand in a source, so that this file passes.
        let print = |words: &str| format!("fn a() {{\n    print{}{words}\", x);\n}}\n", "ln!(\"");
        for wrong in ["skipped: x", "\\nskipped in part, because x"] {
            let text = print(wrong);
            assert_eq!(otherwise_said(&text), [2], "{text}");
            let broken = text.replace("(\"", "(\n        \"");
            assert_eq!(otherwise_said(&broken), [2], "{broken}");
        }
        for right in [
            "skipped, because x",
            "\\nskipped, because x",
            "it skipped x",
        ] {
            assert!(otherwise_said(&print(right)).is_empty(), "{right}");
        }
    }

    #[test]
    fn what_another_test_starts_is_not_ignored_and_what_only_a_person_runs_is() {
        let file = |reason: &str| File {
            path: "a.rs".into(),
            text: format!("#[test]\n#[ignore = \"{reason}\"]\nfn a() {{}}\n"),
        };
        for started in [
            "the tests above start it, in there",
            "is started by the test above",
            "runs on a host, which a test in main.rs starts",
        ] {
            assert!(ignored(&[file(started)]).is_empty(), "{started}");
        }
        let measures = ignored(&[file("it measures")]);
        assert_eq!(measures, ["skipped, because it measures (a.rs:2)"]);
    }
}
