//! Documentation that stays true: links lead somewhere, every decision is in the reading order,
//! and every test that a document names exists.

use std::collections::BTreeSet;

use crate::report::Report;
use crate::tree::File;

/// The page that lists all others.
const READING_ORDER: &str = "docs/README.md";
/// The page that lists the measurements.
const MEASUREMENTS: &str = "docs/measurements/README.md";
/// The pages whose tables name the tests that hold what they promise.
const WITH_TESTS: [&str; 2] = ["docs/ARCHITECTURE.md", "docs/SEMANTICS.md"];

/// Judges every Markdown file of the repository.
pub fn check(files: &[File], report: &mut Report) {
    let pages: Vec<&File> = files.iter().filter(|file| file.is(".md")).collect();
    for page in &pages {
        for (number, target) in links(&page.text) {
            if let Err(what) = resolve(files, page, &target) {
                report.error(format!("{}:{number}: link {target:?}: {what}", page.path));
            }
        }
        named_files_exist(files, page, report);
    }
    every_page_is_in_the_reading_order(&pages, report);
    for page in &pages {
        if WITH_TESTS.contains(&page.path.as_str()) {
            named_tests_exist(files, page, report);
        }
    }
}

/// Line numbers and targets of `[text](target)`, fenced code left out.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for (at, _) in line.match_indices("](") {
            let rest = &line[at + 2..];
            if let Some(end) = rest.find(')') {
                found.push((number + 1, rest[..end].trim().to_owned()));
            }
        }
    }
    found
}

/// Whether a link inside the repository leads to a file, and to a heading in it.
fn resolve(files: &[File], page: &File, target: &str) -> Result<(), String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return Ok(());
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() {
        page.path.clone()
    } else {
        join(&page.path, path)
    };
    let folder = format!("{path}/");
    let Some(file) = files.iter().find(|file| file.path == path) else {
        let is_folder = files.iter().any(|file| file.path.starts_with(&folder));
        return if is_folder {
            Ok(())
        } else {
            Err(format!("there is no {path}"))
        };
    };
    if anchor.is_empty() || headings(&file.text).contains(anchor) {
        Ok(())
    } else {
        Err(format!("{path} has no heading #{anchor}"))
    }
}

/// `docs/a.md` and `../x/b.md` make `x/b.md`.
fn join(page: &str, relative: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in relative.trim_end_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// Anchors of all headings, made the way code forges make them.
fn headings(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            line.trim_start_matches('#')
                .trim()
                .to_lowercase()
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

fn every_page_is_in_the_reading_order(pages: &[&File], report: &mut Report) {
    if !pages.iter().any(|page| page.path == READING_ORDER) {
        report.error(format!("{READING_ORDER} is missing"));
        return;
    }
    let indexes = pages
        .iter()
        .filter(|page| [READING_ORDER, MEASUREMENTS].contains(&page.path.as_str()));
    let listed: BTreeSet<String> = indexes
        .flat_map(|index| {
            links(&index.text)
                .into_iter()
                .map(|(_, target)| join(&index.path, &target))
        })
        .collect();
    for page in pages.iter().filter(|page| page.path.starts_with("docs/")) {
        if page.path != READING_ORDER && !listed.contains(&page.path) {
            let index = if page.path.starts_with("docs/measurements/") {
                MEASUREMENTS
            } else {
                READING_ORDER
            };
            report.error(format!("{} is not listed in {index}", page.path));
        }
    }
}

/// `crates/wire/src/frame.rs` in a page must be a file or a folder. Patterns are left alone.
fn named_files_exist(files: &[File], page: &File, report: &mut Report) {
    for (number, line) in page.text.lines().enumerate() {
        for name in line
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|name| is_own_path(name))
        {
            let name = name.trim_end_matches('/');
            let folder = format!("{name}/");
            let exists = |file: &File| file.path == name || file.path.starts_with(&folder);
            if !files.iter().any(exists) {
                report.error(format!("{}:{}: there is no {name}", page.path, number + 1));
            }
        }
    }
}

fn is_own_path(name: &str) -> bool {
    const FOLDERS: [&str; 6] = [
        "bin/",
        "crates/",
        "docs/",
        "packaging/",
        "scripts/",
        "xtask/",
    ];
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    FOLDERS.iter().any(|folder| name.starts_with(folder))
        && name.chars().all(is_plain)
        && !name.contains("NNNN")
}

/// In a table row, a name like `session::chunks_arrive_in_order` is a test: its last part must be
/// a function in some Rust file.
fn named_tests_exist(files: &[File], page: &File, report: &mut Report) {
    for (number, line) in page
        .text
        .lines()
        .enumerate()
        .filter(|(_, line)| line.starts_with('|'))
    {
        for name in line
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|name| is_test_path(name))
        {
            let function = name.rsplit("::").next().unwrap_or(name);
            let definition = format!("fn {function}(");
            if !files
                .iter()
                .any(|file| file.is(".rs") && file.text.contains(&definition))
            {
                report.error(format!(
                    "{}:{}: no test is called {function}: name the one that holds it now",
                    page.path,
                    number + 1
                ));
            }
        }
    }
}

fn is_test_path(name: &str) -> bool {
    name.contains("::")
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.into(),
            text: text.into(),
        }
    }

    fn errors_in(files: &[File]) -> Vec<String> {
        let mut report = Report::default();
        check(files, &mut report);
        report.errors().to_vec()
    }

    #[test]
    fn a_link_to_a_missing_file_or_heading_is_an_error() {
        let page = file(
            "docs/README.md",
            "[a](b.md) [c](../README.md#what-it-is) [d](#nope)",
        );
        let readme = file("README.md", "# What it is?\n");
        let errors = errors_in(&[page, readme]);
        assert_eq!(errors.len(), 2, "{errors:?}");
        assert!(errors[0].contains("there is no docs/b.md"), "{errors:?}");
        assert!(errors[1].contains("#nope"), "{errors:?}");
    }

    #[test]
    fn a_decision_that_the_reading_order_leaves_out_is_an_error() {
        let index = file("docs/README.md", "# Reading order");
        let decision = file("docs/decisions/0001-x.md", "# X");
        assert_eq!(errors_in(&[index, decision]).len(), 1);
    }

    #[test]
    fn a_file_that_a_page_names_must_exist() {
        let index = file(
            "docs/README.md",
            "`crates/wire/src/lib.rs`, `crates/*`, `crates/gone.rs`",
        );
        let source = file("crates/wire/src/lib.rs", "");
        let errors = errors_in(&[index, source]);
        assert_eq!(errors.len(), 1, "{errors:?}");
    }

    #[test]
    fn a_test_named_in_the_architecture_must_exist() {
        let index = file("docs/README.md", "[x](ARCHITECTURE.md)");
        let page = file(
            "docs/ARCHITECTURE.md",
            "| 1 | `wire::it_holds` |\n| 2 | `wire::gone` |",
        );
        let source = file("crates/wire/src/lib.rs", "fn it_holds() {}");
        let errors = errors_in(&[index, page, source]);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains("gone"), "{errors:?}");
    }
}
